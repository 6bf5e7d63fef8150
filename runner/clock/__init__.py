"""Time on thin links: what the rounds of a simulation would take."""

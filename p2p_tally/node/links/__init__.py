"""Links to the neighbours: in memory or over WebSockets, which are needed when, what goes out."""

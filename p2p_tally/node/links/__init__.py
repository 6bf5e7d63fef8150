"""Links to the neighbours: in memory or over WebSockets, when each is needed, and how messages are sent."""

"""A daemon's membership: its home, the members' list while it runs, who is let in."""

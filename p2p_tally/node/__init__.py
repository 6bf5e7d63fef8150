"""One node: the round, and what it needs to play it with others."""

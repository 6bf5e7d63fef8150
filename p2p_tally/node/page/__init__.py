"""What a node puts on the live page: its rounds, its links, the votes it has heard, and what others would send."""

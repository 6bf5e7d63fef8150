"""Methods that exchange parameters in a way of their own: a file each. What they share is in exchange.py."""

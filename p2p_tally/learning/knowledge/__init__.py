"""Published methods whose peers exchange knowledge rather than parameters: a file each, and a row of `methods.py`."""

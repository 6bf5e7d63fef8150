"""Averages of parameters over links: among all, around a ring, with the neighbours."""

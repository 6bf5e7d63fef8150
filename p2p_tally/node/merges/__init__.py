"""Merges, which average parameters: over all peers, around a ring, or with the neighbours."""

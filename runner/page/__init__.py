"""One live page for many nodes: gathered from their admin addresses, or from a simulation in this process."""

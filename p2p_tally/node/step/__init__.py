"""Staying in step with the others: who is there, who is awaited, what comes in, what this node tells others."""

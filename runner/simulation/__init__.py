"""A federation in one process: the choice of engine, the exact engine, checkpoints."""

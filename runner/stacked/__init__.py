"""The stacked engine: all peers as one batched model."""

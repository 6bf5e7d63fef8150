"""Experiments: files of cells, sweeps that run them, and formulas for the bytes that they send."""

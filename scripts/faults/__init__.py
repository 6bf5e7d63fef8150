"""Faults of networks, processes and disks, in schedules that follow from a seed, and what must hold after them."""

"""Many nodes: simulations, launches, sweeps of experiments, and reports of what they gave."""

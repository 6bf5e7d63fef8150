"""The processes of launches and sweeps on a Ray cluster."""

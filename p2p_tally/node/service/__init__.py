"""The service around a node: the daemon, its process, admin address, metrics, log, checkpoints."""

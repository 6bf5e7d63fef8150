"""What a person at a terminal sees: progress, tables, the status of running nodes."""

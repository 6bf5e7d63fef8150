"""A federation as daemons: start one process for each node, record their rounds, end them."""

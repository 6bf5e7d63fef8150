"""The one exception of this package."""


class TopologyError(ValueError):
    """A graph that cannot be built as asked: one line that says what is wrong and what is accepted."""

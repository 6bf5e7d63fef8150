"""Models that one can take away: the file of a trained model, and its use without the federation that made it."""

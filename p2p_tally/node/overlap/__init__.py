"""--overlap: votes and merges that are under way while a node computes its next round."""

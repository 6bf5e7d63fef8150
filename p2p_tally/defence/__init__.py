"""Rules that bear members that lie: pure functions of vectors and of what members say. No network, no clock."""

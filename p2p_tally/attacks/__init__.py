"""Peers that lie, for experiments: what they answer, contribute and send in place of the truth. `--attack` names it."""

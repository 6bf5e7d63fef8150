"""What makes a vote worth more: what a peer does about the skew of its own data, and what it makes of others' votes.

Four options, each on its own: --balance (the local loss), --calibrate and --abstain (the ballot), and
--tally-weights reliability (the tally). Each uses only what a peer knows itself.
"""

"""What peers send each other and when: messages, frames, ballots, deadlines. No network and no clock."""

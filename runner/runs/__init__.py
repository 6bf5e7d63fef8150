"""What a run leaves behind: its rounds, its summary, its folder, and how it was made."""

"""What reads bytes of others, and inputs that are almost right for it."""

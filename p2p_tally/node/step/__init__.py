"""Staying in step: who is there, who is waited for, what comes in, what others are told."""

"""Runs a user's script as Python does, and follows its training."""

"""Monitors of trainings in PyTorch, by themselves and as callbacks of Lightning and transformers."""

"""Optimisers, batches of examples, adapters, checkpoints; nothing that only one framework has."""

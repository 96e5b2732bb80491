"""Checks of generated gradients against finite differences, with stopped values held."""

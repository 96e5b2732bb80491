"""PyTorch programs here."""

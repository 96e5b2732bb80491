"""What the scale benchmark is made of."""

"""What a watch writes down while PyTorch runs: which value each tensor is, and what passes between them."""

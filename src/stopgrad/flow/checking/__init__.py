"""Whether generated gradients are right, against finite differences with stopped values held."""

"""How large the gradients are that arrive, and where they vanish, explode or stop being numbers."""

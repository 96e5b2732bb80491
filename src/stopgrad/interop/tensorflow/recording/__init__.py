"""Records live TensorFlow code: operations, tapes, functions, and what gradients were asked for."""

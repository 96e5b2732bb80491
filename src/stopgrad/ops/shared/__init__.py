"""What families of operations share: base definitions and rules of inference; no operation of its own."""

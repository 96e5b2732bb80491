"""Sessions and functions, and all between them and the engines; no mathematics of its own."""

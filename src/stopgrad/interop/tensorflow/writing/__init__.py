"""Writes our operations as nodes of TensorFlow's graphs."""

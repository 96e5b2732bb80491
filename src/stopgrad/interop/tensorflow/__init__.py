"""TensorFlow's graphs as graphs of ours."""

"""Follows trainings in TensorFlow and Keras: what was asked of tapes, and what optimizers did."""

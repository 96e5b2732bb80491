"""Kernels of our own for the CPU, in C++, called by XLA."""

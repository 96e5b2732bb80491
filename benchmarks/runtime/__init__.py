"""The parts of ``benchmarks/runtime.py``: the problems, and a module for each library that solves them."""

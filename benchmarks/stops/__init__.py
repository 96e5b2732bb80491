"""The parts of ``benchmarks/peers_stop.py``: the questions, and a module for each library that answers."""

"""What ``tests/mutants.py`` is made of: faults, what each test reaches, and runs with a fault planted."""

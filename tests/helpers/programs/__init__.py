"""Random programs as data, written in several libraries, and a model of where their gradients arrive."""

"""The uses of stopped gradients that people look up, each as functions to copy and an experiment to run."""

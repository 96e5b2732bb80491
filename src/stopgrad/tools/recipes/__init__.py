"""Well-known uses of stopped gradients, each as functions to copy and an experiment to run."""

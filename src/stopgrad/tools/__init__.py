"""What is run rather than imported: the command, the pytest plugin, the tour and its recipes."""

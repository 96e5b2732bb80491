"""Programs to run rather than import: the command, the pytest plugin, the tour and its recipes."""

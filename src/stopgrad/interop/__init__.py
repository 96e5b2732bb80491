"""Other people's code in and out; each framework is imported by the folder of its name alone."""

"""Programs of other frameworks in and out. Only the folder of a framework's name imports that framework."""

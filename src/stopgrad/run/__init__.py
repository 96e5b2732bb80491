"""Sessions, compiled functions, and all between them and the engines. No mathematics lives here."""

"""Forms: rewrites of a prepared graph that change how, not what, is computed."""

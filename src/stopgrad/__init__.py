"""stopgrad: graphs of typed operations whose gradients you can cut, see, check, run and ship."""

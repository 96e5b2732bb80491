"""What knows nothing of graphs: dtypes, sizes, types, structures, source lines, errors."""

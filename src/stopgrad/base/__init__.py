"""Everything that does not depend on graphs: dtypes, sizes, types, structures, source lines, errors."""

"""Many elements to one: sums, extremes, running results, segments, recurrences."""

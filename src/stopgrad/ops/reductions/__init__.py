"""Reductions: sums, extremes, running results, segments, recurrences."""

"""The HTML page of a report, and what a notebook shows of it."""

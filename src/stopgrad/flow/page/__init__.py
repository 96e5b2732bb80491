"""The HTML page of a report, and its form in notebooks."""

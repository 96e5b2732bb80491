"""Translations that the importers of several frameworks share."""

"""What the importers of other frameworks' programs share."""

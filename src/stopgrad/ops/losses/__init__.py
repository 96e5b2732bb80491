"""Losses: of classification, of regression, of order."""

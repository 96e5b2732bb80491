"""Losses for classification, regression and ranking."""

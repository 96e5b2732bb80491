"""What graphs have besides mathematics: placeholders, parameters, groups, shardings, foreign code."""

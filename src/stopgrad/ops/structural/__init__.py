"""Operations that are not mathematics: placeholders, parameters, groups, shardings, foreign code."""

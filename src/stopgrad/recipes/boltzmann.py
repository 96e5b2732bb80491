"""boltzmann"""

from stopgrad.recipes.result import Progress, Result, silent


def run(seed: int = 0, engine: str = "auto", progress: Progress = silent) -> Result:
    return Result("boltzmann", "boltzmann", "")

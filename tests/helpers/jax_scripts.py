"""Scripts with JAX that are followed in this process: what was found, and the lines that they mark."""

from __future__ import annotations

import random
import re
import textwrap
from pathlib import Path
from typing import Any

import numpy as np

from stopgrad.interop.jax.training.session import Session

START = """
import jax, jax.numpy as jnp, optax
p = {"a": jnp.full((3, 4), 0.1), "b": jnp.ones(4)}
x = jnp.ones((5, 3))
tx = optax.sgd(0.1)
s = tx.init(p)
"""


class Run:
    """A script that was followed: its findings, its error, its variables."""

    def __init__(self, path: Path, followed: bool = True) -> None:
        self.source = path.read_text()
        self.error: BaseException | None = None
        self.variables: dict[str, Any] = {"__name__": "__main__"}
        self.problems: list[Any] = []
        random.seed(0)
        np.random.seed(0)
        code = compile(self.source, str(path), "exec")
        self.session = Session() if followed else None
        try:
            exec(code, self.variables)
        except Exception as error:
            self.error = error
        self.random = random.random(), np.random.random()
        if self.session is not None:
            self.session.close()
            self.problems = self.session.problems(self.error)

    @property
    def kinds(self) -> list[str]:
        return [one.kind for one in self.problems]

    def marked(self) -> dict[str, int]:
        """The lines that the script marks, by their part."""
        lines = enumerate(self.source.splitlines(), 1)
        return {role: n for n, line in lines for role in re.findall(r"<(\w+)>", line.partition("#")[2])}

    def check_places(self) -> None:
        """Every line that is marked is one of the finding's, in that part."""
        (problem,) = self.problems
        told = {(site.role, site.location.line) for site in problem.sites}
        assert set(self.marked().items()) <= told


def script(folder: Path, text: str, followed: bool = True, start: str = START) -> Run:
    path = folder / ("followed.py" if followed else "plain.py")
    path.write_text(start + textwrap.dedent(text))
    return Run(path, followed)

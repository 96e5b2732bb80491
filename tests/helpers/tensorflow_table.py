"""Writes the table of operations into the page: ``python -m tests.helpers.tensorflow_table``."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path

from stopgrad.interop.tensorflow import operators
from stopgrad.interop.tensorflow.operators import OPERATORS
from stopgrad.interop.tensorflow.translating import KNOWN_OPERATIONS

PAGE = Path(__file__).parents[2] / "docs" / "tensorflow.md"
_PLACE = re.compile(r"(?<=<!-- operations -->\n).*?(?=<!-- end -->)", re.DOTALL)


def families() -> dict[str, list[str]]:
    """The operations that have a rule, by the modules of the rules."""
    found: dict[str, list[str]] = {}
    for one in pkgutil.iter_modules(operators.__path__):
        module = importlib.import_module(f"{operators.__name__}.{one.name}")
        table = getattr(module, one.name.upper(), None)
        if isinstance(table, dict):
            found[one.name] = sorted(name for name in table if name in OPERATORS)
    found["structural"] = sorted({*found["structural"], *(KNOWN_OPERATIONS - set(OPERATORS))})
    return found


def table() -> str:
    """The table as Markdown."""
    count = len(set().union(*families().values()))
    rows = [f"| {name} | {', '.join(f'`{op}`' for op in ops)} |" for name, ops in families().items()]
    return "\n".join(
        [
            f"{count} operations have a rule, in these families.",
            "",
            "| family | operations |",
            "| --- | --- |",
            *rows,
            "",
        ]
    )


def written(page: str) -> str:
    """The page with the table as it is now."""
    return _PLACE.sub(lambda _: table(), page)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))

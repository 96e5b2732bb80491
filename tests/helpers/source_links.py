"""Links from the pages to lines of source, which move: where they are now.

    python tests/helpers/source_links.py           # writes the numbers of lines into the pages anew

A link's text is the name of a class or function, its address ends in lines (``reverse.py#L35-L50``): the
first ones of the definition, or, with a title, those from the line on that has the title in it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from pages import pages

LINK = re.compile(r'\[`([\w.]+)`\]\(([^)\s#]+\.py)#L(\d+)-L(\d+)(?: "([^"\n]+)")?\)')


class Definition(NamedTuple):
    """Where a class or function is, with its decorators: the first line is 1."""

    name: str
    first: int
    last: int


class StaleLinkError(LookupError):
    """What a link says is not in the source."""


@cache
def definitions(file: Path) -> list[Definition]:
    """All classes and functions of a file, also those within others, by names as ``Class.method``."""

    def within(node: ast.AST, prefix: str) -> Iterator[Definition]:
        for child in ast.iter_child_nodes(node):
            name = prefix
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                name = f"{prefix}.{child.name}".lstrip(".")
                begin = min([child.lineno, *(one.lineno for one in child.decorator_list)])
                yield Definition(name, begin, child.end_lineno or child.lineno)
            yield from within(child, name)

    return list(within(ast.parse(file.read_text()), ""))


def defined(file: Path, name: str) -> Definition:
    """The one definition of a name, which may be the end of a longer one."""
    whole = [one for one in definitions(file) if one.name == name]
    some = whole or [one for one in definitions(file) if one.name.endswith(f".{name}")]
    if len(some) != 1:
        raise StaleLinkError(f"{file.name} has {len(some)} definitions of {name}")
    return some[0]


def lines(file: Path, name: str, count: int, title: str | None) -> tuple[int, int]:
    """The first and last of so many lines of a definition, fewer where it ends before."""
    definition = defined(file, name)
    first = definition.first
    if title:
        source = file.read_text().splitlines()
        having = [n for n in range(first, definition.last + 1) if title in source[n - 1]]
        if not having:
            raise StaleLinkError(f"{name} in {file.name} has no line with {title!r}")
        first = having[0]
    return first, min(first + count - 1, definition.last)


def renewed(text: str, folder: Path) -> str:
    """The text of a page in a folder, with the lines as they are now."""

    def link(match: re.Match[str]) -> str:
        name, path, begin, end, title = match.groups()
        first, last = lines(folder / path, name, int(end) - int(begin) + 1, title)
        return f"[`{name}`]({path}#L{first}-L{last}" + (f' "{title}")' if title else ")")

    return LINK.sub(link, text)


if __name__ == "__main__":
    for page in pages():
        text = page.read_text()
        if (new := renewed(text, page.parent)) != text:
            page.write_text(new)
            print(page)

"""Links that lead out of docs: GitHub follows them through the repository, the site has no repository.

The pages of the repository's root are pages of the site, too: what stands in docs for them is replaced by
their text. Another file is downloaded, and below a link to some of its lines these are shown; of a folder
only the name is shown.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from sphinx.application import Sphinx

DOCS = Path(__file__).parents[1]
ROOT = DOCS.parent
ROOT_PAGES = {name.lower(): ROOT / f"{name}.md" for name in ("CHANGELOG", "CONTRIBUTING", "SECURITY")}
LINK = re.compile(r"\[((?:[^\[\]`]|`[^`\n]*`)+)\]\(([^)\s#:]+)(#[^)\s]*)?\)")
LINES = re.compile(r"^( *)(\[`[\w.]+`\])\(([^)\s#]+\.py)#L(\d+)-L(\d+)(?: \"[^\"\n]+\")?\)$", re.MULTILINE)
CODE = re.compile(r"(^ *```.*?^ *```$|`[^`\n]+`(?!\]))", re.MULTILINE | re.DOTALL)
HERE = {path: f"{name}.md" for name, path in ROOT_PAGES.items()} | {ROOT / "README.md": "index.md"}


def followed(text: str, folder: Path, page: Path) -> str:
    """A page's text, whose links were relative to *folder*, with links as the site has them."""

    def link(found: re.Match[str]) -> str:
        words, path, anchor = found[1], found[2], found[3] or ""
        target = Path(os.path.normpath(folder / path))
        if target in HERE:
            target = DOCS / HERE[target]
        if target.is_relative_to(DOCS):
            return f"[{words}]({os.path.relpath(target, page.parent)}{anchor})"
        return words if target.is_dir() else f"[{words}](path:{os.path.relpath(target, page.parent)})"

    def shown(found: re.Match[str]) -> str:
        indent, words, path, first, last = found.groups()
        options = f":lines: {first}-{last}", ":lineno-match:", ":dedent:"
        code = [f"```{{literalinclude}} {path}", ":language: python", *options, "```"]
        return "\n".join([f"{indent}{words}({path})", "", *(indent + line for line in code)])

    parts = CODE.split(LINES.sub(shown, text))
    parts[::2] = [LINK.sub(link, part) for part in parts[::2]]
    return "".join(parts)


def read(app: Sphinx, docname: str, source: list[str]) -> None:
    page = Path(app.env.doc2path(docname))
    if page.suffix != ".md":
        return
    if docname in ROOT_PAGES:
        app.env.note_dependency(ROOT_PAGES[docname])
        source[0] = followed(ROOT_PAGES[docname].read_text(), ROOT, page)
    else:
        source[0] = followed(source[0], page.parent, page)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

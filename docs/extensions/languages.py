"""The pages in Hindi, and the switch between the languages.

``sphinx -t translated`` builds the translated pages alone, into a folder of the site; their links to other
pages lead to the English ones. Translations are in docs/locales, as gettext has them.
"""

from __future__ import annotations

import os
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

TRANSLATED = ["index", "tutorials/cut", "api/gates/stopgrad.stop_gradient"]
SWITCH = {"en": ("hi", "हिन्दी"), "hi": ("en", "English")}
"""For each language the other one, and how it is called there."""
FOLDER = "hi"
HEADINGS = {"tutorials/index": "ट्यूटोरियल", "how-to/index": "कैसे करें", "reference": "संदर्भ"}
"""The English pages to which the head of a Hindi page leads."""


def english(page: str, target: str) -> str:
    """The way from a translated page to an English one."""
    return os.path.relpath(f"{target}.html", os.path.dirname(f"{FOLDER}/{page}"))


class LinksToEnglishPages(SphinxPostTransform):
    """Links to pages that are not translated."""

    default_priority = 4

    def run(self, **_: Any) -> None:
        if self.config.include_patterns == ["**"]:  # All pages are there.
            return
        for node in list(self.document.findall(addnodes.pending_xref)):
            target = node.get("reftarget", "")
            if node.get("refdomain") == "doc" and target not in TRANSLATED:
                place = f"#{node['reftargetid']}" if node.get("reftargetid") else ""
                way = english(self.env.current_document.docname, target)
                link = nodes.reference("", "", refuri=way + place)
                link += node.children
                node.replace_self(link)


def switch(app: Sphinx, page: str, _template: str, context: dict[str, Any], _tree: Any) -> None:
    """Where the switch of a page leads: to the same page, or to the first."""
    other, name = SWITCH[app.config.language]
    if other == "en":
        path = english(page, page if page in TRANSLATED else "index")
        context["theme_external_links"] = [
            {"name": title, "url": english(page, one)} for one, title in HEADINGS.items()
        ]
    else:
        there = f"{FOLDER}/{page if page in TRANSLATED else 'index'}.html"
        path = os.path.relpath(there, os.path.dirname(page))
    context["other_language"] = {"code": other, "name": name, "path": path}


def only_translated(app: Sphinx, config: Any) -> None:
    """With the tag ``translated``, the translated pages alone."""
    if "translated" in app.tags:
        config.include_patterns = [f"{page}.*" for page in TRANSLATED]
        config.suppress_warnings = [
            *config.suppress_warnings,
            "toc.excluded",
            "toc.not_readable",
            "toc.not_included",
        ]


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("config-inited", only_translated, priority=1)
    app.connect("html-page-context", switch)
    app.add_post_transform(LinksToEnglishPages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

"""The gallery of mistakes: its programs, and the page that is written from them.

``python tests/mistakes.py`` writes docs/mistakes.md anew.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from contextlib import chdir
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import stopgrad as sg

ROOT = Path(__file__).parents[1]
PROGRAMS = ROOT / "examples" / "mistakes"
PAGE = ROOT / "docs" / "mistakes.md"
MARK = "  # <- here"

SYMPTOMS = {
    "none": "The gradient is None or zero",
    "inert": "It trains, but does not learn all that it should",
    "leak": "The target learns too, or something else that was to be held",
    "large": "The gradient is too large, or has the wrong sign or value",
    "nan": "NaN or infinity",
    "idle": "All is well, and a stop does nothing, or one would save work",
}


@dataclass(frozen=True)
class Mistake:
    """A program of the gallery."""

    name: str

    @property
    def path(self) -> Path:
        return PROGRAMS / f"{self.name}.py"

    @cached_property
    def text(self) -> str:
        return self.path.read_text()

    @cached_property
    def module(self) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"mistakes_{self.name}", self.path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    @cached_property
    def lines(self) -> tuple[int, ...]:
        """The guilty lines, which are marked."""
        return tuple([n for n, line in enumerate(self.text.splitlines(), 1) if line.endswith(MARK)])

    @property
    def symptom(self) -> str:
        return self._said("Symptom")

    @property
    def title(self) -> str:
        return self.module.__doc__.split("\n")[0].removesuffix(".")  # type: ignore[union-attr]

    @property
    def seen(self) -> str:
        """Where it was made."""
        return self._said("Seen in").replace("\n", " ")

    @property
    def story(self) -> str:
        """What the docstring says after that."""
        return str(self.module.__doc__).split("\n\n", 2)[2].strip()

    def _said(self, what: str) -> str:
        found = re.search(rf"^{what}: (.*?)(?=\nSeen in: |\n\n)", str(self.module.__doc__), re.M | re.S)
        assert found is not None, f"{self.name} says nothing of {what}"
        return found[1].strip()

    def function(self, name: str) -> FunctionType:
        found: FunctionType = getattr(self.module, name)
        return found

    @property
    def learns(self) -> tuple[str, ...]:
        """What is to get a gradient, from every use."""
        return getattr(self.module, "LEARNS", ())

    @property
    def held(self) -> tuple[str, ...]:
        """What is to get none."""
        return getattr(self.module, "HELD", ())

    @property
    def leaks(self) -> bool:
        """Whether the mistake is that a gradient arrives."""
        return bool(self.held) and self.symptom in ("leak", "large") and not hasattr(self.module, "ask")

    @property
    def asked(self) -> str:
        """How it is asked, as the page shows it."""
        if hasattr(self.module, "ask"):
            return self._source("ask").split("return ")[-1].strip().replace("program", "broken")
        if self.leaks:
            return f"sg.assert_blocked(broken, *example(), to={list(self.held)})".replace("'", '"')
        return "sg.explain(broken, *example())"

    def report(self, name: str) -> Any:
        """What the tool says of ``broken`` or ``cured``."""
        program = self.function(name)
        ask = getattr(self.module, "ask", None)
        return sg.explain(program, *self.module.example()) if ask is None else ask(program)

    def complaint(self, name: str) -> str:
        """What ``assert_blocked`` says of what was to be held; empty where that holds."""
        try:
            sg.assert_blocked(self.function(name), *self.module.example(), to=list(self.held))
        except sg.FlowError as error:
            return re.sub(r"\n  at .*", "", str(error))
        return ""

    def flow(self, name: str) -> sg.Flow:
        """What ``explain`` says, whatever the program itself is asked."""
        found = self.report(name)
        return (
            found if isinstance(found, sg.Flow) else sg.explain(self.function(name), *self.module.example())
        )

    def _source(self, name: str) -> str:
        """A function or what is decorated."""
        (found,) = [
            node
            for node in ast.parse(self.text).body
            if isinstance(node, ast.FunctionDef) and node.name == name
        ]
        return "\n".join(self.text.splitlines()[found.lineno - 1 : found.end_lineno])


@cache
def mistakes() -> tuple[Mistake, ...]:
    """All programs, in the order of their symptoms."""
    found = [Mistake(path.stem) for path in sorted(PROGRAMS.glob("*.py"))]
    order = list(SYMPTOMS)
    return tuple(sorted(found, key=lambda mistake: order.index(mistake.symptom)))


# ------------------------------------------------------------------------------------------------ the page

HEAD = """# Mistakes, and what the reports say of them

{count} small programs, each with a mistake that people have made, what is reported of it, and the cure. They
are the files of [examples/mistakes](../examples/mistakes); `tests/test_mistakes.py` runs each and checks that
the line marked `# <- here` is the one that is named, that nothing is said against the cured program, and that
its gradients are those of JAX or of differences. The page is written from them by `python tests/mistakes.py`,
with times left out and figures rounded.
"""


def page() -> str:
    """The text of the page."""
    parts = [HEAD.format(count=len(mistakes()))]
    for symptom, meaning in SYMPTOMS.items():
        parts.append(f"- **{meaning}**")
        parts += [f"  - [{m.title}](#{_anchor(m.title)})" for m in mistakes() if m.symptom == symptom]
    for symptom, meaning in SYMPTOMS.items():
        parts.append(f"\n## {meaning}")
        parts += [_section(m) for m in mistakes() if m.symptom == symptom]
    return "\n".join(parts) + "\n"


def _anchor(title: str) -> str:
    """The link that GitHub makes for a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _section(mistake: Mistake) -> str:
    return "\n".join(
        [
            f"\n### {mistake.title}\n",
            f"Seen in: {_linked(mistake.seen)}\n",
            f"{mistake.story}\n",
            *_meant(mistake),
            f"```python\n{_code(mistake, 'broken')}\n```\n",
            f"`{mistake.asked}` says\n",
            f"```text\n{shown(mistake, 'broken')}\n```\n",
            f"Cured:\n\n```python\n{_code(mistake, 'cured')}\n```\n",
            f"```text\n{shown(mistake, 'cured')}\n```",
        ]
    )


def _linked(text: str) -> str:
    """Issues of repositories, ``owner/name #1, #2 and PR #3``, as links."""
    last = ""

    def link(found: re.Match[str]) -> str:
        nonlocal last
        last = found["name"] or last
        shown = " ".join(filter(None, [found["name"], found["issue"]]))
        return f"[{shown}](https://github.com/{last}/issues/{found['number']})"

    return re.sub(r"(?:(?P<name>[\w.-]+/[\w.-]+) )?(?P<issue>(?:PR )?#(?P<number>\d+))", link, text)


def _meant(mistake: Mistake) -> list[str]:
    """What is to learn, and what is not."""
    learns, held = [", ".join([f"`{key}`" for key in keys]) for keys in (mistake.learns, mistake.held)]
    said = [f"{learns} to learn" if learns else "", f"{held} to be held" if held else ""]
    return [f"Meant: {'; '.join(filter(None, said))}.\n"] if learns or held else []


def _code(mistake: Mistake, name: str) -> str:
    return mistake._source(name)


def shown(mistake: Mistake, name: str) -> str:
    """A report as the page shows it: the same in every folder and on every machine."""
    with chdir(PROGRAMS):  # Files are shown from where one is.
        text = mistake.complaint(name) if mistake.leaks else ""
        text = (text or mistake.report(name).to_text()).rstrip()
    text = re.sub(r"^    time: .*\n?|, error \S+(?=, central)|^ *\(step .*\n", "", text, flags=re.M)
    text = re.sub(r"\d+\.\d{6,}", lambda number: f"{float(number[0]):.4f}", text)
    return text.rstrip()


if __name__ == "__main__":
    PAGE.write_text(page())
    sys.stdout.write(f"{PAGE}: {len(mistakes())} mistakes\n")

"""Galleries of mistakes: programs, how they are asked about, and the page that is written from them.

``python tests/helpers/mistakes.py`` writes docs/mistakes.md anew. The galleries of PyTorch and JAX have
modules of their own, which import these frameworks.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
import textwrap
from collections.abc import Callable, Sequence
from contextlib import chdir
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from stopgrad.errors import StopgradError

import stopgrad as sg

ROOT = Path(__file__).parents[2]
MARK = "  # <- here"
Definition = ast.FunctionDef | ast.ClassDef

SYMPTOMS = {
    "none": "The gradient is None or zero",
    "inert": "It trains, but does not learn all that it should",
    "leak": "The target learns too, or something else that was to be held",
    "large": "The gradient is too large, or has the wrong sign or value",
    "nan": "NaN or infinity",
    "error": "It raises",
    "idle": "All is well, and a stop does nothing, or one would save work",
}


@dataclass(frozen=True)
class Gallery:
    """Programs of one kind, and the page about them.

    Attributes:
        name: of its folder in examples, and of its page in docs (with hyphens).
        head: what the page begins with; ``{count}`` and ``{files}`` are filled in.
        explain: what says of a program and its arguments how gradients flow.
        block: what raises FlowError if gradients of a program with its arguments arrive at any of these keys.
        explained, blocked: how these two are written, of a program ``broken``; ``{held}`` is filled in.
        symptoms: which kinds of mistakes there are.
    """

    name: str
    head: str = field(repr=False)
    explain: Callable[[Callable[..., Any], Sequence[Any]], sg.Flow]
    block: Callable[[Callable[..., Any], Sequence[Any], Sequence[str]], None]
    explained: str
    blocked: str
    symptoms: tuple[str, ...]

    @property
    def folder(self) -> Path:
        return ROOT / "examples" / self.name

    @property
    def file(self) -> Path:
        """The page."""
        return ROOT / "docs" / f"{self.name.replace('_', '-')}.md"

    @cached_property
    def mistakes(self) -> tuple[Mistake, ...]:
        """All programs, in the order of their symptoms."""
        found = [Mistake(self, path.stem) for path in sorted(self.folder.glob("[a-z]*.py"))]
        return tuple(sorted(found, key=lambda mistake: self.symptoms.index(mistake.symptom)))

    def page(self) -> str:
        """The text of the page."""
        files = f"[examples/{self.name}](../examples/{self.name})"
        parts = [self.head.format(count=len(self.mistakes), files=files)]
        for symptom in self.symptoms:
            parts.append(f"- **{SYMPTOMS[symptom]}**")
            parts += [f"  - [{m.title}](#{_anchor(m.title)})" for m in self.mistakes if m.symptom == symptom]
        for symptom in self.symptoms:
            parts.append(f"\n## {SYMPTOMS[symptom]}")
            parts += [_section(m) for m in self.mistakes if m.symptom == symptom]
        return "\n".join(parts) + "\n"

    def write(self) -> None:
        """Write the page anew."""
        self.file.write_text(self.page())
        sys.stdout.write(f"{self.file}: {len(self.mistakes)} mistakes\n")


@dataclass(frozen=True)
class Mistake:
    """A program of a gallery."""

    gallery: Gallery = field(repr=False)
    name: str

    @property
    def path(self) -> Path:
        return self.gallery.folder / f"{self.name}.py"

    @cached_property
    def text(self) -> str:
        return self.path.read_text()

    @cached_property
    def module(self) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"{self.gallery.name}_{self.name}", self.path)
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
            return self.gallery.blocked.format(held=list(self.held)).replace("'", '"')
        return self.gallery.explained

    def report(self, name: str) -> Any:
        """What the tool says of ``broken`` or ``cured``."""
        program = self.function(name)
        ask = getattr(self.module, "ask", None)
        return self.gallery.explain(program, self.module.example()) if ask is None else ask(program)

    def complaint(self, name: str) -> str:
        """What ``assert_blocked`` says of what was to be held; empty where that holds."""
        try:
            self.gallery.block(self.function(name), self.module.example(), self.held)
        except sg.FlowError as error:
            return re.sub(r"\n  at .*", "", str(error))
        return ""

    def refusal(self, name: str) -> str:
        """What it raises when it is asked about; empty where it is answered."""
        try:
            self.report(name)
        except StopgradError as error:
            told = re.sub(r"\n  at .*", "", str(error)).replace(str(self.path), self.path.name)
            return textwrap.fill(f"{type(error).__name__}: {told}", 80, break_long_words=False)
        return ""

    def flow(self, name: str) -> sg.Flow:
        """What ``explain`` says, whatever the program itself is asked."""
        found = self.report(name)
        if isinstance(found, sg.Flow):
            return found
        return self.gallery.explain(self.function(name), self.module.example())

    def code(self, name: str) -> str:
        """``broken`` or ``cured``, after the functions and classes of the program that only it uses."""
        other = "cured" if name == "broken" else "broken"
        used, others = self._used(name), self._used(other) if name == "cured" else {}
        return "\n\n\n".join([self._text(node) for node in used.values() if node.name not in others])

    def _source(self, name: str) -> str:
        """The text of a function, decorators included."""
        return self._text(self._definitions[name])

    @cached_property
    def _definitions(self) -> dict[str, Definition]:
        return {node.name: node for node in ast.parse(self.text).body if isinstance(node, Definition)}

    def _used(self, name: str) -> dict[str, Definition]:
        """A function and what it uses, in the order of the file."""
        found, left = set(), [name]
        while left:
            each = left.pop()
            if each in self._definitions and each not in found:
                found.add(each)
                left += [n.id for n in ast.walk(self._definitions[each]) if isinstance(n, ast.Name)]
        return {each: node for each, node in self._definitions.items() if each in found}

    def _text(self, node: Definition) -> str:
        first = min([node.lineno, *[decorator.lineno for decorator in node.decorator_list]])
        return "\n".join(self.text.splitlines()[first - 1 : node.end_lineno])


# ------------------------------------------------------------------------------------------------ the page


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
            f"```python\n{mistake.code('broken')}\n```\n",
            f"`{mistake.asked}` says\n",
            f"```text\n{shown(mistake, 'broken')}\n```\n",
            f"Cured:\n\n```python\n{mistake.code('cured')}\n```\n",
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


def shown(mistake: Mistake, name: str) -> str:
    """A report as the page shows it: the same in every folder and on every machine."""
    with chdir(mistake.gallery.folder):  # Files are shown from where one is.
        text = mistake.complaint(name) if mistake.leaks else ""
        text = text or (mistake.refusal(name) if mistake.symptom == "error" else "")
        text = (text or mistake.report(name).to_text()).rstrip()
    text = re.sub(r"^    time: .*\n?|, error \S+(?=, central)|^ *\(step .*\n", "", text, flags=re.M)
    text = re.sub(r"\d+\.\d{6,}", lambda number: f"{float(number[0]):.4f}", text)
    return text.rstrip()


# ------------------------------------------------------------------------------------------- our own programs

HEAD = """# Mistakes, and what the reports say of them

{count} small programs, each with a mistake that people have made, what is reported of it, and the cure. They
are the files of {files}; `tests/flow/test_mistakes.py` runs each and checks that
the line marked `# <- here` is the one that is named, that nothing is said against the cured program, and that
its gradients are those of JAX or of differences. The page is written from them by
`python tests/helpers/mistakes.py`, with times left out and figures rounded.
"""

OURS = Gallery(
    name="mistakes",
    head=HEAD,
    explain=lambda program, args: sg.explain(program, *args),
    block=lambda program, args, held: sg.assert_blocked(program, *args, to=list(held)),
    explained="sg.explain(broken, *example())",
    blocked="sg.assert_blocked(broken, *example(), to={held})",
    symptoms=("none", "inert", "leak", "large", "nan", "idle"),
)

if __name__ == "__main__":
    OURS.write()

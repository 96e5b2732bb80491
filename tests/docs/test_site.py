"""The site is built without a warning; its links lead somewhere; every public name has its page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zlib
from functools import cache
from html import unescape
from io import BytesIO
from pathlib import Path
from urllib.parse import unquote

import pytest

pytest.importorskip("sphinx")  # Of the extra docs, which plain pytest does not need.

import pydata_sphinx_theme
from babel.messages.catalog import Message
from babel.messages.pofile import read_po
from pages import DOCS
from places import ROOT
from public_names import NAMESPACES, names

from stopgrad.tools.cli import COMMANDS

pytestmark = pytest.mark.slow

LINK = re.compile(r'<(?:a|link|img|script)\b[^>]*?\b(?:href|src)="([^"]*)"')
ID = re.compile(r'\bid="([^"]*)"')
LABELS = Path("sphinx.po")
"""What the theme and Sphinx themselves say."""
NOT_THERE = ("stopgrad.ops.", "stopgrad.errors.")
"""Operations stand on one page and with their functions, errors with the names of ``stopgrad``."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as ``make -C docs html`` builds it, with nothing kept from an earlier build."""
    folder = tmp_path_factory.mktemp("site")
    sphinx("-b", "html", "-D", f"nb_execution_cache_path={folder}-kept", "-d", f"{folder}-trees", ".", folder)
    return folder


@pytest.fixture(scope="module")
def hindi(site: Path) -> Path:
    """Its pages in Hindi; their tutorial has run already."""
    kept = ("-D", f"nb_execution_cache_path={site}-kept", "-d", f"{site}-trees-hi")
    sphinx("-b", "html", "-t", "translated", "-D", "language=hi", *kept, ".", site / "hi")
    return site / "hi"


def sphinx(*options: str | Path) -> None:
    """What the makefile runs. Any warning makes its exit status 1."""
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", *options],
        cwd=DOCS,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "JUPYTER_PLATFORM_DIRS": "1"},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr


@cache
def inventory(site: Path) -> dict[str, str]:
    """The page of each name, from the file that other projects' documentation reads to link to ours."""
    _, _, packed = (site / "objects.inv").read_bytes().partition(b"zlib.\n")
    lines = [line.split(" ") for line in zlib.decompress(packed).decode().splitlines()]
    return {line[0]: line[-2].partition("#")[0] for line in lines if line[1].startswith("py:")}


@pytest.mark.nightly
def test_every_public_name_has_a_page_with_its_signature_and_what_it_does(site: Path) -> None:
    pages = inventory(site)
    wanted = {
        name: record
        for name, listed, record in names()
        if listed and name.startswith("stopgrad.") and not name.startswith(NOT_THERE)
        if record["kind"] in ("class", "function") and name.rpartition(".")[2][:7] != "pytest_"
        if name.rpartition(".")[0] in NAMESPACES
    }
    assert len(wanted) > 700
    assert not set(wanted) - set(pages)
    for name, record in wanted.items():
        text = (site / pages[name]).read_text()
        assert f'id="{name}"' in text, name
        first = re.split(r"[`*|_\\\n:]", record["doc"])[0][:60]
        assert first in unescape(re.sub(r"<[^>]+>", "", text)), name
        if record["kind"] == "function" and name.count(".") == 1:  # A second name leads to the first.
            assert "viewcode-link" in text, name


@cache
def ids(page: Path) -> set[str]:
    return set(ID.findall(page.read_text()))


@pytest.mark.nightly
@pytest.mark.usefixtures("hindi")
def test_every_link_within_the_site_leads_to_a_file_and_a_place_in_it(site: Path) -> None:
    pages = [page for page in site.rglob("*.html") if "_static" not in page.parts]
    assert len(pages) > 600
    broken = set()
    for page in pages:
        for link in {unescape(one) for one in LINK.findall(page.read_text())}:
            path, _, place = unquote(link).partition("#")
            if re.match(r"[a-z]+:", link) or link == "#":
                continue
            target = page.parent / path.partition("?")[0] if path else page
            if not target.exists():
                broken.add(f"{page.relative_to(site)}: {link}: no such file")
            elif place and target.suffix == ".html" and place not in ids(target):
                broken.add(f"{page.relative_to(site)}: {link}: no such place")
    assert not broken


@pytest.mark.nightly
def test_the_page_of_commands_has_every_option(site: Path) -> None:
    text = unescape(re.sub(r"<[^>]+>", "", (site / "api/commands.html").read_text()))
    for command in COMMANDS:
        told = subprocess.run(
            [sys.executable, "-m", "stopgrad", command, "--help"], capture_output=True, text=True, check=True
        ).stdout
        options = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", told)) - {"--help"}
        assert not [option for option in options if option not in text], command


def messages(file: Path) -> list[Message]:
    return [one for one in read_po(BytesIO(file.read_bytes())) if one.id]


def test_every_message_is_translated_and_every_translation_still_has_its_source(tmp_path: Path) -> None:
    sphinx("-b", "gettext", "-t", "translated", "-D", "nb_execution_mode=off", ".", tmp_path)
    translated = DOCS / "locales" / "hi" / "LC_MESSAGES"
    templates = {one.relative_to(tmp_path).with_suffix(".po") for one in tmp_path.rglob("*.pot")}
    assert templates == {one.relative_to(translated) for one in translated.rglob("*.po")} - {LABELS}
    assert len(templates) == 3
    for name in templates:
        source = {one.id for one in messages((tmp_path / name).with_suffix(".pot"))}
        found = {one.id: one for one in messages(translated / name)}
        assert set(found) == source, name
        assert all(one.string and not one.fuzzy for one in found.values()), name


@pytest.mark.nightly
def test_the_labels_of_the_theme_are_translated_and_still_have_their_source(hindi: Path) -> None:
    labels = {one.id: one.string for one in messages(DOCS / "locales/hi/LC_MESSAGES" / LABELS)}
    theme = Path(pydata_sphinx_theme.__file__).parent / "locale"
    (template,) = theme.glob("*.pot")
    assert set(labels) <= {one.id for one in messages(template)}
    page = (hindi / "tutorials/cut.html").read_text()
    for label in ("Skip to main content", "Back to top", "On this page", "Search", "Light", "Dark"):
        assert labels[label] in page
        assert not re.search(rf">\s*{label}\s*<", page), label


@pytest.mark.nightly
def test_a_page_in_two_languages_leads_from_each_to_the_other(site: Path, hindi: Path) -> None:
    for page in ("index", "tutorials/cut", "api/gates/stopgrad.stop_gradient"):
        up = "../" * page.count("/")
        english, other = ((folder / f"{page}.html").read_text() for folder in (site, hindi))
        assert f'hreflang="hi" href="{up}hi/{page}.html"' in english
        assert f'hreflang="en" href="{up}../{page}.html"' in other
        assert '<html lang="hi"' in other
        assert "ग्रेडिएंट" in other
        assert "ग्रेडिएंट" not in english

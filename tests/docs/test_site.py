"""The site is built without a warning; its links lead somewhere; every public name has its page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zlib
from functools import cache
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import pytest
from pages import DOCS
from places import ROOT
from public_names import names

pytestmark = pytest.mark.slow

OPTIONS = ["-W", "--keep-going", "-q", "-b", "html"]
LINK = re.compile(r'<(?:a|link|img|script)\b[^>]*?\b(?:href|src)="([^"]*)"')
ID = re.compile(r'\bid="([^"]*)"')
NOT_THERE = ("stopgrad.ops.", "stopgrad.errors.")
"""Operations stand with their functions, errors with the names of ``stopgrad``."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as ``make -C docs html`` builds it, with nothing kept from an earlier build."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *OPTIONS, "-d", folder / "trees", ".", folder],
        cwd=DOCS,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "JUPYTER_PLATFORM_DIRS": "1"},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr  # Any warning makes it 1.
    return folder


@cache
def ids(page: Path) -> set[str]:
    return set(ID.findall(page.read_text()))


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


@cache
def inventory(site: Path) -> dict[str, str]:
    """The page of each name, from the file that other projects' documentation reads to link to ours."""
    _, _, packed = (site / "objects.inv").read_bytes().partition(b"zlib.\n")
    lines = [line.split(" ") for line in zlib.decompress(packed).decode().splitlines()]
    return {line[0]: line[-2].partition("#")[0] for line in lines if line[1].startswith("py:")}


def test_every_public_name_has_a_page_with_its_signature_and_what_it_does(site: Path) -> None:
    pages = inventory(site)
    wanted = {
        name: record
        for name, listed, record in names()
        if listed and name.startswith("stopgrad.") and not name.startswith(NOT_THERE)
        if record["kind"] in ("class", "function") and name.rpartition(".")[2][:7] != "pytest_"
        if name.count(".") == 1
    }
    assert len(wanted) > 450
    assert not set(wanted) - set(pages)
    for name, record in wanted.items():
        text = (site / pages[name]).read_text()
        assert f'id="{name}"' in text, name
        first = re.split(r"[`*|_\\\n:]", record["doc"])[0][:60]
        assert first in unescape(re.sub(r"<[^>]+>", "", text)), name
        if record["kind"] == "function":
            assert "viewcode-link" in text, name


def test_the_page_of_commands_has_every_option(site: Path) -> None:
    text = unescape(re.sub(r"<[^>]+>", "", (site / "api/commands.html").read_text()))
    for command in ("explain", "check", "trace-nan", "ablate", "train-graph", "launch", "tour", "ops"):
        told = subprocess.run(
            [sys.executable, "-m", "stopgrad", command, "--help"], capture_output=True, text=True, check=True
        ).stdout
        options = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", told)) - {"--help"}
        assert not [option for option in options if option not in text], command

"""Folders of the cache, which only their owner can write to, and files that tell whether they are whole."""

from __future__ import annotations

import os
import random
import warnings
from pathlib import Path

import pytest

from stopgrad.base import folders
from stopgrad.base.folders import private_folder, seal, unsealed

SOMEBODY = os.getuid() + 1


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder."""
    monkeypatch.setenv("STOPGRAD_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(folders, "_WARNED", set())
    return tmp_path / "cache"


def refused(name: str) -> bool:
    """Whether a folder is not used, with a warning the first time."""
    with pytest.warns(
        RuntimeWarning, match=f"{name} is not used: another user owns it, or could write to it"
    ):
        assert private_folder(name) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return private_folder(name) is None


def test_a_folder_is_made_for_its_owner_alone(cache: Path) -> None:
    assert private_folder("a") == cache / "a"
    assert (cache / "a").stat().st_mode & 0o777 == 0o700


def test_a_folder_that_others_can_read_is_closed(cache: Path) -> None:
    (cache / "a").mkdir(parents=True)
    (cache / "a").chmod(0o755)
    assert private_folder("a") == cache / "a"
    assert (cache / "a").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777])
def test_a_folder_that_others_can_write_to_is_not_used(cache: Path, mode: int) -> None:
    (cache / "a").mkdir(parents=True)
    (cache / "a").chmod(mode)
    assert refused("a")
    assert (cache / "a").stat().st_mode & 0o777 == mode


def test_a_folder_in_one_where_others_could_replace_it_is_not_used(cache: Path) -> None:
    (cache / "a").mkdir(parents=True, mode=0o700)
    cache.chmod(0o777)
    assert refused("a")
    cache.chmod(0o1777)  # As /tmp is: nobody renames what others own.
    assert private_folder("a") == cache / "a"


def test_another_users_folder_and_a_link_to_one_are_not_used(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cache / "a").mkdir(parents=True, mode=0o700)
    (cache / "b").symlink_to(cache / "a")
    assert refused("b")
    with monkeypatch.context() as patch:
        patch.setattr(os, "getuid", lambda: SOMEBODY)
        assert refused("a")
    assert private_folder("a") == cache / "a"


def test_a_folder_that_cannot_be_made_is_none(cache: Path) -> None:
    cache.write_text("a file")
    assert private_folder("a") is None


def test_what_is_sealed_is_read_back_under_its_key(tmp_path: Path) -> None:
    for content in (b"", b"x", b"content" * 1000):
        path = tmp_path / "file"
        path.write_bytes(seal("key", content) + content)
        assert unsealed(path, "key") == content
        assert unsealed(path, "other") is None
        assert not path.exists()
        assert unsealed(path, "key") is None


def test_no_change_of_a_sealed_file_goes_unseen(tmp_path: Path) -> None:
    generator, content = random.Random(0), random.Random(1).randbytes(200)
    whole = seal("key", content) + content
    for n in range(3000):
        made = bytearray(whole)
        at = generator.randrange(len(made))
        if n % 3 == 0:
            made[at] ^= 1 << generator.randrange(8)
        elif n % 3 == 1:
            del made[at : at + generator.randrange(1, 300)]
        else:
            made[at:at] = generator.randbytes(generator.randrange(1, 5))
        if bytes(made) != whole:
            (tmp_path / "file").write_bytes(made)
            assert unsealed(tmp_path / "file", "key") is None
            assert not (tmp_path / "file").exists()


def test_links_pipes_and_others_files_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, link, pipe = tmp_path / "whole", tmp_path / "link", tmp_path / "pipe"
    whole.write_bytes(seal("key", b"x") + b"x")
    link.symlink_to(whole)
    os.mkfifo(pipe)
    assert unsealed(link, "key") is unsealed(pipe, "key") is None
    assert not link.is_symlink()
    assert not pipe.exists()
    assert unsealed(whole, "key") == b"x"
    monkeypatch.setattr(os, "getuid", lambda: SOMEBODY)
    assert unsealed(whole, "key") is None

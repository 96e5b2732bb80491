"""Puts kernels into a wheel, if ``STOPGRAD_PREBUILD`` names the kinds of processor to build for.

    STOPGRAD_PREBUILD="x86-64-v3 x86-64-v4" python -m build --wheel --no-isolation

Without it the wheel is pure Python, and kernels are built on the user's machine when they are first needed.
Building needs stopgrad's ``xla`` extra, for the header of XLA's interface, and a C++ compiler.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Kernels(BuildHookInterface[Any]):
    """Builds the kernels beside their sources, and names the platform that the wheel is for."""

    PLUGIN_NAME = "custom"
    _folder: tempfile.TemporaryDirectory[str] | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        levels = os.environ.get("STOPGRAD_PREBUILD", "").split()
        if self.target_name != "wheel" or version == "editable" or not levels:
            return
        sys.path.insert(0, str(Path(self.root) / "src"))
        # Only here: to build a plain wheel, nothing that the package imports need be installed.
        from stopgrad.engines.xla.native.library import build, compiler, prebuilt

        self._folder = tempfile.TemporaryDirectory()
        for level in levels:
            made = build(Path(self._folder.name), level, compiler(), level)
            inside = prebuilt(level).relative_to(Path(self.root) / "src")
            build_data["force_include"][str(made)] = inside.as_posix()
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"
        build_data["pure_python"] = False

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self._folder is not None:
            self._folder.cleanup()

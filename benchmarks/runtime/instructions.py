"""Measuring as on a processor with fewer instructions than this one has, as far as libraries can be told."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

SETTINGS = {
    "avx2": {
        "XLA_FLAGS": "--xla_cpu_max_isa=AVX2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "OPENBLAS_CORETYPE": "Haswell",
        "ATEN_CPU_CAPABILITY": "avx2",
        "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
        "NUMBA_CPU_NAME": "haswell",
    }
}
"""What each library reads from its environment."""

COMPILER = {"avx2": "-mno-avx512f"}
"""What compilers are told, behind whose back ``-march=native`` would bring everything back."""

NO_SETTING = ("onnxruntime", "openvino")
"""Libraries that choose by the processor alone."""


def held(isa: str | None, folder: Path) -> dict[str, str]:
    """The environment of a process that is to use no more than an instruction set.

    Args:
        isa: as in SETTINGS; None for all that the processor has.
        folder: for a compiler of C++ that knows no more either, for kernels and PyTorch's programs.
    """
    if isa is None:
        return {}
    compiler = folder / f"c++-{isa}"
    if not compiler.exists():
        compiler.write_text(f'#!/bin/sh\nexec g++ {COMPILER[isa]} "$@"\n')
        compiler.chmod(0o755)
    return {**SETTINGS[isa], "CXX": str(compiler)}


def not_held(isa: str | None, columns: Sequence[str]) -> dict[str, str]:
    """Why libraries are left out."""
    why = f"has no setting that holds it to {named(isa)}"
    return {name: why for name in columns if isa is not None and name in NO_SETTING}


def named(isa: str | None) -> str:
    return "" if isa is None else isa.upper()

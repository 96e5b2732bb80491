"""Many small cases in one test, which names every case that fails.

A case of pytest's own costs more than most of these take to check, and is collected by every worker. With
``-k`` they are tests of their own, so that one can be chosen by its name.
"""

from __future__ import annotations

import functools
import inspect
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from stopgrad.engines.onnxruntime.nodes import NotInOnnx

SHOWN = 3
"""Of so many failures the whole traceback is shown, of the others the last line."""


def together(names: str | Sequence[str], cases: Iterable[Any], *, ids: Any = None, parts: int = 1) -> Any:
    """As ``pytest.mark.parametrize``, with all cases in one test, or in as many as there are *parts*.

    Those that are marked, as slow or nightly, are tests of their own, in as many parts. A fixture is made
    once for all cases of a test.
    """
    words = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    listed = [_param(case, number, len(words), ids) for number, case in enumerate(cases)]

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(test)
        def run(together: Sequence[Any], **fixtures: Any) -> None:
            failed: list[tuple[str, BaseException]] = []
            for case in together:
                try:
                    test(**dict(zip(words, case.values, strict=True)), **fixtures)
                except (Exception, pytest.skip.Exception) as error:
                    if len(together) == 1:
                        raise
                    left_out = fixtures.get("engine") == "onnxruntime" and has_no_form(error)
                    if not left_out and not isinstance(error, pytest.skip.Exception):
                        failed.append((case.id, error))
            if failed:
                pytest.fail(_told(failed, len(together)), pytrace=False)

        rest = [p for p in inspect.signature(test).parameters.values() if p.name not in words]
        first = inspect.Parameter("together", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        run.__signature__ = inspect.Signature([first, *rest])  # type: ignore[attr-defined]
        run.cases = listed, parts  # type: ignore[attr-defined]
        return run

    return decorate


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Hook of pytest's, for ``conftest.py``: the tests that the cases are run in."""
    if not hasattr(metafunc.function, "cases"):
        return
    cases, parts = metafunc.function.cases
    if metafunc.config.option.keyword:
        chosen = [pytest.param([case], id=case.id, marks=case.marks) for case in cases]
    else:
        groups: dict[str, list[Any]] = {}
        for case in cases:
            groups.setdefault(" ".join(mark.name for mark in case.marks), []).append(case)
        chosen = [
            pytest.param(group[k::parts], id=f"{names} {k + 1} of {parts}".strip(), marks=group[0].marks)
            for names, group in groups.items()
            for k in range(min(parts, len(group)))
        ]
    metafunc.parametrize("together", chosen)


def has_no_form(error: BaseException) -> bool:
    """Whether an engine's error came about since ONNX has no form for an operation."""
    reason: BaseException | None = error
    while reason is not None and not isinstance(reason, NotInOnnx):
        reason = reason.__cause__
    return reason is not None


def _param(case: Any, number: int, words: int, ids: Any) -> Any:
    """A case as ``pytest.param``, which has an id."""
    if not (hasattr(case, "values") and hasattr(case, "marks")):
        case = pytest.param(*(case if words > 1 else (case,)))
    if case.id is not None:
        return case
    if ids is not None and not callable(ids):
        name = ids[number]
    else:
        name = "-".join(str((ids or repr)(value)) for value in case.values)
    return pytest.param(*case.values, marks=case.marks, id=name[:200])


def _told(failed: list[tuple[str, BaseException]], of: int) -> str:
    lines = [f"{len(failed)} of {of} cases failed: {', '.join(name for name, _ in failed)}"]
    for k, (name, error) in enumerate(failed):
        whole = traceback.format_exception(error) if k < SHOWN else traceback.format_exception_only(error)
        lines.append(f"\n---- {name}\n{''.join(whole)}")
    return "\n".join(lines)

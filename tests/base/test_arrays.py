"""The shared types of arrays can be read while a program runs, as editors and ``inspect`` do."""

from __future__ import annotations

import inspect
import typing

import stopgrad as sg


def test_the_annotations_of_every_public_function_resolve() -> None:
    failed = []
    for module in (sg, sg.xp, sg.xp.fft, sg.xp.linalg, sg.optimizers, sg.data):
        for name in sorted(set(dir(module)) - {"annotations"}):
            function = inspect.unwrap(found) if callable(found := getattr(module, name)) else None
            if name.startswith("_") or not inspect.isfunction(function):
                continue
            try:
                typing.get_type_hints(function)
            except (NameError, TypeError) as error:
                failed.append(f"{module.__name__}.{name}: {error}")
    assert not failed, "\n".join(failed)

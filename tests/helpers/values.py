"""Values of public functions from elsewhere, on every engine, and which functions have one.

A value from elsewhere is computed by Python's ``math``, NumPy, SciPy, JAX or a closed form, never by this
package.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any, TypeVar

import jax
import numpy as np
import pytest
from all_engines import each_style

import stopgrad as sg

Test = TypeVar("Test", bound=Callable[..., Any])
COVERED: dict[str, list[str]] = defaultdict(list)
"""For each public function, the tests that compare it with a value from elsewhere."""


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape)


def complex_normal(*shape: int, seed: int = 0) -> Any:
    return normal(*shape, seed=seed) + 1j * normal(*shape, seed=seed + 1000)


def uniform(low: float, high: float, *shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).uniform(low, high, shape)


def close(found: Any, expected: Any, rtol: float = 1e-9) -> None:
    assert np.shape(found) == np.shape(expected)
    assert np.size(expected)
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=rtol, atol=rtol)


def by(engine: str, f: Callable[..., Any], *arrays: Any) -> Any:
    return sg.function(f, engine=engine)(*arrays)


def each(f: Callable[..., Any]) -> Callable[..., Any]:
    """A function of Python numbers, applied element by element to arrays that broadcast."""

    def function(*arrays: Any) -> Any:
        wide = np.broadcast_arrays(*arrays)
        found = [f(*numbers) for numbers in zip(*(a.ravel().tolist() for a in wide), strict=True)]
        return np.array(found).reshape(wide[0].shape)

    return function


def names_in(function: Any) -> Iterator[str]:
    """The names that a function reads, itself or in functions inside of it or that it closes over."""
    code = function if isinstance(function, CodeType) else getattr(function, "__code__", None)
    if code is None:
        return
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from names_in(inner)
    for cell in getattr(function, "__closure__", None) or ():
        yield from names_in(cell.cell_contents)


def same_values(found: Any, expected: Any, rtol: float, atol: float, what: str) -> None:
    """Shapes and element types too: NumPy's own comparison would broadcast and convert."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert expected.size, f"{what}: no element is compared"
    assert found.shape == expected.shape, f"{what}: shapes {found.shape} and {expected.shape}"
    assert found.dtype == expected.dtype, f"{what}: {found.dtype} and {expected.dtype}"
    if expected.dtype.kind in "biu":
        np.testing.assert_array_equal(found, expected, err_msg=what)
    else:
        np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol, err_msg=what)


def _moves(argument: Any) -> bool:
    """Whether an argument is an array, or several; all others are held fixed."""
    return isinstance(argument, np.ndarray) or (
        isinstance(argument, list) and bool(argument) and all(isinstance(a, np.ndarray) for a in argument)
    )


@dataclass(frozen=True)
class Case:
    """One call of a public function and what it gives."""

    function: Callable[..., Any]
    expected: Any
    arguments: tuple[Any, ...]
    attributes: dict[str, Any]
    rtol: float
    atol: float

    def moving(self) -> list[Any]:
        return [a for a in self.arguments if _moves(a)]

    def call(self, moving: Any) -> Any:
        """The function on its arguments, the arrays among them replaced by *moving*."""
        given = iter(moving)
        return self.function(*(next(given) if _moves(a) else a for a in self.arguments), **self.attributes)

    def check(self, found: Any, what: str) -> None:
        with jax.enable_x64(True), np.errstate(all="ignore"):
            expected = self.expected(*self.arguments) if callable(self.expected) else self.expected
        if isinstance(expected, (tuple, list)):
            assert len(found) == len(expected) > 0, what
        else:
            found, expected = [found], [expected]
        for a, b in zip(found, expected, strict=True):
            same_values(a, b, self.rtol, self.atol, what)


class Cases:
    """Calls of public functions, each with its value from elsewhere."""

    def __init__(self) -> None:
        self.by_name: dict[str, list[Case]] = {}

    def add(
        self,
        function: Callable[..., Any],
        expected: Any,
        *arguments: Any,
        rtol: float = 1e-11,
        atol: float = 1e-13,
        **attributes: Any,
    ) -> None:
        """Add a call. *expected* is its value, or a function of the same positional arguments.

        Arrays among the positional arguments are fed; everything else is held fixed.
        """
        name = function.__name__
        assert getattr(sg, name) is function, f"{name} is not public"
        assert "sg" not in names_in(expected), f"{name} is compared with this package"
        self.by_name.setdefault(name, []).append(Case(function, expected, arguments, attributes, rtol, atol))

    def compared(self, test: Test) -> Test:
        """Decorator of a test: it runs for every engine and function, and calls :meth:`check`."""
        assert self.by_name
        assert "check" in names_in(test)
        for name in self.by_name:
            COVERED[name].append(f"{test.__module__}.{test.__name__}")
        return pytest.mark.parametrize("name", self.by_name)(each_style(test))

    def check(self, engine: str, name: str) -> None:
        """All calls of one function, as one computation."""
        cases = self.by_name[name]
        moving = [case.moving() for case in cases]

        def calls(arrays: Any) -> list[Any]:
            return [case.call(given) for case, given in zip(cases, arrays, strict=True)]

        run = calls if engine == "immediate" else sg.function(calls, engine=engine)
        with np.errstate(all="ignore"):
            found = run(moving)
        for i, (case, value) in enumerate(zip(cases, found, strict=True)):
            case.check(value, f"{name}, call {i}, {engine}")


def values_of(*functions: Callable[..., Any]) -> Callable[[Test], Test]:
    """Decorator of a test that compares these public functions with values from elsewhere."""

    def decorate(test: Test) -> Test:
        called = set(names_in(inspect.unwrap(test)))
        for function in functions:
            name = function.__name__
            assert getattr(sg, name) is function, f"{name} is not public"
            assert name in called, f"{test.__name__} never calls sg.{name}"
            COVERED[name].append(f"{test.__module__}.{test.__name__}")
        return test

    return decorate

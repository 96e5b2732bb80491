"""A function of PyTorch's at a point: its values with constants held, and the gradients of autograd."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import torch

from stopgrad.base.dtypes import dtype_of
from stopgrad.base.errors import ArgumentError, GradientError
from stopgrad.flow.checking.options import EPSILON
from stopgrad.graph.operands import NumpyArray
from stopgrad.graph.public import call
from stopgrad.interop.shared import keras
from stopgrad.interop.shared.derivatives import Arrays, coarsest_of
from stopgrad.interop.torch import internals
from stopgrad.interop.torch.asking import arguments_of, tensors_in
from stopgrad.interop.torch.checking.repeated_calls import Calls, all_tensors
from stopgrad.interop.torch.checking.states import State
from stopgrad.interop.torch.questions import Asked, Names, chosen, modules_in, named_tensors

Tensor = torch.Tensor
_Stance: Any = torch.compiler.set_stance


class Posed(NamedTuple):
    """A function of PyTorch's at a point.

    Attributes:
        run: calls it; it returns its floating-point and complex results.
        xs: the tensors that are asked about, by name.
        state: what calls may change.
    """

    run: Callable[[], list[Tensor]]
    xs: dict[str, Tensor]
    state: State

    def called(self, calls: Calls, run: Callable[[], list[Tensor]] | None = None) -> list[Tensor]:
        """The results of a call that is seen by *calls*, after which everything is as it was."""
        try:
            with self.state.watching(), torch.enable_grad(), _Stance("force_eager"), calls.running():
                return (run or self.run)()
        finally:
            self.state.restore()


def posed(
    what: str,
    f: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    model: Asked | None,
    only: Names | None,
) -> Posed:
    """A function at its arguments.

    Raises:
        ArgumentError: it is none; or nothing is asked about.
    """
    if not callable(f) or isinstance(f, Tensor):
        raise ArgumentError(f"{what}: takes a function and its arguments, not {type(f).__name__}")
    function: Callable[[], Any] = lambda: call(f, *args, **kwargs)
    if keras.is_model(f) and len(args) == 2 and not kwargs:
        loss, network = keras.fit_loss(what, f), cast("torch.nn.Module", f)
        model = network if model is None else model
        if not network.built:
            network(args[0])

        def function() -> Any:
            with keras.scope():
                return call(loss, f, *args)

    named = arguments_of(f, args, kwargs) if model is None else named_tensors(what, model)
    named = chosen(what, named, only)
    names: dict[int, str] = {}
    for name, x in named.items():
        if x.requires_grad:
            names.setdefault(id(x), name)  # What is shared has several.
    xs = {name: named[name] for name in names.values()}
    if not xs:
        raise ArgumentError(
            f"{what}: none of the arguments requires a gradient; say with model= what is asked about"
        )
    state = State()
    for x in (*xs.values(), *all_tensors([list(args), dict(kwargs)])):
        state.keep(x)
    for module in modules_in([f, getattr(f, "__self__", None), list(args), list(kwargs.values()), model]):
        state.keep_module(module)

    def run() -> list[Tensor]:
        results = list(tensors_in(function()))
        if not results:
            raise ArgumentError(f"{what}: the function returned no tensor of floating-point numbers")
        return results

    return Posed(run, xs, state)


class Called:
    """A function at a point; see :class:`stopgrad.interop.shared.derivatives.Function`.

    Args:
        point: the function.
        stops: the user's option.
        cotangents: unless None, the function is the gradient for these of what the user's returns.

    Attributes:
        calls: what was seen of the first call.
        results: those of that call.
    """

    xs: list[Tensor]
    points: dict[str, NumpyArray]
    calls: Calls
    results: list[Tensor]
    names: set[str]
    precision: str

    def __init__(self, point: Posed, stops: str, cotangents: Sequence[Tensor] | None = None) -> None:
        self._point, self._stops, self._cotangents = point, stops, cotangents
        self.xs = list(point.xs.values())
        self.points = {name: to_numpy(x) for name, x in point.xs.items()}
        self.modes: Sequence[str] = ("reverse",)
        self.notes: list[str] = []
        self.calls = Calls(stops != "ignore")
        self.results = point.called(self.calls, lambda: self._results(self.xs, self.calls))
        self.here: Arrays = [to_numpy(y) for y in self.results]
        self.names = self.calls.dtypes | {
            str(x.dtype).removeprefix("torch.") for x in (*self.xs, *self.results)
        }
        self.precision = coarsest_of(self.names)
        self._require_determined()
        self._wide: tuple[Calls, dict[int, Tensor]] | None = None
        if self.precision != "float64":
            self._widen()

    def _results(self, leaves: Sequence[Tensor], calls: Calls) -> list[Tensor]:
        """The results of the function, or the gradient that is asked for of it."""
        results = self._point.run()
        if self._cotangents is None:
            return results
        with calls.paused() if self._stops == "program" else contextlib.nullcontext():
            gradients = gradients_of(results, leaves, self._cotangents, twice=True)
        arriving = [g for g in gradients if g is not None]
        return arriving

    def _require_determined(self) -> None:
        again = [to_numpy(y) for y in self._again(self.calls, self.xs)]
        epsilon = 8.0 * EPSILON[self.precision]
        if len(again) != len(self.here) or not all(
            _near(a, b, epsilon) for a, b in zip(self.here, again, strict=True)
        ):
            raise ArgumentError(
                "check_gradients: the function is not deterministic: with the same values and random numbers "
                "it gives another value each time; give it its own generator, or leave out what changes it"
            )

    def _again(self, calls: Calls, leaves: Sequence[Tensor]) -> list[Tensor]:
        return self._point.called(calls, lambda: self._results(leaves, calls))

    def _widen(self) -> None:
        """Take differences in double precision, if the function computes the same then."""
        leaves = wide_leaves(self.xs)
        calls = Calls(self._stops != "ignore", leaves)
        try:
            results = self._again(calls, list(leaves.values()))
        except (RuntimeError, TypeError, ValueError, ArgumentError, GradientError):
            return  # What it calls takes no other precision.
        values = [to_numpy(y) for y in results]
        rounding = 1e3 * EPSILON[self.precision]
        is_double = coarsest_of({*calls.dtypes, *[y.dtype.name for y in values]}, "float64") == "float64"
        alike = len(values) == len(self.here)
        if is_double and alike and all(_near(a, b, rounding) for a, b in zip(self.here, values, strict=True)):
            narrow = self.here
            self._wide = calls, leaves
            if all(self._moves_alike(which, rounding) for which in self._passed_by(results)):
                self.here, self.precision = values, "float64"
            else:
                self._wide, self.here = None, narrow

    def _passed_by(self, results: Sequence[Tensor]) -> list[int]:
        """The tensors whose own use autograd saw, and not that of those in their place."""
        gradients = gradients_of(results, self.xs, [torch.ones_like(y) for y in results])
        return [i for i, g in enumerate(gradients) if g is not None]

    def _moves_alike(self, which: int, rounding: float) -> bool:
        """Whether the results change alike in both precisions."""
        moved = to_numpy(self.xs[which]).astype(np.complex128 if self.xs[which].is_complex() else np.float64)
        moved = moved + 0.125 * np.maximum(np.abs(moved), 0.5)
        wide, self._wide = self._wide, None
        narrow = self.at(which, moved)
        self._wide = wide
        return all(_near(a, b, rounding) for a, b in zip(narrow, self.at(which, moved), strict=True))

    def at(self, which: int, value: NumpyArray) -> Arrays:
        if self._wide is not None:
            calls, leaves = self._wide
            x = list(leaves.values())[which]
            before = x.detach().clone()
            x.data.copy_(tensor_of(value, x.dtype))
            try:
                results = self._again(calls, list(leaves.values()))
            finally:
                x.data.copy_(before)
        else:
            x = self.xs[which]
            with self._point.state.moved([x], [tensor_of(value, x.dtype)]):
                results = self._again(self.calls, self.xs)
        return [to_numpy(y) for y in results]

    def pulled(self, cotangents: Arrays) -> Sequence[NumpyArray | None]:
        seeds = self._as_results(cotangents)
        try:
            gradients = gradients_of(self.results, self.xs, seeds)
        finally:
            self._point.state.restore()
        return [None if g is None else to_numpy(g) for g in gradients]

    def pushed(self, which: int, tangent: NumpyArray) -> Arrays:
        raise NotImplementedError  # Autograd's forward mode needs other tensors than the user's.

    def derivative(self, cotangents: Arrays) -> Called | None:
        seeds = self._as_results(cotangents)
        gradient = Called(self._point, self._stops, seeds)
        return gradient if gradient.results else None

    def _as_results(self, cotangents: Arrays) -> list[Tensor]:
        return [tensor_of(g, y.dtype) for g, y in zip(cotangents, self.results, strict=True)]


def gradients_of(
    results: Sequence[Tensor], xs: Sequence[Tensor], cotangents: Sequence[Tensor], twice: bool = False
) -> list[Tensor | None]:
    """The gradients that autograd gives; the graph is kept.

    Raises:
        GradientError: it cannot differentiate.
    """
    roots = [(y, g.to(y.dtype)) for y, g in zip(results, cotangents, strict=True) if y.requires_grad]
    if not roots:
        return [None] * len(xs)
    ys, seeds = zip(*roots, strict=True)
    try:
        return list(
            torch.autograd.grad(ys, list(xs), seeds, retain_graph=True, create_graph=twice, allow_unused=True)
        )
    except RuntimeError as error:
        if "use_reentrant" in str(error) and not twice:
            return _by_backward(ys, xs, seeds)
        why = str(error).strip().partition("\n")[0]
        raise GradientError(f"check_gradients: PyTorch does not differentiate it: {why}") from error


def _by_backward(ys: Sequence[Tensor], xs: Sequence[Tensor], seeds: Sequence[Tensor]) -> list[Tensor | None]:
    """The same by ``backward()``, which is all that reentrant checkpoints know."""
    before = [x.grad for x in xs]
    try:
        for x in xs:
            x.grad = None
        torch.autograd.backward(ys, seeds, retain_graph=True)
        return [x.grad for x in xs]
    finally:
        for x, grad in zip(xs, before, strict=True):
            x.grad = grad


def wide_leaves(xs: Sequence[Tensor]) -> dict[int, Tensor]:
    """Leaves in double precision in place of tensors, by the identity of these."""
    leaves = {}
    for x in xs:
        kind = torch.complex128 if x.is_complex() else torch.float64
        leaves[id(x)] = x.detach().to(kind, copy=True).requires_grad_()
    return leaves


def to_numpy(x: Tensor) -> NumpyArray:
    """The values of a tensor."""
    with internals.DisableTorchFunction():
        plain = x.detach().to_dense() if x.layout is not torch.strided else x.detach()
        plain = plain.cpu().resolve_conj().resolve_neg()
        if plain.dtype in (torch.bfloat16, torch.float16):
            name = str(plain.dtype).removeprefix("torch.")
            return np.asarray(plain.to(torch.float32).numpy()).astype(dtype_of(name).numpy)
        return np.array(plain.numpy())


def tensor_of(value: NumpyArray, dtype: torch.dtype) -> Tensor:
    """A tensor of a dtype with the values of an array."""
    wide = np.asarray(value).astype(np.complex128 if np.asarray(value).dtype.kind == "c" else np.float64)
    return torch.from_numpy(np.array(wide)).to(dtype)


def _near(a: NumpyArray, b: NumpyArray, rounding: float) -> bool:
    if a.shape != b.shape:
        return False
    one, other = a.astype(np.complex128), b.astype(np.complex128)
    with np.errstate(invalid="ignore"):
        alike = np.abs(one - other) <= rounding * (1.0 + np.abs(one))
    return bool(np.all(alike | ~np.isfinite(one)))

"""Functions of tensors, through our tables of operators and by PyTorch: values and gradients."""

from __future__ import annotations

import functools
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as trees

import stopgrad as sg
from stopgrad.interop.torch.importing.aten.calling import array_of
from stopgrad.interop.torch.importing.translating import Translator, draws

LIMIT = {torch.float64: 1e-10, torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


@functools.cache
def decompositions() -> Any:
    table: Any = torch._decomp.core_aten_decompositions()
    table.pop(torch.ops.aten._safe_softmax.default, None)
    return table


@dataclass
class Compared:
    """How far ours is from PyTorch's: relative to the largest number, at least 1."""

    value: float = 0.0
    gradient: float = 0.0
    second: float = 0.0
    smooth: bool = False
    refused: str = ""


def traced(function: Any, tensors: list[Any], decomposed: bool = True) -> Any:
    """The program of core operators that a function is; or of the operators that it calls."""
    table = decompositions() if decomposed else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        views = "mutations_and_views" if decomposed else "mutations"
        whole = torch.func.functionalize(function, remove=views)
        made = make_fx(whole, decomposition_table=table, tracing_mode="fake", _allow_non_fake_inputs=True)(
            *tensors
        )
        if not any(node.target._opname.endswith("_") for node in _calls(made)):
            return made
        whole = torch.func.functionalize(made, remove="mutations_and_views")  # What decompositions write.
        return make_fx(whole, decomposition_table=table, tracing_mode="fake", _allow_non_fake_inputs=True)(
            *tensors
        )


def _calls(program: Any) -> list[Any]:
    return [node for node in program.graph.nodes if isinstance(node.target, torch._ops.OpOverload)]


def distance(ours: Any, theirs: Any) -> float:
    """The largest difference, relative to the largest number; infinite where not the same are finite."""
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        raise AssertionError(f"{ours.dtype}{ours.shape} instead of {theirs.dtype}{theirs.shape}")
    if not theirs.size:
        return 0.0
    kind = np.complex128 if theirs.dtype.kind == "c" else np.float64
    a, b = ours.astype(kind), theirs.astype(kind)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if (~np.isfinite(b) & ~same).any() or (~np.isfinite(a) & ~same).any():
        return np.inf
    scale = max(1.0, float(np.abs(b[np.isfinite(b)]).max(initial=0.0)))
    return float(np.abs(np.where(same, 0.0, np.where(same, 0.0, a) - np.where(same, 0.0, b))).max()) / scale


def _numbers(tree: Any) -> list[Any]:
    return [x for x in trees.tree_leaves(tree) if isinstance(x, torch.Tensor)]


def is_differentiable(x: Any) -> bool:
    return bool(x.dtype.is_floating_point)


def compare(
    function: Any, tensors: list[Any], engine: str = "numpy", order: int = 1, decomposed: bool = True
) -> Compared:
    """A function of tensors, by PyTorch and by us, at these."""
    tensors = [x.detach().clone().contiguous() for x in tensors]
    program = traced(function, tensors, decomposed)
    with sg.Graph().as_default() as graph:
        key = sg.constant(np.array([0, 1], np.uint32)) if draws(program) else None
        translator = Translator(key)
        xs = [sg.placeholder(str(x.dtype)[6:], list(x.shape), name=f"x{i}") for i, x in enumerate(tensors)]
        returned = _leaves(translator.run(program, xs))
        if translator.refusals:
            return Compared(refused="; ".join(map(str, translator.refusals)))
        feeds = {x: array_of(t, "x") for x, t in zip(xs, tensors, strict=True)}
        with sg.Session(graph, engine) as session:
            return _compared(function, tensors, xs, returned, feeds, session, order)


def _leaves(tree: Any) -> list[Any]:
    return [x for x in trees.tree_leaves(tree) if x is not None]


def _compared(
    function: Any,
    tensors: list[Any],
    xs: list[Any],
    returned: list[Any],
    feeds: Any,
    session: Any,
    order: int,
) -> Compared:
    found = Compared()
    leaves, theirs = differentiable(function, tensors)
    assert len(theirs) == len(returned), (len(theirs), len(returned))
    for a, b in zip(session.run(returned, feeds), theirs, strict=True):
        found.value = max(found.value, distance(a, array_of(b, "y")))
    pairs = [
        (y, t) for y, t in zip(returned, theirs, strict=True) if t.requires_grad and is_differentiable(t)
    ]
    sources = [(x, t) for x, t in zip(xs, leaves, strict=True) if t.requires_grad]
    if not pairs or not sources:
        return found
    random = torch.Generator().manual_seed(0)
    weights = [torch.randn(t.shape, generator=random, dtype=torch.float64).to(t.dtype) for _, t in pairs]
    wanted = torch.autograd.grad(
        [t for _, t in pairs], [t for _, t in sources], weights, allow_unused=True, create_graph=order > 1
    )
    made = sg.gradients(
        [y for y, _ in pairs],
        [x for x, _ in sources],
        [sg.constant(array_of(w, "w")) for w in weights],
        unconnected_gradients="zero",
    )
    for a, b, (_, t) in zip(session.run(made, feeds), wanted, sources, strict=True):
        b = torch.zeros_like(t) if b is None else b.to_dense()
        found.gradient = max(found.gradient, distance(a, array_of(b, "g")))
    if order > 1:
        _second(found, made, wanted, sources, feeds, session)
    return found


def differentiable(function: Any, tensors: list[Any]) -> tuple[list[Any], list[Any]]:
    """The tensors, of which as many require grad as the function can be differentiated by; its results."""
    floats = [i for i, x in enumerate(tensors) if is_differentiable(x)]
    for by in (floats, floats[:1], []):
        leaves = [x.detach().clone().requires_grad_(i in by) for i, x in enumerate(tensors)]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                theirs = _numbers(function(*leaves))
                ends = [y.sum() for y in theirs if y.requires_grad and is_differentiable(y)]
                if ends:
                    torch.autograd.grad(sum(ends), [leaves[i] for i in by], allow_unused=True)
        except RuntimeError:  # "not differentiable with respect to", "the derivative is not implemented"
            continue
        return leaves, _numbers(function(*leaves))
    raise AssertionError("not even without gradients")


def _second(found: Compared, made: Any, wanted: Any, sources: Any, feeds: Any, session: Any) -> None:
    curved = [(a, b) for a, b in zip(made, wanted, strict=True) if b is not None and b.requires_grad]
    if not curved:
        return
    found.smooth = True
    random = torch.Generator().manual_seed(1)
    weights = [torch.randn(b.shape, generator=random, dtype=torch.float64).to(b.dtype) for _, b in curved]
    leaves = [t for _, t in sources]
    theirs = torch.autograd.grad([b for _, b in curved], leaves, weights, allow_unused=True)
    ours = sg.gradients(
        [a for a, _ in curved],
        [x for x, _ in sources],
        [sg.constant(array_of(w, "w")) for w in weights],
        unconnected_gradients="zero",
    )
    for a, b, t in zip(session.run(ours, feeds), theirs, leaves, strict=True):
        b = torch.zeros_like(t) if b is None else b
        found.second = max(found.second, distance(a, array_of(b, "g")))

"""``trace_nan``: which line of PyTorch makes the first NaN or infinity, in values or in its gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import torch

from stopgrad.base.coercion import flag
from stopgrad.base.errors import ArgumentError
from stopgrad.base.source import decode
from stopgrad.flow.nans.nan_trace import NanTrace
from stopgrad.flow.source_lines import in_short
from stopgrad.graph.arguments import argument_names
from stopgrad.graph.public import call, guarded
from stopgrad.interop.shared import keras
from stopgrad.interop.shared.nan_cures import UNUSED, choice_says, cure_of, meets_zero, words
from stopgrad.interop.shared.nans import Made, Result, reported
from stopgrad.interop.torch.asking import arguments_of, tensors_in
from stopgrad.interop.torch.differentiating import set_aside
from stopgrad.interop.torch.following import FUNCTION, Followed
from stopgrad.interop.torch.questions import Asked, Names, chosen, named_tensors
from stopgrad.interop.torch.recording.autograd_nodes import node_of
from stopgrad.interop.torch.watching import Watch

WORDS = words(
    "torch",
    clip="clamp(x, min=0)",
    logits="torch.nn.functional.binary_cross_entropy_with_logits, log_softmax",
    softmax="torch.softmax, torch.logsumexp, torch.nn.functional.softplus",
)


@guarded("trace_nan")
def trace_nan(
    f: Callable[..., Any],
    *args: Any,
    model: Asked | None = None,
    only: Names | None = None,
    gradient: bool = True,
    **kwargs: Any,
) -> NanTrace:
    """Find the operation that makes the first NaN or infinity in what a function returns, or in its gradient.

    The function is called once; autograd differentiates what it returns. No ``grad`` is changed, unless the
    function calls ``backward()`` itself.

    Args:
        f: a function, or a module, that returns a tensor or a structure with tensors. A model of Keras with
            two arguments, x and y, stands for the loss that its ``fit`` differentiates.
        args, kwargs: its arguments.
        model: with respect to what it is differentiated, as for :func:`stopgrad.torch.explain`: a module, an
            optimizer, tensors, or a dict or list of these; unless given, what requires gradients among the
            arguments and in the modules among them.
        only: a pattern, or patterns, of their names.
        gradient: whether the gradient is looked at, too.

    Returns:
        A :class:`stopgrad.flow.nans.nan_trace.NanTrace`, which is true if a NaN or infinity arrives.

    Raises:
        ArgumentError: the function returns no tensor, and has called ``backward()`` on none.

    Examples:
        >>> import torch
        >>> import stopgrad.torch as sgt
        >>> def loss(x):
        ...     return torch.where(x > 0, torch.sqrt(x), 0.0).sum()
        >>> trace = sgt.trace_nan(loss, torch.tensor([0.0, 4.0], requires_grad=True))
        >>> trace.first.where, trace.first.origin_name, trace.first.pattern
        ('gradient', 'torch.sqrt', 'branch not taken')
    """
    flag(gradient, "trace_nan: gradient")
    if not callable(f) or isinstance(f, torch.Tensor):
        raise ArgumentError(f"trace_nan: takes a function and its arguments, not {type(f).__name__}")
    if keras.is_model(f) and len(args) == 2 and not kwargs:
        loss, network = keras.fit_loss("trace_nan", f), cast(torch.nn.Module, f)
        model = network if model is None else model
        if not network.built:
            network(args[0])
        with keras.scope():  # In which the model stays as it was.
            return _traced(loss, (f, *args), {}, model, only, gradient)
    return _traced(f, args, kwargs, model, only, gradient)


def _traced(
    f: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any],
    model: Asked | None,
    only: Names | None,
    gradient: bool,
) -> NanTrace:
    following = Followed((_traced.__code__, _differentiated.__code__))
    asked = dict(arguments_of(f, args, kwargs) if model is None else named_tensors("trace_nan", model))
    for name, x in zip(argument_names(f, len(args)), args, strict=True):
        if isinstance(x, torch.Tensor):
            following.introduce(x, "argument", name)
    for name, tensor in asked.items():
        following.introduce(
            tensor, "parameter" if isinstance(tensor, torch.nn.Parameter) else "argument", name
        )
    with Watch() as seen, following:
        returned = call(f, *args, **kwargs)
    if model is None and not asked:  # It uses tensors that it has otherwise.
        asked = seen._recorder.seen()
    xs = {name: x for name, x in chosen("trace_nan", asked, only).items() if x.requires_grad}
    losses = list(tensors_in(returned))
    roots = [y for y in losses if y.requires_grad and node_of(y) is not None]
    grads: list[Any] = [None] * len(xs)
    if gradient and roots and xs:
        others = seen._recorder.seen().values()
        grads = _differentiated(following, roots, list(xs.values()), [x for x in others if x.requires_grad])
    elif gradient and not losses:  # The function has called backward() itself.
        grads = [x.grad for x in xs.values()]
    if not losses and all(g is None for g in grads):
        raise ArgumentError(
            f"trace_nan: the function returned {type(returned).__name__}, and no tensor in it"
        )
    single = len(losses) == 1
    results = [
        Result("the result" if single else f"result {i}", following.marks(y), False)
        for i, y in enumerate(losses)
    ]
    results += [
        Result(f"the gradient of {name}", following.marks(g), True)
        for name, g in zip(xs, grads, strict=True)
        if g is not None
    ]
    return reported(following.events, results, _cure, following.ran)


def _differentiated(
    following: Followed, roots: Sequence[torch.Tensor], xs: list[torch.Tensor], others: list[torch.Tensor]
) -> list[Any]:
    """Autograd's gradients at some leaves; *others* are those that a reentrant checkpoint may reach."""
    seeds = [torch.ones_like(y) for y in roots]
    with set_aside(xs), following:
        try:
            return list(torch.autograd.grad(roots, xs, seeds, retain_graph=True, allow_unused=True))
        except RuntimeError as error:
            if "use_reentrant=True" not in str(error):
                raise
    with set_aside([*xs, *others]), following:
        torch.autograd.backward(roots, seeds, retain_graph=True)
        return [x.grad for x in xs]


_KINDS = {
    "special_erfinv": "erfinv", "linalg_eigh": "eigh", "_linalg_eigh": "eigh", "_linalg_svd": "svd",
    "linalg_vector_norm": "norm", "linalg_inv_ex": "inverse", "linalg_cholesky_ex": "cholesky",
    "_linalg_solve_ex": "solve", "linalg_eig": "eig",
}  # fmt: skip


_DIVIDE = frozenset(["sqrt", "log", "log2", "log10", "log1p", "div", "acos", "asin", "acosh", "atanh"])
"""Operations whose derivatives divide what arrives."""


def _cure(event: Made) -> tuple[str, str] | None:
    if event.source is not None:
        return None
    if event.forward is not None and event.forward.key[0] == FUNCTION:  # Its backward is the user's own.
        event = replace(event, forward=None)
    key = event.key if event.forward is None else event.forward.key
    kind = str(key[-1])
    kind = _KINDS.get(kind, kind).removesuffix("_")
    divides = kind in _DIVIDE and event.call.endswith(".div")
    if event.forward is not None and kind not in ("eigh", "svd", "eig") and meets_zero(event, divides):
        if event.more is not None:
            return "branch not taken", choice_says(kind, f" ({in_short(decode(event.more))})", WORDS)
        return "0 times an infinity", UNUSED.format_map(WORDS)
    return cure_of(event, kind, WORDS)

"""The kinds of findings about a training: how bad each is, and the page that explains it."""

from __future__ import annotations

from typing import NamedTuple

PAGE = "docs/findings.md"
"""The page that explains each kind, below a heading of that name."""
ERROR, WARNING, NOTE = "error", "warning", "note"


class KindOfProblem(NamedTuple):
    """A kind of finding.

    Attributes:
        severity: ``"error"`` for what raises or trains nothing, ``"warning"`` for what trains wrongly,
            ``"note"`` for what may be meant.
        title: what it is, in a few words.
        raised: whether it explains an exception; all others are found though nothing raises.
    """

    severity: str
    title: str
    raised: bool = False


KINDS: dict[str, KindOfProblem] = {
    # ------------------------------------------------------------------------ what raises
    "modified-in-place": KindOfProblem(ERROR, "a saved value was changed in place", True),
    "second-backward": KindOfProblem(ERROR, "a graph is differentiated twice", True),
    "no-graph": KindOfProblem(ERROR, "the loss depends on nothing that requires a gradient", True),
    "non-leaf": KindOfProblem(ERROR, "what is trained is a result, not a leaf", True),
    "no-parameters": KindOfProblem(ERROR, "the optimizer gets no parameters", True),
    "leaf-written": KindOfProblem(ERROR, "a leaf is written into", True),
    "view-written": KindOfProblem(ERROR, "a view is written into", True),
    "inference-tensor": KindOfProblem(ERROR, "a tensor of inference mode is trained with", True),
    "wrong-gradient": KindOfProblem(ERROR, "a custom function returns wrong gradients", True),
    "unused-input": KindOfProblem(ERROR, "a tensor that is asked about plays no part", True),
    "not-twice": KindOfProblem(ERROR, "a derivative has no derivative", True),
    "not-scalar": KindOfProblem(ERROR, "the loss is no scalar", True),
    "not-real": KindOfProblem(ERROR, "only real floating-point numbers have gradients", True),
    "leaves-graph": KindOfProblem(ERROR, "a value that requires a gradient leaves the graph", True),
    "checkpoint-differs": KindOfProblem(ERROR, "a checkpoint computes something else again", True),
    "no-derivative": KindOfProblem(ERROR, "an operation has no derivative in this form", True),
    "transformed-requires": KindOfProblem(ERROR, "requires_grad_ in a function of torch.func", True),
    "transformed-write": KindOfProblem(ERROR, "a function of torch.func writes in place", True),
    "ddp-unused": KindOfProblem(ERROR, "DDP waits for parameters without gradient", True),
    "ddp-twice": KindOfProblem(ERROR, "DDP sees a parameter twice", True),
    "scaler-misused": KindOfProblem(ERROR, "a GradScaler is used out of order", True),
    "hook-refused": KindOfProblem(ERROR, "a hook on a tensor without gradient", True),
    "grad-refused": KindOfProblem(ERROR, "a gradient that does not fit is assigned", True),
    "jax-integer-input": KindOfProblem(ERROR, "an integer has no gradient", True),
    "jax-not-scalar": KindOfProblem(ERROR, "the loss is no scalar", True),
    "jax-leaked-tracer": KindOfProblem(ERROR, "a traced value is used after its trace", True),
    "jax-while-loop": KindOfProblem(ERROR, "a while loop is differentiated in reverse", True),
    "jax-concrete": KindOfProblem(ERROR, "a traced value is asked for its number", True),
    "no-gradients-provided": KindOfProblem(ERROR, "no variable receives a gradient", True),
    "tape-used-twice": KindOfProblem(ERROR, "a tape is asked twice", True),
    "symbolic-value": KindOfProblem(ERROR, "a value that is traced is asked for its number", True),
    # ------------------------------------------------------------- what trains nothing, or wrongly
    "no-gradient": KindOfProblem(ERROR, "parameters receive no gradient"),
    "nan-gradient": KindOfProblem(ERROR, "gradients are NaN or infinite"),
    "not-held": KindOfProblem(ERROR, "no optimizer holds what receives a gradient"),
    "never-stepped": KindOfProblem(ERROR, "the optimizer never steps"),
    "zeroed-before-step": KindOfProblem(ERROR, "gradients are cleared before the step"),
    "clipped-away": KindOfProblem(ERROR, "gradients are clipped to nothing"),
    "no-learning-rate": KindOfProblem(ERROR, "the learning rate is zero"),
    "lost-in-rounding": KindOfProblem(ERROR, "updates are too small for the dtype"),
    "overwritten": KindOfProblem(ERROR, "weights are put back after the step"),
    "zero-gradient": KindOfProblem(WARNING, "gradients are exactly zero"),
    "never-cleared": KindOfProblem(WARNING, "gradients are never cleared"),
    "held-twice": KindOfProblem(WARNING, "two optimizers step the same parameter"),
    "moves-frozen": KindOfProblem(WARNING, "what is frozen moves"),
    "shared-storage": KindOfProblem(WARNING, "a target shares its parameters with its source"),
    "broadcast-loss": KindOfProblem(WARNING, "the loss compares all with all"),
    "empty-loss": KindOfProblem(WARNING, "the loss is of nothing"),
    "held-unused": KindOfProblem(NOTE, "the optimizer holds what no loss uses"),
    "constant-loss": KindOfProblem(NOTE, "the loss stays the same"),
    "frozen-statistics": KindOfProblem(NOTE, "statistics of a frozen part move"),
}
"""Every kind, the worst first."""


def page_of(kind: str) -> str:
    """Where a kind is explained."""
    return f"{PAGE}#{kind}"

"""The gallery of mistakes in PyTorch: how its programs are asked about.

``python tests/helpers/torch_mistakes.py`` writes docs/torch-mistakes.md anew.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

import torch
from mistakes import Gallery

import stopgrad as sg
import stopgrad.torch as sgt

HEAD = """# Mistakes in PyTorch, and what the reports say of them

{count} small programs in PyTorch, each with a mistake that people reported, what `stopgrad.torch` says of it,
and the cure. They are the files of {files}; `tests/interop/torch/test_mistakes.py`
runs each and checks that the line marked `# <- here` is the one that is named, that the cured program is
sound, and that a gradient is said to arrive where `backward()` puts one. The page is written from them by
`python tests/helpers/torch_mistakes.py`. Each is asked so, where xs are the modules and tensors that the
program is called with:

```python
with sgt.watch() as seen:
    loss = broken(*example())
print(seen.explain(loss, xs))
```

Each file also trains for a few steps: `stopgrad run examples/torch_mistakes/cast_to_long.py`, or with `cured`
behind it.
"""


def called(program: Callable[..., Any], args: Sequence[Any]) -> tuple[Any, Any]:
    """The loss, and what is asked about: what the program says, or the modules and leaves it is given."""
    with warnings.catch_warnings(action="ignore"), redirect_stdout(StringIO()), torch.enable_grad():
        made = program(*args)
    if isinstance(made, tuple):
        return made
    named = dict(zip(inspect.signature(program).parameters, args, strict=True))
    xs = {name: arg for name, arg in named.items() if isinstance(arg, torch.nn.Module) or is_leaf(arg)}
    (only, *others) = xs.values()
    return made, xs if others or not isinstance(only, torch.nn.Module) else only


def is_leaf(arg: Any) -> bool:
    return isinstance(arg, torch.Tensor) and arg.requires_grad


def leaves(xs: Any, prefix: str = "") -> dict[str, Any]:
    """The tensors asked about by their keys."""
    if isinstance(xs, torch.nn.Module):
        return {prefix + name: parameter for name, parameter in xs.named_parameters()}
    if isinstance(xs, torch.optim.Optimizer):
        groups = [group["params"] for group in xs.param_groups]
        return {f"{prefix}group{g}.{k}": x for g, group in enumerate(groups) for k, x in enumerate(group)}
    if isinstance(xs, dict):
        below = [
            leaves(x, prefix + name + ("" if isinstance(x, torch.Tensor) else ".")) for name, x in xs.items()
        ]
        return {key: x for found in below for key, x in found.items()}
    return {prefix: xs}


def explain(program: Callable[..., Any], args: Sequence[Any]) -> sg.Flow:
    with sgt.watch() as seen:
        loss, xs = called(program, args)
    return seen.explain(loss, xs)


def block(program: Callable[..., Any], args: Sequence[Any], held: Sequence[str]) -> None:
    with sgt.watch():
        loss, xs = called(program, args)
    found = leaves(xs)
    sgt.assert_blocked(loss, {key: found[key] for key in held})


def arrives(program: Callable[..., Any], args: Sequence[Any]) -> dict[str, bool]:
    """Whether a real backward brings a gradient that is not zero everywhere, by key."""
    loss, xs = called(program, args)
    found = leaves(xs)
    for x in found.values():
        x.grad = None
    if loss.requires_grad:
        loss.backward()
    return {key: x.grad is not None and bool(x.grad.any()) for key, x in found.items()}


TORCH = Gallery(
    name="torch_mistakes",
    head=HEAD,
    explain=explain,
    block=block,
    explained="seen.explain(loss, xs)",
    blocked="sgt.assert_blocked(loss, {held})",
    symptoms=("none", "inert", "leak", "nan"),
)

if __name__ == "__main__":
    TORCH.write()

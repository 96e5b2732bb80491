"""Parameters that PyTorch's ``fully_shard`` keeps in parts, and computes with as whole tensors of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import torch

from stopgrad.interop.torch import internals


def whole_parameters(modules: Iterable[torch.nn.Module]) -> dict[int, torch.Tensor]:
    """The whole parameters that sharded ones are computed with, by the identity of the latter.

    ``fully_shard`` gathers a parameter from all processes into a new leaf, and hands the gradient that
    arrives there on to the part that the module has. Autograd knows nothing of either.
    """
    kind: Any = getattr(sys.modules.get("torch.distributed.fsdp"), "FSDPModule", ())
    wholes: dict[int, torch.Tensor] = {}
    for module in modules:
        if isinstance(module, kind):
            wholes.update({id(part): whole for part, whole in internals.parts_and_wholes(module)})
    return wholes

"""What must be known of a stored program to run it without its graph, and how that is written beside it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from stopgrad.base.types import TensorType, dtype_of, tensor_type
from stopgrad.engines.xla.edges import Kept, Outside
from stopgrad.engines.xla.native import Kernels


class Plan(NamedTuple):
    """A program.

    Attributes:
        inputs: the types of its inputs.
        outputs: the number of its outputs.
        donate: the positions of inputs that it may overwrite.
        wide: whether it computes with 64-bit types.
        kernels: those that it was compiled with; None if there was nothing for them to compute.
        outside: what is stacked before it runs, and cut after it; None if nothing is.
    """

    inputs: Sequence[TensorType]
    outputs: int
    donate: Sequence[int]
    wide: bool
    kernels: Kernels | None
    outside: Outside | None

    def encode(self) -> bytes:
        outside = self.outside and {
            "direct": self.outside.direct,
            "groups": [(positions, _encoded(kind)) for positions, kind in self.outside.groups],
            "kept": self.outside.kept,
            "cut": [(new, _encoded(kind)) for new, kind in self.outside.cut.items()],
        }
        inputs = [_encoded(kind) for kind in self.inputs]
        return json.dumps([inputs, self.outputs, self.donate, self.wide, self.kernels, outside]).encode()

    @classmethod
    def decode(cls, text: bytes) -> Plan:
        inputs, outputs, donate, wide, kernels, outside = json.loads(text)
        return cls(
            [_decoded(kind) for kind in inputs],
            outputs,
            donate,
            wide,
            kernels and Kernels(kernels[0], tuple(kernels[1])),
            outside
            and Outside(
                outside["direct"],
                [(positions, _decoded(kind)) for positions, kind in outside["groups"]],
                [Kept(*fields) for fields in outside["kept"]],
                {new: _decoded(kind) for new, kind in outside["cut"]},
            ),
        )


def _encoded(kind: TensorType) -> Any:
    return kind.dtype.name, kind.shape


def _decoded(encoded: Any) -> TensorType:
    return tensor_type(dtype_of(encoded[0]), tuple(encoded[1]))

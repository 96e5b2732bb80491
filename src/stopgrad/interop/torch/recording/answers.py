"""What a record answers about tensors: losses, and what is asked about."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from stopgrad.base.errors import GraphError
from stopgrad.interop.torch.recording.autograd_nodes import node_of
from stopgrad.interop.torch.recording.observed import Observed
from stopgrad.interop.torch.recording.places import hooks_of
from stopgrad.interop.torch.recording.record import Backward, Sizes, Target, Value
from stopgrad.interop.torch.recording.sharded import whole_parameters
from stopgrad.interop.torch.recording.used import parameters_of

Tensor = torch.Tensor


class Answers(Observed):
    """Answers what a tensor is.

    Attributes:
        backwards: the backward passes, in order.
    """

    def __init__(self) -> None:
        super().__init__()
        self.backwards: list[Backward] = []

    def knows(self, tensor: Tensor) -> bool:
        """Whether the making of a tensor was recorded."""
        node = node_of(tensor)
        if node is None:
            return self.memory.held(tensor) is not None
        return self.nodes.value_at(node, tensor.output_nr) is not None or self.memory.held(tensor) is not None

    def loss(self, tensor: Tensor) -> Value:
        """The value of a loss whose making was recorded.

        Raises:
            GraphError: nothing is known of it.
        """
        if not self.knows(tensor):
            node = node_of(tensor)
            if node is None or not (self.nodes.made_inside(node) or self.nodes.leads_to_known(node)):
                raise GraphError(
                    "explain: the watch did not see how this loss was made; make it inside "
                    "'with sgt.watch():'"
                )
        return self.value_of_loss(tensor)

    def value_of_loss(self, tensor: Tensor) -> Value:
        """The value of a loss, also if its making was not recorded."""
        value = self.value_of(tensor, None, None)
        if node_of(tensor) is not None:
            self.nodes.ask_functions(node_of(tensor))
        return value

    def target(self, tensor: Tensor) -> Target:
        """A tensor as the subject of a question."""
        node = node_of(tensor)
        if node is not None:
            value = self.nodes.value_at(node, tensor.output_nr)
            if value is None:
                value = self._value_at_node(tensor, node, None)
            return Target(value, True)
        self._known_leaf(tensor, None)
        noted = self.memory.held(tensor)
        assert noted is not None
        value = noted.value if noted.root is None else noted.root
        return Target(value, tensor.requires_grad, hooks=hooks_of(tensor))

    def sizes(self, losses: Sequence[Value]) -> Sizes | None:
        """How large gradients were in the last backward pass from exactly these losses; None without one."""
        passes = [call.sizes for call in self.backwards if set(call.losses) == set(losses)]
        return passes[-1] if passes else None

    def seen(self) -> dict[str, Tensor]:
        """Every leaf that requires a gradient, and every parameter of the modules that were called."""
        by_name: dict[str, Tensor] = {}
        modules = self.modules
        below = {id(part) for module in modules for part in module.modules() if part is not module}
        roots = [module for module in modules if id(module) not in below]
        for root in roots:
            prefix = f"{type(root).__name__}." if len(roots) > 1 else ""
            by_name |= {f"{prefix}{name}": p for name, p in parameters_of(root)}
        known_ids = {id(tensor) for tensor in by_name.values()}
        known_ids.update(id(tensor) for tensor in whole_parameters(modules).values())
        rest = [tensor for tensor, held in self.memory.all_held() if held.root is not None]
        leaves = [x for x in rest if x.requires_grad and id(x) not in known_ids]
        return by_name | {f"leaf{i}": x for i, x in enumerate(leaves)}

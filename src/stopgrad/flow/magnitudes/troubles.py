"""Finds gradients that are zero, vanish, explode or are no numbers, and the operations that make them so."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from stopgrad.flow.magnitudes.causes import Cause, factors, is_elementwise_product, name_of, scales, stops_all
from stopgrad.flow.magnitudes.chains import Chains, Link
from stopgrad.flow.magnitudes.magnitude import EXPLODED, TINY, VANISHED, Measured
from stopgrad.flow.words import some
from stopgrad.graph.graph import Operation, Output

ZERO, VANISHING, EXPLODING, NOT_FINITE = "zero", "vanishing", "exploding", "not finite"
KINDS = (NOT_FINITE, ZERO, VANISHING, EXPLODING)
"""What may be wrong with a gradient that arrives, the worst first."""
MOST = 3
"""The most causes that are named of a change that is spread over many operations."""
SHARE = 0.2
"""The least share of such a change that a cause must have to be named."""

TOLD = 1 / math.sqrt(VANISHED)
"""The factor by which norms of tensors' gradients must differ to show that they vanish or explode."""

Where = Callable[[Operation], Any]
"""The line of an operation, as a key."""
End = tuple[str, float]
"""A tensor asked about, and the norm of its gradient."""


@dataclass(frozen=True)
class Trouble:
    """Tensors whose gradients arrive but are of no use, and why.

    Attributes:
        kind: one of :data:`KINDS`.
        keys: the tensors.
        causes: the operations that make them so; empty where they are not known.
        start: of what vanishes or explodes, the tensor with which it is compared, which is nearer the loss;
            None if all gradients are too small.
        end: the tensor that is farthest from it.
        at_layers: whether start and end tell the norms of the gradients that arrive at the results of these
            tensors' layers, since the tensors' own are all large, or all small.
    """

    kind: str
    keys: tuple[str, ...]
    causes: tuple[Cause, ...]
    start: End | None = None
    end: End | None = None
    at_layers: bool = False


def troubles(measured: Measured, names: Sequence[str], where: Where) -> list[Trouble]:
    """What is wrong with the gradients of some tensors, the worst first.

    Args:
        measured: what was measured.
        names: the tensors that are judged. All others still count as layers.
        where: the line of an operation, as a key. Operations of one kind in one line are one cause.
    """
    if not measured.of:
        return []
    judged = [name for name in names if name in measured.of and measured.of[name].elements]
    return _Search(measured, where).troubles(judged)


class _Search:
    """Judges the gradients that were measured."""

    def __init__(self, measured: Measured, where: Where) -> None:
        self._measured, self._where = measured, where
        self._chains = Chains(measured)
        self._layers: dict[str, Output] = {}
        self._own: dict[str, float] = {}
        for name, magnitude in measured.of.items():
            x = measured.xs[name]
            layer, last = self._chains.layer(x)
            before = self._chains.size(last) if last is not x else math.nan
            self._layers[name] = layer
            # Compared only along operations that take nothing else: a sum over a batch may cancel.
            self._own[name] = min(1.0, magnitude.norm / before) if before > 0 else 1.0
        self._first = {layer: name for name, layer in reversed(self._layers.items())}
        self._extremes: dict[Output, tuple[Output | None, Output | None]] = {}
        self._trained = {
            measured.xs[name]
            for name, magnitude in measured.of.items()
            if magnitude.is_finite and magnitude.norm
        }
        self._held: dict[Output, float] = {}
        self._frontiers: dict[str, dict[Output, dict[Link, None]]] = {}

    def troubles(self, names: Sequence[str]) -> list[Trouble]:
        magnitudes = self._measured.of
        bad = [name for name in names if not magnitudes[name].is_finite]
        zero = [name for name in names if magnitudes[name].is_zero]
        unusable = {*bad, *zero}
        rest = [name for name in names if name not in unusable]
        faded = [name for name in zero if self._fades_out(name)]
        troubles = self._ended(NOT_FINITE, bad, self._breaks)
        troubles += self._ended(ZERO, [name for name in zero if name not in set(faded)], self._stops)
        vanished = [name for name in rest if self._size(name) <= VANISHED * self._peak(name)]
        troubles += self._spread(VANISHING, [*faded, *vanished], 0)
        exploded = [name for name in rest if self._size(name) >= EXPLODED * self._least(name)]
        troubles += self._spread(EXPLODING, exploded, 1)
        whole = self._measured.root_mean_square
        if not troubles and 0 < whole <= TINY:
            troubles = [self._all_tiny(rest)]
        return troubles

    # ------------------------------------------------------------------------------------- how large

    def _size(self, name: str) -> float:
        """How large the gradient of a tensor is, for comparisons: that which arrives at its layer."""
        return self._free(self._layers[name]) * self._own[name]

    def _free(self, x: Output) -> float:
        """How large the gradient at a tensor would be without factors that are trained themselves.

        Those are elementwise, as the scales of residual branches are, which begin small on purpose and grow.
        """
        passed = []
        tensor = x
        while tensor not in self._held:
            passed.append(tensor)
            link = self._chains.link.get(tensor)
            if link is None:
                self._held[tensor] = 1.0
            else:
                tensor = link.result
        for tensor in reversed(passed):
            link = self._chains.link.get(tensor)
            if link is not None:
                self._held[tensor] = self._held[link.result] * self._scale(tensor, link)
        return self._chains.size(x) / self._held[x]

    def _scale(self, x: Output, link: Link) -> float:
        """By how much a trained factor makes a gradient smaller; 1 where there is none."""
        op, result = link
        if not is_elementwise_product(op) or self._trained.isdisjoint([y for y in op.inputs if y is not x]):
            return 1.0
        inner, outer = self._chains.size(x), self._chains.size(result)
        return min(1.0, inner / outer) if inner > 0 and 0 < outer < math.inf else 1.0

    def _peak(self, name: str) -> float:
        x = self._extreme_layers(self._layers[name])[0]
        return 0.0 if x is None else self._free(x)

    def _least(self, name: str) -> float:
        x = self._extreme_layers(self._layers[name])[1]
        return math.inf if x is None else self._free(x)

    def _extreme_layers(self, x: Output) -> tuple[Output | None, Output | None]:
        """The layers with the largest and the smallest gradient on the way from a layer to ys."""
        passed = []
        tensor: Output | None = x
        while tensor is not None and tensor not in self._extremes:
            passed.append(tensor)
            link = self._chains.link.get(tensor)
            tensor = None if link is None else link.result
        extremes: tuple[Output | None, Output | None] = (
            (None, None) if tensor is None else self._extremes[tensor]
        )
        for tensor in reversed(passed):
            size = self._free(tensor)
            if tensor in self._first and 0 < size < math.inf:
                peak, least = extremes
                extremes = (
                    tensor if peak is None or size > self._free(peak) else peak,
                    tensor if least is None or size < self._free(least) else least,
                )
            self._extremes[tensor] = extremes
        return self._extremes[x]

    # --------------------------------------------------------------------- where all of it ends at once

    def _ended(
        self, kind: str, names: Sequence[str], causes: Callable[[Sequence[Link]], list[Cause]]
    ) -> list[Trouble]:
        """Troubles of tensors whose gradients end at operations, those with the same ones together."""
        groups: dict[Any, tuple[list[str], list[Link]]] = {}
        for name in names:
            links = self._frontier(self._measured.xs[name], kind)
            key = frozenset([(self._where(link.operation), name_of(link.operation)) for link in links])
            keys, every = groups.setdefault(key, ([], []))
            keys.append(name)
            every.extend(links)
        return [
            Trouble(kind, tuple(keys), tuple(causes(list(dict.fromkeys(links)))))
            for keys, links in groups.values()
        ]

    def _frontier(self, x: Output, kind: str) -> Collection[Link]:
        """The operations that take something good and pass on nothing, or no numbers, towards a tensor."""
        by_tensor = self._frontiers.setdefault(kind, {})
        stack = [x]
        while stack:
            tensor = stack[-1]
            links = self._chains.users.get(tensor, ())
            behind = [link.result for link in links if not self._is_good(link.result, kind)]
            missing = [y for y in behind if y not in by_tensor]
            if missing:
                stack += missing
                continue
            stack.pop()
            frontiers = [by_tensor[y] for y in behind]
            # Of what was not measured, nothing is known: it may be good, too.
            measured = tensor is x or self._chains.known(tensor) is not None
            ending = [link for link in links if measured and self._is_good(link.result, kind)]
            alone = (
                frontiers[0] if len(frontiers) == 1 and not ending else None
            )  # Along a chain, they share one.
            by_tensor[tensor] = (
                dict.fromkeys([*ending, *(link for some in frontiers for link in some)])
                if alone is None
                else alone
            )
        return by_tensor[x]

    def _is_good(self, x: Output, kind: str) -> bool:
        """Whether something arrives at a tensor, or numbers do."""
        size = self._chains.known(x)
        return size is not None and (size > 0 if kind == ZERO else math.isfinite(size))

    def _stops(self, links: Sequence[Link]) -> list[Cause]:
        return [
            self._hook(ops, "makes it 0") or self._cause(ops, stops_all(ops, self._factors(ops)))
            for ops in self._by_line(links)
        ]

    def _breaks(self, links: Sequence[Link]) -> list[Cause]:
        effect = "makes it NaN or infinite"
        sizes = {name: magnitude.parameter_norm for name, magnitude in self._measured.of.items()}
        broken = [name for name, norm in sizes.items() if norm is not None and not math.isfinite(norm)]
        why = f"; {some(broken, 2)} {'is' if len(broken) == 1 else 'are'} so already" if broken else ""
        return [
            self._hook(ops, effect) or self._cause(ops, f"{name_of(ops[0])} {effect}{why}")
            for ops in self._by_line(links)
        ]

    def _by_line(self, links: Iterable[Link]) -> list[tuple[Operation, ...]]:
        """The operations of one kind in one line together."""
        lines: dict[Any, dict[Operation, None]] = {}
        for op, _ in links:
            lines.setdefault((self._where(op), name_of(op)), {})[op] = None
        return [tuple(ops) for ops in lines.values()]

    def _hook(self, ops: Sequence[Operation], effect: str) -> Cause | None:
        """The hooks through which what some operations pass on goes; None if there are none."""
        hooks = self._measured.hooks
        passing = tuple(dict.fromkeys([hooks[x] for op in ops for x in op.inputs if x in hooks]))
        return self._cause(passing, f"a hook {effect}, unless {name_of(ops[0])} does") if passing else None

    def _cause(self, ops: Sequence[Operation], reason: str) -> Cause:
        """A cause, with the user's own operations."""
        owners = self._measured.owners
        return Cause(tuple(dict.fromkeys([owners.get(op, op) for op in ops])), reason, len(ops))

    def _factors(self, ops: Sequence[Operation]) -> dict[Operation, str]:
        """For operations that multiply by a tensor asked about that is 0, what is told of it."""
        zeros = {}
        for name, magnitude in self._measured.of.items():
            if magnitude.parameter_norm == 0.0 and magnitude.elements:
                trained = "" if magnitude.is_zero else " until the first step changes that"
                zeros[self._measured.xs[name]] = f"{name}, which is 0{trained}"
        return {op: zeros[x] for op in ops for x in factors(op) if x in zeros}

    # ------------------------------------------------------------------------ where it changes gradually

    def _fades_out(self, name: str) -> bool:
        """Whether a gradient is 0 because what arrives is too small for a number, and not by an operation."""
        links = self._frontier(self._measured.xs[name], ZERO)
        peaks = [(link.result, self._extreme_layers(link.result)[0]) for link in links]
        return bool(links) and all(
            peak is not None and self._free(x) <= VANISHED * self._free(peak) for x, peak in peaks
        )

    def _spread(self, kind: str, names: Sequence[str], side: int) -> list[Trouble]:
        """Troubles of tensors whose gradients vanish or explode, by the layer that they are compared with."""
        groups: dict[Output, list[str]] = {}
        for name in names:
            base = self._extreme_layers(self._layers[name])[side]
            if base is not None:
                groups.setdefault(base, []).append(name)
        troubles = []
        grows, magnitudes = kind == EXPLODING, self._measured.of
        sign = -1 if grows else 1
        for base, keys in groups.items():
            start = self._largest_at(base)
            end = min(keys, key=lambda name: (sign * self._size(name), -magnitudes[name].norm))
            own = magnitudes[start].norm, magnitudes[end].norm
            at_layers = not (own[1] > own[0] * TOLD if grows else own[1] * TOLD < own[0])
            first, last = (self._free(base), self._size(end)) if at_layers else own
            causes = tuple(self._causes(self._measured.xs[end], base, grows))
            troubles.append(Trouble(kind, tuple(keys), causes, (start, first), (end, last), at_layers))
        return troubles

    def _largest_at(self, layer: Output) -> str:
        """The tensor with the largest gradient at a layer; of a product and a bias that is added, at both."""
        chains = self._chains

        def near(other: Output) -> bool:
            links = [(chains.link.get(other), layer), (chains.link.get(layer), other)]
            passed = any(link is not None and link.result is to for link, to in links)
            return other is layer or (passed and math.isclose(self._free(other), self._free(layer)))

        names = [name for name, other in self._layers.items() if near(other)]
        return max(names, key=lambda name: self._measured.of[name].norm)

    def _causes(self, x: Output, base: Output | None, grows: bool) -> list[Cause]:
        """The lines that change the gradient most on the way from *base* to a tensor.

        Where the tensor meets the data does not count: there, what is said of it depends on the data.
        """
        layer, _ = self._chains.layer(x)
        lines: dict[Any, tuple[list[Operation], list[float]]] = {}
        for tensor, (op, result) in self._chains.walk(x):
            inner, outer = self._chains.size(tensor), self._chains.size(result)
            if result is not layer and inner > 0 and 0 < outer < math.inf:
                ops, changes = lines.setdefault((self._where(op), name_of(op)), ([], []))
                ops.append(op)
                changes.append(math.log(inner / outer))
            if result is base:
                break
        sign = 1 if grows else -1
        parts = sorted(lines.values(), key=lambda part: -sign * sum(part[1]))
        whole = sum([max(0.0, sign * sum(changes)) for _, changes in parts])
        chosen = [part for part in parts[:MOST] if sign * sum(part[1]) > SHARE * whole]
        return [
            self._cause(ops, scales(ops, math.exp(sum(changes) / len(changes)))) for ops, changes in chosen
        ]

    def _all_tiny(self, names: Sequence[str]) -> Trouble:
        """All gradients together are too small."""
        magnitudes = self._measured.of
        largest = max(names, key=lambda name: magnitudes[name].norm)
        causes = self._causes(self._measured.xs[largest], None, False)
        return Trouble(VANISHING, tuple(names), tuple(causes), None, (largest, magnitudes[largest].norm))

"""Rebuilds the branches of TensorFlow 1 as functions: what stands between switches and merges.

Each result has a context: the choices on which it depends, from the outside inwards. A ``Switch`` adds a
choice to that of its operand, a ``Merge`` takes the last one away, and other nodes have the longest one of
their operands. Merges that end the same choice, and of which none needs another, become one ``If``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from stopgrad.base.errors import FileError
from stopgrad.interop.tensorflow.extracting import extracted, function_attribute, types, unused
from stopgrad.interop.tensorflow.nodes import Body, Node, Source, ordered

MERGE, SWITCH = ("Merge", "RefMerge"), ("Switch", "RefSwitch", "_SwitchN")

Choice = tuple[Source, int]
"""What decides, and which way is taken: the number of the switch's result."""

Context = tuple[Choice, ...]

_Group = tuple[Context, Source, int]
"""Merges that belong together: the context around, what decides, and how many others of it come before."""


def with_branches(body: Body, library: Any) -> Body:
    """A graph whose merges are results of ``If`` and ``Case``, with functions in *library*."""
    if not any(node.op in (*MERGE, *SWITCH) for node in body.nodes.values()):
        return body
    return _Branches(body, library).rebuilt()


class _Branches:
    def __init__(self, body: Body, library: Any) -> None:
        self.body, self.library = body, library
        self.nodes = dict(body.nodes)
        self.contexts: dict[str, Context] = {argument.name: () for argument in body.arguments}
        self.groups: dict[_Group, list[Node]] = defaultdict(list)
        self._before: dict[str, dict[tuple[Context, Source], int]] = {}

    def rebuilt(self) -> Body:
        """The graph with an ``If`` or ``Case`` for each group of merges."""
        for node in ordered(self.body, list(self.nodes)):
            self.contexts[node.name] = self._context(node)
        # From the inside outwards; of one choice, those first that others need.
        for group in sorted(self.groups, key=lambda group: (-len(group[0]), group[2])):
            self._replace(group, self.groups[group])
        outputs = {name for name, _ in self.body.outputs}
        nodes = {
            name: node
            for name, node in self.nodes.items()
            if name in outputs or not (node.op in SWITCH or self.contexts.get(name))
        }
        return Body(self.body.name, self.body.arguments, nodes, self.body.outputs, self.body.controls)

    # ---------------------------------------------------------------------------------------- contexts

    def _of(self, source: Source) -> Context:
        """The context of a result."""
        around = self.contexts[source[0]]
        node = self.nodes.get(source[0])
        if node is not None and node.op in SWITCH:
            return (*around, (self._deciding(node), source[1]))
        return around

    def _deciding(self, switch: Node) -> Source:
        """What decides about a switch, behind identities."""
        source = switch.inputs[1]
        node = self.nodes.get(source[0])
        while node is not None and node.op == "Identity":
            source = node.inputs[0]
            node = self.nodes.get(source[0])
        return source

    def _context(self, node: Node) -> Context:
        """The context of a node's results; of a switch, that around its choice."""
        before: dict[tuple[Context, Source], int] = {}
        for name in [*[x for x, _ in node.inputs], *node.controls]:
            for key, count in self._before.get(name, {}).items():
                before[key] = max(before.get(key, 0), count)
        self._before[node.name] = before
        contexts = [self._of(source) for source in node.inputs]
        if node.op in MERGE:
            return self._merged(node, contexts, before)
        # A control input from a switch only says that it runs; pivots are identities behind switches.
        contexts += [self.contexts[x] for x in node.controls if self.nodes[x].op not in SWITCH]
        longest = max(contexts, key=len, default=())
        if any(longest[: len(context)] != context for context in contexts):
            raise FileError(f"{self.body.name}: {node!r} reads results of different branches")
        return longest

    def _merged(self, node: Node, contexts: Sequence[Context], before: dict[Any, int]) -> Context:
        longest = max(contexts, key=len, default=())
        if not longest:
            raise FileError(f"{self.body.name}: {node!r} merges what no switch has separated")
        around, (decides, _) = longest[:-1], longest[-1]
        ways = [context[-1][1] for context in contexts if len(context) == len(longest)]
        fits = all(
            context[:-1] == around and context[-1][0] == decides
            if len(context) == len(longest)
            else context == around
            for context in contexts
        )
        if not fits or len(set(ways)) < len(ways) or len(ways) < len(contexts) - 1:
            raise FileError(f"{self.body.name}: {node!r} merges what are no branches of one choice")
        level = before.get((around, decides), 0)
        before[around, decides] = level + 1
        self.groups[around, decides, level].append(node)
        return around

    # ---------------------------------------------------------------------------------------- branches

    def _replace(self, group: _Group, merges: Sequence[Node]) -> None:
        """Put an ``If`` or ``Case`` in the place of merges."""
        around, decides, _ = group
        count = max(len(node.inputs) for node in merges)
        results = [self._by_way(node, around, count) for node in merges]
        captures: list[Source] = []

        def argument(source: Source) -> int | None:
            """The capture that a result is; None for what stands in a branch."""
            node = self.nodes.get(source[0])
            if node is not None and node.op in SWITCH and self.contexts[node.name] == around:
                if self._deciding(node) == decides:
                    source = node.inputs[0]
            elif len(self._of(source)) > len(around):
                return None
            if source not in captures:
                captures.append(source)
            return captures.index(source)

        def inside(name: str) -> bool:
            return len(self.contexts[name]) > len(around) and self.nodes[name].op not in SWITCH

        name = unused(self.nodes, f"{merges[0].name.rpartition('/')[0] or merges[0].name}/If")
        names = [f"{self.body.name}/{name}/{way}" for way in range(count)]
        parts = [
            extracted(self.nodes, [ways[way] for ways in results], argument, inside) for way in range(count)
        ]
        for function, part in zip(names, parts, strict=True):
            self.library.add(part.as_function(function, len(captures)))
        attributes = {"Tout": types(len(merges))}
        if self._is_numbered(decides, around):
            attributes["branches"] = function_attribute(*names)
        elif count != 2:
            raise FileError(f"{self.body.name}: {merges[0]!r} merges {count} ways of a switch with two")
        else:
            attributes["else_branch"], attributes["then_branch"] = map(function_attribute, names)
        op = "Case" if "branches" in attributes else "If"
        self.nodes[name] = Node(name, op, [decides, *captures], [], attributes)
        self.contexts[name] = around
        for k, node in enumerate(merges):
            self.nodes[node.name] = Node(node.name, "Identity", [(name, k)])

    def _by_way(self, merge: Node, around: Context, count: int) -> list[Source]:
        """The operands of a merge, each at the number of its branch."""
        by_way: dict[int, Source] = {}
        shared: list[Source] = []
        for source in merge.inputs:
            context = self._of(source)
            if len(context) > len(around):
                by_way[context[-1][1]] = source
            else:
                shared.append(source)
        for way in range(count):
            if way not in by_way and shared:
                by_way[way] = shared.pop()
        if sorted(by_way) != list(range(count)):
            raise FileError(f"{self.body.name}: {merge!r} lacks a branch")
        return [by_way[way] for way in range(count)]

    def _is_numbered(self, decides: Source, around: Context) -> bool:
        """Whether a choice is among numbered branches."""
        return any(
            node.op == "_SwitchN" and self._deciding(node) == decides and self.contexts[node.name] == around
            for node in self.nodes.values()
            if node.op in SWITCH
        )

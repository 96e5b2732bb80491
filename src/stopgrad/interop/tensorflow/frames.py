"""Rebuilds the control flow of TensorFlow 1 as functions: frames as loops, merges as branches.

TensorFlow 1, and TensorFlow 2 where it lowers functions, has no loops and branches in a graph but five
operations that let values pass or die: a loop is a frame that ``Enter`` opens for a value, in which ``Merge``
takes the value of the last ``NextIteration``, and ``Switch`` sends it to the body or to ``Exit``; a branch is
what stands between a ``Switch`` and a ``Merge``. Here each frame becomes a ``While``, from the inside
outwards, and then each group of merges of one condition an ``If``. All that follows knows only these.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stopgrad.base.errors import FileError
from stopgrad.interop.tensorflow.extracting import extracted, function_attribute, types, unused
from stopgrad.interop.tensorflow.nodes import Body, Node, Source
from stopgrad.interop.tensorflow.switch_and_merge import with_branches

_ENTER, _EXIT = ("Enter", "RefEnter"), ("Exit", "RefExit")
_MERGE, _SWITCH = ("Merge", "RefMerge"), ("Switch", "RefSwitch")
_NEXT = ("NextIteration", "RefNextIteration")
_OLD = frozenset({*_ENTER, *_MERGE, *_SWITCH, "_SwitchN"})


def functional(body: Body, library: Any) -> Body:
    """A graph whose loops and branches are ``While`` and ``If`` of functions in *library*.

    Raises:
        FileError: its control flow is none that TensorFlow builds.
    """
    if not any(node.op in _OLD for node in body.nodes.values()):
        return body
    return with_branches(_Loops(body, library).rebuilt(), library)


class Frame:
    """A loop.

    Attributes:
        name: of the frame.
        enters: its variables, as what enters; then what stays the same.
        merges, switches: of the variables, by their positions.
        following: what each variable is in the next step.
        condition: what decides whether there is a next step.
        inside: the names of its nodes.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.enters: list[Node] = []
        self.fixed: list[Node] = []
        self.merges: list[Node] = []
        self.switches: dict[str, int] = {}
        self.following: list[Source] = []
        self.condition: Source = ("", 0)
        self.inside: set[str] = set()


class _Loops:
    """The frames of a graph, which are replaced one by one."""

    def __init__(self, body: Body, library: Any) -> None:
        self.body, self.library = body, library
        self.nodes = dict(body.nodes)
        self._readers: dict[str, list[Node]] = {}
        for node in self.nodes.values():
            for name, _ in node.inputs:
                self._readers.setdefault(name, []).append(node)

    def rebuilt(self) -> Body:
        """The graph with a ``While`` for each frame."""
        frames: dict[str, list[Node]] = {}
        for node in self.nodes.values():
            if node.op in _ENTER:
                frames.setdefault(_frame_of(node), []).append(node)
        read = [self._read(name, enters) for name, enters in frames.items()]
        for frame in read:
            frame.inside = self._closure(
                [frame.condition, *frame.following], {enter.name for enter in (*frame.enters, *frame.fixed)}
            )
        # An inner frame stands inside of those around it, so that its nodes are fewer.
        for frame in sorted(read, key=lambda frame: len(frame.inside)):
            self._replace(frame)
        return Body(self.body.name, self.body.arguments, self.nodes, self.body.outputs, self.body.controls)

    def _fail(self, frame: str, why: str) -> FileError:
        return FileError(f"{self.body.name}: the loop {frame!r} is none of TensorFlow's: {why}")

    def _read(self, name: str, enters: Iterable[Node]) -> Frame:
        """A frame from what enters it."""
        frame = Frame(name)
        for enter in enters:
            merge = next((x for x in self._readers.get(enter.name, ()) if x.op in _MERGE), None)
            if merge is None:
                frame.fixed.append(enter)
                continue
            others = [source for source in merge.inputs if source[0] != enter.name]
            step = self.nodes.get(others[0][0]) if len(merge.inputs) == 2 and len(others) == 1 else None
            if step is None or step.op not in _NEXT or not step.inputs:
                raise self._fail(name, f"{merge.name!r} merges what is no next step")
            frame.enters.append(enter)
            frame.merges.append(merge)
            frame.following.append(step.inputs[0])
            for switch in self._readers.get(merge.name, ()):
                if switch.op in _SWITCH and len(switch.inputs) == 2:
                    frame.switches[switch.name] = len(frame.merges) - 1
                    frame.condition = self._condition(switch, name)
        if not frame.condition[0]:
            raise self._fail(name, "nothing decides about the next step")
        return frame

    def _condition(self, switch: Node, name: str) -> Source:
        decides = self.nodes.get(switch.inputs[1][0])
        if decides is None or decides.op != "LoopCond" or not decides.inputs:
            raise self._fail(name, f"{switch.name!r} asks what is no condition of a loop")
        return decides.inputs[0]

    def _closure(self, sources: Iterable[Source], until: set[str]) -> set[str]:
        """The nodes that these need, also those that run before them, up to those of *until*."""
        names: set[str] = set()
        waiting = [name for name, _ in sources]
        while waiting:
            name = waiting.pop()
            if name in names or name in until:
                continue
            names.add(name)
            node = self.nodes.get(name)
            if node is not None:
                waiting += [x for x, _ in node.inputs]
                waiting += node.controls
        return names

    def _replace(self, frame: Frame) -> None:
        """Put a ``While`` in the place of a frame."""
        entering = [*frame.enters, *frame.fixed]
        place = {enter.name: k for k, enter in enumerate(entering)}
        merges = {merge.name: k for k, merge in enumerate(frame.merges)}

        def argument(source: Source) -> int | None:
            """The state that a result is, inside of the frame."""
            name, index = source
            if name in frame.switches:
                return frame.switches[name] if index == 1 else None
            return merges[name] if name in merges and index == 0 else place.get(name)

        name = unused(self.nodes, frame.name.rpartition("/")[0] or frame.name)
        outside = {*frame.switches, *merges, *place}
        outputs = [*frame.following, *[(enter.name, 0) for enter in frame.fixed]]
        attributes = {"T": types(len(entering))}
        gone = frame.inside | outside
        for role, results in (("cond", [frame.condition]), ("body", outputs)):
            part = extracted(self.nodes, results, argument, lambda x: x in frame.inside - outside)
            function = f"{self.body.name}/{name}/{role}"
            self.library.add(part.as_function(function, len(entering)))
            attributes[role] = function_attribute(function)
            gone |= set(part.nodes)
        first = [enter.inputs[0] for enter in entering]
        loop = Node(name, "While", first, [], attributes)
        exits = {
            reader.name: frame.switches[switch]
            for switch in frame.switches
            for reader in self._readers.get(switch, ())
            if reader.op in _EXIT
        }
        for removed in gone:
            self.nodes.pop(removed, None)
        for node in [x for x in self.nodes.values() if x.op in (*_NEXT, "LoopCond")]:
            if any(x in gone for x, _ in node.inputs):
                del self.nodes[node.name]
        self.nodes[name] = loop
        for removed, k in exits.items():
            self.nodes[removed] = Node(removed, "Identity", [(name, k)])


def _frame_of(node: Node) -> str:
    attribute = node.attributes.get("frame_name")
    return bytes(attribute.s).decode(errors="replace") if attribute is not None else ""

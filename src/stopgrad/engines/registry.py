"""The registry of engines, and the choice of one for a graph."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from stopgrad.base.errors import EngineError
from stopgrad.engines.protocol import Engine
from stopgrad.graph.builder import current
from stopgrad.graph.graph import Operation
from stopgrad.graph.op import Op

if TYPE_CHECKING:
    from stopgrad.scale.meshes import Mesh

ENGINES: dict[str, type[Engine]] = {}
"""All engines by name, in the order in which ``"auto"`` asks them."""

_INSTANCES: dict[str, Engine] = {}

E = TypeVar("E", bound=type[Engine])


def register(kind: E) -> E:
    """Register an engine under its name. May be used as a decorator.

    Raises:
        EngineError: the name is taken, or cannot name a definition's form; or a definition has a form for
            this engine already.
    """
    name = kind.name
    if not name.isidentifier() or name == "auto" or hasattr(Op, name) or name in Op.__annotations__:
        raise EngineError(f"{name!r} cannot name an engine: it stands for something else; take another name")
    if name in ENGINES:
        raise EngineError(
            f"there is an engine {name!r} already, {ENGINES[name].__qualname__}; take another name"
        )
    twice = next((definition for definition in kind.forms if hasattr(definition, name)), None)
    if twice is not None:
        raise EngineError(f"{twice.type} has a form for the engine {name!r} already; give it in one place")
    for definition, form in kind.forms.items():
        setattr(definition, name, form if not callable(form) else staticmethod(form))
    ENGINES[name] = kind
    ordered = sorted(ENGINES.items(), key=lambda item: -item[1].priority)
    ENGINES.clear()
    ENGINES.update(ordered)
    return kind


def engine(name: str = "auto", operations: Sequence[Operation] = (), mesh: Mesh | None = None) -> Engine:
    """The engine of this name; for ``"auto"`` the best that is installed and can run the *operations*.

    With a *mesh*, a new engine that computes on it.

    Raises:
        EngineError: there is none, or it cannot be used in this process, or on a mesh.

    Examples:
        >>> engine("numpy").name
        'numpy'
    """
    if mesh is not None:
        return _on(mesh, name)
    if name == "auto":
        return _first(operations)
    if not isinstance(name, str) or name not in ENGINES:
        raise EngineError(f"there is no engine {name!r}; take {', '.join(map(repr, ('auto', *ENGINES)))}")
    if ENGINES[name].unusable is not None:
        raise EngineError(f"the {name} engine cannot be used: {ENGINES[name].unusable}")
    if name not in _INSTANCES:
        _INSTANCES[name] = ENGINES[name]()
    return _INSTANCES[name]


def _on(mesh: Mesh, name: str) -> Engine:
    """An engine that computes on a mesh."""
    able_to = [other for other, kind in ENGINES.items() if kind.meshes]
    chosen = able_to[0] if name == "auto" else name
    engine(chosen)  # Raises if it is unknown, not installed or unusable.
    if chosen not in able_to:
        raise EngineError(
            f"the {chosen} engine computes on one device, not on {mesh!r}; take {' or '.join(able_to)}, "
            "or leave the mesh out"
        )
    return ENGINES[chosen].on_mesh(mesh)


def mesh_of(mesh: object) -> Mesh | None:
    """Our mesh from one that a user gave; for None the current mesh, if there is one."""
    resolved: Mesh | None = current().mesh if mesh is None else Engine.mesh_of(mesh)
    return resolved


def able(operations: Sequence[Operation]) -> list[Engine]:
    """The engines that are installed and can run these operations, the preferred first."""
    return [candidate for candidate, _ in _candidates(operations) if isinstance(candidate, Engine)]


def _first(operations: Sequence[Operation]) -> Engine:
    reasons = []
    for candidate, why in _candidates(operations):
        if isinstance(candidate, Engine):
            return candidate
        reasons.append(f"\n  {candidate}: {why}")
    raise EngineError(f"no engine can run this graph{''.join(reasons)}")


def _candidates(operations: Sequence[Operation]) -> Iterator[tuple[Engine | str, str]]:
    """Each engine that can run the operations; for the others their names, and why they cannot."""
    for name, kind in ENGINES.items():
        missing = next((module for module in kind.needs if importlib.util.find_spec(module) is None), None)
        if missing is not None:
            yield name, f"needs {missing}, which is not installed"
        elif kind.unusable is not None:
            yield name, kind.unusable
        else:
            candidate = engine(name)
            why = candidate.unsupported(operations)
            yield (candidate, "") if why is None else (name, why)

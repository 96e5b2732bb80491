"""The door to TensorFlow itself: recognises what a running program holds, and has TensorFlow trace it.

TensorFlow is never imported here. An object can be one of its own only if the program has imported it, so
that it stands in ``sys.modules``.
"""

from __future__ import annotations

import inspect
import linecache
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stopgrad.base.errors import ArgumentError, GraphError, StopgradError
from stopgrad.base.source import OWN, kind_of
from stopgrad.graph.operands import shorten
from stopgrad.graph.public import call

if TYPE_CHECKING:
    import tensorflow as tf

_CURE = (
    "compute it with TensorFlow's operations (tf.cond, tf.while_loop and tf.map_fn where values decide), "
    "or hand what Python needs to know as a Python value in inputs="
)


def tensorflow() -> Any:
    """TensorFlow's module, as far as the program has imported it; None if it has not."""
    module = sys.modules.get("tensorflow")
    return module if hasattr(module, "function") and hasattr(module, "GradientTape") else None


def is_live(source: object) -> bool:
    """Whether this is something of a running program: a function, a graph of TensorFlow's, or a model."""
    tf = tensorflow()
    return tf is not None and (callable(source) or isinstance(source, tf.Graph))


class Traced:
    """What TensorFlow has traced.

    Attributes:
        graph: TensorFlow's ``tf.Graph``, for a function its ``FuncGraph``.
        name: of the program, for messages.
        paths: Keras' names of variables, by the identity of TensorFlow's objects for them.
        frozen: the identities of those that Keras does not train.
    """

    graph: tf.Graph
    name: str

    def __init__(self, graph: object, name: str, owner: object = None) -> None:
        self.graph, self.name = graph, name
        self.paths: dict[int, str] = {}
        self.frozen: set[int] = set()
        for variable in _variables(owner):
            inner = getattr(variable, "value", None)
            if hasattr(variable, "path") and inner is not None and not callable(inner):
                self.paths[id(inner)] = str(variable.path)
                if not variable.trainable:
                    self.frozen.add(id(inner))


def _variables(owner: object) -> Sequence[Any]:
    """The variables of a model, or of a module and the Keras layers that it holds."""
    variables = list(getattr(owner, "variables", None) or ())
    parts = vars(owner).values() if hasattr(owner, "__dict__") else ()
    waiting, seen = list(parts), {id(owner)}
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, (list, tuple)):
            waiting += part
        elif isinstance(part, Mapping):
            waiting += part.values()
        elif type(part).__module__.partition(".")[0] == "keras":
            variables += getattr(part, "variables", None) or ()
    return variables


def traced(source: object, inputs: Sequence[Any] | Mapping[str, Any] | None) -> Traced:
    """Have TensorFlow trace something of a running program.

    Args:
        source: a function of Python's or TensorFlow's, a concrete function, a graph, a Keras model, or a
            ``tf.Module`` that can be called.
        inputs: what it is called with, by position or by name: arrays, tensors, ``tf.TensorSpec``; all else
            is part of the program.

    Raises:
        ArgumentError: it needs inputs, or is nothing of the kind.
        GraphError: TensorFlow cannot trace it.
    """
    tf = tensorflow()
    if isinstance(source, (tf.Graph, tf.types.experimental.ConcreteFunction)):
        if inputs is not None:
            raise ArgumentError(
                f"inputs= is for what is yet to be traced; {shorten(source)} is traced already"
            )
        label = getattr(source, "name", None) or "the graph"
        name = label.decode() if isinstance(label, bytes) else str(label)
        return Traced(source if isinstance(source, tf.Graph) else source.graph, name)
    keras = sys.modules.get("keras")
    layer = getattr(getattr(keras, "layers", None), "Layer", None)
    if layer is not None and isinstance(source, layer):
        return _of_keras(keras, source, inputs)
    name = str(getattr(source, "__name__", None) or type(source).__name__)
    program = source.__call__ if isinstance(source, tf.Module) else source
    return Traced(_graph_of(program, name, inputs), name, getattr(source, "__self__", source))


def _of_keras(keras: Any, model: Any, inputs: Sequence[Any] | Mapping[str, Any] | None) -> Traced:
    """A model or layer of Keras, as it computes in inference."""
    if keras.config.backend() != "tensorflow":
        raise ArgumentError(
            f"{model.name} computes with Keras' backend {keras.config.backend()!r}, not with TensorFlow; "
            f"load it with stopgrad.{keras.config.backend()}"
        )
    if inputs is None:
        inputs = _specs_of(model)
    return Traced(_graph_of(model, str(model.name), inputs, model.call), str(model.name), model)


def _specs_of(model: Any) -> list[Any]:
    """What a model of Keras says that it takes."""
    tf = tensorflow()
    inputs = getattr(model, "_inputs_struct", None)
    if inputs is None:
        inputs = getattr(model, "inputs", None)
        inputs = inputs[0] if isinstance(inputs, list) and len(inputs) == 1 else inputs
    if inputs is not None:
        return [tf.nest.map_structure(lambda x: tf.TensorSpec(x.shape, x.dtype, _plain(str(x.name))), inputs)]
    built = model.get_build_config() or {}
    shape = built.get("input_shape")
    if shape is None or any(isinstance(size, (list, tuple, dict)) for size in shape):
        raise ArgumentError(
            f"{model.name} does not say what it takes; say it with inputs=[tf.TensorSpec((None, 3))], "
            "or with an example"
        )
    shape = (None, *shape[1:])  # The first axis counts examples, however many it was built with.
    return [tf.TensorSpec(shape, getattr(model, "input_dtype", None) or "float32", "x")]


# ------------------------------------------------------------------------------------------------ tracing


def _graph_of(
    source: Any, name: str, inputs: Sequence[Any] | Mapping[str, Any] | None, signature: object = None
) -> tf.Graph:
    """The graph of a function, which may have the signature of another one."""
    tf = tensorflow()
    if inputs is not None and not isinstance(inputs, (list, tuple, Mapping)):
        raise ArgumentError(
            f"inputs is a list of what {name} is called with, or a dict by names, not {shorten(inputs)}"
        )
    is_function = isinstance(source, tf.types.experimental.PolymorphicFunction)
    try:
        if inputs is None and is_function and source.input_signature is not None:
            return call(source.get_concrete_function).graph
        args, kwargs = _arguments_of(source, name, inputs)
        leaves, structure = _split(args, kwargs, _names_of(signature or source))

        def program(*tensors: object) -> object:
            values = iter(tensors)
            parts = [next(values) if isinstance(leaf, tf.TensorSpec) else leaf for leaf in leaves]
            args, kwargs = tf.nest.pack_sequence_as(structure, parts)
            return source(*args, **kwargs)

        specs = [leaf for leaf in leaves if isinstance(leaf, tf.TensorSpec)]
        return call(tf.function(program).get_concrete_function, *specs).graph
    except StopgradError:
        raise
    except (TypeError, AttributeError, NotImplementedError) as error:
        frames = list(_frames(error))
        if frames and linecache.getline(*frames[-1]).split()[:1] == ["raise"]:
            raise  # The user's own, and not because of the tracing.
        raise _untraceable(name, error, frames) from error


def _arguments_of(
    source: object, name: str, inputs: Sequence[Any] | Mapping[str, Any] | None
) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of a call."""
    if isinstance(inputs, Mapping):
        return [], dict(inputs)
    needed = [
        parameter.name
        for parameter in _parameters_of(source)
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if inputs is None and needed:
        raise ArgumentError(
            f"{name} takes {', '.join(needed)}; say what it is called with, by an example or as in "
            f"inputs=[{', '.join(['tf.TensorSpec((None, 3))'] * len(needed))}]"
        )
    return list(inputs or ()), {}


def _parameters_of(source: Any) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(source).parameters.values())
    except (TypeError, ValueError):  # Of C, or it hides what it takes.
        return []


def _names_of(source: object) -> list[str]:
    """The names of positional parameters."""
    parameters = _parameters_of(source)
    return [
        parameter.name
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]


def _split(args: list[Any], kwargs: dict[str, Any], names: Sequence[str]) -> tuple[list[Any], Any]:
    """All leaves of the arguments, with a specification of its own name in the place of each tensor."""
    tf = tensorflow()
    structure = (args, kwargs)
    parts = [(names[i] if i < len(names) else f"x{i}", x) for i, x in enumerate(args)]
    parts += [(name, kwargs[name]) for name in sorted(kwargs)]  # As TensorFlow flattens dicts.
    leaves, names_taken = list[Any](), set[str]()
    for name, part in parts:
        for leaf in tf.nest.flatten(part):
            leaves.append(_specified(leaf, name, names_taken))
    return leaves, structure


def _specified(leaf: Any, name: str, names_taken: set[str]) -> object:
    """A tensor's specification, or what is part of the program as it is."""
    tf = tensorflow()
    if isinstance(leaf, tf.Variable) or not (isinstance(leaf, tf.TensorSpec) or hasattr(leaf, "__array__")):
        return leaf
    if not isinstance(leaf, tf.TensorSpec):
        value = tf.convert_to_tensor(leaf)
        leaf = tf.TensorSpec(value.shape, value.dtype)
    unique = plain = _plain(leaf.name or name)
    while unique in names_taken:
        unique = f"{plain}_{len(names_taken)}"
    names_taken.add(unique)
    return tf.TensorSpec(leaf.shape, leaf.dtype, unique)


def _plain(name: str) -> str:
    """A name that TensorFlow allows for a node."""
    plain = "".join([c if c.isalnum() or c in "_." else "_" for c in name.removesuffix(":0")])
    return plain.lstrip("_.") or "x"


def _untraceable(name: str, error: Exception, frames: Sequence[tuple[str, int]]) -> GraphError:
    """What TensorFlow could not trace, at the user's line."""
    metadata = getattr(error, "ag_error_metadata", None)
    why = str(getattr(metadata, "cause_message", None) or error).strip().splitlines() or [""]
    reason = why[-1].removeprefix(f"{type(error).__name__}: ")
    where = "".join(
        [f"\n  at {file}:{line}: {linecache.getline(file, line).strip()}" for file, line in frames[-1:]]
    )
    return GraphError(
        f"TensorFlow cannot trace {name}: {type(error).__name__}: {reason}{where}\n"
        f"what runs while it traces has no values yet; {_CURE}"
    )


def _frames(error: Exception) -> Iterator[tuple[str, int]]:
    """The user's lines that led to an error, the innermost one last."""
    translated = getattr(getattr(error, "ag_error_metadata", None), "translated_stack", None)
    if translated:
        places = [(str(place.filename), int(place.lineno)) for place in reversed(translated)]
    else:
        places = []
        step = error.__traceback__
        while step is not None:
            places.append((step.tb_frame.f_code.co_filename, step.tb_lineno))
            step = step.tb_next
    yield from (one for one in places if kind_of(one[0]) == OWN)


def user_frame(traceback: Any) -> tuple[str, int, str] | None:
    """The innermost line of the user's in a stack that TensorFlow kept: its file, number and function."""
    for frame in reversed(list(traceback or ())):
        if kind_of(frame.filename) == OWN:
            return str(frame.filename), int(frame.lineno), str(frame.name)
    return None

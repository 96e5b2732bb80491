"""Functions written with JAX."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

from stopgrad.base.errors import ArgumentError
from stopgrad.base.namespaces import require
from stopgrad.base.structure import flatten, map_leaves
from stopgrad.base.types import TensorType
from stopgrad.graph.arguments import parameters_of
from stopgrad.graph.operands import is_tensor
from stopgrad.interop.shared.returned_losses import losses_in
from stopgrad.interop.value_worlds import JAX, kind
from stopgrad.tools.cli.call_arguments import Call, chosen, with_data, with_numbers
from stopgrad.tools.cli.function_questions import Answer, Question, require_tensors, trained_with
from stopgrad.tools.cli.inputs import Argument, line_of
from stopgrad.tools.cli.ours import asked


class OnJax:
    """The world of JAX: JAX traces the function, on shapes alone if there are no values."""

    name = JAX

    def explain(self, question: Question) -> Answer:
        """The report of ``stopgrad.jax.explain``."""
        jax, sgj = _modules("explaining a JAX function")
        f, arguments, options = _traced(question)
        trained = trained_with(question)
        if trained:
            arrays, data = with_data(question.program, arguments, question.wanted.seed or 0)
            call = Call((f, *arrays), {**options, **trained})
            return Answer(asked(question, call, lambda: sgj.explain(*call.args, **call.options)), data)
        arguments, _ = with_numbers(question.program, arguments)
        values = [map_leaves(lambda x: _struct(jax, x), argument.value) for argument in arguments]
        call = Call((f, *values), options)
        return Answer(asked(question, call, lambda: sgj.explain(*call.args, **call.options)))

    def call(self, question: Question, command: str) -> Call:
        """The function itself, with arrays of JAX as arguments."""
        jax, _ = _modules(f"{command} of a JAX function")
        f, arguments, options = _traced(question)
        arrays, data = with_data(question.program, arguments, question.wanted.seed or 0)
        values = [map_leaves(lambda x: jax.numpy.asarray(x) if is_tensor(x) else x, tree) for tree in arrays]
        return Call((f, *values), options, data)


def _modules(purpose: str) -> tuple[Any, Any]:
    """The modules of JAX, and our modules that need it."""
    return require("jax", purpose, "jax"), require("stopgrad.jax", purpose, "jax")


def _traced(question: Question) -> tuple[Callable[..., Any], list[Argument], dict[str, Any]]:
    """A function of the traced arguments alone, these arguments, and options."""
    program, wanted = question.program, question.wanted
    whole, arguments, argnums = chosen(program, question.arguments, wanted.argnums)
    traced = [i for i, argument in enumerate(arguments) if _holds_arrays(argument.value)]
    if not traced:
        names = [p.name for p in parameters_of(program.value)]
        raise ArgumentError(
            f"{line_of(program)}{program.name} "
            + (f"is given no arrays for {', '.join(names)}" if names else "takes no arguments")
            + "; gradients of a JAX function are with respect to its arguments: let it take the "
            f"parameters, and return these from example_inputs() beside it, or from {program.name}_example()"
        )
    values = [argument.value for argument in arguments]

    def function(*args: Any) -> Any:
        filled = list(values)
        for i, arg in zip(traced, args, strict=True):
            filled[i] = arg
        result = whole(*filled)
        require_tensors(question, result, JAX)
        return result if "grad" in wanted.trained_with else losses_in(result)

    return (
        _with_names(function, whole, traced),
        [arguments[i] for i in traced],
        _options(traced, argnums, arguments),
    )


def _options(traced: list[int], argnums: list[int] | None, arguments: list[Argument]) -> dict[str, Any]:
    """The options that say which of the traced arguments are asked about, if not all."""
    if argnums is None:
        return {}
    static = [arguments[n].parameter.name for n in argnums if n not in traced]
    if static:
        raise ArgumentError(
            f"--argnums: {', '.join(static)} holds no arrays, so that no gradient can be asked of it"
        )
    return {"argnums": [traced.index(n) for n in argnums]}


def _with_names(f: Callable[..., Any], like: Any, positions: list[int] | None = None) -> Any:
    """A function that calls *f*, with parameters named like another function's (at *positions*, if given)."""
    parameters = parameters_of(like)

    def function(*args: Any) -> Any:
        return f(*args)

    named: Any = function
    named.__signature__ = inspect.Signature([parameters[i] for i in positions or range(len(parameters))])
    named.__name__ = getattr(like, "__name__", "function")
    return named


def _holds_arrays(value: object) -> bool:
    """Whether JAX is to trace an argument: it holds arrays, floating-point numbers, or JAX objects."""
    return any(
        is_tensor(leaf)
        or isinstance(leaf, (TensorType, float, complex))
        or (kind(leaf) == JAX and not hasattr(leaf, "__wrapped__"))  # A compiled function is of JAX, too.
        for leaf in flatten(value)[0]
    )


def _struct(jax: ModuleType, leaf: Any) -> Any:
    """A leaf as a ``jax.ShapeDtypeStruct``, if only its type is known."""
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype.numpy) if isinstance(leaf, TensorType) else leaf

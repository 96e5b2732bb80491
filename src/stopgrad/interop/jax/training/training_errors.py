"""Errors of JAX that a training ends with: the user's lines on both sides of the cause, and the cure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from stopgrad.base.source import OWN, Location, RawLocation, decode, kind_of
from stopgrad.flow.problems.problem import Problem, Site
from stopgrad.flow.words import some
from stopgrad.interop.jax.training.gradient_calls import CALL, Call, own_code
from stopgrad.interop.jax.training.leaks import holder_of, kept_at
from stopgrad.interop.jax.training.traced_values import is_traced, made_at
from stopgrad.interop.jax.training.written import assigned_at, names_at, returned_at, value_of

CHAIN = 20
"""The most causes of an error that are looked at."""


class Step(NamedTuple):
    """A frame of the user's that an error has passed."""

    frame: FrameType
    place: RawLocation

    @property
    def location(self) -> Location:
        return decode(self.place).own


class Failed(NamedTuple):
    """An error, with the user's frames that it passed, outermost first.

    Attributes:
        error: the error.
        message: what JAX says.
        steps: the frames.
        call: the call of a gradient that it ended, if that is known.
    """

    error: BaseException
    message: str
    steps: list[Step]
    call: Call | None

    def site(self, role: str, text: str, index: int = -1) -> list[Site]:
        """The line of one of the frames."""
        return [Site(role, text, self.steps[index].location)] if self.steps else []


def explained(error: BaseException) -> Problem | None:
    """The finding that explains an error; None if it is none of these, or passed no line of the user's."""
    try:
        failed = Failed(error, str(error), steps_of(error), getattr(error, CALL, None))
        if failed.steps:
            for kind, pattern, tells in RULES:
                if isinstance(error, kind) and re.search(pattern, failed.message):
                    return tells(failed)
    except Exception:  # The user's error is what counts.
        return None
    return None


def steps_of(error: BaseException) -> list[Step]:
    """The user's frames in an error's traceback."""
    steps, tb = [], error.__traceback__
    while tb is not None:
        code = tb.tb_frame.f_code
        if kind_of(code.co_filename) == OWN:
            steps.append(Step(tb.tb_frame, (code, tb.tb_lasti)))
        tb = tb.tb_next
    return steps


# --------------------------------------------------------------------------------- arguments and results


def integer_input(failed: Failed) -> Problem | None:
    """A gradient is asked for at integers or booleans."""
    match = re.search(r"but got (\w+)", failed.message)
    dtype = match[1] if match else "an integer"
    names = [path for path, leaf in _arguments(failed.call) if _is_discrete(leaf)]
    step = failed.steps[-1]
    first = names[0].partition(".")[0] if names else ""
    origin: list[Site] = []
    for variable in _variables_holding(failed.call, step, first):
        place = assigned_at(step.location, variable)
        if place is not None:
            origin = [Site("made", f"made here, as {dtype}", place)]
            names = [variable if name == first else name for name in names]
            break
    what = some(names, 3) if names else "an argument"
    holds = "holds" if len(names) < 2 else "hold"
    return Problem(
        "jax-integer-input",
        f"{what} {holds} {dtype}, which has no gradient, and is differentiated"
        if len(names) < 2
        else f"{what} {holds} {dtype}, which has no gradient, and are differentiated",
        [*origin, *failed.site("called", "differentiated here")],
        names,
        {"dtype": dtype},
        f"make {'it' if len(names) < 2 else 'them'} of floating-point numbers, jnp.array([0.0, ...]) or "
        "x.astype(jnp.float32); what is not trained is no argument to differentiate: argnums=...",
    )


def _arguments(call: Call | None) -> list[tuple[str, Any]]:
    return [] if call is None else call.leaves()


def _is_discrete(x: Any) -> bool:
    dtype = getattr(x, "dtype", None)
    if dtype is None:
        return isinstance(x, (bool, int))
    return not jnp.issubdtype(dtype, jnp.inexact)


def _variables_holding(call: Call | None, step: Step, parameter: str) -> Iterator[str]:
    """The variables at a line that hold an argument of a call."""
    if call is None:
        return
    arguments = [call.args[n] for n in call.positions]
    for node in names_at(step.location):
        value = value_of(node, step.frame)
        if any(value is x for x in arguments):
            yield node
    if parameter in step.frame.f_locals and step.frame.f_locals[parameter] in arguments[:1]:
        yield parameter


def not_scalar(failed: Failed) -> Problem | None:
    """A function that is differentiated returns something else than a number."""
    match = re.search(r"Output (had shape: (\([\d, ]*\))|was (.*))", failed.message, re.DOTALL)
    shape = match[2] if match else None
    code = None if failed.call is None else own_code(failed.call.function)
    name = "the function" if code is None else code.co_name.replace("<lambda>", "the lambda")
    origin = []
    if code is not None and kind_of(code.co_filename) == OWN:
        place = returned_at(code)
        if place is not None:
            text = f"returned here, with shape {shape}" if shape else "returned here"
            origin = [Site("computed", text, place)]
    returns = f"an array of shape {shape}" if shape else "something that is no array"
    cure = "reduce it, by jnp.mean or jnp.sum; for the gradient of each sample, jax.vmap(jax.grad(...)); for "
    cure += "all derivatives, jax.jacrev"
    if not shape:
        cure = "return the loss alone; what else is returned with it: has_aux=True"
        returns = "None" if match and match[3] == "None" else returns
    return Problem(
        "jax-not-scalar",
        f"{name} returns {returns}, and jax.grad takes a function that returns one number",
        [*origin, *failed.site("called", "differentiated here")],
        [] if code is None else [code.co_name],
        {"shape": shape} if shape else {},
        cure,
    )


def not_real(failed: Failed) -> Problem | None:
    """A function that is differentiated returns integers or complex numbers, or complex ones are missing."""
    match = re.search(r"but got (\w+)", failed.message)
    dtype = match[1] if match else "no real number"
    code = None if failed.call is None else own_code(failed.call.function)
    place = None if code is None or kind_of(code.co_filename) != OWN else returned_at(code)
    return Problem(
        "not-real",
        f"what is differentiated is {dtype}, and only a real floating-point loss has a gradient",
        [
            *([] if place is None else [Site("computed", "returned here", place)]),
            *failed.site("called", "differentiated here"),
        ],
        [] if code is None else [code.co_name],
        {"dtype": dtype},
        "for complex numbers take jnp.abs(...) ** 2 or the real part, or holomorphic=True; a count, an "
        "argmax or a comparison has no derivative: use a smooth loss",
    )


# ------------------------------------------------------------------------------------------ traced values


def concrete(failed: Failed) -> Problem | None:
    """Python asks for the number of a traced value."""
    step = failed.steps[-1]
    name, tracer = _traced_at(step)
    origin = []
    place = None if tracer is None else made_at(tracer, step.frame.f_code)
    if place is not None:
        location = decode(place).own
        if (location.file, location.line) != (step.location.file, step.location.line):
            origin = [Site("computed", f"{name} is computed here, while JAX traces", location)]
    request, cure = next(
        (words for kind, words in ASKED if isinstance(failed.error, kind)), ("its number is needed", STATIC)
    )
    depends = re.search(r"depends on the values? of the arguments? (.+?)\.", failed.message)
    arguments = re.split(r", and |, | and ", depends[1]) if depends else []
    tracing = re.search(r"tracing the function (\S+) at \S+ for (\w+)", failed.message)
    trace = f" ({tracing[1]} runs under {tracing[2]})" if tracing else ""
    on = f", which depends on {some(arguments, 3)}" if arguments else ""
    if name in arguments:
        on = ", an argument"
    return Problem(
        "jax-concrete",
        f"{request}, of {name or 'a traced value'}{on}: while JAX traces it has none{trace}",
        [*origin, *failed.site("read", f"{request} here")],
        [name] if name else [],
        {
            "arguments": arguments,
            **({"function": tracing[1], "transformation": tracing[2]} if tracing else {}),
        },
        cure,
    )


STATIC = (
    "pass what a shape or a length depends on as a constant: static_argnames of jax.jit, or functools.partial"
)
ASKED: tuple[tuple[Any, tuple[str, str]], ...] = (
    (
        jax.errors.TracerBoolConversionError,
        (
            "Python asks for the truth",
            "choose by jnp.where(condition, a, b) or jax.lax.cond; loop by jax.lax.while_loop; a setting "
            "that is fixed is a constant: static_argnames of jax.jit",
        ),
    ),
    (
        jax.errors.TracerArrayConversionError,
        (
            "NumPy asks for the array",
            "use the function of jax.numpy; to look at values while JAX traces, jax.debug.print",
        ),
    ),
    (jax.errors.TracerIntegerConversionError, ("Python asks for the whole number", STATIC)),
    (
        jax.errors.NonConcreteBooleanIndexError,
        (
            "an index of booleans asks for the values",
            "the shape would depend on data: multiply by the mask, or jnp.where(mask, x, 0.0)",
        ),
    ),
    (
        jax.errors.ConcretizationTypeError,
        (
            "Python asks for the number",
            "return it from the function and convert it outside; to look at it inside, jax.debug.print; what "
            "a shape depends on is a constant: static_argnames of jax.jit",
        ),
    ),
)
"""What asks, and what helps, by the kind of the error."""


def _traced_at(step: Step) -> tuple[str, Any]:
    """A traced value that an expression reads, and its name."""
    for name in names_at(step.location):
        value = value_of(name, step.frame)
        if is_traced(value):
            return name, value
    return "", None


def leaked(failed: Failed) -> Problem | None:
    """A traced value is used after its trace."""
    step = failed.steps[-1]
    name, tracer = _traced_at(step)
    if tracer is None:
        name, tracer = holder_of(step.frame)
    place = None if tracer is None else made_at(tracer)
    origin = _creation_in(failed.message) if place is None else decode(place).own
    sites = [] if origin is None else [Site("made", "made here, while JAX traces", origin)]
    files = [passed.location.file for passed in reversed(failed.steps)]
    keeping = kept_at(name, tracer, step.frame, [*([origin.file] if origin else []), *files], origin)
    if keeping is not None:
        text = f"kept here, as {keeping.name}"
        if origin is not None and (keeping.location.file, keeping.location.line) == (
            origin.file,
            origin.line,
        ):
            sites = []
            text = f"made here, while JAX traces, and kept as {keeping.name}"
        sites.append(Site("written", text, keeping.location))
    return Problem(
        "jax-leaked-tracer",
        f"{name or 'a value'} was made while JAX traced a function, and is used after that trace",
        [*sites, *failed.site("read", "used here")],
        [name] if name else [],
        {},
        "return it from the function that is traced, with the loss as has_aux=True, and keep what the call "
        "returns; do not keep values in attributes, lists or globals in there",
    )


def _creation_in(message: str) -> Location | None:
    """The line that JAX's message names as the one that made the value."""
    match = re.search(r"was created on line (.+?):(\d+)", message)
    if match is None or kind_of(match[1]) != OWN:
        return None
    return Location(match[1], int(match[2]))


# --------------------------------------------------------------------------------------------------- loops


def while_loop(failed: Failed) -> Problem | None:
    """A while loop is differentiated in reverse."""
    step = _before(failed.error)
    text = "the loop, whose number of steps only its run knows"
    loop = [] if step is None else [Site("needed", text, step.location)]
    return Problem(
        "jax-while-loop",
        "a loop whose number of steps is known only when it runs is differentiated in reverse, which would "
        "need what each step computed",
        [*loop, *failed.site("called", "differentiated here")],
        [],
        {},
        "jax.lax.scan, or jax.lax.fori_loop whose bounds are numbers of Python; forwards, jax.jvp and "
        "jax.jacfwd can; for a fixed point, jax.lax.custom_root",
    )


def _before(error: BaseException) -> Step | None:
    """The user's line that computed what JAX then failed to transform, as JAX remembers it."""
    cause: BaseException | None = error
    for _ in range(CHAIN):
        cause = None if cause is None else cause.__cause__ or cause.__context__
        if type(cause).__name__ == "JaxStackTraceBeforeTransformation" and cause is not None:
            steps = steps_of(cause)
            return steps[-1] if steps else None
    return None


# ------------------------------------------------------------------------------------------- custom rules


def wrong_rule(failed: Failed) -> Problem | None:
    """The backward rule of a custom function returns something that does not fit its arguments."""
    step = _before(failed.error)
    sites: list[Site] = []
    names: list[str] = []
    for name in () if step is None else names_at(step.location):
        rules = [getattr(value_of(name, passed.frame), "bwd", None) for passed in reversed(failed.steps)]
        code = own_code(next(filter(None, rules), None))
        if code is not None and kind_of(code.co_filename) == OWN:
            place = returned_at(code)
            sites = [] if place is None else [Site("made", f"returned here, by the rule of {name}", place)]
            names = [name]
            break
    if step is not None:
        sites.append(Site("needed", "the custom function is called here", step.location))
    shape = re.search(
        r"output\[(\d+)\].* type (\S+) corresponding to an input of type (\S+),", failed.message
    )
    fact = "returns not one gradient for each argument"
    if shape:
        fact = f"returns {shape[2]} as the gradient of argument {shape[1]}, which is {shape[3]}"
    return Problem(
        "wrong-gradient",
        f"the backward rule of {names[0] if names else 'a custom_vjp function'} {fact}",
        [*sites, *failed.site("called", "differentiated here")],
        names,
        {},
        "return a tuple with a gradient for each argument, of its shape and dtype; zeros for one without",
    )


def no_forward(failed: Failed) -> Problem | None:
    """A function with a backward rule only is differentiated forwards."""
    return Problem(
        "not-twice",
        "a custom_vjp function, which has a rule for reverse mode only, is differentiated forwards",
        failed.site("called", "called here, inside of jvp, jacfwd, hessian or linearize"),
        [],
        {},
        "jax.jacrev in place of jax.jacfwd; for both modes, write the rule with jax.custom_jvp",
    )


def callback(failed: Failed) -> Problem | None:
    """A callback to Python is differentiated."""
    return Problem(
        "leaves-graph",
        "a value leaves JAX for a callback to Python, and a gradient is to pass it",
        failed.site("cut", "leaves for Python here"),
        [],
        {},
        "write it with jax.numpy, or give it a rule by jax.custom_jvp or jax.custom_vjp; if no gradient is "
        "meant to pass, jax.lax.stop_gradient(...) around its arguments",
    )


Tells = Callable[[Failed], Problem | None]
RULES: tuple[tuple[Any, str, Tells], ...] = (
    (TypeError, r"requires (real- or complex|real|numerical)-valued inputs", integer_input),
    (TypeError, r"Gradient only defined for scalar-output functions", not_scalar),
    (TypeError, r"requires (real-valued outputs|inputs with complex dtype|outputs with complex)", not_real),
    (jax.errors.UnexpectedTracerError, r"", leaked),
    (
        (
            jax.errors.ConcretizationTypeError,
            jax.errors.TracerArrayConversionError,
            jax.errors.TracerIntegerConversionError,
            jax.errors.NonConcreteBooleanIndexError,
        ),
        r"",
        concrete,
    ),
    (TypeError, r"concrete values? (of integer type|is expected)|Shapes must be 1D sequences", concrete),
    ((TypeError, ValueError), r"Custom VJP bwd rule must produce", wrong_rule),
    (TypeError, r"can't apply forward-mode .* to a custom_vjp function", no_forward),
    (ValueError, r"callbacks do not support JVP", callback),
    (ValueError, r"Reverse-mode differentiation does not work for lax\.while_loop", while_loop),
)
"""What explains an error, by its type and by what its message contains; the first that fits is asked."""

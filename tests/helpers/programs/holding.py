"""Holds what is said of programs against the model, and against what autograd says of their twins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

import stopgrad as sg
import stopgrad.jax as sgj
import stopgrad.torch as sgt
from programs.comparing import ARRIVES, Complaints, Said, World, against_model, told
from programs.drawing import ALIASING, Drawing
from programs.forms import JAX, OURS, TORCH
from programs.jaxes import Jax, JaxModel, JaxTwin
from programs.language import INPUTS, Program, Statement, Writer, Written, everything, free_names, is_smooth
from programs.ours import Ours
from programs.reach import UNDEFINED, End
from programs.torches import Torch, TorchModel, arguments
from programs.twin import Twin, gradients
from stopgrad.graph.build import visible
from stopgrad.graph.interpreter import interpret

# ------------------------------------------------------------------------------------------ this library


def values_of(seed: int) -> dict[str, np.ndarray[Any, Any]]:
    """Values for the inputs of a program."""
    rng = np.random.default_rng(seed)
    made: dict[str, np.ndarray[Any, Any]] = {f"f{k}": rng.normal(size=3) for k in range(3)}
    return made | {"i0": rng.integers(-1, 4, 3).astype(np.int32), "b0": rng.random(3) < 0.5}


DTYPES = {"f": sg.float64, "i": sg.int32, "b": sg.bool}


def complaints_of_ours(program: Program, seed: int = 0) -> Complaints:
    """What is wrong with the report on a program in this library, and with its gradients."""
    written, file = Ours(program).written(), "<program>"
    scope: dict[str, Any] = {}
    exec(compile(written.text, file, "exec"), scope)
    with sg.Graph().as_default():
        inputs = {name: sg.placeholder(DTYPES[name[0]], [3], name=name) for name in INPUTS}
        results, named = scope["program"](*inputs.values())
        ys = [visible(y) for y in results]
        stops = [named[name] for name in program.stops]
        sources = {**inputs, **{name: named[name] for name in program.asked}}
        said = told(sg.explain(ys, list(sources.values()), stop_gradients=stops), written, sources, file)
        yield from against_model(said, program, OURS)
        truth = yield from against_twin(said, program, Twin, seed)
        yield from against_gradients(said, program, truth, sources, ys, stops, seed)
    return said


def against_twin(said: Said, program: Program, twin: type[Twin], seed: int) -> Any:
    """Where a report and autograd differ about the twin, and about the twin without each end."""
    given = {name: torch.tensor(x) for name, x in values_of(seed).items()}
    given["i0"] = given["i0"].long()
    selective = any(s.names and s.form != "call" for s in everything(program.statements))
    floats = [name for name in said if name[0] == "f"]

    def autograd(opened: str | None = None) -> dict[str, Any]:
        return gradients(twin(program, opened).written(), given, floats, selective)

    truth = autograd()
    for name in floats:
        status, _ = said[name]
        if (status in ARRIVES) != (truth[name] is not None):
            yield f"{name}: {status!r}, and in the twin {arriving(truth[name])}"
    ends = dict.fromkeys([end for name in floats for end in said[name][1]])
    for label in dict.fromkeys([removal(end) for end in ends if removable(program, end, twin)]):
        opened = autograd(label)
        opens = {
            x for name in floats for end, xs in said[name][1].items() if removal(end) == label for x in xs
        }
        for name in floats:
            expected = said[name][0] in ARRIVES or name in opens
            if expected != (opened[name] is not None):
                yield f"without {label}, {arriving(opened[name])} at {name}, which is not said"
    return truth


def arriving(gradient: object) -> str:
    return "no gradient arrives" if gradient is None else "a gradient arrives"


def removal(end: End) -> str:
    """The name under which a twin is written without an end."""
    return f"named {end.label}" if end.why == "named" else end.label


def removable(program: Program, end: End, twin: type[Writer]) -> bool:
    """Whether the twin can be written without an end."""
    if end.why not in ("", "left"):
        return False
    for s in everything(program.statements):
        if s.label == end.label:
            return s.form in ("block", "while") or (
                s.form in twin.forms and twin.library in twin.forms[s.form].opened
            )
    return False


def against_gradients(
    said: Said, program: Program, truth: Mapping[str, Any], sources: Any, ys: Any, stops: Any, seed: int
) -> Iterator[str]:
    """Where the generated gradients and those of the twin differ."""
    feeds = {sources[name]: value for name, value in values_of(seed).items()}
    all_statements = list(everything(program.statements))
    selective = any(s.names and s.form != "call" for s in all_statements)
    clips = any(s.form.startswith("clip") for s in all_statements)
    endless = any(s.form == "while" and s.number is None for s in all_statements)
    for name, expected in truth.items():
        if any(end.level == UNDEFINED for end in said[name][1]):
            continue
        (g,) = sg.gradients(ys, [sources[name]], stop_gradients=stops)
        if (g is None) != (expected is None):
            yield f"{name}: {arriving(g)}, and in the twin {arriving(expected)}"
        elif g is not None and not endless and not (selective and clips):
            found = interpret([g], feeds)[0]
            if not np.allclose(found, expected.numpy(), rtol=1e-8, atol=1e-9):
                yield f"{name}: the gradient is {found}, and {expected.numpy()} in the twin"


OUR_CONSTRUCTS = {
    "define": 2.0,
    "block": 2.0,
    "cond": 2.0,
    "switch": 1.0,
    "while": 2.0,
    "fori": 1.5,
    "scan": 2.5,
    "map": 1.0,
    "vmap": 1.5,
    "checkpoint": 1.5,
    "custom": 2.5,
}


def our_program(seed: int) -> Program:
    return Drawing(seed, OURS, OUR_CONSTRUCTS).program(question=True)


# ------------------------------------------------------------------------------------------------- JAX

JAX_CONSTRUCTS = {
    "define": 2.0,
    "cond": 2.0,
    "switch": 1.0,
    "while": 1.5,
    "fori": 1.5,
    "scan": 2.5,
    "map": 1.0,
    "vmap": 2.0,
    "checkpoint": 1.5,
    "jit": 1.5,
    "custom": 2.0,
    "tangent": 2.0,
}


def jax_program(seed: int) -> Program:
    return Drawing(seed, JAX, JAX_CONSTRUCTS, alone=0.7, bounds=[None]).program()


def complaints_of_jax(program: Program, seed: int = 0, numbers: bool = True) -> Complaints:
    """What is wrong with the report on a program in JAX."""
    written, file = Jax(program).written(), "<program>"
    f = function_of(written, file)
    flow = sgj.explain(f, *arrays_of(seed))
    said = told(flow, written, {name: name for name in INPUTS}, file)
    yield from against_model(said, program, JAX, JaxModel)
    yield from against_twin(said, program, JaxTwin, seed)
    if numbers and not any(refuses(s) for s in everything(program.statements)):
        yield from against_jax(said, f, seed)
    return said


def refuses(statement: Statement) -> bool:
    """Whether JAX may refuse a statement where it runs step by step, or its gradient."""
    own = statement.form in ("custom", "tangent") and free_names(statement.functions[0])
    return bool(own) or (statement.form == "scan" and statement.number == 0)


def function_of(written: Written, file: str) -> Any:
    """The function of a program in JAX."""
    scope: dict[str, Any] = {}
    exec(compile(written.text, file, "exec"), scope)
    return lambda f0, f1, f2, i0, b0: scope["program"](f0, f1, f2, i0, b0)[0]


def arrays_of(seed: int) -> list[Any]:
    values = values_of(seed)
    return [jnp.asarray(x, jnp.float32 if name[0] == "f" else None) for name, x in values.items()]


def against_jax(said: Said, f: Any, seed: int) -> Iterator[str]:
    """Where a report and JAX's gradients differ: where nothing arrives, they are zero."""

    def total(*args: Any) -> Any:
        return sum([jnp.sum(x) for x in f(*args) if x.dtype == jnp.float32])

    floats = [name for name in said if name[0] == "f"]
    if any(end.level == UNDEFINED for name in floats for end in said[name][1]):
        return
    for draw in range(2):
        args = arrays_of(seed + 1000 * draw)
        with jax.disable_jit():
            found = jax.grad(total, argnums=(0, 1, 2))(*args)
        for name, g in zip(floats, found, strict=True):
            if said[name][0] not in ARRIVES and np.any(g):
                yield f"{name}: {said[name][0]!r}, and JAX's gradient is {g}"


# --------------------------------------------------------------------------------------------- PyTorch

TORCH_CONSTRUCTS = {
    "define": 2.0,
    "block": 3.0,
    "fori": 1.0,
    "scan": 1.5,
    "map": 1.0,
    "checkpoint": 1.0,
    "write": 4.0,
    "view": 2.0,
}


def torch_program(seed: int) -> Program:
    """A program that PyTorch differentiates."""
    for attempt in range(1000):
        program = Drawing(1000 * seed + attempt, TORCH, TORCH_CONSTRUCTS).program()
        if works(program):
            return program
    raise AssertionError(seed)


def works(program: Program) -> bool:
    if not writes_into_own(program):
        return False
    model = TorchModel(program, TORCH)
    model.ways()
    return not model.itself and grads_of(program) is not None


def writes_into_own(program: Program) -> bool:
    """Whether blocks write only into what was made in them, and nothing writes into inputs."""

    def each(statements: tuple[Statement, ...], known: set[str] | None) -> bool:
        for s in statements:
            if s.form == "write" and (
                s.takes[0] in INPUTS or (known is not None and s.takes[0] not in known)
            ):
                return False
            if known is not None:
                known.update(s.makes if s.form not in ALIASING else ())
            if not each(s.inside, set()) or not all(each(f.statements, known and set()) for f in s.functions):
                return False
        return True

    return each(program.statements, None)


def run_torch(program: Program, given: Any, opened: str | None = None) -> Any:
    written = Torch(program, opened).written()
    scope: dict[str, Any] = {}
    exec(compile(written.text, "<program>", "exec"), scope)
    return scope["program"](*given.values())[0]


def total_of(results: Any) -> Any:
    return sum([x.sum() for x in results if x.is_floating_point()])


def leaves_of(given: Any) -> dict[str, Any]:
    found = {name: x for name, x in given.items() if isinstance(x, torch.Tensor)}
    for name, module in given.items():
        if not isinstance(module, torch.Tensor):
            found |= {f"{name}.{key}": p for key, p in module.named_parameters()}
    return {name: found[name] for name in TorchModel.inputs}


def grads_of(program: Program, opened: str | None = None) -> Any:
    """The gradients, or None where PyTorch refuses."""
    given = arguments(0)
    try:
        torch.default_generator.manual_seed(0)
        loss = total_of(run_torch(program, given, opened))
        if loss.requires_grad:
            loss.backward()
    except (RuntimeError, IndexError, TypeError, ValueError):
        return None
    finally:
        torch.set_grad_enabled(True)
    return {name: x.grad for name, x in leaves_of(given).items()}


def complaints_of_torch(program: Program) -> Complaints:
    """What is wrong with the report on a program in PyTorch."""
    written = Torch(program).written()
    given = arguments(0)
    truth = grads_of(program)
    if truth is None:
        return {}
    with sgt.watch() as seen:
        torch.default_generator.manual_seed(0)
        results = run_torch(program, given)
    asked = {name: given[name] for name in given if name not in ("tied",)}
    flow = seen.explain([x for x in results if x.is_floating_point()], asked)
    said = told(flow, written, {name: name for name in TorchModel.inputs}, "<program>")
    yield from against_model(said, program, TORCH, TorchModel)
    yield from against_autograd(said, program, truth)
    return said


def against_autograd(said: Said, program: Program, truth: Any) -> Iterator[str]:
    floats = [name for name in said if is_smooth(name)]
    for name in floats:
        yield from one_against_autograd(name, said[name][0] in ARRIVES, said[name], truth[name], "")
    ends = dict.fromkeys([end for name in floats for end in said[name][1]])
    model = TorchModel(program, TORCH)
    model.ways()
    labels = dict.fromkeys([end.label for end in ends if removable(program, end, Torch)])
    for label in labels:
        if label in model.written or model.unsure:
            continue
        opened = grads_of(program, label)
        if opened is None:
            continue
        opens = {x for name in floats for end, xs in said[name][1].items() if end.label == label for x in xs}
        for name in floats:
            expected = said[name][0] in ARRIVES or name in opens
            yield from one_against_autograd(name, expected, said[name], opened[name], f"without {label}, ")


def one_against_autograd(name: str, arrives: bool, said: Any, grad: Any, when: str) -> Iterator[str]:
    if arrives and grad is None:
        yield f"{when}{name}: {said[0]!r}, and its gradient is None"
    elif not arrives and grad is not None and grad.any():
        yield f"{when}{name}: {said[0]!r}, and it has a gradient"


# --------------------------------------------------------------------------------------------- worlds


WORLDS = {
    "stopgrad": World(our_program, complaints_of_ours, Ours),
    "PyTorch": World(torch_program, complaints_of_torch, Torch),
    "JAX": World(jax_program, complaints_of_jax, Jax),
}

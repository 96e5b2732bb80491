"""Random eager PyTorch programs for the tests of the watch: what they are made of, and how they run.

A program is a list of statements over a namespace of tensors. It is drawn by running it: each statement is
chosen by what is there, and left out if PyTorch refuses it. ``Program.text`` is its source, which runs anew
under a watch.
"""

from __future__ import annotations

import copy
import linecache
import random
import re
import textwrap
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from types import CodeType
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch_functions import Forget, Halves, Nothing, Scale

# ------------------------------------------------------------------------------------ what programs can use


def weighted(x: Any) -> Any:
    """A sum whose weights are generic."""
    factors = torch.sin(torch.arange(1.0, x.numel() + 1.0, dtype=torch.float64))
    return (x * factors.reshape(x.shape)).sum()


def mixed(x: Any, y: Any) -> Any:
    return torch.tanh(x) * torch.sigmoid(y) + x


USED = {
    "torch": torch,
    "np": np,
    "functional": functional,
    "checkpoint": checkpoint,
    "weighted": weighted,
    "mixed": mixed,
    "Scale": Scale,
    "Forget": Forget,
    "Nothing": Nothing,
    "Halves": Halves,
    "MASK": torch.tensor([True, False, True]),
}


NAMES = ("a", "b", "c", "d", "frozen", "linear", "norm", "layer_norm", "lstm", "attention", "table")


@cache
def _made(seed: int) -> dict[str, Any]:
    reseed(seed)
    leaf = lambda *shape: torch.randn(*shape, dtype=torch.float64).requires_grad_()
    modules = {
        "linear": nn.Linear(3, 3),
        "norm": nn.BatchNorm1d(3),
        "layer_norm": nn.LayerNorm(3),
        "lstm": nn.LSTM(3, 3),
        "attention": nn.MultiheadAttention(3, 1),
        "table": nn.Embedding(3, 3),
    }
    frozen = leaf(3, 3).requires_grad_(False)
    made: dict[str, Any] = {"a": leaf(3, 3), "b": leaf(3, 3), "c": leaf(3), "d": leaf(()), "frozen": frozen}
    return made | {name: module.double() for name, module in modules.items()}


def parameters(seed: int) -> dict[str, Any]:
    """What is asked about: leaves and modules by name, new ones with the same values at every call."""
    made = copy.deepcopy(_made(seed % 10))
    reseed(seed)
    return made


def reseed(seed: int) -> None:
    """As ``torch.manual_seed``, which also looks for devices that are not there."""
    torch.default_generator.manual_seed(seed)


# ----------------------------------------------------------------------------------------------- programs


@dataclass(frozen=True)
class Statement:
    """A line of a program, or a block.

    Attributes:
        text: the source.
        stops: names of variables whose gradient ends here, or which are overwritten here.
        partial: whether it picks, writes or masks elements, so that a gradient that arrives may be zero.
        lost: whether the value leaves for Python and is changed there, where no tool can follow it.
        hidden: whether values and gradients go different ways here: integers, writes autograd does not see.
    """

    text: str
    stops: tuple[str, ...] = ()
    partial: bool = False
    lost: bool = False
    hidden: bool = False

    @property
    def writes(self) -> bool:
        """Whether it writes into tensors, and makes none."""
        return re.match(r"\(?v\d+(, v\d+)*,?\)? = ", self.text) is None

    @property
    def lines(self) -> int:
        return self.text.count("\n") + 1


@dataclass(frozen=True)
class Program:
    """Statements, after which the loss is a sum of some of the variables."""

    seed: int
    statements: tuple[Statement, ...]
    summed: tuple[str, ...]

    @property
    def file(self) -> str:
        return f"<program {self.seed}>"

    @cached_property
    def text(self) -> str:
        names = ", ".join(NAMES)
        total = " + ".join([f"weighted({name})" for name in self.summed])
        body = "\n".join([statement.text for statement in self.statements])
        return f"def program({names}):\n{textwrap.indent(body, '    ')}\n    return {total}\n"

    @property
    def partial(self) -> bool:
        return any(statement.partial for statement in self.statements)

    def reads(self, key: str) -> bool:
        """Whether a parameter is used at all."""
        return re.search(rf"\b{key.split('.')[0]}\b", self.text.split("\n", 1)[1]) is not None

    @property
    def lost(self) -> bool:
        return any(statement.lost for statement in self.statements)

    @property
    def shares(self) -> bool:
        """Whether memory is written that others share and autograd does not know of."""
        return any(".data." in statement.text for statement in self.statements)

    def depends(self, key: str, k: int) -> bool:
        """Whether what a statement stops may be made of a parameter, by the names in statements before it."""
        tied: set[str] = {key.split(".")[0]}
        for statement in self.statements[:k]:
            names = set(re.findall(r"\b(?:v\d+|" + "|".join(NAMES) + r")\b", statement.text))
            tied |= names if names & tied else set()
        return bool(tied & set(self.statements[k].stops))

    def placed(self) -> Iterator[tuple[int, Statement]]:
        """Statements with the lines at which they begin."""
        line = 2
        for statement in self.statements:
            yield line, statement
            line += statement.lines

    @cached_property
    def function(self) -> Callable[..., Any]:
        linecache.cache[self.file] = (len(self.text), None, self.text.splitlines(True), self.file)
        names = dict(USED)
        exec(compile(self.text, self.file, "exec"), names)
        return names["program"]  # type: ignore[return-value]

    def loss(self, given: dict[str, Any]) -> Any:
        """Run it, with dropout and the like as at any other time."""
        with quiet():
            reseed(self.seed)
            return self.function(**given)

    def without(self, k: int) -> Program:
        return Program(self.seed, self.statements[:k] + self.statements[k + 1 :], self.summed)


def quiet() -> Any:
    return warnings.catch_warnings(action="ignore")


def run(program: Program, given: dict[str, Any]) -> list[dict[str, Any]]:
    """The values of what each statement stops, before it ran."""
    names = USED | given
    found = []
    with quiet(), torch.enable_grad():
        reseed(program.seed)
        for statement in program.statements:
            found.append({name: value_of(names.get(name)) for name in statement.stops})
            exec(_compiled(statement.text), names)
    return found


def value_of(x: Any) -> Any:
    if isinstance(x, nn.Module):
        return torch.cat([p.detach().flatten() for p in x.parameters()])
    return x.detach().clone() if isinstance(x, torch.Tensor) else x


_COMPILED: dict[str, CodeType] = {}


def _compiled(text: str) -> CodeType:
    if text not in _COMPILED:
        if len(_COMPILED) > 10_000:
            _COMPILED.clear()
        _COMPILED[text] = compile(text, "<statement>", "exec")
    return _COMPILED[text]


# ----------------------------------------------------------------------------------------- drawing programs


@dataclass(frozen=True)
class Form:
    """A statement with places to fill: capital letters for tensors of a kind, others for new variables.

    ``M`` is a matrix of 3 by 3, ``V`` a vector of 3, ``S`` one of both or a scalar, ``T`` any tensor, and
    ``F`` one that can be added to it; ``W`` can be written in place, ``P`` is such a matrix, ``X`` can be
    written where nobody looks, and ``B`` can be added to these; ``G`` requires grad and is no view, ``Y`` was
    computed, ``D`` was computed and is no view.
    """

    text: str
    stops: str = ""
    partial: bool = False
    lost: bool = False
    hidden: bool = False

    def filled(self, drawing: Drawing) -> Statement:
        names: dict[str, str] = {}
        for place in re.findall(r"\{(\w\d?)\}", self.text):
            if place not in names:
                names[place] = drawing.new() if place.islower() else drawing.pick(PLACES[place[0]], names)
        stops = tuple([names.get(stop, stop) for stop in self.stops.split()])
        text = re.sub(r"\{(\w\d?)\}", lambda found: names[found[1]], self.text)
        return Statement(text, stops, self.partial, self.lost, self.hidden)


class Drawing:
    """A program in the making, and the values that it has so far."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.given = parameters(seed)
        self.names: dict[str, Any] = USED | self.given
        self.tensors = [name for name, x in self.given.items() if isinstance(x, torch.Tensor)]
        self.statements: list[Statement] = []
        self.made = 0
        reseed(seed)

    def new(self) -> str:
        self.made += 1
        return f"v{self.made}"

    def pick(self, fits: Place, others: dict[str, str]) -> str:
        """A tensor that fits to others that were picked, mostly one of the latest."""
        beside = [self.names[name] for name in others.values() if name in self.names]
        found = [name for name in self.tensors if alive(x := self.names[name]) and fits(self, x, *beside[:1])]
        if not found:
            raise UnfitError
        return self.random.choice(found[-6:] if self.random.random() < 0.7 else found)

    def asked(self, x: Any) -> bool:
        """Whether it is a leaf that requires grad, a view of one, or asked about."""
        x = x if x._base is None else x._base
        return (x.is_leaf and x.requires_grad) or any(x is given for given in self.given.values())

    def add(self, statement: Statement) -> None:
        """Run it, and keep it if that works."""
        with quiet():
            try:
                exec(_compiled(statement.text), self.names)
            except (RuntimeError, TypeError, ValueError, IndexError):
                return
            finally:
                torch.set_grad_enabled(True)
        self.statements.append(statement)
        for name, x in self.names.items():
            if name[0] == "v" and name[1:].isdigit() and name not in self.tensors and usable(x):
                self.tensors.append(name)


def alive(x: Any) -> bool:
    """Whether it can be looked at: a view of many, whose base was written, cannot."""
    try:
        return x.is_leaf or True
    except RuntimeError:
        return False


def usable(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.dtype == torch.float64 and 0 < x.numel() <= 64 and alive(x)


class UnfitError(Exception):
    """There is nothing yet of which such a statement could be made."""


Place = Callable[..., bool]
PLACES: dict[str, Place] = {
    "T": lambda d, x, *_: True,
    "M": lambda d, x, *_: x.shape == (3, 3),
    "V": lambda d, x, *_: x.shape == (3,),
    "S": lambda d, x, *_: x.shape in ((3, 3), (3,), ()),
    "F": lambda d, x, y: x.shape in (y.shape, (3,), ()) or y.shape in ((3,), ()),
    "W": lambda d, x, *_: x.dim() > 0 and not d.asked(x),
    "P": lambda d, x, *_: x.shape == (3, 3) and not d.asked(x),
    "X": lambda d, x, *_: x.dim() > 0,
    "B": lambda d, x, y: x.shape == y.shape or (x.shape in ((3,), ()) and y.shape == (3, 3)),
    "G": lambda d, x, *_: x.requires_grad and x._base is None,
    "Y": lambda d, x, *_: x.requires_grad and not x.is_leaf,
    "D": lambda d, x, *_: not x.is_leaf and x._base is None,
}
"""What may stand at a place, beside the first that was picked. Hooks go to no view, for PyTorch 2.13 crashes
where the base of one was written or detached."""


def assigned(*texts: str, **said: Any) -> list[Form]:
    return [Form("{n} = " + text, **said) for text in texts]


def done(*texts: str, **said: Any) -> list[Form]:
    return [Form(text, **said) for text in texts]


def guarded(guard: str, *texts: str, **said: Any) -> list[Form]:
    return [Form(f"with {guard}:\n    {text}", **said) for text in texts]


RULES: dict[str, list[Form]] = {
    "plain": assigned(
        "torch.tanh({T})",
        "torch.sigmoid({T})",
        "functional.softplus({T})",
        "{T} * 0.7 + 0.1",
        "torch.cos({T}).exp()",
        "{T}.square() * 0.3",
        "{T}.clone()",
        "torch.softmax(torch.atleast_1d({T}), -1)",
        "{T} + {F}",
        "{T} - 0.5 * {F}",
        "{T} * {F}",
        "{T} / ({F} ** 2 + 1.0)",
        "torch.lerp({M}, {M1}, 0.3)",
        "torch.tanh({M} @ {M1})",
        "torch.einsum('ij,kj->ik', {M}, {M1}) * 0.3",
        "torch.mm({M}, {M1}.t()) * 0.3",
        "{M}.t()",
        "{M}.reshape(-1)",
        "{V}.expand(3, 3)",
        "{V}[None, :].repeat(3, 1)",
        "torch.stack([{M}, {M1}]).sum(0)",
        "torch.hstack([{M}, {M1}])",
    ),
    "views": [
        *assigned("{M}[0]", "{M}[1:]", "{M}[:, 1]", "{M}.diagonal()", "{M}.narrow(0, 1, 2)", partial=True),
        *assigned("{M}[[0, 2]]", "{M}[MASK]", "{M}[..., 1]", "{M}.select(1, 0)", "{M}.triu()", partial=True),
        *assigned("{M}.as_strided((3,), (1,))", "{M}.max(dim=0).values", partial=True),
        *assigned("torch.cat([{M}, {M1}])[1:4]", "torch.atleast_2d(*{M}.unbind(0))[1]", partial=True),
        *done("{k}, {m}, {n} = {M}.unbind(0)", "{k}, {m} = {M}.chunk(2)", partial=True),
        *done("{m}, {n} = {M}.split([1, 2])", "{k}, {m}, {n} = torch.unbind({M}, 1)", partial=True),
    ],
    "writes": [
        *done("{W}.mul_(0.9)", "{W}.add_({B})", "{W} += {B}", "{W} *= {B}", "{W}.tanh_()", "torch.sin_({W})"),
        *done("{W}.sub_({B}, alpha=0.5)", "{W}.addcmul_({B}, {B})"),
        *done("{P}[:, 1] += {V}", "{P}[1:].mul_(0.5)", "{P}.t()[0].add_({V})", partial=True),
        *done("{P}[0] = {V}", "{P}[MASK] = {V}", "{P}.masked_fill_(MASK, 0.3)", stops="P", partial=True),
        *done("{P}.diagonal().copy_({V})", "{P}[0].zero_()", stops="P", partial=True),
        *done("{P}.index_copy_(0, torch.tensor([1]), {V}[None])", stops="P", partial=True),
    ],
    "overwrites": [
        *done("{W}.zero_()", "{W}.fill_(0.3)", "{W}[:] = 0.2", stops="W", partial=True, hidden=True),
        *done("{W}.copy_({B})", "{W}[...] = {B}", stops="W", partial=True, hidden=True),
    ],
    "detach": [
        *assigned("{T}.detach()", "{T}.data", "{T}.clone().detach()", "{T}.data.clone()", stops="T"),
        *assigned("{T}.detach().clone().requires_grad_()", "torch.nn.Parameter({T}.clone())", stops="T"),
        *done("{D}.detach_()", stops="D"),
    ],
    "data": done(
        "{X}.data.mul_(0.9)",
        "{X}.data.add_({B})",
        "{X}.data.copy_({B})",
        stops="X B",
        partial=True,
        hidden=True,
    ),
    "no_grad": [
        *guarded("torch.no_grad()", "{n} = torch.tanh({T})", "{n} = {T} * 2.0", stops="T"),
        *guarded("torch.set_grad_enabled(False)", "{n} = torch.sin({T}).clone()", stops="T"),
        *guarded("torch.inference_mode()", "{k} = torch.tanh({T})\n{n} = {k}.clone()", stops="T"),
        *guarded("torch.no_grad()", "{X}.mul_(0.9)", "{X} += {B}", stops="X B", partial=True, hidden=True),
        *guarded("torch.no_grad()", "{X}.copy_({B})", "{X}.zero_()", stops="X B", partial=True, hidden=True),
        *guarded("torch.no_grad()", "with torch.enable_grad():\n        {n} = {T} * 0.3"),
    ],
    "integers": [
        *assigned("{T}.long().double()", "({T} > 0.0).double()", "torch.round({T})", stops="T", hidden=True),
        *assigned("torch.sign({T})", "torch.floor({T} * 3.0)", "{T}.trunc()", stops="T", hidden=True),
        *assigned("torch.bernoulli(torch.sigmoid({T}))", "torch.fix({T} * 2.0)", stops="T", hidden=True),
        *assigned("{M1}[{M}.argmax(dim=-1)]", stops="M", partial=True, hidden=True),
        *assigned("torch.gather({M1}, 1, {M}.argsort(dim=1))", stops="M", partial=True, hidden=True),
        *assigned("{M1}.index_select(0, {M}.argmin(dim=0))", stops="M", partial=True, hidden=True),
        *assigned("torch.where({M} > 0.0, {M1}, 0.5 * {M1})", stops="M", partial=True, hidden=True),
        *assigned("table({M}.argmax(dim=-1)) + {M1}", stops="M", partial=True, hidden=True),
        *assigned(
            "torch.take_along_dim({M1}, {M}.topk(2).indices, dim=1)", stops="M", partial=True, hidden=True
        ),
    ],
    "where": assigned(
        "torch.where(MASK, {M}, {M1})",
        "torch.where(MASK[:, None], {M}, {M1})",
        "{M}.masked_fill(MASK, 0.1) + {M1}",
        "functional.dropout({M}, 0.3)",
        partial=True,
    ),
    "functions": [
        *assigned("Scale.apply({M}, {S})", "Halves.apply({M})[0]"),
        *assigned("Forget.apply({M}, {S})", stops="S"),
        *assigned("Nothing.apply({M})", "Halves.apply({M})[1]", stops="M"),
    ],
    "checkpoint": [
        *assigned("checkpoint(mixed, {M}, {M1}, use_reentrant=False)"),
        *assigned("checkpoint(linear, {M}, use_reentrant=False)"),
        # This one stops what does not learn anyway.
        *assigned("checkpoint(mixed, {M}, {M1}, use_reentrant=True)", stops="M M1"),
    ],
    "modules": [
        *assigned("linear({M})", "layer_norm({M})", "lstm({M}.unsqueeze(1))[0].squeeze(1)"),
        *assigned("norm({M})", partial=True),  # Of equal rows it is zero.
        *assigned("table.weight * {M}", "functional.linear({M}, linear.weight)"),
        *assigned("attention({M}, {M}, {M}, need_weights=False)[0]"),
        *assigned("torch.func.functional_call(linear, dict(weight={M}, bias=c), (a,))"),
    ],
    "slopes": [
        *done("({n},) = torch.autograd.grad(torch.tanh({Y}).sum(), {G}, create_graph=True)"),
        *done("({n},) = torch.autograd.grad(torch.tanh({Y}).sum(), {G}, retain_graph=True)", stops="Y G"),
    ],
    "frozen": [
        *done("a.requires_grad_(False)\n{n} = torch.tanh(a) * {M}\na.requires_grad_(True)", stops="a"),
        *done("b.requires_grad_(False)\n{n} = torch.tanh(b) * {M}\nb.requires_grad_(True)", stops="b"),
        *done("linear.requires_grad_(False)\n{n} = linear({M})\nlinear.requires_grad_(True)", stops="linear"),
    ],
    "python": [
        *assigned("{M} * {T}.sum().item()", "{M} + {T}.mean().item()", stops="T"),
        *assigned("torch.full((3, 3), {T}.sum().item(), dtype=torch.float64)", stops="T"),
        *assigned("torch.tensor({T}.tolist(), dtype=torch.float64)", stops="T"),
        *assigned("torch.from_numpy({T}.detach().numpy())", "torch.tensor({T}.detach().numpy())", stops="T"),
        *assigned("{M} * (0.5 * {T}.sum().item())", stops="T", lost=True),
        *assigned("torch.from_numpy(np.tanh({X}.detach().numpy()))", stops="X", lost=True),
    ],
    "hooks": done("{G}.register_hook(lambda g: 0.5 * g)", "{G}.retain_grad()"),
    "transforms": assigned(
        "torch.func.vmap(torch.tanh)({M})",
        "torch.func.grad(lambda t: torch.tanh(t).square().sum())({M})",
        "torch.func.vmap(lambda t: t * t.sum())({M})",
        "torch.func.vmap(torch.dot)({M}, {M}.t())",
        "torch.func.jacrev(torch.sin)({M}).sum(0).sum(0)",
        "torch.func.jvp(torch.sin, ({M},), ({M},))[1]",
        "torch.func.vmap(torch.func.grad(lambda t: torch.tanh(t).prod()))({M})",
    ),
}


def draw(seed: int) -> Program:
    """A program of up to 40 statements, of some families."""
    drawing = Drawing(seed)
    length = drawing.random.randint(5, 40)
    families = drawing.random.sample(list(RULES), drawing.random.randint(3, 12))
    for _ in range(length):
        form = drawing.random.choice(RULES[drawing.random.choice(["plain", "plain", *families])])
        try:
            drawing.add(form.filled(drawing))
        except UnfitError:
            continue
    live = lambda _, x, *__: x.requires_grad or drawing.random.random() < 0.3
    summed = {drawing.pick(live, {}) for _ in range(drawing.random.randint(1, 4))}
    return Program(seed, tuple(drawing.statements), tuple(sorted(summed)))


def drawn(seed: int) -> Program:
    """A program that PyTorch differentiates without complaint, and whose loss is finite."""
    for attempt in range(100):
        program = draw(100 * seed + attempt)
        if works(program):
            return program
    raise AssertionError(f"no program of seed {seed} works")


def works(program: Program) -> bool:
    try:
        loss = program.loss(parameters(program.seed))
        if loss.requires_grad:
            loss.backward()
    except (RuntimeError, NotImplementedError, NameError, TypeError, ValueError, IndexError):
        return False
    finally:
        torch.set_grad_enabled(True)
    return bool(torch.isfinite(loss))

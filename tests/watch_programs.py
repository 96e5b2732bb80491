"""Random eager PyTorch programs for the tests of ``stopgrad.torch.watch``: what they are made of, and how they run.

A program is a list of statements over a namespace of tensors. It is drawn by running it: each statement is chosen by
what is there, and left out if PyTorch refuses it. ``Program.text`` is its source, which runs anew under a watch.
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

# ------------------------------------------------------------------------------------ what programs can use


class Scale(torch.autograd.Function):
    """A product, with both of its gradients."""

    @staticmethod
    def forward(ctx: Any, x: Any, y: Any) -> Any:
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        x, y = ctx.saved_tensors
        return (g * y).sum_to_size(x.shape), (g * x).sum_to_size(y.shape)


class Forget(Scale):
    """A product that has no gradient for its second factor."""

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        x, y = ctx.saved_tensors
        return (g * y).sum_to_size(x.shape), None


class Nothing(torch.autograd.Function):
    """A sine without gradient."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return torch.sin(x)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return None


class Halves(torch.autograd.Function):
    """Two results, of which one has no gradient by declaration."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        y, z = torch.sin(x), torch.cos(x)
        ctx.mark_non_differentiable(z)
        ctx.save_for_backward(x)
        return y, z

    @staticmethod
    def backward(ctx: Any, g: Any, _: Any) -> Any:
        (x,) = ctx.saved_tensors
        return g * torch.cos(x)


@torch.no_grad()
def measured(x: Any) -> Any:
    return torch.tanh(x)


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
    "measured": measured,
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
        hidden: whether values and gradients go different ways here: integers, writes that autograd does not see.
    """

    text: str
    stops: tuple[str, ...] = ()
    partial: bool = False
    lost: bool = False
    hidden: bool = False

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

    def depends(self, key: str, k: int) -> bool:
        """Whether what a statement stops is made of a parameter, judged by names: what is named together may share memory."""
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

    def pick(self, fits: Callable[[Any], bool] = lambda x: True) -> str:
        """A tensor, the later the likelier; parameters at all times."""
        found = [name for name in self.tensors if _alive(self.names[name]) and fits(self.names[name])]
        if not found:
            raise _Unfit
        late = found[-6:] if self.random.random() < 0.7 else found
        return self.random.choice(late)

    def matrix(self) -> str:
        return self.pick(lambda x: x.shape == (3, 3))

    def vector(self) -> str:
        return self.pick(lambda x: x.shape == (3,))

    def writable(self) -> str:
        """What can be written in place while gradients are on."""
        return self.pick(lambda x: not self.asked(x) and x.dim() > 0)

    def asked(self, x: Any) -> bool:
        """Whether it is a leaf that requires grad, a view of one, or asked about."""
        x = x if x._base is None else x._base
        return (x.is_leaf and x.requires_grad) or any(x is given for given in self.given.values())

    def beside(self, name: str) -> str:
        """A tensor that can be added to another in place."""
        shape = self.names[name].shape
        return self.pick(lambda x: x.shape == shape or x.shape in ((3,), ()) and shape == (3, 3))

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
            if name[0] == "v" and name[1:].isdigit() and name not in self.tensors and _usable(x):
                self.tensors.append(name)


def _alive(x: Any) -> bool:
    """Whether it can be looked at: a view of many, whose base was written, cannot."""
    try:
        return x.is_leaf or True
    except RuntimeError:
        return False


def _usable(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.dtype == torch.float64 and 0 < x.numel() <= 64 and _alive(x)


class _Unfit(Exception):
    """There is nothing yet of which such a statement could be made."""


Rule = Callable[[Drawing], Statement]


def draw(seed: int) -> Program:
    """A program of 5 to 40 statements."""
    drawing = Drawing(seed)
    length = drawing.random.randint(5, 40)
    families = drawing.random.sample(list(RULES), drawing.random.randint(3, len(RULES)))
    rules = [rule for family in sorted({"plain", *families}) for rule in RULES[family]]
    for _ in range(length):
        try:
            drawing.add(drawing.random.choice(rules)(drawing))
        except _Unfit:
            continue
    live = lambda x: x.requires_grad or drawing.random.random() < 0.3
    summed = {drawing.pick(live) for _ in range(drawing.random.randint(1, 4))}
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


def _unary(d: Drawing) -> Statement:
    form = d.random.choice(
        ["torch.tanh({})", "torch.sin({})", "torch.sigmoid({})", "functional.softplus({})", "{} * 0.7 + 0.1"]
        + [
            "torch.cos({}).exp()",
            "-{}",
            "{}.square() * 0.3",
            "{}.clone()",
            "torch.softmax(torch.atleast_1d({}), -1)",
        ]
    )
    return Statement(f"{d.new()} = {form.format(d.pick())}")


def _binary(d: Drawing) -> Statement:
    x = d.pick()
    shape = d.names[x].shape
    y = d.pick(lambda y: y.shape in (shape, (3,), ()) or shape in ((3,), ()))
    form = d.random.choice(
        ["{} + {}", "{} - {}", "{} * {}", "{} / ({} ** 2 + 1.0)", "torch.lerp({0}, {1}, 0.3)"]
    )
    return Statement(f"{d.new()} = {form.format(x, y)}")


def _product(d: Drawing) -> Statement:
    form = d.random.choice(
        ["torch.tanh({} @ {})", "torch.einsum('ij,kj->ik', {}, {})", "torch.mm({}, {}.t()) * 0.3"]
    )
    return Statement(f"{d.new()} = {form.format(d.matrix(), d.matrix())}")


def _joined(d: Drawing) -> Statement:
    form = d.random.choice(
        ["torch.cat([{}, {}])[1:4]", "torch.stack([{}, {}]).sum(0)", "torch.hstack([{}, {}])"]
    )
    return Statement(f"{d.new()} = {form.format(d.matrix(), d.matrix())}", partial="[" in form[-6:])


def _whole_view(d: Drawing) -> Statement:
    if d.random.random() < 0.3:
        form = d.random.choice(
            ["{}.expand(3, 3)", "{}.unsqueeze(0).expand(3, -1)", "{}[None, :].repeat(3, 1)"]
        )
        return Statement(f"{d.new()} = {form.format(d.vector())}")
    form = d.random.choice(
        ["{}.t()", "{}.reshape(-1)", "{}.flatten()", "{}.transpose(0, 1)", "{}.unsqueeze(0)"]
    )
    return Statement(f"{d.new()} = {form.format(d.matrix())}")


def _view(d: Drawing) -> Statement:
    form = d.random.choice(
        [
            "{}[0]",
            "{}[1:]",
            "{}[:, 1]",
            "{}[-1]",
            "{}.diagonal()",
            "{}.narrow(0, 1, 2)",
            "{}[[0, 2]]",
            "{}[MASK]",
        ]
        + ["{}[..., 1]", "{}.select(1, 0)", "{}.as_strided((3,), (1,))", "{}.triu()", "{}.max(dim=0).values"]
    )
    return Statement(f"{d.new()} = {form.format(d.matrix())}", partial=True)


def _views(d: Drawing) -> Statement:
    x = d.matrix()
    form, count = d.random.choice(
        [("{}.unbind(0)", 3), ("{}.chunk(2)", 2), ("{}.split([1, 2])", 2), ("torch.unbind({}, 1)", 3)]
    )
    return Statement(f"{', '.join([d.new() for _ in range(count)])} = {form.format(x)}", partial=True)


def _write(d: Drawing) -> Statement:
    x = d.writable()
    form = d.random.choice(
        ["{0}.mul_(0.9)", "{0}.add_({1})", "{0} += {1}", "{0} *= {1}", "{0}.tanh_()", "torch.sin_({0})"]
        + ["{0}.sub_({1}, alpha=0.5)", "{0}.addcmul_({1}, {1})"]
    )
    return Statement(form.format(x, d.beside(x)))


def _write_part(d: Drawing) -> Statement:
    x = d.pick(lambda x: x.shape == (3, 3) and not d.asked(x))
    form = d.random.choice(
        ["{0}[0] = {1}", "{0}[:, 1] += {1}", "{0}[1:].mul_(0.5)", "{0}.t()[0].add_({1})", "{0}[MASK] = {1}"]
        + ["{0}.masked_fill_(MASK, 0.3)", "{0}.diagonal().copy_({1})", "{0}[0].zero_()"]
        + ["{0}.select(0, 2).copy_({1})", "{0}.index_copy_(0, torch.tensor([1]), {1}[None])"]
    )
    overwrites = any(word in form for word in ("] =", "copy_", "zero_", "fill_"))
    return Statement(form.format(x, d.vector()), stops=(x,) if overwrites else (), partial=True)


def _overwrite(d: Drawing) -> Statement:
    x = d.writable()
    form = d.random.choice(
        ["{0}.zero_()", "{0}.fill_(0.3)", "{0}.copy_({1})", "{0}[...] = {1}", "{0}[:] = 0.2"]
    )
    return Statement(form.format(x, d.beside(x)), stops=(x,), partial=True, hidden=True)


def _detach(d: Drawing) -> Statement:
    x = d.pick()
    form = d.random.choice(
        ["{0}.detach()", "{0}.data", "{0}.clone().detach()", "{0}.detach().clone()", "{0}.data.clone()"]
        + ["{0}.detach().clone().requires_grad_()", "torch.nn.Parameter({0}.clone())", "measured({0})"]
    )
    return Statement(f"{d.new()} = {form.format(x)}", stops=(x,))


def _detach_in_place(d: Drawing) -> Statement:
    x = d.pick(lambda x: not x.is_leaf and x._base is None)
    return Statement(f"{x}.detach_()", stops=(x,))


def _data_write(d: Drawing) -> Statement:
    x = d.pick(lambda x: x.dim() > 0)
    y = d.beside(x)
    form = d.random.choice(
        ["{0}.data.mul_(0.9)", "{0}.data.add_({1})", "{0}.data.copy_({1})", "{0}.data[0] = {2}"]
    )
    if "{2}" in form:
        x, y = d.matrix(), d.vector()
    return Statement(form.format(x, y, y), stops=(x, y), partial=True, hidden=True)


def _no_grad(d: Drawing) -> Statement:
    guard = d.random.choice(["torch.no_grad()", "torch.set_grad_enabled(False)", "torch.inference_mode()"])
    x, y = d.pick(), d.new()
    inside = d.random.choice(["torch.tanh({})", "{} * 2.0", "torch.sin({}).clone()"]).format(x)
    text = f"with {guard}:\n    {y} = {inside}"
    return Statement(f"{text}\n{y} = {y}.clone()" if "inference" in guard else text, stops=(x,))


def _no_grad_write(d: Drawing) -> Statement:
    x = d.pick(lambda x: x.dim() > 0)
    y = d.beside(x)
    inside = d.random.choice(
        ["{0}.mul_(0.9)", "{0}.add_({1})", "{0}.copy_({1})", "{0} += {1}", "{0}.zero_()"]
    )
    return Statement(
        f"with torch.no_grad():\n    {inside.format(x, y)}", stops=(x, y), partial=True, hidden=True
    )


def _enabled_inside(d: Drawing) -> Statement:
    x, y, z = d.pick(), d.new(), d.new()
    text = f"with torch.no_grad():\n    {y} = torch.sin({x})\n    with torch.enable_grad():\n        {z} = {x} * 0.3"
    return Statement(text, stops=(x,))


def _integer(d: Drawing) -> Statement:
    x = d.pick()
    form = d.random.choice(
        [
            "{}.long().double()",
            "({} > 0.0).double()",
            "torch.round({})",
            "torch.sign({})",
            "torch.floor({} * 3.0)",
        ]
        + ["torch.bernoulli(torch.sigmoid({}))", "torch.fix({} * 2.0)"]
        + ["{}.trunc()", "{}.int().double()"]
    )
    return Statement(f"{d.new()} = {form.format(x)}", stops=(x,), hidden=True)


def _index(d: Drawing) -> Statement:
    x, y = d.matrix(), d.matrix()
    form = d.random.choice(
        [
            "{1}[{0}.argmax(dim=-1)]",
            "torch.gather({1}, 1, {0}.argsort(dim=1))",
            "{1}.index_select(0, {0}.argmin(dim=0))",
        ]
        + ["torch.where({0} > 0.0, {1}, 0.5 * {1})", "table({0}.argmax(dim=-1)) + {1}"]
        + ["torch.take_along_dim({1}, {0}.topk(2).indices, dim=1)"]
    )
    return Statement(f"{d.new()} = {form.format(x, y)}", stops=(x,), partial=True, hidden=True)


def _where(d: Drawing) -> Statement:
    form = d.random.choice(
        ["torch.where(MASK, {}, {})", "torch.where(MASK[:, None], {}, {})", "{}.masked_fill(MASK, 0.1) + {}"]
    )
    return Statement(f"{d.new()} = {form.format(d.matrix(), d.matrix())}", partial=True)


def _function(d: Drawing) -> Statement:
    x, y = d.matrix(), d.pick(lambda x: x.shape in ((3, 3), (3,), ()))
    form, stops = d.random.choice(
        [("Scale.apply({}, {})", ()), ("Forget.apply({}, {})", (y,)), ("Nothing.apply({})", (x,))]
        + [("Halves.apply({})[0]", ()), ("Halves.apply({})[1]", (x,))]
    )
    return Statement(f"{d.new()} = {form.format(x, y)}", stops=stops)


def _checkpoint(d: Drawing) -> Statement:
    x, y = d.matrix(), d.matrix()
    form, stops = d.random.choice(  # A reentrant one stops what does not learn anyway.
        [
            ("checkpoint(mixed, {}, {}, use_reentrant=False)", ()),
            ("checkpoint(linear, {}, use_reentrant=False)", ()),
        ]
        + [("checkpoint(mixed, {}, {}, use_reentrant=True)", (x, y))]
    )
    return Statement(f"{d.new()} = {form.format(x, y)}", stops=stops)


def _module(d: Drawing) -> Statement:
    form = d.random.choice(
        [
            "linear({})",
            "layer_norm({})",
            "norm({})",
            "lstm({}.unsqueeze(1))[0].squeeze(1)",
            "table.weight * {}",
        ]
        + ["attention({0}, {0}, {0}, need_weights=False)[0]", "functional.linear({}, linear.weight)"]
        + ["torch.func.functional_call(linear, {{'weight': {0}, 'bias': c}}, (a,))"]
    )
    return Statement(f"{d.new()} = {form.format(d.matrix())}")


def _dropout(d: Drawing) -> Statement:
    return Statement(f"{d.new()} = functional.dropout({d.matrix()}, 0.3)", partial=True)


def _slope(d: Drawing) -> Statement:
    y = d.pick(lambda x: x.requires_grad and not x.is_leaf)
    x = d.pick(lambda x: x.requires_grad)
    built = d.random.random() < 0.6
    text = f"torch.autograd.grad(torch.tanh({y}).sum(), {x}, create_graph=True)"
    if built:
        return Statement(f"({d.new()},) = {text}")
    text = text.replace("create_graph", "retain_graph")
    return Statement(f"({d.new()},) = {text}", stops=(y, x))


def _frozen_for_a_while(d: Drawing) -> Statement:
    x = d.random.choice(["a", "b", "linear"])
    use = "linear({})" if x == "linear" else "torch.tanh({0}) * {1}"
    text = f"{x}.requires_grad_(False)\n{d.new()} = {use.format(*(d.matrix(),) if x == 'linear' else (x, d.matrix()))}"
    return Statement(f"{text}\n{x}.requires_grad_(True)", stops=(x,))


def _item(d: Drawing) -> Statement:
    x, y = d.pick(), d.matrix()
    form = d.random.choice(
        [
            "{1} * {0}.sum().item()",
            "{1} + {0}.mean().item()",
            "torch.full((3, 3), {0}.sum().item(), dtype=torch.float64)",
        ]
        + [
            "torch.tensor({0}.tolist(), dtype=torch.float64)",
            "torch.tensor([{0}.sum().item()] * 3, dtype=torch.float64)",
        ]
    )
    return Statement(f"{d.new()} = {form.format(x, y)}", stops=(x,))


def _numpy(d: Drawing) -> Statement:
    x = d.pick()
    form = d.random.choice(["torch.from_numpy({}.detach().numpy())", "torch.tensor({}.detach().numpy())"])
    return Statement(f"{d.new()} = {form.format(x)}", stops=(x,))


def _lost(d: Drawing) -> Statement:
    """A value that Python or NumPy changes before it comes back."""
    x, y = d.pick(), d.matrix()
    form = d.random.choice(
        ["{1} * (0.5 * {0}.sum().item())", "torch.from_numpy(np.tanh({0}.detach().numpy()))"]
    )
    return Statement(f"{d.new()} = {form.format(x, y)}", stops=(x,), lost=True)


def _hook(d: Drawing) -> Statement:
    """Of no view: PyTorch 2.13 crashes where the base of one was written or detached."""
    x = d.pick(lambda x: x.requires_grad and x._base is None)
    form = d.random.choice(["{}.register_hook(lambda g: 0.5 * g)", "{}.retain_grad()"])
    return Statement(form.format(x))


def _transform(d: Drawing) -> Statement:
    form = d.random.choice(
        ["torch.func.vmap(torch.tanh)({})", "torch.func.grad(lambda t: torch.tanh(t).square().sum())({})"]
        + ["torch.func.vmap(lambda t: t * t.sum())({})", "torch.func.vmap(torch.dot)({0}, {0}.t())"]
        + ["torch.func.jacrev(torch.sin)({}).sum(0).sum(0)", "torch.func.jvp(torch.sin, ({0},), ({0},))[1]"]
        + ["torch.func.vmap(torch.func.grad(lambda t: torch.tanh(t).prod()))({})"]
    )
    return Statement(f"{d.new()} = {form.format(d.matrix())}")


RULES: dict[str, list[Rule]] = {
    "plain": [_unary, _binary, _product, _whole_view, _joined],
    "views": [_view, _views, _views],
    "writes": [_write, _write, _write_part, _write_part],
    "overwrites": [_overwrite],
    "detach": [_detach, _detach, _detach_in_place],
    "data": [_data_write],
    "no_grad": [_no_grad, _no_grad_write, _enabled_inside],
    "integers": [_integer, _index],
    "where": [_where],
    "functions": [_function],
    "checkpoint": [_checkpoint],
    "modules": [_module, _module, _dropout],
    "slopes": [_slope],
    "frozen": [_frozen_for_a_while],
    "python": [_item, _numpy, _lost],
    "hooks": [_hook],
    "transforms": [_transform],
}

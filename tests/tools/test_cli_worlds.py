"""The command on functions written with PyTorch and JAX: whose one is, what it is given, what is asked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import jax
import pytest
import torch
from stopgrad.errors import ArgumentError

import stopgrad as sg
from stopgrad.interop.shared.returned_losses import losses_in
from stopgrad.interop.value_worlds import JAX, OURS, TORCH, home, kind, named_worlds
from stopgrad.tools import cli
from stopgrad.tools.cli.failing import only

TORCH_FILE = """\
import torch
import torch.nn as nn
import torch.nn.functional as F


class Net(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.encoder = nn.Linear(3, width)
        self.head = nn.Linear(width, 2)

    def forward(self, x):
        hidden = torch.tanh(self.encoder(x))
        return self.head(hidden.detach())


class Needs(nn.Module):
    def __init__(self, width):
        super().__init__()


model = Net()


def loss(model, x, y):
    return F.mse_loss(model(x), y)


def example_inputs():
    return Net(), torch.randn(5, 3), torch.randn(5, 2)


def own():
    net = Net()
    return net(torch.randn(4, 3)).square().mean(), net


def with_optimizer():
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    return net(torch.randn(4, 3)).square().mean(), optimizer


def of_file(x):
    return model(x).sum()


def metrics(x):
    out = model(x)
    return {"loss": F.mse_loss(out.detach(), out[:1] * 0 + 1.0), "out": out}


def beside(x):
    out = model(x)
    return out.detach().sum() + x.sum(), out


def tensors(w, x, labels, scale=2.0):
    return ((w * x).detach() * w * scale).sum() + labels.sum()


def half(w):
    return w.sum()


def local():
    w = torch.ones(3, requires_grad=True)
    return (w.detach() * 2).sum()


def nothing_local():
    return torch.ones(3).sum()


def item(x):
    return model(x).sum().item()


def step():
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net(torch.randn(4, 3)).square().mean().backward()


def steps(x):
    model(x).sum().backward()
    model(x).mean().backward()


class Trainer:
    def __init__(self):
        self.net = Net()

    def step(self):
        self.net(torch.randn(4, 3)).square().mean().backward()


trainer = Trainer()


def broken(x):
    return model(x[:, :2]).sum()


def typed(x: torch.Tensor, y: torch.Tensor):
    return (x @ y).sum()
"""

JAX_FILE = """\
import jax
import jax.numpy as jnp
import numpy as np


def encode(params, x):
    return jnp.tanh(x @ params["w"] + params["b"])


def loss(params, target, x):
    goal = jax.lax.stop_gradient(encode(target, x))
    return jnp.mean((encode(params, x) - goal) ** 2), {"goal": goal, "out": encode(target, x)}


def example_inputs():
    def made(scale):
        return {"w": jnp.full((3, 2), scale), "b": jnp.zeros(2)}

    return made(0.5), made(0.1), jnp.ones((4, 3))


def lengths(x):
    return jnp.sum(jnp.where(x > 0, jnp.sqrt(x), 0.0))


def lengths_example():
    return np.array([0.0, 4.0])


def decides(x):
    if x.sum() > 0:
        return jnp.sum(x)
    return 0.0


def nothing():
    return jnp.ones(3)


@jax.jit
def compiled(x, n=3):
    return (x * n).sum()


def static(x, name, n):
    for _ in range(n):
        x = jnp.sin(x)
    return {"loss": x.sum(), "name": name}


def static_example():
    return np.ones(3), "hello", 3


def shapes(x):
    return encode({"w": jnp.ones((3, 2)), "b": jnp.zeros(2)}, x).sum()


def shapes_example():
    return jax.ShapeDtypeStruct((5, 3), jnp.float32)


def number(x):
    return 3.0 * jnp.ones(2).shape[0]
"""

OUR_FILE = """\
import jax
import jax.numpy as jnp
import torch
import stopgrad as sg


def loss(a, b):
    return sg.reduce_sum(a * sg.stop_gradient(b))


def on_arrays(a, b):
    return sg.reduce_sum(a * sg.stop_gradient(b))


def on_arrays_example():
    return jnp.ones(3), jnp.ones(3)


def operators(a, b):
    return (a @ b).sum()


def wrong(a):
    return sg.reduce_sum(a, axis=7)


def mixed(a):
    return torch.ones(3, requires_grad=True).sum(), jnp.ones(3)


def mixed_inputs(a, b):
    return a * b


def mixed_inputs_example():
    return torch.ones(3), jnp.ones(3)
"""


IMPORTED_FILE = """\
import torch
import stopgrad as sg
import stopgrad.torch as sgt
from net import Net

model = sgt.load(Net(), torch.randn(5, 3))


def loss(x: "float32[5, 3]"):
    return sg.reduce_mean(model(x) ** 2.0)
"""


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files in the folder that is worked in."""
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "net": TORCH_FILE,
        "pure": JAX_FILE,
        "ours": OUR_FILE,
        "imported": IMPORTED_FILE,
    }.items():
        (tmp_path / f"{name}.py").write_text(text)


@pytest.fixture
def statuses(capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, str]]:
    """What ``explain --json`` says of each tensor."""

    def statuses(*arguments: str) -> dict[str, str]:
        assert cli.main(["explain", *arguments, "--json"]) == cli.OK
        report = json.loads(capsys.readouterr().out)
        return {one["key"]: one["status"] for one in report["xs"]}

    return statuses


CUT = {
    "encoder.weight": "stopped",
    "encoder.bias": "stopped",
    "head.weight": "flows",
    "head.bias": "flows",
}

FLOWS = [
    ("net.py:loss", CUT),
    ("net.py:own", CUT),
    ("net.py:with_optimizer", CUT),
    ("net.py:of_file --shape x=4,3", CUT),
    ("net.py:model --shape x=4,3", CUT),
    ("net.py:Net --shape x=4,3", CUT),
    ("net.py:step", CUT),
    ("net.py:trainer.step", CUT),
    ("net.py:loss --only head.*", {"head.weight": "flows", "head.bias": "flows"}),
    ("net.py:loss --only encoder,head.bias", {k: v for k, v in CUT.items() if k != "head.weight"}),
    ("net.py:beside --shape x=4,3 --argnums 0", {"x": "partly stopped"}),
    ("net.py:local", {"w": "stopped"}),
    (
        "net.py:tensors --shape w=3:float64 --shape x=3:float64 --shape labels=3:int64",
        {"w": "partly stopped", "x": "stopped"},
    ),
    ("net.py:half --shape w=3:bfloat16", {"w": "flows"}),
    ("net.py:typed --shape x=2,3 --shape y=3,2", {"x": "flows", "y": "flows"}),
    (
        "pure.py:loss",
        {
            "params.b": "flows",
            "params.w": "flows",
            "target.b": "stopped",
            "target.w": "stopped",
            "x": "partly stopped",
        },
    ),
    ("pure.py:loss --only target", {"target.b": "stopped", "target.w": "stopped"}),
    ("pure.py:loss --argnums 1", {"target.b": "stopped", "target.w": "stopped"}),
    ("pure.py:lengths --shape x=n", {"x": "partly stopped"}),
    ("pure.py:compiled --shape x=2,4", {"x": "flows"}),
    ("pure.py:static", {"x": "flows"}),
    ("pure.py:shapes", {"x": "flows"}),
    ("ours.py:loss --shape a=3 --shape b=3", {"a": "flows", "b": "stopped"}),
    ("ours.py:on_arrays", {"a": "flows", "b": "stopped"}),
    (
        "imported.py:model --only x:0,*/weight*",
        {"x:0": "stopped", "encoder/weight:0": "stopped", "head/weight:0": "flows"},
    ),
    ("imported.py:loss", {"x": "stopped"}),
    ("ours.py:operators --shape a=2,3 --shape b=3,2", {"a": "flows", "b": "flows"}),
]


@pytest.mark.parametrize(("arguments", "found"), FLOWS, ids=[row[0] for row in FLOWS])
def test_each_function_is_asked_in_its_own_world(
    arguments: str, found: dict[str, str], statuses: Callable[..., dict[str, str]]
) -> None:
    assert statuses(*arguments.split()) == found


REFUSED = [
    ("explain net.py:los", "net.py has no 'los'; did you mean loss?"),
    (
        "explain net.py:item --shape x=4,3",
        "net.py:75: item returns float, and no tensor of PyTorch; return the",
    ),
    (
        "explain net.py:steps --shape x=4,3",
        "steps returns no tensor and calls backward() 2 times (net.py:86, ",
    ),
    ("explain net.py:of_file", "the example example_inputs does not fit net.py:of_file(x)"),
    ("explain net.py:nothing_local", 'return (loss, model), or (loss, {"w": w})'),
    ("explain net.py:Needs", "net.py:Needs is a class whose instances need width; make one in the file"),
    ("explain net.py:broken --shape x=4,3", "net.py:13: RuntimeError: mat1 and mat2 shapes"),
    ("explain net.py:loss --only hed.*", "--only: nothing is called 'hed.*'; there are encoder.weight, "),
    ("check net.py:loss --mode forward", "of PyTorch, derivatives are compared in reverse mode, not in"),
    ("explain pure.py:decides --shape x=3", "cannot trace decides, at "),
    (
        "explain pure.py:nothing",
        "nothing takes no arguments; gradients of a JAX function are with respect to",
    ),
    ("explain pure.py:number --shape x=3", "number returns float, and no tensor of JAX"),
    ("explain pure.py:static --argnums 1", "--argnums: name holds no arrays, so that no gradient"),
    ("explain pure.py:encode", "the example example_inputs does not fit pure.py:encode(params, x)"),
    ("explain ours.py:wrong --shape a=3", "ours.py:24: Sum: (C2) axis 7 does not exist"),
    ("explain ours.py:mixed --shape a=3", "what mixed returns: objects of both PyTorch and JAX"),
    ("explain ours.py:mixed_inputs", "the arguments of mixed_inputs: objects of both PyTorch and JAX"),
]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("check net.py:loss", "head.weight float32[2, 4]: passed"),
        ("ablate net.py:loss", "changes the gradient"),
    ],
)
def test_commands_that_compute_take_live_functions(
    arguments: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments.split()) == cli.OK
    assert says in capsys.readouterr().out


@pytest.mark.parametrize(("arguments", "says"), REFUSED, ids=[row[0] for row in REFUSED])
def test_what_cannot_be_done_is_said_with_the_line_and_the_cure(
    arguments: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments.split()) == cli.ERROR
    printed = capsys.readouterr().err
    assert any(part in printed.splitlines()[-1] for part in says.split("|")), printed


def test_the_data_that_was_made_up_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", "net.py:of_file", "--shape", "x=4,3"]) == cli.OK
    assert capsys.readouterr().out.startswith(
        "data: random at seed 0: x float32[4, 3]\nGradients reach 2 of 4"
    )
    assert cli.main(["explain", "net.py:loss"]) == cli.OK
    assert capsys.readouterr().out.startswith("Gradients reach 2 of 4")


def test_conditions_and_pages_are_as_for_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        cli.main(["explain", "net.py:loss", "--fail-on", "stopped:encoder", "--html", "x.html"]) == cli.FAILED
    )
    assert (
        "stopgrad: stopped: encoder.weight, encoder.bias (net.py:14: hidden.detach())"
        in capsys.readouterr().err
    )
    assert "hidden.detach()" in Path("x.html").read_text()
    assert cli.main(["explain", "net.py:loss", "--fail-on", "stopped", "--only", "head"]) == cli.OK
    assert cli.main(["explain", "pure.py:loss", "--fail-on", "flows:target"]) == cli.OK


def test_what_computes_takes_functions_of_jax(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", "pure.py:loss"]) == cli.OK
    out = capsys.readouterr().out
    assert "params.w float32[3, 2]: passed" in out
    assert cli.main(["trace-nan", "pure.py:lengths"]) == cli.FAILED
    assert "pure.py:23" in capsys.readouterr().out
    assert cli.main(["ablate", "pure.py:loss", "--argnums", "0", "--repeats", "1"]) == cli.OK
    assert "jax.lax.stop_gradient(encode(target, x))" in capsys.readouterr().out


def test_nans_of_pytorch_are_traced_in_the_function_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    Path("nets.py").write_text(
        textwrap.dedent("""\
        import torch

        net = torch.nn.Linear(3, 1)


        def loss(x: "float32[4, 3]"):
            y = net(x)
            return torch.sqrt(y - y).sum(), net


        def fine(x: "float32[4, 3]"):
            return net(x).sum()
        """)
    )
    assert cli.main(["trace-nan", "nets.py:loss"]) == cli.FAILED
    out = capsys.readouterr().out
    assert "nets.py:8" in out
    assert "It reaches the gradient of weight and the gradient of bias." in out
    assert cli.main(["trace-nan", "nets.py:loss", "--no-gradient"]) == cli.OK
    assert cli.main(["trace-nan", "nets.py:fine"]) == cli.OK


# ---------------------------------------------------------------------------------------------- the parts


def run(code: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(Path(sg.__file__).parents[1])}
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        check=True,
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
    ).stdout


@pytest.mark.slow
def test_a_file_of_ours_imports_neither_framework() -> None:
    Path("plain.py").write_text("import stopgrad as sg\n\ndef loss(x): return sg.reduce_sum(x)\n")
    found = run(
        """
        import sys
        from stopgrad.tools import cli
        assert cli.main(["explain", "plain.py:loss", "--shape", "x=3"]) == 0
        print([name for name in ("torch", "jax") if name in sys.modules])
        """
    )
    assert found.splitlines()[-1] == "[]"


def test_what_is_not_installed_is_said_with_the_extra(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("late.py").write_text("def loss(x):\n    import torch\n    return torch.relu(x).sum()\n")
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "torch", None)
        assert cli.main(["explain", "late.py:loss", "--shape", "x=3"]) == cli.ERROR
        assert "needs torch, which is not installed" in (said := capsys.readouterr().err)
        assert "pip install 'stopgrad[torch]'" in said
        assert cli.main(["explain", "net.py:loss"]) == cli.ERROR
        said = capsys.readouterr().err
        assert "net.py:1: ModuleNotFoundError" in said
        assert said.rstrip().endswith("pip install 'stopgrad[torch]'")


def test_objects_are_at_home_where_their_classes_come_from() -> None:
    class Net(torch.nn.Module):
        pass

    assert [kind(one) for one in (Net(), Net, torch.ones(1), torch.float32)] == [TORCH] * 4
    assert [kind(one) for one in (jax.numpy.ones(1), jax.jit(abs), jax.random.key(0))] == [JAX] * 3
    assert [kind(one) for one in (sg.float32, sg.function(abs))] == [OURS] * 2
    assert [kind(one) for one in (1, "a", abs, sys)] == [""] * 4
    assert home("torchvision") == ""


def helper(x: object) -> object:
    return torch.relu(x)  # type: ignore[arg-type]


def test_a_function_names_the_worlds_of_the_functions_it_calls() -> None:
    def through(x: object) -> object:
        return helper(x)

    def inside(x: object) -> object:
        return [jax.numpy.exp(one) for one in [x]]  # type: ignore[arg-type]

    def none(x: object) -> object:
        return x

    assert [list(named_worlds(f)) for f in (helper, through, inside, none)] == [[TORCH], [TORCH], [JAX], []]


def test_the_loss_of_what_a_function_returns() -> None:
    one, many = torch.ones(()), torch.ones(3)

    class Named:
        loss = one

    assert losses_in({"loss": one, "out": many}) is one
    assert losses_in(Named()) is one
    assert losses_in((one, many)) == [one]
    assert len(losses_in((one, one, many))) == 2
    assert losses_in((many, one)) == (many, one)
    assert losses_in(many) is many


def test_only_takes_patterns_prefixes_and_several() -> None:
    flow = sg.explain(lambda p, q: p["a"] * p["b"] * q, {"a": 1.0, "b": 2.0}, 3.0)
    assert list(only(flow, [])) == ["p.a", "p.b", "q"]
    assert list(only(flow, ["q", "*.a"])) == ["p.a", "q"]
    assert list(only(flow, ["p"])) == ["p.a", "p.b"]
    with pytest.raises(ArgumentError, match="--only: nothing is called 'w'; there are"):
        only(flow, ["w"])


def test_an_optimizer_of_the_file_says_what_moves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "trained.py"
    path.write_text(
        "import jax, jax.numpy as jnp, optax\n"
        'p = {"encoder": jnp.ones(3), "head": jnp.ones(3)}\n'
        "tx = optax.adamw(0.1, weight_decay=0.1)\n"
        "def loss(p):\n"
        '    return (jax.lax.stop_gradient(p["encoder"]) * p["head"]).sum()\n'
        "def example_inputs():\n"
        "    return (p,)\n"
    )
    pytest.importorskip("optax")
    word = "moves-without-a-gradient:p.encoder"
    assert cli.main(["explain", f"{path}:loss", "--optimizer", "tx", "--fail-on", word]) == 1
    assert "moves without a gradient: p.encoder" in capsys.readouterr().err
    assert cli.main(["explain", f"{path}:loss", "--optimizer", "tx", "--fail-on", "held"]) == 0
    assert cli.main(["explain", f"{path}:loss", "--fail-on", "held"]) == 2
    assert cli.main(["explain", f"{path}:loss", "--optimizer", "txx"]) == 2
    assert "did you mean tx?" in capsys.readouterr().err

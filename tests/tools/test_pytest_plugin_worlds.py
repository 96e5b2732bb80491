"""The fixture and the marker ``gradient_flow``: for functions and losses of stopgrad, PyTorch and JAX."""

from __future__ import annotations

import re
from pathlib import Path

import jax  # noqa: F401 - so that the runs inside find it loaded
import pytest
import torch
import torch._dynamo

import stopgrad as sg

pytest_plugins = ["pytester"]

HEAD = """
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn as nn
import torch.utils.checkpoint
import stopgrad as sg

class Net(nn.Module):
    def __init__(self, cut=False):
        super().__init__()
        self.encoder, self.head, self.cut = nn.Linear(3, 4), nn.Linear(4, 2), cut

    def forward(self, x):
        hidden = torch.tanh(self.encoder(x))
        return self.head(hidden.detach() if self.cut else hidden)

X = torch.ones(5, 3)

def jax_loss(params, target, x):
    return jnp.mean((x @ params["w"] - jax.lax.stop_gradient(x @ target["w"])) ** 2)

P, Q = {"w": jnp.ones((3, 2))}, {"w": jnp.zeros((3, 2))}

def our_loss(w, v):
    return sg.reduce_sum(w * sg.stop_gradient(v))
"""


@pytest.fixture
def tests(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder of tests, of which one conftest.py asks for the plugin."""
    monkeypatch.setenv("PYTHONPATH", str(Path(sg.__file__).parents[1]))
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pytester.makeconftest('pytest_plugins = ["stopgrad.pytest_plugin"]')
    return pytester


def run(tests: pytest.Pytester, text: str, *options: str, head: str = HEAD) -> pytest.RunResult:
    tests.makepyfile(head + text)
    return tests.runpytest_inprocess("-p", "no:cacheprovider", "-p", "no:xdist", *options)


# ------------------------------------------------------------------------------------------ the fixture


def test_what_holds_passes_in_three_worlds(tests: pytest.Pytester) -> None:
    result = run(
        tests,
        """
def test_torch(gradient_flow):
    model = Net(cut=True)
    with gradient_flow.watch():
        loss = model(X).sum()
    assert gradient_flow.explain(loss, model)["encoder.weight"].status == "stopped"
    gradient_flow.assert_flows(loss, model.head)
    gradient_flow.assert_flows(loss, model, only="head.*")
    gradient_flow.assert_flows(loss, model, to=["head"])
    gradient_flow.assert_blocked(loss, model.encoder)
    gradient_flow.assert_only_flows(loss, model, to=["head.weight", "head.bias"])

def test_a_function_of_torch(gradient_flow):
    w = torch.ones(3, requires_grad=True)
    v = torch.ones(3, requires_grad=True)
    gradient_flow.assert_flows(lambda w, v: (w * v.detach()).sum(), w, v, only="w")

def test_jax(gradient_flow):
    gradient_flow.assert_flows(jax_loss, P, Q, jnp.ones((5, 3)), to="params")
    gradient_flow.assert_blocked(jax_loss, P, Q, jnp.ones((5, 3)), to="target.w")
    gradient_flow.assert_only_flows(jax_loss, P, Q, np.ones((5, 3)), to=["params.*", "x"])
    gradient_flow.assert_flows(jax_loss, P, Q, jnp.ones((5, 3)), only="params", argnums=(0, 1))

def test_ours(gradient_flow):
    gradient_flow.assert_flows(our_loss, np.ones(3), np.ones(3), to="w")
    gradient_flow.assert_blocked(our_loss, jnp.ones(3), jnp.ones(3), to="v")
    with sg.Graph().as_default():
        w, v = sg.parameter(np.ones(3), name="w"), sg.parameter(np.ones(3), name="v")
        gradient_flow.assert_flows(our_loss(w, v), [w])
        gradient_flow.assert_blocked(our_loss(w, v), [v])
""",
    )
    result.assert_outcomes(passed=4)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("gradient_flow.assert_flows(loss, model)", ["do not arrive at encoder.weight", "hidden.detach()"]),
        ("gradient_flow.assert_blocked(loss, model.head)", ["arrive at weight", "an open path to weight"]),
        ('gradient_flow.assert_flows(loss, model, only="encoder.*")', ["head.weight", "and should not|only"]),
        ('gradient_flow.assert_blocked(jax_loss, P, Q, X.numpy(), to="params.w")', ["arrive at params.w"]),
        ('gradient_flow.assert_flows(jax_loss, P, Q, X.numpy(), to="target")', ["jax.lax.stop_gradient"]),
        ("gradient_flow.assert_flows(our_loss, np.ones(3), np.ones(3))", ["do not arrive at v"]),
    ],
)
def test_what_fails_shows_the_report_at_the_tests_line(
    call: str, says: list[str], tests: pytest.Pytester
) -> None:
    result = run(
        tests,
        f"""
def test_one(gradient_flow):
    model = Net(cut=True)
    with gradient_flow.watch():
        loss = model(X).sum()
    {call}
""",
    )
    result.assert_outcomes(failed=1)
    text = result.stdout.str()
    assert re.search(rf"^> +{re.escape(call)}$", text, re.MULTILINE)
    assert "AssertionError: assert_" in text
    for part in says:
        assert re.search(part.replace("(", r"\(").replace(")", r"\)"), text), part
    assert "pytest_plugin.py" not in text


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (
            'gradient_flow.assert_flows(jax_loss, P, Q, X.numpy(), to="parms.w")',
            "nothing is called 'parms.w'",
        ),
        ("gradient_flow.assert_flows(jax_loss, P, Q, X)", "objects of both PyTorch and JAX"),
    ],
)
def test_what_cannot_be_asked_is_said(call: str, says: str, tests: pytest.Pytester) -> None:
    result = run(tests, f"\ndef test_one(gradient_flow):\n    {call}\n")
    result.assert_outcomes(failed=1)
    assert "ArgumentError: " in result.stdout.str()
    assert says in result.stdout.str()


def test_a_loss_that_nobody_watched_is_known_from_autograd_alone(tests: pytest.Pytester) -> None:
    result = run(
        tests,
        """
def test_one(gradient_flow):
    model = Net(cut=True)
    loss = model(X).sum()
    gradient_flow.assert_flows(loss, model)
""",
    )
    result.assert_outcomes(failed=1)
    text = result.stdout.str()
    assert "do not arrive at encoder.weight, encoder.bias" in text
    assert "No watch saw how this loss was made" in text


# ------------------------------------------------------------------------------------------- the marker

RIGHT = {
    "a model that is trained whole": """
@pytest.mark.gradient_flow
def test_one():
    Net()(X).sum().backward()
""",
    "a target network beside it": """
@pytest.mark.gradient_flow
def test_one():
    model, target = Net(), Net()
    with torch.no_grad():
        goal = target(X)
    ((model(X) - goal) ** 2 + (model(X) - target(X).detach()) ** 2).sum().backward()
""",
    "two losses, each of which trains a part": """
@pytest.mark.gradient_flow
def test_one():
    generator, critic = nn.Linear(2, 3), nn.Linear(3, 1)
    g = torch.optim.SGD(generator.parameters(), lr=0.1)
    c = torch.optim.SGD(critic.parameters(), lr=0.1)
    critic(generator(torch.ones(4, 2)).detach()).sum().backward()
    c.step()
    critic(generator(torch.ones(4, 2))).sum().backward()
    g.step()
""",
    "a penalty on gradients, and passes that add up": """
@pytest.mark.gradient_flow
def test_penalty():
    critic = Net()
    x = torch.ones(4, 3, requires_grad=True)
    (dx,) = torch.autograd.grad(critic(x).sum(), x, create_graph=True)
    (dx.norm() + critic(x).sum()).backward()

@pytest.mark.gradient_flow
def test_passes():
    model = Net()
    for part in X.split(2):
        torch.utils.checkpoint.checkpoint(model, part, use_reentrant=False).sum().backward()
""",
    "an optimizer that asks several times": """
@pytest.mark.gradient_flow
def test_one():
    model, loss = nn.Linear(3, 1), nn.MSELoss()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)
    def closure():
        optimizer.zero_grad()
        value = loss(model(X), torch.zeros(5, 1))
        value.backward()
        return value
    optimizer.step(closure)
""",
    "tied weights": """
@pytest.mark.gradient_flow
def test_one():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    model(X).sum().backward()
""",
    "a backward that must fail": """
pytestmark = [pytest.mark.slow, pytest.mark.gradient_flow]

def test_one():
    with pytest.raises(RuntimeError):
        Net()(X).detach().sum().backward()
""",
    "a frozen part": """
@pytest.mark.gradient_flow
def test_one():
    model = Net()
    model.encoder.requires_grad_(False)
    model(X).sum().backward()
""",
    "what is said of it": """
@pytest.mark.gradient_flow(only=["head.*"])
def test_only():
    Net(cut=True)(X).sum().backward()

@pytest.mark.gradient_flow(blocked="encoder")
def test_blocked():
    Net(cut=True)(X).sum().backward()

@pytest.mark.gradient_flow(ignore=["encoder.*"])
def test_ignored():
    Net(cut=True)(X).sum().backward()
""",
    "tensors without a module": """
@pytest.mark.gradient_flow
def test_one():
    w = torch.ones(3, requires_grad=True)
    (w * 2).sum().backward()
""",
    "of a file, also for tests without backward": """
pytestmark = pytest.mark.gradient_flow

def test_shape():
    assert Net()(X).shape == (5, 2)

def test_jax():
    assert jax.grad(lambda x: x)(1.0) == 1.0
""",
}


def run_all(tests: pytest.Pytester, programs: dict[str, str]) -> dict[str, list[pytest.TestReport]]:
    """One run of several files: for each its tests' reports."""
    files = {f"test_{i}": HEAD + text for i, text in enumerate(programs.values())}
    tests.makepyfile(**files)
    # The plugin may be imported already, by other tests of this process.
    warned = ["-W", "error", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    record = tests.inline_run("-p", "no:cacheprovider", "-p", "no:xdist", *warned, "--strict-markers")
    found: dict[str, list[pytest.TestReport]] = {name: [] for name in programs}
    for report in record.getreports("pytest_runtest_logreport"):
        if report.when == "call":
            found[list(programs)[int(re.findall(r"test_(\d+)", report.nodeid)[0])]].append(report)
    return found


def test_the_marker_passes_what_is_trained(tests: pytest.Pytester) -> None:
    for name, reports in run_all(tests, RIGHT).items():
        assert len(reports) == RIGHT[name].count("def test_"), name
        assert [report.longreprtext for report in reports if not report.passed] == [], name


WRONG = {
    "a part of the model behind a cut": (
        """
@pytest.mark.gradient_flow
def test_one():
    Net(cut=True)(X).sum().backward()
""",
        ["encoder.weight and encoder.bias (Net)", "backward() at", "hidden.detach()"],
    ),
    "a parameter that is never used": (
        """
@pytest.mark.gradient_flow
def test_one():
    model = Net()
    model.unused = nn.Parameter(torch.ones(2))
    model(X).sum().backward()
""",
        ["unused (model)", "disconnected: unused"],
    ),
    "an optimizer whose parameters get nothing": (
        """
@pytest.mark.gradient_flow
def test_one():
    body, head = nn.Linear(3, 3), nn.Linear(3, 1)
    optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)
    head(body(X).detach()).sum().backward()
    optimizer.step()
""",
        ["(optimizer)", "body(X).detach()"],
    ),
    "fixtures name what they hold": (
        """
@pytest.fixture
def model():
    return Net(cut=True)

@pytest.fixture
def critic():
    return nn.Linear(2, 1)

@pytest.mark.gradient_flow
def test_one(model, critic):
    critic(model(X)).sum().backward()
""",
        ["model.encoder.weight and model.encoder.bias (model)"],
    ),
    "one of several tensors": (
        """
@pytest.mark.gradient_flow
def test_one():
    w, v = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    (w * v.detach()).sum().backward()
""",
        ["v.detach()"],
    ),
    "what should be blocked": (
        """
@pytest.mark.gradient_flow(blocked=["encoder.*"])
def test_one():
    Net()(X).sum().backward()
""",
        ["gives a gradient to encoder.weight and encoder.bias, and should not"],
    ),
    "more than only": (
        """
@pytest.mark.gradient_flow(only=["head.*"])
def test_one():
    Net()(X).sum().backward()
""",
        ["gives a gradient to encoder.weight and encoder.bias, and should not"],
    ),
    "no backward": (
        """
@pytest.mark.gradient_flow
def test_one():
    Net()(X).sum()
""",
        [
            "the test calls backward()",
            " nowhere, so that its marker checks nothing",
        ],  # "or tape.gradient()", where TensorFlow is loaded
    ),
    "a JAX function": (
        """
import jax
@pytest.mark.gradient_flow
def test_one():
    jax.grad(lambda x: x * x)(1.0)
""",
        [
            "the test calls backward()",
            " nowhere, ",
            "of a JAX function, call stopgrad.jax.assert_flows(f, *args)",
        ],
    ),
    "a name that is not there": (
        """
@pytest.mark.gradient_flow(only=["hed.*"])
def test_one():
    Net()(X).sum().backward()
""",
        ["only: nothing is called 'hed.*'; there are"],
    ),
    "an option that is not there": (
        """
@pytest.mark.gradient_flow(just=["head.*"])
def test_one():
    Net()(X).sum().backward()
""",
        ["the marker gradient_flow takes only, blocked, ignore, not just"],
    ),
    "an option that is no pattern": (
        """
@pytest.mark.gradient_flow(only=5)
def test_one():
    Net()(X).sum().backward()
""",
        ["the marker gradient_flow takes only as a pattern, or a list of patterns, not 5"],
    ),
    "an option that holds no pattern": (
        """
@pytest.mark.gradient_flow(ignore=["head.*", None])
def test_one():
    Net()(X).sum().backward()
""",
        ["takes ignore as a pattern, or a list of patterns, not ['head.*', None]"],
    ),
}


def test_the_marker_fails_a_test_with_the_report(tests: pytest.Pytester) -> None:
    for name, (report,) in run_all(tests, {name: text for name, (text, _) in WRONG.items()}).items():
        assert report.failed, name
        printed = report.longreprtext
        for part in WRONG[name][1]:
            assert part in printed, (name, printed)
        assert "pytest_plugin.py" not in printed
        assert "Traceback" not in printed


def test_a_test_that_fails_by_itself_fails_for_its_own_reason(tests: pytest.Pytester) -> None:
    result = run(
        tests,
        """
@pytest.mark.gradient_flow
def test_one():
    Net(cut=True)(X).sum().backward()
    raise ValueError("mine")

@pytest.mark.xfail(reason="known", strict=True)
@pytest.mark.gradient_flow
def test_two():
    Net(cut=True)(X).sum().backward()

@pytest.mark.gradient_flow
def test_three():
    pytest.skip("not today")
""",
    )
    result.assert_outcomes(failed=1, xfailed=1, skipped=1)
    assert "ValueError: mine" in result.stdout.str()
    assert not torch.overrides._get_current_function_mode_stack()


def test_a_watch_inside_of_the_marker_sees_what_it_should(tests: pytest.Pytester) -> None:
    result = run(
        tests,
        """
@pytest.mark.gradient_flow(blocked="encoder")
def test_one(gradient_flow):
    model = Net(cut=True)
    with gradient_flow.watch() as seen:
        loss = model(X).sum()
    gradient_flow.assert_blocked(loss, model.encoder)
    assert seen.explain(loss, model)["head.bias"].status == "flows"
    loss.backward()

class TestOfAClass:
    @pytest.fixture(autouse=True)
    def made(self):
        self.model = Net()

    @pytest.mark.gradient_flow
    def test_two(self):
        self.model(X).sum().backward()
""",
    )
    result.assert_outcomes(passed=2)


def test_the_marker_serves_the_fixture_as_watch(tests: pytest.Pytester) -> None:
    result = run(
        tests,
        """
@pytest.mark.gradient_flow
def test_one(gradient_flow):
    model = Net()
    loss = model(X).sum()
    gradient_flow.assert_flows(loss, model)
    loss.backward()
""",
    )
    result.assert_outcomes(passed=1)


# ------------------------------------------------------------------------------------------- the option

BOTH = """
def test_cut():
    Net(cut=True)(X).sum().backward()

@pytest.mark.gradient_flow(only=["head.*"])
def test_said():
    Net(cut=True)(X).sum().backward()

def test_tensors_of_its_own():
    w, v = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    (w * v.detach()).sum().backward()
    assert v.grad is None
"""


def test_the_option_checks_all_tests(tests: pytest.Pytester) -> None:
    tests.makeini("[pytest]\ngradient_flow = true\n")
    result = run(tests, BOTH)
    result.assert_outcomes(failed=1, passed=2)
    assert "test_cut" in result.stdout.str()
    assert "hidden.detach()" in result.stdout.str()


def test_without_the_option_only_marked_tests_are_checked(tests: pytest.Pytester) -> None:
    run(tests, BOTH).assert_outcomes(passed=3)


def test_neither_framework_is_imported_unasked(tests: pytest.Pytester) -> None:
    tests.makeini("[pytest]\ngradient_flow = true\n")
    tests.makepyfile(
        """
import sys
import numpy as np
import stopgrad as sg

def test_one(gradient_flow):
    gradient_flow.assert_flows(lambda w: sg.reduce_sum(w), np.ones(3))
    assert not {"torch", "jax"} & set(sys.modules)
"""
    )
    result = tests.runpytest_subprocess("-p", "no:cacheprovider", "-p", "no:xdist", timeout=120)
    result.assert_outcomes(passed=1)

"""Trainings in JAX that are followed: what ends them is explained, what trains nothing is found."""

from __future__ import annotations

import contextlib
import re
import textwrap
from pathlib import Path

import numpy as np
import pytest

jax = pytest.importorskip("jax")
optax = pytest.importorskip("optax")
session = pytest.importorskip("stopgrad.interop.jax.training.session")
notes = pytest.importorskip("stopgrad.flow.problems.notes")
following = pytest.importorskip("stopgrad.tools.running.script_following")
scripts = pytest.importorskip("jax_scripts")
Run, script = scripts.Run, scripts.script

SCRIPTS = Path(__file__).parents[2] / "tools" / "run" / "scripts"
CORPUS = sorted(SCRIPTS.glob("jax-*/*.py"))


@pytest.mark.parametrize("path", CORPUS, ids=[path.stem for path in CORPUS])
def test_scripts_that_raise_are_explained_and_their_right_twins_are_not(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(path)
    expected = re.search(r"# finds: (\S+)", run.source)
    assert expected is not None
    if expected[1] == "nothing":
        assert run.error is None
        assert run.problems == []
        return
    assert run.kinds == [expected[1]]
    run.check_places()
    assert run.error is not None
    assert notes.problem_of(run.error) is run.problems[0]
    assert any(expected[1] in note for note in run.error.__notes__)
    assert "stopgrad" not in capsys.readouterr().out


# --------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (
            "jax-integer-input",
            """
            q = {"w": jnp.ones(3), "n": jnp.arange(3)}  # <made>
            g = jax.value_and_grad(lambda q: (q["w"] * q["n"]).sum())(q)  # <called>
            """,
        ),
        (
            "jax-integer-input",
            """
            n = 3  # <made>
            @jax.jit
            def step(w):
                return w * 2.0
            g = jax.grad(step)(n)  # <called>
            """,
        ),
        (
            "jax-not-scalar",
            """
            @jax.jit
            def step(p):
                def loss(p):
                    h = x @ p["a"]
                    return h @ p["b"]  # <computed>
                return jax.grad(loss)(p)  # <called>
            step(p)
            """,
        ),
        ("jax-not-scalar", """\ng = jax.grad(lambda p: ((x @ p["a"]).sum(), 1.0))(p)  # <called>\n"""),
        ("not-real", """\ng = jax.grad(lambda p: (x @ p["a"] > 0).sum())(p)  # <called>\n"""),
        (
            "jax-concrete",
            """
            import numpy
            @jax.jit
            def step(p):
                h = x @ p["a"]  # <computed>
                return numpy.sum(numpy.asarray(h))  # <read>
            step(p)
            """,
        ),
        (
            "jax-concrete",
            """
            @jax.jit
            def step(p, size):
                return jnp.zeros(size) + p["a"].sum()  # <read>
            step(p, 3)
            """,
        ),
        (
            "jax-concrete",
            """
            def body(c, v):
                c = c * v  # <computed>
                while c > 3:  # <read>
                    c = c / 2
                return c, c
            jax.lax.scan(body, 1.0, x[0])
            """,
        ),
        (
            "jax-concrete",
            """
            @jax.jit
            def step(v):
                return v[v > 0].sum()  # <read>
            step(x)
            """,
        ),
        (
            "jax-concrete",
            """
            values = [1.0, 2.0]
            jax.vmap(lambda i: values[i])(jnp.arange(2))  # <read>
            """,
        ),
        (
            "jax-leaked-tracer",
            """
            seen = []
            @jax.jit
            def loss(p):
                h = x @ p["a"]  # <made>
                seen.append(h)  # <written>
                return (h @ p["b"]).sum()
            loss(p)
            print(seen[0] + 1)  # <read>
            """,
        ),
        (
            "jax-leaked-tracer",
            """
            last = None
            @jax.jit
            def loss(p):
                global last
                last = x @ p["a"]  # <written>
                return (last @ p["b"]).sum()
            loss(p)
            total = jnp.sum(last)  # <read>
            """,
        ),
        (
            "jax-while-loop",
            """
            def loss(v, n):
                return jax.lax.fori_loop(0, n, lambda i, c: c * 1.1, v)  # <needed>
            step = jax.jit(jax.grad(loss))
            step(2.0, 3)  # <called>
            """,
        ),
        (
            "wrong-gradient",
            """
            @jax.custom_vjp
            def f(v, t):
                return v * t
            def forward(v, t):
                return v * t, (v, t)
            def backward(kept, g):
                return (g * kept[1],)  # <made>
            f.defvjp(forward, backward)
            jax.grad(lambda v: f(v, 3.0) + 1.0)(2.0)  # <needed> <called>
            """,
        ),
        (
            "not-twice",
            """
            @jax.custom_vjp
            def f(v):
                return v ** 2
            f.defvjp(lambda v: (v ** 2, v), lambda v, g: (2 * v * g,))
            jax.jacfwd(f)(2.0)  # <called>
            """,
        ),
        (
            "leaves-graph",
            """
            def loss(v):
                return jax.pure_callback(lambda v: v, jax.ShapeDtypeStruct((), jnp.float32), v)  # <cut>
            jax.grad(loss)(2.0)
            """,
        ),
    ],
)
def test_an_error_is_explained_by_the_users_lines(kind: str, text: str, tmp_path: Path) -> None:
    run = script(tmp_path, text)
    assert run.kinds == [kind]
    run.check_places()
    assert all(site.location.file.startswith(str(tmp_path)) for site in run.problems[0].sites)


def test_names_and_dtypes_are_told(tmp_path: Path) -> None:
    run = script(tmp_path, """\nq = {"w": jnp.ones(3), "n": jnp.arange(3)}\njax.grad(lambda q: 1.0)(q)\n""")
    (problem,) = run.problems
    assert list(problem.names) == ["q.n"]
    assert problem.evidence["dtype"] == "int32"


@pytest.mark.parametrize(
    "text",
    [
        "\nraise TypeError('Gradient of my own')\n",
        "\njax.jit(lambda p: 1 / 0)(p)\n",
        """\nx @ jnp.ones(7)\n""",
        """\njax.grad(lambda p: p["missing"])(p)\n""",
    ],
)
def test_errors_of_other_kinds_are_left_alone(text: str, tmp_path: Path) -> None:
    run = script(tmp_path, text)
    assert run.error is not None
    assert run.problems == []
    assert not any("stopgrad" in note for note in getattr(run.error, "__notes__", ()))


# ------------------------------------------------------------------------------------------ the audit

JITTED = """
@jax.jit
def step(p, s, x):
    def loss(p):
        {loss}
    g = jax.grad(loss)(p)  # <called>
    u, s = tx.update(g, s, p)
    return optax.apply_updates(p, u), s
for _ in range(3):
    p, s = step(p, s, x)
"""
EAGER = """
def loss(p, x):
    {loss}
for _ in range(4):
    g = jax.grad(loss)(p, x)  # <called>
    u, s = tx.update(g, s, p)
    p = optax.apply_updates(p, u)  # <step>
"""
CUT = 'return ((jnp.round(x @ p["a"]) @ p["b"] - 1.0) ** 2).mean()  # <cut>'
STOP = 'return ((jax.lax.stop_gradient(jnp.tanh(x @ p["a"])) @ p["b"] - 1.0) ** 2).mean()  # <cut>'
OPEN = 'return ((jnp.tanh(x @ p["a"]) @ p["b"] - 1.0) ** 2).mean()'
HELD = 'return ((jnp.tanh(x @ jax.lax.stop_gradient(p["a"])) @ p["b"] - 1.0) ** 2).mean()'


@pytest.mark.parametrize("form", [JITTED, EAGER], ids=["jit", "eager"])
@pytest.mark.parametrize("loss", [CUT, STOP])
def test_parameters_behind_a_cut_are_found_with_its_line(form: str, loss: str, tmp_path: Path) -> None:
    run = script(tmp_path, form.format(loss=loss).replace("# <step>", ""))
    assert run.kinds == ["no-gradient"]
    assert list(run.problems[0].names) == ["p.a"]
    run.check_places()


RIGHT = {
    "open": OPEN,
    "frozen itself": HELD,
    "dead": 'return ((jax.nn.relu(x @ p["a"] - 100.0) @ p["b"] - 1.0) ** 2).mean()',
    "partly": 'h = x @ p["a"]\n        return ((h - jax.lax.stop_gradient(h) + h) @ p["b"]).sum()',
    "straight through": 'h = x @ p["a"]\n'
    '        return ((h + jax.lax.stop_gradient(jnp.round(h) - h)) @ p["b"]).sum()',
    "batched branch": 'v = jax.vmap(lambda v: jax.lax.cond(v > 0, jnp.sin, jnp.cos, v))(p["b"])\n'
    '        return (x @ p["a"] @ v).sum()',
}


@pytest.mark.parametrize("loss", RIGHT.values(), ids=RIGHT)
@pytest.mark.parametrize("form", [JITTED, EAGER], ids=["jit", "eager"])
def test_correct_losses_are_no_finding(form: str, loss: str, tmp_path: Path) -> None:
    loss = loss if form is JITTED else loss.replace("\n        ", "\n    ")
    assert script(tmp_path, form.format(loss=loss)).kinds == []


def test_what_another_loss_trains_is_no_finding(tmp_path: Path) -> None:
    text = """
    sg = jax.lax.stop_gradient
    def first(p): return (sg(x @ p["a"]) @ p["b"]).sum()
    def second(p): return ((x @ p["a"]) @ sg(p["b"])).sum()
    for _ in range(3):
        for f in (first, second):
            u, s = tx.update(jax.grad(f)(p), s, p)
            p = optax.apply_updates(p, u)
    """
    assert script(tmp_path, text).kinds == []


def test_a_custom_rule_decides_what_arrives(tmp_path: Path) -> None:
    text = """
    @jax.custom_vjp
    def f(x, t): return x * jax.lax.stop_gradient(t)
    f.defvjp(lambda x, t: (x * t, (x, t)), lambda r, g: (g * r[1], g * r[0]))
    g = jax.grad(f, 1)(2.0, 3.0)
    """
    assert script(tmp_path, text).kinds == []


def test_derivatives_of_derivatives_scans_and_batches_are_no_finding(tmp_path: Path) -> None:
    text = """
    def u(q, t): return (jnp.tanh(q["a"]) * t).sum()
    def loss(q): return (jax.grad(u, 1)(q, 0.3) + q["b"].sum()) ** 2
    g = jax.grad(loss)(p)
    g = jax.vmap(jax.grad(lambda w, v: jnp.tanh(v @ w)), (None, 0))(x[0], x)
    def body(w, v): return w - 0.1 * jax.grad(lambda w: (v @ w) ** 2)(w), None
    w, _ = jax.lax.scan(body, x[0], x)
    h = jax.hessian(lambda w: (w ** 3).sum())(w)
    """
    assert script(tmp_path, text).kinds == []


def test_an_argument_that_plays_no_part_is_a_note(tmp_path: Path) -> None:
    text = JITTED.format(loss='return ((x @ p["a"]) ** 2).sum()')
    run = script(tmp_path, text)
    assert run.kinds == ["held-unused"]
    assert list(run.problems[0].names) == ["p.b"]
    run.check_places()


def test_a_function_that_reads_its_parameters_from_outside_is_told_so(tmp_path: Path) -> None:
    text = """
    def loss(q): return ((x @ p["a"]) @ p["b"]).sum()  # <cut>
    g = jax.grad(loss)(p)  # <called>
    """
    run = script(tmp_path, text)
    assert run.kinds == ["no-gradient"]
    assert "reads p from outside" in run.problems[0].message
    run.check_places()


DECAY = "tx = optax.adamw(0.1, weight_decay=0.1)\ns = tx.init(p)\n"
MASK = 'tx = optax.adamw(0.1, weight_decay=0.1, mask={"a": False, "b": True})\ns = tx.init(p)\n'
RAW = 'tx = optax.masked(optax.sgd(0.1), {"a": False, "b": True})\ns = tx.init(p)\n'
ZERO = """
tx = optax.multi_transform({"t": optax.sgd(0.1), "f": optax.set_to_zero()}, {"a": "f", "b": "t"})
s = tx.init(p)
"""


@pytest.mark.parametrize(("tx", "loss"), [(DECAY, HELD), (RAW, OPEN)], ids=["decay", "masked"])
def test_what_is_frozen_and_moves_is_found(tx: str, loss: str, tmp_path: Path) -> None:
    run = script(tmp_path, tx + EAGER.format(loss=loss).replace("# <called>", ""))
    assert run.kinds == ["moves-frozen"]
    assert [name.rpartition(".")[2] for name in run.problems[0].names] == ["a"]
    run.check_places()


@pytest.mark.parametrize(("tx", "loss"), [(MASK, HELD), (ZERO, OPEN)], ids=["decay", "masked"])
def test_what_is_frozen_and_stays_is_no_finding(tx: str, loss: str, tmp_path: Path) -> None:
    assert script(tmp_path, tx + EAGER.format(loss=loss)).kinds == []


STILL = {
    "no-learning-rate": ("tx = optax.adam(0.0)\ns = tx.init(p)\n", EAGER),
    "lost-in-rounding": (
        "p = jax.tree.map(lambda v: v.astype(jnp.bfloat16), p)\ntx = optax.sgd(1e-6)\ns = tx.init(p)\n",
        EAGER,
    ),
    "never-stepped": ("", EAGER.replace("    p = optax", "    optax")),
}


@pytest.mark.parametrize("kind", STILL)
def test_a_training_that_moves_nothing_is_found(kind: str, tmp_path: Path) -> None:
    tx, form = STILL[kind]
    run = script(tmp_path, tx + form.format(loss=OPEN).replace("# <called>", ""))
    assert run.kinds == [kind]
    run.check_places()


@pytest.mark.parametrize(
    "tx",
    [
        "tx = optax.MultiSteps(optax.sgd(0.1), 8)\ns = tx.init(p)\n",
        "tx = optax.sgd(optax.linear_schedule(0.0, 0.1, 2))\ns = tx.init(p)\n",
    ],
)
def test_accumulation_and_warm_up_are_no_finding(tx: str, tmp_path: Path) -> None:
    assert script(tmp_path, tx + EAGER.format(loss=OPEN)).kinds == []


@pytest.mark.parametrize(("tx", "loss"), [(ZERO, STOP), (MASK, HELD)])
@pytest.mark.parametrize("form", [JITTED, EAGER], ids=["jit", "eager"])
def test_what_the_optimizer_holds_still_is_no_finding(form: str, tx: str, loss: str, tmp_path: Path) -> None:
    assert script(tmp_path, tx + form.format(loss=loss)).kinds == []


LIBRARIES = {
    "flax.linen": """
    import flax.linen as nn
    from flax.training.train_state import TrainState
    class Net(nn.Module):
        @nn.compact
        def __call__(self, x):
            h = CUT(nn.Dense(4)(x))
            return nn.Dense(1)(nn.Dropout(0.1, deterministic=False)(h))
    net, key = Net(), jax.random.key(0)
    q = net.init({"params": key, "dropout": key}, x)["params"]
    state = TrainState.create(apply_fn=net.apply, params=q, tx=tx)
    @jax.jit
    def step(state, x, key):
        def loss(q): return (state.apply_fn({"params": q}, x, rngs={"dropout": key}) ** 2).mean()
        return state.apply_gradients(grads=jax.grad(loss)(state.params))
    for _ in range(3):
        state = step(state, x, key)
    """,
    "flax.nnx": """
    from flax import nnx
    class Net(nnx.Module):
        def __init__(self, rngs):
            self.Dense_0 = nnx.Linear(3, 4, rngs=rngs)
            self.last = nnx.Linear(4, 1, rngs=rngs)
        def __call__(self, x):
            return self.last(CUT(self.Dense_0(x)))
    net = Net(nnx.Rngs(0))
    opt = nnx.Optimizer(net, tx, wrt=nnx.Param)
    @nnx.jit
    def step(net, opt, x):
        opt.update(net, nnx.grad(lambda net: (net(x) ** 2).mean())(net))
    for _ in range(3):
        step(net, opt, x)
    """,
    "equinox": """
    import equinox as eqx
    class Net(eqx.Module):
        Dense_0: eqx.nn.Linear
        last: eqx.nn.Linear
        def __call__(self, x):
            return self.last(CUT(self.Dense_0(x)))
    one, two = jax.random.split(jax.random.key(0))
    net = Net(eqx.nn.Linear(3, 4, key=one), eqx.nn.Linear(4, 1, key=two))
    s = tx.init(eqx.filter(net, eqx.is_array))
    @eqx.filter_jit
    def step(net, s, x):
        g = eqx.filter_grad(lambda net: (jax.vmap(net)(x) ** 2).mean())(net)
        u, s = tx.update(g, s)
        return eqx.apply_updates(net, u), s
    for _ in range(3):
        net, s = step(net, s, x)
    """,
    "haiku": """
    import haiku as hk
    net = hk.transform(lambda x: hk.Linear(1)(CUT(hk.Linear(4, name="Dense_0")(x))))
    q = net.init(jax.random.PRNGKey(0), x)
    s = tx.init(q)
    for i in range(3):
        u, s = tx.update(jax.grad(lambda q: (net.apply(q, None, x) ** 2).mean())(q), s)
        q = optax.apply_updates(q, u)
    """,
}


@pytest.mark.parametrize("library", LIBRARIES)
def test_modules_of_libraries_are_followed(library: str, tmp_path: Path) -> None:
    pytest.importorskip(library.partition(".")[0])
    cut, right = (LIBRARIES[library].replace("CUT", name) for name in ("jnp.round", "jnp.tanh"))
    run = script(tmp_path, cut)
    assert run.kinds == ["no-gradient"]
    assert len(run.problems[0].names) == 2
    assert all("Dense_0" in name for name in run.problems[0].names)
    line = next(n for n, text in enumerate(run.source.splitlines(), 1) if "jnp.round" in text)
    assert [site.location.line for site in run.problems[0].sites if site.role == "cut"] == [line]
    assert script(tmp_path, right).kinds == []


# ----------------------------------------------------------------------------------- nothing changes


def test_nothing_of_a_trace_is_kept(tmp_path: Path) -> None:
    run = script(tmp_path, "with jax.checking_leaks():\n" + textwrap.indent(JITTED.format(loss=CUT), "    "))
    assert run.error is None
    assert run.kinds == ["no-gradient"]


NUMBERS = """
import random, numpy
seen = []
def loss(p, x, key, scale):
    seen.append(random.random())
    noise = jax.random.normal(key, x.shape) + numpy.random.rand()
    h = jnp.round((x + noise) @ p["a"])
    return scale * ((h @ p["b"] - 1.0) ** 2).mean(), h
def step(p, s, x, key, scale):
    (l, h), g = jax.value_and_grad(loss, argnums=0, has_aux=True)(p, x, key, scale)
    u, s = tx.update(g, s, p)
    return optax.apply_updates(p, u), s, l
key = jax.random.key(3)
for function in (step, jax.jit(step, static_argnums=4, donate_argnums=(0, 1))):
    for i in range(3):
        key, sub = jax.random.split(key)
        p, s, l = function(p, s, x, sub, 2.0)
rows = jax.vmap(jax.grad(lambda w, v: jnp.sin(v @ w)), (None, 0))(p["b"], jnp.ones((2, 4)))
last = jax.random.normal(key)
"""


def test_numbers_and_random_states_are_those_without_us(tmp_path: Path) -> None:
    followed, plain = script(tmp_path, NUMBERS), script(tmp_path, NUMBERS, followed=False)
    assert (followed.error, plain.error) == (None, None)
    assert followed.kinds == ["no-gradient"]
    for name in ("p", "s", "l", "rows", "last"):
        ours = jax.tree_util.tree_leaves(followed.variables[name])
        theirs = jax.tree_util.tree_leaves(plain.variables[name])
        assert [np.asarray(a).tobytes() for a in ours] == [np.asarray(b).tobytes() for b in theirs]
    assert followed.random == plain.random


def test_what_jax_traces_is_what_it_traces_without_us(tmp_path: Path) -> None:
    text = """
    def step(p, s, x, key):
        def loss(p):
            noise = jax.random.normal(jax.random.fold_in(key, 3), x.shape)
            h = jnp.linalg.qr(jnp.round((x + noise) @ p["a"]))[0]
            return ((h @ p["b"] - jnp.arange(5.0)) ** 2).mean()
        g = jax.grad(loss)(p)
        u, s = tx.update(g, s, p)
        return optax.apply_updates(p, u), s
    traced = str(jax.make_jaxpr(step)(p, s, x, jax.random.key(0)))
    """
    followed, plain = script(tmp_path, text), script(tmp_path, text, followed=False)
    assert followed.kinds == ["no-gradient"]
    assert followed.variables["traced"] == plain.variables["traced"]


def test_functions_are_put_back_and_those_handed_out_still_work() -> None:
    before = jax.grad, jax.value_and_grad, optax.apply_updates
    one = session.Session()
    assert jax.grad is not before[0]
    kept, made = jax.grad, jax.grad(lambda w: w**2)
    one.close()
    assert (jax.grad, jax.value_and_grad, optax.apply_updates) == before
    assert float(kept(lambda w: w**3)(2.0)) == 12.0
    assert float(made(3.0)) == 6.0
    assert (kept.__name__, kept.__doc__) == ("grad", jax.grad.__doc__)
    assert one.steps == 0


def test_so_many_steps_are_followed_and_then_told() -> None:
    told: list[int] = []
    one = session.Session(session.Schedule(until=3, notify=lambda: told.append(one.steps)))
    try:
        for _ in range(5):
            jax.grad(lambda w: w**2)(2.0)
    finally:
        one.close()
    assert told == [3]
    assert (one.steps, one.unknown, one.problems(None)) == (3, [], [])


def test_what_raises_passes_on_as_it_was(tmp_path: Path) -> None:
    with contextlib.suppress(TypeError):
        jax.grad(3)
    run = script(tmp_path, "\njax.grad(lambda p: 1 / 0)(p)\n")
    assert type(run.error) is ZeroDivisionError
    assert run.error.__cause__ is None


def test_the_command_follows_jax() -> None:
    assert following.SESSIONS["jax"] == session.__name__


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(("target", "kinds"), [("y", ["broadcast-loss"]), ("y[:, None]", [])])
def test_predictions_compared_with_every_target(
    tmp_path: Path, compiled: bool, target: str, kinds: list[str]
) -> None:
    text = f"""
        w, x, y = jnp.ones((3, 1)), jnp.arange(24.0).reshape(8, 3), jnp.ones(8)
        def loss(w):
            return ((x @ w - {target}) ** 2).mean()
        step = {"jax.jit" if compiled else ""}(lambda w: w - 0.001 * jax.grad(loss)(w))
        for _ in range(3):
            w = step(w)
        """
    assert script(tmp_path, textwrap.dedent(text)).kinds == kinds

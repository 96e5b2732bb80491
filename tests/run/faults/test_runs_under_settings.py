"""JAX's global settings: they change nothing in what is computed, and computing changes none of them."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest
from fault_tools import Counting, settings

import stopgrad as sg

pytestmark = pytest.mark.slow

HOSTILE: dict[str, list[Any]] = {
    "jax_numpy_rank_promotion": ["raise", "warn"],
    "jax_numpy_dtype_promotion": ["strict"],
    "jax_enable_x64": [True, False],
    "jax_default_matmul_precision": ["bfloat16", "highest"],
    "jax_debug_nans": [True],
    "jax_debug_infs": [True],
    "jax_disable_jit": [True],
    "jax_allow_f16_reductions": [False],
    "jax_threefry_partitionable": [False],
    "jax_default_prng_impl": ["rbg"],
    "jax_enable_custom_prng": [True],
    "jax_softmax_custom_jvp": [True],
    "jax_legacy_prng_key": ["error"],
    "jax_check_tracer_leaks": [True],
    "jax_explicit_x64_dtypes": ["error"],
}

EVERY_OPERATION = """
import json, sys, zlib
import jax, numpy as np
import stopgrad as sg
from stopgrad.graph.build import emit
from stopgrad.engines import engine
from stopgrad.rewrite import prepare
from stopgrad.graph.op import REGISTRY, Unsupported
from stopgrad.base.samples import Values

most, hostile = json.loads(sys.argv[1])

def cases():
    for definition in REGISTRY.values():
        if not isinstance(definition.lower, Unsupported):
            for sample in definition.samples[:most]:
                generator = np.random.default_rng(zlib.crc32(repr(sample).encode()))
                yield definition, sample, [
                    o.draw(generator, {"n": 3}) if isinstance(o, Values) else o for o in sample.operands
                ]

def computed():
    '''The bits of all results, several operations compiled together.'''
    found, todo = {}, list(cases())
    for start in range(0, len(todo), 12):
        inputs, fed, made = [], [], []
        with sg.Graph().as_default() as graph:
            for definition, sample, arrays in todo[start : start + 12]:
                xs = [sg.placeholder(a.dtype, a.shape) for a in arrays]
                values = tuple(sample.attributes[name] for name in definition.attributes)
                made += emit(definition, tuple(xs), values).outputs
                inputs, fed = inputs + xs, fed + arrays
        ready = prepare(made, inputs, {})
        results = engine("xla").compile(ready.inputs, ready.outputs)(fed)
        for y, array in zip(made, map(np.asarray, results)):
            found[f"{start} {y!r}"] = (str(array.dtype), array.shape, array.tobytes())
    return found

plain = computed()
for name, value in hostile.items():
    jax.config.update(name, value)
before = {name: getattr(jax.config, name) for name in hostile}
again = computed()
assert {name: getattr(jax.config, name) for name in hostile} == before
print(json.dumps([len(plain), [name for name in plain if plain[name] != again[name]]]))
"""


def differing(most: int | None, hostile: dict[str, Any]) -> tuple[int, list[str]]:
    """How many samples of operations were computed, and which of them otherwise under some settings."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", EVERY_OPERATION, json.dumps([most, hostile])],
        check=False,
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    count, names = json.loads(done.stdout.splitlines()[-1])
    return count, names


def test_every_operation_gives_the_same_bits_under_all_of_them() -> None:
    # Looking for leaks collects garbage after each trace, which takes long.
    hostile = {name: values[0] for name, values in HOSTILE.items() if name != "jax_check_tracer_leaks"}
    count, names = differing(1, hostile)
    assert count > 150
    assert not names


@pytest.mark.nightly
@pytest.mark.parametrize("name", HOSTILE)
def test_every_sample_of_every_operation_gives_the_same_bits(name: str) -> None:
    for value in HOSTILE[name]:
        count, names = differing(None, {name: value})
        assert count > 500
        assert not names, value


@pytest.fixture
def set_jax() -> Iterator[Callable[[str, Any], None]]:
    before: dict[str, Any] = {}

    def update(name: str, value: Any) -> None:
        before.setdefault(name, getattr(jax.config, name))
        jax.config.update(name, value)

    yield update
    for name, value in before.items():
        jax.config.update(name, value)


class Compilations:
    """Counts what JAX compiles."""

    def __init__(self) -> None:
        self.count = 0
        jax.monitoring.register_event_duration_secs_listener(self._heard)

    def _heard(self, event: str, seconds: float, **_: Any) -> None:
        self.count += event.endswith("backend_compile_duration")


HEARD = Compilations()


@pytest.mark.parametrize("name", [name for name in HOSTILE if hasattr(jax.config, name)])
def test_what_is_compiled_is_not_compiled_again_and_gives_the_same(
    name: str, set_jax: Callable[[str, Any], None]
) -> None:
    c = Counting()
    wide = sg.function(lambda x: sg.log(x) + sg.reduce_sum(x), engine="xla")
    narrow = sg.function(lambda x: sg.matmul(x, x) / x, engine="xla")
    a, b = np.array([0.0, -1.0]), np.arange(4.0, dtype=np.float32).reshape(2, 2) + 0.123456
    native = jax.numpy.asarray(b)
    calls = [lambda: wide(a), lambda: narrow(b), lambda: np.asarray(narrow(native))]
    with sg.Session(c.graph, engine="xla") as session:
        c.step(session)
        expected = [call().tobytes() for call in calls]
        compiled = HEARD.count
        for value in HOSTILE[name]:
            set_jax(name, value)
            before = settings()
            assert [call().tobytes() for call in calls] == expected
            c.step(session)
            assert settings() == before
        assert HEARD.count == compiled
        assert c.count(session) == 1 + len(HOSTILE[name])


def test_settings_of_a_thread_are_overridden_and_kept_as_well() -> None:
    f = sg.function(lambda x: x + sg.reduce_sum(sg.log(x)), engine="xla")
    x = np.array([[1.0, 0.0]])
    with (
        jax.numpy_rank_promotion("raise"),
        jax.numpy_dtype_promotion("strict"),
        jax.debug_nans(True),
        jax.debug_infs(True),
        jax.disable_jit(),
        jax.default_matmul_precision("bfloat16"),
    ):
        before = settings()
        assert f(x).tolist() == [[-np.inf, -np.inf]]
        with sg.Session(Counting().graph, engine="xla") as session:
            session.run("p1")
        assert settings() == before


def test_an_error_while_tracing_leaves_the_settings_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def lower(xp: Any, x: Any) -> Any:
        raise ValueError("my own")

    monkeypatch.setattr(sg.ops.Tanh, "xla", staticmethod(lower), raising=False)
    with jax.debug_nans(True), jax.numpy_rank_promotion("warn"):
        before = settings()
        with pytest.raises(sg.EngineError, match="my own"):
            sg.function(sg.tanh, engine="xla")(np.ones(2))
        assert settings() == before


def test_a_default_device_chosen_later_changes_nothing() -> None:
    text = textwrap.dedent(
        """
        import os
        os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
        import jax, numpy as np, stopgrad as sg
        second = jax.devices()[1]
        with sg.Graph().as_default() as graph:
            w = sg.parameter(np.ones(3))
            x = sg.placeholder(sg.float64, [3])
            step = sg.assign(w, w + x)
        f = sg.function(lambda x: x * 2.0, engine="xla")
        ones = np.ones(3)
        with sg.Session(graph, engine="xla") as session:
            session.run(step, {x: ones})
            f(ones)
            jax.config.update("jax_default_device", second)
            session.run(step, {x: ones})
            assert f(ones).tolist() == [2.0] * 3
            assert session.value(w).tolist() == [3.0] * 3
            other = sg.Session(graph, engine="xla")
            assert other.run(step, {x: ones}).tolist() == [2.0] * 3
            # What lies elsewhere is computed where it lies.
            there = jax.device_put(np.ones(3, np.float32), second)
            made = f(there)
            assert made.devices() == {second}, made.devices()
            assert f(there).tolist() == [2.0] * 3
            mesh = jax.make_mesh((2,), ("d",))
            spread = jax.device_put(
                np.ones(4, np.float32), jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("d"))
            )
            assert len(f(spread).devices()) == 2
            assert np.asarray(f(spread)).tolist() == [2.0] * 4
        """
    )
    subprocess.run([sys.executable, "-c", text], check=True, timeout=300)

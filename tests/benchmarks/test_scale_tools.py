"""What the scale benchmark reads from programs: by hand, and from programs whose traffic is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from hlo_tools import hlo
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

pytestmark = pytest.mark.slow


def module(*lines: str, more: str = "", count: int = 8) -> str:
    """A program whose entry computation has these lines."""
    body = "\n".join(f"  {line}" for line in lines)
    head = f"HloModule jit_f, is_scheduled=true, num_partitions={count}"
    return f"{head}\n\n{more}\nENTRY %main (p: f32[4]) -> f32[4] {{\n{body}\n}}\n"


# ------------------------------------------------------------------------------------------ types, groups


@pytest.mark.parametrize(
    ("type", "expected"),
    [
        ("f32[4,8]{1,0}", 128),
        ("f32[]", 4),
        ("bf16[3]{0:T(8,128)(2,1)}", 6),
        ("pred[5]", 5),
        ("c64[2]", 16),
        ("s4[8]", 4),
        ("f8e4m3fn[7]", 7),
        ("f32[<=4,2]", 32),
        ("token[]", 0),
        ("f32[0,4]", 0),
        ("(f32[4]{0}, (u32[], bf16[2,2]{1,0:T(8,128)(2,1)}))", 28),
        ("()", 0),
    ],
)
def test_bytes_of_types(type: str, expected: float) -> None:
    assert hlo.bytes_of(type) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{0,1},{2,3}}", [[0, 1], [2, 3]]),
        ("{}", [[0, 1, 2, 3]]),
        ("[2,2]<=[4]", [[0, 1], [2, 3]]),
        ("[4,2]<=[8]", [[0, 1], [2, 3], [4, 5], [6, 7]]),
        ("[4,2]<=[2,4]T(1,0)", [[0, 4], [1, 5], [2, 6], [3, 7]]),
        ("[2,4]<=[2,2,2]T(1,0,2)", [[0, 1, 4, 5], [2, 3, 6, 7]]),
        ("mesh['a'=2,'b'=2] {'b'}", [[0, 1], [2, 3]]),
        ("mesh['a'=2,'b'=2] {'a'}", [[0, 2], [1, 3]]),
        ("mesh['a'=2,'b'=2] {'a','b'}", [[0, 1, 2, 3]]),
        ("mesh['a'=1,'b'=2,'c'=2], device_ids=([2,2]T(1,0)) {'b'}", [[0, 1], [2, 3]]),
        ("mesh['a'=4] {'a':(1)2}", [[0, 2], [1, 3]]),
        ("mesh['a'=4] {'a':(2)2}", [[0, 1], [2, 3]]),
        ("mesh['a'=2,'b'=2], device_ids=(0,2,1,3) {'b'}", [[0, 2], [1, 3]]),
    ],
)
def test_groups_in_each_form(text: str, expected: list[list[int]]) -> None:
    assert [sorted(one) for one in hlo.groups(text, 4)] == expected


# ---------------------------------------------------------------------------------------- instructions


@pytest.mark.parametrize(
    ("line", "kind", "moved"),
    [
        ("%a = f32[100]{0} all-reduce(%p), replica_groups={{0,1,2,3}}, to_apply=%add", "all-reduce", 600),
        (
            "%a = f32[100]{0} all-reduce-start(%p), replica_groups=[2,4]<=[8], to_apply=%add",
            "all-reduce",
            600,
        ),
        ("%a = (f32[50], f32[50]) all-reduce(%p, %q), replica_groups={}, to_apply=%add", "all-reduce", 700),
        ("%a = f32[100]{0} all-gather(%p), replica_groups={{0,1},{2,3}}, dimensions={0}", "all-gather", 200),
        ("%a = (f32[50]{0}, f32[100]{0}) all-gather-start(%p), replica_groups=[4,2]<=[8]", "all-gather", 200),
        (
            "%a = ((f32[5], f32[45]), (f32[10], f32[90])) all-gather-start(%p, %q), replica_groups={{0,1}}",
            "all-gather",
            200,
        ),
        (
            "%a = f32[25]{0} reduce-scatter(%p), replica_groups=mesh['x'=2,'y'=4] {'y'}, dimensions={0}",
            "reduce-scatter",
            300,
        ),
        (
            "%a = (f32[5]{0}, f32[5]{0}, /*index=2*/f32[5]{0}, f32[5]{0}) all-to-all(%p, %q, %r, %s), "
            "replica_groups={{0,1,2,3},{4,5,6,7}}",
            "all-to-all",
            60,
        ),
        ("%a = f32[10] collective-permute(%p), source_target_pairs={{0,1},{1,0}}", "collective-permute", 40),
        (
            "%a = (f32[10], f32[10], u32[], u32[]) collective-permute-start(%p), source_target_pairs={{0,1}}",
            "collective-permute",
            40,
        ),
        ("%a = f32[10] collective-permute(%p), source_target_pairs={{0,0},{1,1}}", "collective-permute", 0),
        ("%a = f32[9]{0} all-reduce(%p), replica_groups={{0},{1}}, to_apply=%add", "all-reduce", 0),
        ("ROOT %a = f32[1] collective-broadcast(%p), replica_groups={{0,1}}", "collective-broadcast", 4),
    ],
)
def test_bytes_that_a_device_sends(line: str, kind: str, moved: float) -> None:
    (found,) = hlo.collectives(module(line))
    assert (found.kind, found.moved) == (kind, moved)


def test_what_only_waits_or_looks_like_it_counts_nothing() -> None:
    lines = [
        "%all-reduce.1 = f32[8]{0} all-reduce-done(%start)",
        "%get = f32[8]{0} get-tuple-element(%all-gather.3), index=0",
        '%x = f32[8]{0} add(%all-reduce, %p), metadata={op_name="all-reduce(x)"}',
    ]
    assert hlo.collectives(module(*lines)) == []


INNER = """%inner (q: f32[8]) -> f32[8] {
  %q = f32[8]{0} parameter(0)
  ROOT %r = f32[8]{0} all-reduce(%q), replica_groups={{0,1}}, to_apply=%add
}

%nothing (q: f32[8]) -> f32[8] {
  ROOT %q = f32[8]{0} parameter(0)
}
"""


@pytest.mark.parametrize(
    ("line", "moved"),
    [
        ("%c = f32[8]{0} call(%p), to_apply=%inner", 32),
        ("%c = ((f32[8]), f32[8]) async-start(%p), calls=%inner", 32),
        ("%c = f32[8]{0} async-done(%s), calls=%inner", 0),
        (
            '%c = f32[8] while(%p), condition=%nothing, body=%inner, config={"known_trip_count":{"n":"5"}}',
            160,
        ),
        (
            '%c = f32[8] while(%p), condition=%inner, body=%nothing, config={"known_trip_count":{"n":"5"}}',
            192,
        ),
        ("%c = f32[8] while(%p), condition=%nothing, body=%nothing", 0),
        ("%c = f32[8] conditional(%i, %p, %p), branch_computations={%nothing, %inner}", 32),
        ("%c = f32[8] conditional(%i, %p, %p), true_computation=%inner, false_computation=%nothing", 32),
        ("%c = f32[8] reduce(%p, %z), dimensions={0}, to_apply=%nothing", 0),
    ],
)
def test_what_is_called_counts_as_often_as_it_runs(line: str, moved: float) -> None:
    assert hlo.moved(module(line, more=INNER)) == moved


def test_a_loop_of_unknown_length_that_speaks_is_an_error() -> None:
    with pytest.raises(ValueError, match="how often the loop w runs"):
        hlo.moved(module("%w = f32[8] while(%p), condition=%nothing, body=%inner", more=INNER))


def test_text_without_an_entry_is_an_error() -> None:
    with pytest.raises(ValueError, match="HLO module"):
        hlo.moved("module @jit_f { }")


# ------------------------------------------------------------------------------------------- programs


@pytest.fixture(scope="module")
def mesh() -> Any:
    if len(jax.devices()) < 8:
        pytest.skip("needs eight devices: JAX_NUM_CPU_DEVICES=8")
    return jax.make_mesh((2, 4), ("a", "b"), axis_types=(AxisType.Auto,) * 2)


def looped(x: Any) -> Any:
    """Six times x ↦ tanh(x w), where the product is divided along what it sums."""
    return jax.lax.scan(lambda h, _: (jnp.tanh(h @ x), None), x, length=6)[0]


@pytest.mark.parametrize(
    ("f", "before", "after", "expected"),
    [
        (lambda x: x * 2, P("a"), P(), {"all-gather": 1 / 2}),
        (lambda x: x * 2, P(None, "b"), P(), {"all-gather": 3 / 4}),
        (lambda x: x * 2, P(("a", "b")), P(), {"all-gather": 7 / 8}),
        (lambda x: x * 2, P("b"), P(None, "b"), {"all-to-all": 3 / 16}),
        (lambda x: x.sum(0), P("a"), P(), {"all-reduce": 1 / 16}),
        (lambda x: x.sum(0), P("b"), P(), {"all-reduce": 3 / 2 / 16}),
        (lambda x: x * 2, P("a"), P("a"), {}),
        (looped, P("b", None), P("b", None), {"all-gather": 3 / 4}),
    ],
)
def test_traffic_of_compiled_programs(
    mesh: Any, f: Callable[[Any], Any], before: Any, after: Any, expected: dict[str, float]
) -> None:
    """In wholes of a 16 × 16 array that a device sends."""
    x = jax.ShapeDtypeStruct((16, 16), jnp.float32, sharding=NamedSharding(mesh, before))
    text = jax.jit(f, out_shardings=NamedSharding(mesh, after)).lower(x).compile().as_text()
    found = hlo.collectives(text)
    assert {one.kind: one.moved / 1024 for one in found} == expected


def test_a_compiled_loop_counts_each_turn(mesh: Any) -> None:
    """The sum over the divided axis in every turn of six."""

    def step(h: Any, w: Any) -> tuple[Any, None]:
        return jnp.tanh(h @ w), None

    whole, part = NamedSharding(mesh, P()), NamedSharding(mesh, P(None, "b", None))
    h = jax.ShapeDtypeStruct((4, 8), jnp.float32, sharding=whole)
    w = jax.ShapeDtypeStruct((6, 8, 8), jnp.float32, sharding=part)
    compiled = jax.jit(lambda h, w: jax.lax.scan(step, h, w)[0], out_shardings=whole).lower(h, w).compile()
    found = hlo.collectives(compiled.as_text())
    assert hlo.Collective("all-reduce", result=4 * 8 * 4, group=4, times=6) in found
    assert [one.times for one in found if one.kind != "all-reduce"] == [1]  # The result is made whole once.

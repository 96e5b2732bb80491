"""Every operation in every dtype that it takes, on both engines, against values from elsewhere.

The references are computed in 80 bits, in arbitrary precision or in integers without bounds:
``references`` and ``references_shaped`` in tests/helpers, which also say how many ulps an engine may be off.
Results of float16 and bfloat16 must be the rounded ones, 0.51 ulp. XLA on CPUs flushes subnormal numbers to
0; so its results may be those of flushed operands, or off by a few times the least normal
number (docs/numerics.md).
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from all_engines import ENGINES
from references import (
    ELEMENTWISE,
    LONG,
    MODERATE,
    PARTS,
    Array,
    Wide,
    distance,
    drawn,
    edges,
    flushed,
    least_normal,
    together,
    ulp,
    widen,
)
from references_shaped import FINITE, SHAPED
from tiers import some

import stopgrad as sg
from stopgrad.base.samples import Sample, Values
from stopgrad.base.types import DTYPES, DType, dtype_of
from stopgrad.engines import engine
from stopgrad.graph.build import emit
from stopgrad.graph.graph import Graph, Output
from stopgrad.graph.op import REGISTRY, Op, Unsupported
from stopgrad.ops.structural.sources import Placeholder
from stopgrad.rewrite import prepare

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("users_compiler")]

ROUGH = ("Elu", "Gelu", "Sigmoid", "Silu", "Tanh")
"""Operators of onnxruntime's in float32 that are precise by size, to 10⁻⁷, and not by digits."""

DROPS_NAN = (
    "TensorScatterMax",
    "TensorScatterMin",
    "MaxPool",
    "MaxPoolGrad",
    "MaxPoolGradGrad",
    "AvgPoolGrad",
)
"""Where onnxruntime passes over NaN, or spreads it."""

NARROW = 0.51
"""The limit in ulps for float16 and bfloat16: half of one, and a little for the error in float32."""

ELSEWHERE = {
    "Cast": "test_all_dtypes_casts.py",
    "Const": "it is fed nothing; every other test has constants",
    "DebugCallback": "it hands its operands to a function, in tests/ops/test_effects.py",
    "Ensure": "a boolean that holds or raises, in tests/interop/onnx/test_loops.py",
    "NextAfter": "test_all_dtypes_edges.py",
    "Range": "test_all_dtypes_edges.py",
    "SearchSorted": "test_arrays.py: its sequences are sorted",
    "Shard": "the identity, tested on meshes with several dtypes in test_mesh.py",
    "Size": "sizes are whole numbers, tested with shapes",
    **dict.fromkeys(("Case", "Scan", "While", "Checkpoint", "CustomGradient"), "runs bodies of others"),
    **dict.fromkeys(
        ("RandomSplit", "RandomFoldIn", "RandomBits", "RandomUniform", "RandomNormal"),
        "test_values_random.py",
    ),
    **dict.fromkeys(
        ("LogGammaMoment", "BetaMoment", "Igamma", "Igammac", "Betainc", "RandomLogGamma", "RandomPoisson"),
        "test_distributions.py, beside SciPy and mpmath",
    ),
    **dict.fromkeys(("Fft", "Rfft", "Irfft"), "test_fourier.py: errors are of the whole transform"),
    # Their errors are those of a factorisation, by the condition of the matrix, not of an element.
    **dict.fromkeys(
        (
            *("MatrixBandPart", "MatrixDiagPart", "MatrixDiag", "TriangularSolve", "MatrixSolve"),
            *("MatrixInverse", "Cholesky", "Qr", "Svd", "SingularValues", "MatrixDeterminant", "Adjugate"),
            *("LogMatrixDeterminant", "SelfAdjointEig", "SelfAdjointEigenvalues", "Eig", "Eigenvalues"),
            *("PseudoInverse", "VectorNorm", "MatrixExponential", "MatrixExponentialGrad"),
        ),
        "test_linalg.py, test_values_linalg.py",
    ),
}


SWEPT = {
    "SelectV2": [1, 2],
    "SparseSoftmaxCrossEntropyWithLogits": [1],
    "OneHot": [1, 2],
    "GatherV2": [0],
    "TakeAlongAxis": [0],
    "TensorScatterAdd": [0, 2],
    "ScatterAddAlongAxis": [0, 2],
    "TensorScatterUpdate": [0, 2],
    "TensorScatterMax": [0, 2],
    "TensorScatterMin": [0, 2],
    "TensorScatterMul": [0, 2],
    "DynamicSlice": [0],
    "DynamicUpdateSlice": [0, 1],
}
"""The operands that take the swept dtype, where others are indices, labels or conditions."""

QUICK = [DTYPES[name] for name in ("float16", "bfloat16", "float32", "float64", "complex64")]
QUICK += [DTYPES[name] for name in ("int8", "uint32", "bool")]
ALL = list(DTYPES.values())


@dataclass
class Call:
    """One call in a graph: its sample, the dtypes of its operands, its outputs."""

    sample: Sample
    dtypes: list[DType]
    inputs: list[Output]
    outputs: tuple[Output, ...]

    @property
    def narrow(self) -> bool:
        return any(d.is_floating and d.itemsize == 2 for d in self.dtypes)


def dtypes_of(sample: Sample) -> list[DType]:
    return [o.dtype if isinstance(o, Values) else dtype_of(o.dtype) for o in sample.operands]


def groups(definition: type[Op], sample: Sample) -> list[int]:
    """The operands that take the swept dtype."""
    return SWEPT.get(definition.type, list(range(len(sample.operands))))


def calls(
    definition: type[Op],
    samples: Sequence[Sample],
    swept_dtypes: Sequence[DType],
    shapes: Callable[[Sample, list[DType]], Sequence[Any]],
) -> list[Call]:
    """One graph in which the operation is called on each sample in each dtype that it takes."""
    graph, made = Graph(), []
    for sample, dtype in itertools.product(samples, swept_dtypes):
        swept = groups(definition, sample)
        dtypes = [dtype if i in swept else d for i, d in enumerate(dtypes_of(sample))]
        xs = [
            emit(Placeholder, (), (d, tuple(shape), ()), "", graph).outputs[0]
            for d, shape in zip(dtypes, shapes(sample, dtypes), strict=True)
        ]
        values = tuple(sample.attributes[name] for name in definition.attributes)
        try:
            outputs = emit(definition, tuple(xs), values, None, graph).outputs
        except sg.DTypeError:
            continue
        made.append(Call(sample, dtypes, xs, outputs))
    return made


def computed(made: Sequence[Call], name: str) -> list[Call]:
    """Those of an engine: ONNX's has no complex numbers."""
    return [
        call
        for call in made
        if name != "onnxruntime" or not any(x.dtype.is_complex for x in (*call.inputs, *call.outputs))
    ]


def run(made: Sequence[Call], name: str) -> Callable[[Sequence[Array]], list[Array]]:
    inputs = [x for call in made for x in call.inputs]
    ready = prepare([y for call in made for y in call.outputs], list(inputs), {})
    compiled = engine(name).compile(ready.inputs, ready.outputs)
    return lambda arrays: [np.asarray(v) for v in compiled(arrays)]


def parts(found: list[Array], made: Sequence[Call]) -> Iterator[tuple[Call, list[Array]]]:
    """Of all results those of each call."""
    rest = iter(found)
    for call in made:
        yield call, [next(rest) for _ in call.outputs]


def complain(what: str, apart: Array, limit: float, arrays: Any, found: Array, expected: Wide) -> None:
    bad = np.argwhere(np.asarray(apart) > limit)
    if len(bad):
        worst = sorted(map(tuple, bad), key=lambda i: -float(np.asarray(apart)[i]))[:4]
        lines = [
            f"  {[str(a[i]) for a in arrays] if arrays else list(i)}: found {found[i]}, expected "
            f"{np.asarray(expected)[i]}, {float(np.asarray(apart)[i]):.3g} ulps"
            for i in worst
        ]
        raise AssertionError(
            f"{what}: {len(bad)} values are off by more than {limit} ulps\n" + "\n".join(lines)
        )


# ------------------------------------------------------------------------------------------ elementwise


def chosen(definition: type[Op], dtypes: Sequence[DType], count: int, seed: int) -> list[Array]:
    """Operands of one shape: edges and random numbers."""
    generator = np.random.default_rng(zlib.crc32(f"{definition.type}{seed}".encode()))
    arrays = together(dtypes, count, generator)
    inexact = [a for a, d in zip(arrays, dtypes, strict=True) if d.is_differentiable]
    if definition.type in MODERATE or (definition.type not in PARTS and any(d.is_complex for d in dtypes)):
        for d, a in zip(dtypes, arrays, strict=True):
            if d.is_complex:
                a.real, a.imag = _moderate(a.real) + 0, _moderate(a.imag) + 0  # No -0.0: no choice of sides.
            elif d.is_floating:
                a[:] = _moderate(a)
        if inexact and definition.type in ("TanhGrad", "SigmoidGrad", "EluGrad"):
            inexact[0][:] /= np.asarray(32, inexact[0].dtype)
    return arrays


def _moderate(x: Array) -> Array:
    """Numbers of a size from 0.001 to 32, or 0, in the place of all others."""
    wide = x.astype(np.float64)
    size = np.abs(np.where(np.isfinite(wide), wide, 1.5))
    size = np.where((size == 0) | ((size > 1e-3) & (size < 32)), size, 2 + np.cos(size))
    return np.copysign(size, np.where(np.isnan(wide), 1, wide)).astype(x.dtype)


def elementwise_distance(
    name: str, definition: type[Op], call: Call, arrays: list[Array], found: Array
) -> tuple[Array, Wide]:
    """How far the result of an engine is from the reference, and the reference."""
    reference, attributes = ELEMENTWISE[definition.type], call.sample.attributes
    wide = [widen(a) for a in arrays]
    with np.errstate(all="ignore"):
        expected = reference(wide, attributes)
        scale = reference.scale(*wide, **attributes) if reference.scale else None
        apart = distance(found, expected, scale)
        inexact = next((d for d in call.dtypes if d.is_differentiable), None)
        if inexact is None:
            return apart, expected
        # What an operation may lose on its way, times a factor that follows: on the one engine the last bit
        # of a subnormal number, on the other all that is subnormal.
        lossy = name == "xla" or definition.type in ("Erfc", "Gelu")  # SciPy's erfc ends there, too.
        least = least_normal(inexact) if lossy else ulp(LONG(0), inexact)
        size = np.maximum.reduce([np.where(np.isfinite(w), np.abs(w), 1) for w in wide])
        if name == "onnxruntime" and definition.type in ROUGH:
            near = np.abs(widen(found) - expected) <= 2e-7 * np.maximum(size, 1)
            apart = np.where(near & (inexact.itemsize < 8), 0, apart)
        choices = zip(wide, [widen(flushed(a)) for a in arrays], strict=True) if name == "xla" else zip(wide)
        for choice in itertools.product(*choices):
            other = reference(list(choice), attributes)
            apart = np.minimum(apart, distance(found, other, scale))
            if dtype_of(found.dtype).is_differentiable:
                lost = np.abs(widen(found) - other) <= 4 * least * np.maximum(size, 1)
                apart = np.where(lost, 0, apart)
        if definition.type == "FloorDiv" and name == "xla":
            apart = np.where(np.any([(w != 0) & (np.abs(w) < 8 * least) for w in wide], 0), 0, apart)
    return apart, expected


def check_elementwise(
    definition: type[Op], swept_dtypes: Sequence[DType], count: int, seeds: Sequence[int]
) -> int:
    """The number of values compared."""
    size = {"n": 0}

    def shapes(sample: Sample, dtypes: list[DType]) -> list[tuple[int, ...]]:
        size["n"] = len(chosen(definition, dtypes, count, 0)[0])
        return [(size["n"],)] * len(dtypes)

    distinct = {str(s.attributes): s for s in definition.samples}
    made = calls(definition, list(distinct.values()), swept_dtypes, shapes)
    assert made
    compared = 0
    runs = {name: (own := computed(made, name), run(own, name)) for name in ENGINES}
    for seed in seeds:
        for name, (own, compute) in runs.items():
            feeds = [chosen(definition, call.dtypes, count, seed) for call in own]
            found = compute([a for arrays in feeds for a in arrays])
            for (call, (result,)), arrays in zip(parts(found, own), feeds, strict=True):
                apart, expected = elementwise_distance(name, definition, call, arrays, result)
                limit = NARROW if call.narrow else ELEMENTWISE[definition.type].ulps
                what = f"{definition.type} of {call.dtypes} by {name}, {call.sample.attributes}"
                complain(what, apart, limit, arrays, result, expected)
                compared += result.size
    return compared


@pytest.mark.parametrize("name", some(ELEMENTWISE, 2, pytest.mark.nightly))
def test_elementwise_functions_in_every_dtype(name: str) -> None:
    assert check_elementwise(REGISTRY[name], QUICK, 40, [0])


@pytest.mark.nightly
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_functions_in_every_dtype_and_many_values(name: str) -> None:
    print(f"\n{name}: {check_elementwise(REGISTRY[name], ALL, 300, range(4))} values")


# --------------------------------------------------------------------------------------------- the others


def filled(definition: type[Op], call: Call, kind: str, generator: np.random.Generator) -> list[Array]:
    """Operands of a call: ``plain`` numbers near 1, or ``hard`` ones among them."""
    arrays = []
    swept = groups(definition, call.sample)
    for i, (o, d, x) in enumerate(zip(call.sample.operands, call.dtypes, call.inputs, strict=True)):
        count = int(np.prod(x.shape))
        if i not in swept:
            arrays.append(o.draw(generator, {"n": 3}) if isinstance(o, Values) else o)
            continue
        if d.is_bool:
            array = generator.random(count) < 0.5
        elif d.is_integer:
            array = generator.choice(edges(d), count) if kind == "hard" else generator.integers(0, 5, count)
        else:
            array = generator.normal(size=count) * 2
            array = array + 1j * generator.normal(size=count) if d.is_complex else array
            if kind == "hard" and d.is_floating:
                special = [0.0, -0.0, 1, 1, -1, 2.5, 2.5]
                special += [] if definition.type in FINITE else [np.nan, np.inf, -np.inf]
                array = np.where(generator.random(count) < 0.5, generator.choice(special, count), array)
        arrays.append(np.asarray(array).astype(d.numpy).reshape(x.shape))
    return arrays


def check_shaped(
    definition: type[Op], samples: Sequence[Sample], swept_dtypes: Sequence[DType], kinds: Sequence[str]
) -> int:
    def shapes(sample: Sample, dtypes: list[DType]) -> list[tuple[int, ...]]:
        return [tuple(3 if isinstance(n, str) else n for n in o.shape) for o in sample.operands]

    made = calls(definition, samples, swept_dtypes, shapes)
    assert made
    reference, compared = SHAPED[definition.type], 0
    runs = {name: (own := computed(made, name), run(own, name)) for name in ENGINES}
    generator = np.random.default_rng(zlib.crc32(definition.type.encode()))
    for kind in kinds:
        arrays_of = {id(call): filled(definition, call, kind, generator) for call in made}
        for name, (own, compute) in runs.items():
            if name == "onnxruntime" and kind == "hard" and definition.type in DROPS_NAN:
                continue
            feeds = [arrays_of[id(call)] for call in own]
            found = compute([a for arrays in feeds for a in arrays])
            for (call, results), arrays in zip(parts(found, own), feeds, strict=True):
                wide, attributes = [widen(a) for a in arrays], call.sample.attributes
                inexact = any(d.is_differentiable for d in call.dtypes)
                with np.errstate(all="ignore"):
                    expected = reference.function(*wide, **attributes)
                    scale = reference.scale(*wide, **attributes) if reference.scale and inexact else None
                    for result, want in zip(
                        results, expected if isinstance(expected, tuple) else (expected,), strict=True
                    ):
                        assert result.shape == np.shape(want)
                        apart = distance(result, want, scale)
                        what = f"{definition.type} of {call.dtypes} by {name}, {attributes}, {kind}"
                        complain(what, apart, NARROW if call.narrow else reference.ulps, None, result, want)
                        compared += result.size
    return compared


@pytest.mark.parametrize("name", some(SHAPED, 2, pytest.mark.nightly))
def test_operations_on_many_elements_in_every_dtype(name: str) -> None:
    definition = REGISTRY[name]
    assert check_shaped(definition, definition.samples[:2], QUICK, ["plain", "hard"])


@pytest.mark.nightly
@pytest.mark.parametrize("name", SHAPED)
def test_operations_on_many_elements_in_every_dtype_and_many_values(name: str) -> None:
    definition = REGISTRY[name]
    count = check_shaped(definition, definition.samples, ALL, ["plain"] * 10 + ["hard"] * 20)
    print(f"\n{name}: {count} values")


def test_every_operation_is_swept() -> None:
    for name, definition in REGISTRY.items():
        computed = not isinstance(definition.lower, Unsupported) and not definition.gate
        assert computed == (name in ELEMENTWISE or name in SHAPED or name in ELSEWHERE), name
    assert not set(ELEMENTWISE) & set(SHAPED)
    assert set(ELSEWHERE) <= set(REGISTRY)


def test_a_wrong_value_is_seen() -> None:
    one = np.ones(3, np.float32)
    for wrong, ulps in ((one + np.float32(2**-22), 2.0), (one * np.nan, np.inf), (one * np.inf, np.inf)):
        assert np.all(distance(wrong, widen(one)) >= min(ulps, 1e6))
    assert np.all(distance(np.array([3], np.uint8), np.array([259], object)) == 0)
    with pytest.raises(AssertionError, match="off by more than"):
        complain("what", np.array([1.0]), 0.5, [one], one, widen(one))
    assert drawn(sg.float16, 5, np.random.default_rng(0)).dtype == np.float16

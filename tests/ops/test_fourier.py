"""Fourier transforms: NumPy's values, gradients by their adjoints and beside JAX's, batches and sizes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from all_engines import each_engine
from values import by, complex_normal, normal

import stopgrad as sg
from stopgrad.ops.fourier import discrete_fourier as fourier, frequencies, planes as fourier_planes

NAMED = vars(fourier) | vars(fourier_planes) | vars(frequencies)
NORMS = ("backward", "ortho", "forward")
X, C = normal(3, 5, 4), complex_normal(3, 5, 4)

CALLS: list[tuple[str, dict[str, Any], Any]] = [
    *(
        (name, {"norm": norm}, x)
        for name in ("fft", "ifft", "fftn", "ifftn")
        for norm in NORMS
        for x in (X, C)
    ),
    *((name, {"n": n, "axis": axis}, C) for name in ("fft", "ifft") for n in (1, 3, 8) for axis in (0, -2)),
    *((name, {"norm": norm}, X) for name in ("rfft", "rfftn", "ihfft") for norm in NORMS),
    *((name, {"norm": norm}, C) for name in ("irfft", "irfftn", "hfft") for norm in NORMS),
    *((name, {"n": n, "axis": axis}, X) for name in ("rfft", "ihfft") for n in (1, 4, 7) for axis in (0, 1)),
    *((name, {"n": n, "axis": axis}, C) for name in ("irfft", "hfft") for n in (1, 4, 7) for axis in (0, 1)),
    *((name, {"axes": axes}, C) for name in ("fftn", "ifftn", "irfftn") for axes in ((0,), (2, 0), (-2, -1))),
    *((name, {"s": (2, 7), "axes": (1, 0)}, C) for name in ("fftn", "ifftn", "irfftn")),
    ("rfftn", {"axes": (1, 0)}, X),
    ("rfftn", {"s": (6, 3), "axes": (0, 2), "norm": "ortho"}, X),
    ("fftn", {}, complex_normal(2, 3, 2, 2, 3)),
    ("rfftn", {}, normal(2, 3, 2, 2, 3)),
]


@each_engine
@pytest.mark.parametrize("name", sorted({name for name, _, _ in CALLS}))
def test_values_are_those_of_numpy(name: str, engine: str) -> None:
    mine = [(options, x) for other, options, x in CALLS if other == name]
    f = NAMED[name]
    found = by(
        engine, lambda *xs: [f(x, **o) for x, (o, _) in zip(xs, mine, strict=True)], *[x for _, x in mine]
    )
    for value, (options, x) in zip(found, mine, strict=True):
        expected = getattr(np.fft, name)(x, **options)
        assert value.dtype == expected.dtype
        assert value.shape == expected.shape, options
        np.testing.assert_allclose(value, expected, rtol=1e-11, atol=1e-11, err_msg=str(options))


def both_orders(name: str, norm: str, xp: Any) -> Callable[[Any], Any]:
    """The gradient of a number made of a transform, and that of its real part in a fixed direction."""
    real, imag, total = (sg.real, sg.imag, sg.reduce_sum) if xp is sg else (jnp.real, jnp.imag, jnp.sum)
    f, grad = (NAMED[name], sg.grad) if xp is sg else (getattr(jnp.fft, name), jax.grad)

    def number(x: Any) -> Any:
        y = f(x, norm=norm)
        weights = np.cos(np.arange(np.prod(y.shape))).reshape(y.shape)
        part = real(y) * weights + imag(y) * weights[..., ::-1]
        return total(part * part * part + part)

    def slope(x: Any) -> Any:
        return total(real(grad(number)(x)) * np.sin(np.arange(np.prod(x.shape))).reshape(x.shape))

    return lambda x: (grad(number)(x), grad(slope)(x))


TRANSFORMS = dict.fromkeys(("fft", "ifftn", "irfft", "irfftn", "hfft"), C[:2])
TRANSFORMS |= dict.fromkeys(("rfft", "rfftn", "ihfft"), X[:2])


@functools.cache
def of_jax(norm: str) -> dict[str, Any]:
    """Both orders of all transforms, in one program."""
    with jax.enable_x64(True):
        return jax.jit(lambda xs: {name: both_orders(name, norm, jnp)(x) for name, x in xs.items()})(
            TRANSFORMS
        )


@each_engine
@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("norm", NORMS)
def test_gradients_of_both_orders_are_those_of_jax(name: str, norm: str, engine: str) -> None:
    found = by(engine, both_orders(name, norm, sg), TRANSFORMS[name])
    for a, b in zip(found, of_jax(norm)[name], strict=True):
        np.testing.assert_allclose(a, np.conj(b), rtol=1e-9, atol=1e-9 * np.abs(b).max())


@pytest.mark.parametrize("name", ["fft", "ifftn", "rfft", "irfft", "hfft", "fftshift"])
def test_vmap_is_a_loop(name: str) -> None:
    f = NAMED[name]
    x = X if name == "rfft" else C
    np.testing.assert_allclose(sg.vmap(f)(x), np.stack([f(v) for v in x]), atol=1e-12)
    if name != "fftshift":
        found = sg.vmap(lambda v: f(v, 3, 0) if name != "ifftn" else f(v, (3,), (0,)))(x)
        expected = np.stack([f(v, 3, 0) if name != "ifftn" else f(v, (3,), (0,)) for v in x])
        np.testing.assert_allclose(found, expected, atol=1e-12)


@each_engine
def test_sizes_may_be_known_later(engine: str) -> None:
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float64, [2, "n"])
        half = fourier.rfft(x)
        ys = [
            half,
            fourier.irfft(half, x.shape[1]),
            fourier.fft(x, 4),
            frequencies.fftshift(x),
            frequencies.ifftshift(x, -1),
            frequencies.fftfreq(x.shape[1], 0.5),
            frequencies.rfftfreq(x.shape[1]),
        ]
        gradient = sg.gradients(sg.reduce_sum(sg.abs(ys[0])), [x])[0]
    for n in (1, 2, 5, 6):
        value = normal(2, n)
        with sg.Session(graph, engine=engine) as session:
            *found, slope = session.run([*ys, gradient], {x: value})
        expected = [
            np.fft.rfft(value),
            value,
            np.fft.fft(value, 4),
            np.fft.fftshift(value),
            np.fft.ifftshift(value, -1),
            np.fft.fftfreq(n, 0.5).astype(np.float32),
            np.fft.rfftfreq(n).astype(np.float32),
        ]
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-12)
        with jax.enable_x64(True):
            theirs = jax.grad(lambda v: jnp.sum(jnp.abs(jnp.fft.rfft(v))))(value)
        np.testing.assert_allclose(slope, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_frequencies_and_shifts(n: int) -> None:
    np.testing.assert_allclose(frequencies.fftfreq(n, 0.25, sg.float64), np.fft.fftfreq(n, 0.25))
    np.testing.assert_allclose(frequencies.rfftfreq(n, 2.0, sg.float64), np.fft.rfftfreq(n, 2.0))
    x = np.arange(3 * n).reshape(3, n)
    for axes in (None, 0, -1, (0, 1)):
        np.testing.assert_array_equal(frequencies.fftshift(x, axes), np.fft.fftshift(x, axes))
        np.testing.assert_array_equal(frequencies.ifftshift(x, axes), np.fft.ifftshift(x, axes))


@each_engine
def test_dtypes(engine: str) -> None:
    for given, wanted in (
        (np.float16, np.complex64),
        (np.float32, np.complex64),
        (np.int8, np.complex64),
        (np.int32, np.complex128),
        (np.bool_, np.complex64),
        (np.float64, np.complex128),
    ):
        x = np.array([1, 0, 1], given)
        for f in (fourier.fft, fourier.rfft, fourier.ifftn):
            assert by(engine, f, x).dtype == wanted
        assert by(engine, fourier.irfft, x).dtype == np.zeros((), wanted).real.dtype
    found = by(engine, sg.grad(lambda x: sg.reduce_sum(sg.abs(fourier.rfft(x)))), np.ones(3, np.float16))
    assert found.dtype == np.float16


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fourier.fft(X, axis=3), r"Fft: \(C2\) axis 3 does not exist"),
        (lambda: fourier.fft(X, 0), r"a transform has at least one element, not 0"),
        (lambda: fourier.fft(X, norm="other"), r"Fft: \(C4\) norm is 'backward', 'ortho' or 'forward'"),
        (lambda: fourier.fft(X, norm=None), r"Fft: \(C4\) norm is"),
        (lambda: fourier.rfft(C), r"takes real numbers"),
        (lambda: fourier.fftn(X, axes=(0, 0)), r"\(C2\) axes=\(0, 0\) name one twice"),
        (lambda: fourier.fftn(X, s=(1, 2), axes=(0,)), r"s gives 2 lengths for 1 axes"),
        (lambda: fourier.irfft(np.ones(1)), r"Irfft: \(C3\) n must be at least 1"),
        (lambda: fourier.rfftn(X, axes=()), r"takes at least one axis"),
        (lambda: frequencies.fftfreq(0), r"a transform has at least one element"),
        (lambda: frequencies.fftshift(X, 5), r"axis 5 does not exist"),
    ],
)
def test_errors_say_what_is_wrong(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(sg.StopgradError, match=message) as caught:
        call()
    assert not isinstance(caught.value, sg.InternalError)


@each_engine
@pytest.mark.parametrize("name", ["fft2", "ifft2", "rfft2", "irfft2"])
def test_transforms_of_planes_are_those_of_numpy(name: str, engine: str) -> None:
    x = X if name == "rfft2" else C
    f, expected = getattr(fourier_planes, name), getattr(np.fft, name)
    for options in ({}, {"axes": (0, 1)}, {"s": (4, 3), "norm": "ortho"}):
        np.testing.assert_allclose(
            by(engine, lambda x, o=options: f(x, **o), x), expected(x, **options), atol=1e-12
        )

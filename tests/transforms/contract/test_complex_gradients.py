"""Contract 7: complex gradients are conjugate cotangents, as in TensorFlow.

For f of a complex z with real value, the gradient is ∂f/∂x + i·∂f/∂y (which points uphill; JAX's is its
conjugate). For a holomorphic f it is grad_ys · conj(f'(z)).
"""

from __future__ import annotations

import numpy as np
import pytest

import stopgrad as sg

Z = np.array([0.3 + 0.4j, -1.2 + 0.7j, 0.5 - 2.0j])
G = np.array([1.0 - 2.0j, 0.5j, -3.0 + 0.25j])


def towards(graph_function, at, run, cotangent=None):
    z = sg.placeholder(sg.complex128, at.shape)
    (dz,) = sg.gradients(graph_function(z), [z], None if cotangent is None else [cotangent])
    assert dz.type is z.type
    return run(dz, {z: at})


HOLOMORPHIC = {
    "square": (sg.square, lambda z: 2 * z),
    "z·z": (lambda z: z * z, lambda z: 2 * z),
    "z³": (lambda z: z * z * z, lambda z: 3 * z * z),
    "exp": (sg.exp, np.exp),
    "log": (sg.log, lambda z: 1 / z),
    "sin": (sg.sin, np.cos),
    "cos": (sg.cos, lambda z: -np.sin(z)),
    "tanh": (sg.tanh, lambda z: 1 - np.tanh(z) ** 2),
    "sqrt": (sg.sqrt, lambda z: 0.5 / np.sqrt(z)),
    "reciprocal": (lambda z: 1.0 / z, lambda z: -1 / z**2),
    "quotient": (lambda z: (z + 1.0) / (z - 2.0), lambda z: -3 / (z - 2) ** 2),
    "negation": (lambda z: -z, lambda z: -np.ones_like(z)),
    "times i": (lambda z: z * 1j, lambda z: np.full_like(z, 1j)),
}


@pytest.mark.parametrize("name", HOLOMORPHIC)
def test_holomorphic_functions_give_the_cotangent_times_the_conjugate_derivative(name, graph, run):
    f, derivative = HOLOMORPHIC[name]
    assert np.allclose(towards(f, Z, run, G), G * np.conj(derivative(Z)), rtol=1e-12)


REAL = {
    "|z|²": (lambda z: sg.real(z * sg.conj(z)), lambda z: 2 * z),
    "|z|² by squares": (lambda z: sg.square(sg.real(z)) + sg.square(sg.imag(z)), lambda z: 2 * z),
    "|z|² by abs": (lambda z: sg.square(sg.abs(z)), lambda z: 2 * z),
    "|z|": (sg.abs, lambda z: z / np.abs(z)),
    "Re z": (sg.real, lambda z: np.ones_like(z)),
    "Im z": (sg.imag, lambda z: np.full_like(z, 1j)),
    "Re z²": (lambda z: sg.real(z * z), lambda z: 2 * np.conj(z)),
    "Im z²": (lambda z: sg.imag(z * z), lambda z: 2j * np.conj(z)),
    "Re exp z": (lambda z: sg.real(sg.exp(z)), lambda z: np.conj(np.exp(z))),
    "|exp z|²": (lambda z: sg.square(sg.abs(sg.exp(z))), lambda z: 2 * np.exp(2 * z.real) + 0j),
    "Re conj z": (lambda z: sg.real(sg.conj(z)), lambda z: np.ones_like(z)),
    "Im conj z": (lambda z: sg.imag(sg.conj(z)), lambda z: np.full_like(z, -1j)),
}


@pytest.mark.parametrize("name", REAL)
def test_real_values_give_the_direction_of_steepest_ascent(name, graph, run):
    f, expected = REAL[name]
    assert np.allclose(towards(f, Z, run), expected(Z), rtol=1e-12)


@pytest.mark.parametrize("name", REAL)
def test_a_small_step_along_the_gradient_raises_the_value_by_its_squared_length(name, graph, run):
    """f(z + ε·df) - f(z - ε·df) = 2ε·|df|², without any complex calculus."""
    f, _ = REAL[name]
    z = sg.placeholder(sg.complex128, Z.shape)
    y = sg.reduce_sum(f(z))
    (dz,) = sg.gradients(y, [z])
    d = run(dz, {z: Z})
    eps = 1e-6
    difference = (run(y, {z: Z + eps * d}) - run(y, {z: Z - eps * d})) / (2 * eps)
    assert np.isclose(difference, (np.abs(d) ** 2).sum(), rtol=1e-7)


W = np.array([[1.0 + 1j, 2.0, 0.5j], [0.3, -1j, 2.0 - 1j]])
AGAINST_JAX = {
    "tanh": lambda m, total: lambda z: total(m.abs(m.tanh(z)) * m.real(z)),
    "matmul": lambda m, total: (
        lambda z: total(m.real(W @ m.reshape(z, (3, 1))) * m.imag(W @ m.reshape(z, (3, 1))))
    ),
    "product": lambda m, total: lambda z: total(m.real(z * m.conj(z) * m.exp(z))),
    "normalised": lambda m, total: lambda z: total(m.square(m.abs(z / total(z) - 0.25))),
}


@pytest.mark.parametrize("name", AGAINST_JAX)
def test_the_conjugate_of_what_jax_says(name, graph, run):
    jax = pytest.importorskip("jax")
    f = AGAINST_JAX[name]
    with jax.enable_x64(True):
        expected = np.conj(jax.grad(f(jax.numpy, jax.numpy.sum))(Z))
    assert np.allclose(towards(f(sg, sg.reduce_sum), Z, run), expected, rtol=1e-10)


def test_a_complex_y_needs_its_cotangent(graph, run):
    z = sg.placeholder(sg.complex128)
    with pytest.raises(sg.DTypeError, match="grad_ys"):
        sg.gradients(z * z, [z])
    (dz,) = sg.gradients(z * z, [z], [1.0])
    assert run(dz, {z: 1 + 2j}) == 2 - 4j


def test_a_function_with_a_complex_value_has_no_grad_but_a_vjp():
    with pytest.raises(sg.StopgradError, match="complex"):
        sg.grad(lambda z: z * z)(np.complex128(1 + 2j))
    _, pullback = sg.vjp(lambda z: z * z, np.complex128(1 + 2j))
    assert pullback(np.complex128(1j))[0] == 1j * (2 - 4j)


def test_real_parameters_in_complex_calculation_get_real_gradients(graph, run):
    """f(w) = Re(exp(i·w)·c): df = -Re(c)·sin w - Im(c)·cos w."""
    w = sg.placeholder(sg.float64)
    c = 2.0 + 3.0j
    y = sg.real(sg.exp(sg.cast(w, sg.complex128) * 1j) * c)
    (dw,) = sg.gradients(y, [w])
    assert dw.dtype is sg.float64
    assert np.isclose(run(dw, {w: 0.7}), -2 * np.sin(0.7) - 3 * np.cos(0.7), rtol=1e-13)


def test_parts_put_together(graph, run):
    """|x + iy|² from its real parts: 2x and 2y."""
    x, y = sg.placeholder(sg.float64), sg.placeholder(sg.float64)
    z = sg.complex(x, y)
    assert np.allclose(
        run(sg.gradients(sg.real(z * sg.conj(z)), [x, y]), {x: 3.0, y: 5.0}), [6.0, 10.0], rtol=1e-15
    )


def test_broadcasting_of_complex_operands_is_undone(graph, run):
    z, w = sg.placeholder(sg.complex128), sg.placeholder(sg.complex128, [3])
    dz, dw = sg.gradients(z * w, [z, w], [G])
    found = run([dz, dw], {z: 2 - 1j, w: Z})
    assert np.allclose(found[0], (G * np.conj(Z)).sum(), rtol=1e-14)
    assert np.allclose(found[1], G * (2 + 1j), rtol=1e-14)


def test_second_derivatives(graph, run):
    """y = Re z³: the gradient is 3·conj(z)², whose real part 3(x² - y²) has gradient 6x - 6iy = 6·conj(z)."""
    z = sg.placeholder(sg.complex128)
    (dz,) = sg.gradients(sg.real(z * z * z), [z])
    (ddz,) = sg.gradients(sg.real(dz), [z])
    at = 1.0 + 2.0j
    assert np.isclose(run(dz, {z: at}), 3 * np.conj(at) ** 2)
    assert np.isclose(run(ddz, {z: at}), 6 * np.conj(at))


@pytest.mark.parametrize("gate", [sg.stop_gradient, sg.zero_gradient], ids=["stop", "zero"])
def test_gates_on_complex_tensors(gate, graph, run):
    z = sg.placeholder(sg.complex128)
    (dz,) = sg.gradients(z * gate(z), [z], [1.0])
    assert run(dz, {z: 1 + 2j}) == 1 - 2j


def test_scaling_and_norm_gates_on_complex_cotangents(graph, run):
    z = sg.placeholder(sg.complex128, [2])
    scaled = sg.gradients(sg.scale_gradient(z, 2.0), [z], [[1 + 1j, 2.0]])[0]
    shrunk = sg.gradients(sg.clip_gradient_norm(z, 1.0), [z], [[3j, 4.0]])[0]
    found = run([scaled, shrunk], {z: [0, 0]})
    assert found[0].tolist() == [2 + 2j, 4.0]
    assert np.allclose(found[1], [0.6j, 0.8], rtol=1e-15)


def test_forward_mode_is_the_plain_derivative():
    """The tangent of a holomorphic function is f'(z)·t, without a conjugate."""
    t = G
    value, tangent = sg.jvp(lambda z: sg.exp(z) * z, (Z,), (t,))
    assert np.allclose(value, np.exp(Z) * Z)
    assert np.allclose(tangent, np.exp(Z) * (1 + Z) * t, rtol=1e-12)

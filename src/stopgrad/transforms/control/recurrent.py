"""Recurrent layers as scans: simple recurrent networks, LSTM and GRU, and one step of each.

Kernels are [features, gates · units] and multiply from the right, as in Keras; PyTorch's are their
transposes. All inputs are multiplied by the kernel at once, before the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stopgrad.graph import defining as d
from stopgrad.graph.defining import ArgumentError, ArrayLike, Output, ShapeError, Tensor
from stopgrad.ops.composing import FLOATING, chosen, positions, zeros_beside
from stopgrad.ops.elementwise.arithmetic import add, multiply, subtract
from stopgrad.ops.elementwise.compare import greater
from stopgrad.ops.elementwise.convert import cast, where
from stopgrad.ops.elementwise.trigonometric import tanh
from stopgrad.ops.indexing.slices import part_of
from stopgrad.ops.linalg.contractions import matmul
from stopgrad.ops.neural.activations import relu, sigmoid
from stopgrad.ops.shapes.reshape import expand_dims, squeeze, transpose
from stopgrad.ops.structural.sources import identity
from stopgrad.transforms.control.scans import scan

__all__ = ["gru", "gru_cell", "lstm", "lstm_cell", "simple_rnn", "simple_rnn_cell"]


# --------------------------------------------------------------------------------------------- one step


def _gates(x: ArrayLike, count: int) -> list[Tensor]:
    """The parts of the gates, which are concatenated along the last axis."""
    kind = d.type_of(x)
    units = kind.shape[-1] // count
    return [part_of(x, kind.ndim - 1, i * units, units) for i in range(count)]


def _simple_step(
    x: ArrayLike, state: ArrayLike, weights: Mapping[str, Any], activation: Callable[[Any], Any]
) -> Tensor:
    """The next state, from the input times the kernel."""
    return activation(add(x, matmul(state, weights["recurrent_kernel"])))


def _lstm_step(x: ArrayLike, state: tuple[Any, Any], weights: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
    h, c = state
    i, f, g, o = _gates(add(x, matmul(h, weights["recurrent_kernel"])), 4)
    c = add(multiply(sigmoid(f), c), multiply(sigmoid(i), tanh(g)))
    return multiply(sigmoid(o), tanh(c)), c


def _gru_step(
    x: ArrayLike, h: ArrayLike, weights: Mapping[str, Any], gates: str, reset_after: bool
) -> Tensor:
    kernel = weights["recurrent_kernel"]
    units = d.type_of(h).shape[-1]
    if reset_after:
        inner = matmul(h, kernel)
        inner = add(inner, weights["recurrent_bias"]) if "recurrent_bias" in weights else inner
        parts = dict(zip(gates, _gates(inner, 3), strict=True))
    else:  # The two gates come first, the candidate last.
        inner = matmul(h, part_of(kernel, 1, 0, 2 * units))
        parts = dict(zip(gates, _gates(inner, 2), strict=False))
    projected = dict(zip(gates, _gates(x, 3), strict=True))
    z, r = (sigmoid(add(projected[gate], parts[gate])) for gate in "zr")
    if reset_after:
        candidate = add(projected["n"], multiply(r, parts["n"]))
    else:
        candidate = add(projected["n"], matmul(multiply(r, h), part_of(kernel, 1, 2 * units, units)))
    n = tanh(candidate)
    return add(n, multiply(z, subtract(h, n)))


# -------------------------------------------------------------------------------------------- arguments


def _read(
    count: int, x: ArrayLike, weights: Mapping[str, Any], states: Sequence[Any]
) -> tuple[Any, dict[str, Any], list[Any]]:
    """Inputs, weights and states of one dtype, their shapes checked; weights that are None are left out."""
    present = {name: w for name, w in weights.items() if w is not None}
    first_states = [s for s in states if s is not None]
    x, *rest = d.together(x, *present.values(), *first_states, promotes=FLOATING)
    converted = dict(zip(present, rest, strict=False))
    kernel, recurrent = d.type_of(converted["kernel"]), d.type_of(converted["recurrent_kernel"])
    kind = d.type_of(x)
    units = recurrent.shape[0] if recurrent.ndim else 0
    if recurrent.ndim != 2 or not d.same_size(units * count, recurrent.shape[1]):
        raise ShapeError(f"recurrent_kernel must be [units, {count} · units], not {recurrent!r}")
    if kernel.ndim != 2 or not d.same_size(kernel.shape[1], recurrent.shape[1]):
        raise ShapeError(f"kernel must be [features, {recurrent.shape[1]}], not {kernel!r}")
    if not kind.ndim or not d.same_size(kind.shape[-1], kernel.shape[0]):
        raise ShapeError(f"inputs {kind!r} must have the {kernel.shape[0]} features that the kernel takes")
    for state in rest[len(present) :]:
        if not d.type_of(state).ndim or not d.same_size(d.type_of(state).shape[-1], units):
            raise ShapeError(f"a state must be [..., {units}], not {d.type_of(state)!r}")
    return x, converted, rest[len(present) :]


def _projected(x: ArrayLike, weights: Mapping[str, Any]) -> Tensor:
    """The inputs times the kernel, plus the bias."""
    y = matmul(x, weights["kernel"])
    return add(y, weights["bias"]) if "bias" in weights else y


def _layer(
    step: Callable[[Any, Any], Any],
    x: ArrayLike,
    weights: Mapping[str, Any],
    states: list[Any],
    count: int,
    sequence_length: ArrayLike | None,
    reverse: bool,
    time_major: bool,
) -> tuple[Tensor, list[Tensor]]:
    """A scan over *step*, from a projected input and the states to the next states.

    Returns the first state after each step, and the last states.
    """
    if d.type_of(x).ndim != 3:
        axes = "[time, batch, features]" if time_major else "[batch, time, features]"
        raise ShapeError(f"takes {axes}, not {d.type_of(x)!r}")
    projected = _projected(x, weights)
    xs = projected if time_major else transpose(projected, (1, 0, 2))
    steps, batch, _ = d.type_of(xs).shape
    if not states:
        units = d.type_of(weights["recurrent_kernel"]).shape[0]
        states = [zeros_beside((batch, units), xs) for _ in range(count)]
    if sequence_length is None:
        alive = None
    else:
        lengths = d.type_of(sequence_length)
        if not lengths.dtype.is_integer or lengths.ndim != 1 or not d.same_size(lengths.shape[0], batch):
            raise ShapeError(f"sequence_length must be integers [{batch}], not {lengths!r}")
        places = expand_dims(cast(positions(steps, xs), lengths.dtype), 1)
        alive = expand_dims(greater(sequence_length, places), 2)

    def run(
        carry: Sequence[Output], part: tuple[Output, Output | None]
    ) -> tuple[Any, Any] | tuple[list[Any], Any]:
        x, here = part
        updated = step(x, carry)
        if here is None:
            return updated, updated[0]
        carried = [where(here, new, old) for new, old in zip(updated, carry, strict=True)]
        return carried, where(here, updated[0], 0)

    last, results = scan(run, list(states), (xs, alive), reverse=d.flag(reverse))
    return results if time_major else transpose(results, (1, 0, 2)), last


def _one_step(x: ArrayLike, states: Sequence[Any], weights: Mapping[str, Any]) -> Tensor:
    if any(d.type_of(s).ndim != d.type_of(x).ndim for s in states):
        raise ShapeError(
            f"inputs {d.type_of(x)!r} and states {[d.type_of(s) for s in states]} differ in axes"
        )
    return _projected(x, weights)


def _named(y: ArrayLike, name: str | None) -> Tensor:
    return y if name is None else identity(y, name)


# ----------------------------------------------------------------------------------------------- simple


def _activation(activation: str | Callable[[Any], Any]) -> Callable[[Any], Any]:
    if callable(activation):
        return lambda x: d.call(activation, x)
    return chosen(activation, {"tanh": tanh, "relu": relu}, "activation")


@d.guarded("simple_rnn_cell")
def simple_rnn_cell(
    inputs: ArrayLike,
    state: ArrayLike,
    kernel: ArrayLike,
    recurrent_kernel: ArrayLike,
    bias: ArrayLike | None = None,
    activation: str | Callable[[Any], Any] = "tanh",
    name: str | None = None,
) -> Tensor:
    """One step of :func:`simple_rnn`.

    Args:
        inputs: [..., features].
        state: [..., units].
        kernel: [features, units].
        recurrent_kernel: [units, units].
        bias: [units]; None for none.
        activation: "tanh", "relu" or a function.
        name: of the result.

    Returns:
        The next state.

    Raises:
        ShapeError, ArgumentError: the shapes do not fit; the activation is unknown.

    Examples:
        >>> sg.simple_rnn_cell(np.ones((1, 1)), np.zeros((1, 1)), np.ones((1, 1)), np.ones((1, 1)))
        array([[0.76159416]])
    """
    named_weights = {"kernel": kernel, "recurrent_kernel": recurrent_kernel, "bias": bias}
    x, weights, (h,) = _read(1, inputs, named_weights, [state])
    return _named(_simple_step(_one_step(x, [h], weights), h, weights, _activation(activation)), name)


@d.guarded("simple_rnn")
def simple_rnn(
    inputs: ArrayLike,
    kernel: ArrayLike,
    recurrent_kernel: ArrayLike,
    bias: ArrayLike | None = None,
    initial_state: ArrayLike | None = None,
    *,
    activation: str | Callable[[Any], Any] = "tanh",
    sequence_length: ArrayLike | None = None,
    reverse: bool = False,
    time_major: bool = False,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:
    """A recurrent layer: at each step h becomes activation(x · kernel + h · recurrent_kernel + bias).

    Args:
        inputs: [batch, time, features], floating-point.
        kernel: [features, units].
        recurrent_kernel: [units, units].
        bias: [units]; None for none. (This is the sum of PyTorch's two.)
        initial_state: [batch, units]; None for zeros.
        activation: "tanh", "relu" or a function.
        sequence_length: [batch], the number of steps of each sequence; None for all.
        reverse: whether the last step comes first. Results have the positions of their inputs.
        time_major: whether inputs and results are [time, batch, ...].
        name: of the results.

    Returns:
        The states after each step, [batch, time, units], zeros after the end of a sequence; and the last
        state, [batch, units].

    Raises:
        ShapeError, ArgumentError: the shapes do not fit; the activation is unknown.

    References:
        Elman 1990, "Finding structure in time".

    Examples:
        >>> one = np.ones((1, 1))
        >>> ys, h = sg.simple_rnn(np.ones((1, 3, 1)), one, one, activation="relu")
        >>> ys[0, :, 0]
        array([1., 2., 3.])
    """
    named_weights = {"kernel": kernel, "recurrent_kernel": recurrent_kernel, "bias": bias}
    x, weights, states = _read(1, inputs, named_weights, [initial_state])
    f = _activation(activation)
    results, (h,) = _layer(
        lambda x, carry: [_simple_step(x, carry[0], weights, f)],
        x,
        weights,
        states,
        1,
        sequence_length,
        reverse,
        d.flag(time_major),
    )
    return _named(results, name), h


# ------------------------------------------------------------------------------------------------ LSTM


def _pair(state: Sequence[ArrayLike] | None) -> list[Any]:
    if state is None:
        return [None, None]
    if not isinstance(state, (tuple, list)) or len(state) != 2:
        raise ArgumentError("the state of an LSTM is a pair (h, c)")
    return list(state)


@d.guarded("lstm_cell")
def lstm_cell(
    inputs: ArrayLike,
    state: Sequence[ArrayLike],
    kernel: ArrayLike,
    recurrent_kernel: ArrayLike,
    bias: ArrayLike | None = None,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:
    """One step of :func:`lstm`.

    Args:
        inputs: [..., features].
        state: (h, c), each [..., units].
        kernel: [features, 4 · units].
        recurrent_kernel: [units, 4 · units].
        bias: [4 · units]; None for none.
        name: of the new h.

    Returns:
        The next (h, c).

    Raises:
        ShapeError, ArgumentError: the shapes do not fit, or the state is no pair.

    Examples:
        >>> zero, gates = np.zeros((1, 1)), np.zeros((1, 4))
        >>> sg.lstm_cell(np.ones((1, 1)), (zero, np.ones((1, 1))), gates, gates)
        (array([[0.23105858]]), array([[0.5]]))
    """
    named_weights = {"kernel": kernel, "recurrent_kernel": recurrent_kernel, "bias": bias}
    x, weights, states = _read(4, inputs, named_weights, _pair(state))
    if not states:
        raise ArgumentError("takes a state, a pair (h, c)")
    h, c = _lstm_step(_one_step(x, states, weights), (states[0], states[1]), weights)
    return _named(h, name), c


@d.guarded("lstm")
def lstm(
    inputs: ArrayLike,
    kernel: ArrayLike,
    recurrent_kernel: ArrayLike,
    bias: ArrayLike | None = None,
    initial_state: Sequence[ArrayLike] | None = None,
    *,
    sequence_length: ArrayLike | None = None,
    reverse: bool = False,
    time_major: bool = False,
    name: str | None = None,
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """A layer of long short-term memory.

    With i, f, g, o the four parts of x · kernel + h · recurrent_kernel + bias, in this order, as in Keras and
    PyTorch, c becomes sigmoid(f) · c + sigmoid(i) · tanh(g), and h becomes sigmoid(o) · tanh(c).

    Args:
        inputs: [batch, time, features], floating-point.
        kernel: [features, 4 · units].
        recurrent_kernel: [units, 4 · units].
        bias: [4 · units]; None for none. (This is the sum of PyTorch's two; Keras begins with 1 for f.)
        initial_state: (h, c), each [batch, units]; None for zeros.
        sequence_length: [batch], the number of steps of each sequence; None for all.
        reverse: whether the last step comes first. Results have the positions of their inputs.
        time_major: whether inputs and results are [time, batch, ...].
        name: of the results.

    Returns:
        h after each step, [batch, time, units], zeros after the end of a sequence; and the last (h, c).

    Raises:
        ShapeError, ArgumentError: the shapes do not fit, or the state is no pair.

    References:
        Hochreiter and Schmidhuber 1997, "Long short-term memory"; Gers, Schmidhuber and Cummins 2000.

    Examples:
        >>> kernel, recurrent = np.ones((2, 12)), np.ones((3, 12))
        >>> ys, (h, c) = sg.lstm(np.ones((1, 5, 2)), kernel, recurrent)
        >>> ys.shape, h.shape
        ((1, 5, 3), (1, 3))
    """
    named_weights = {"kernel": kernel, "recurrent_kernel": recurrent_kernel, "bias": bias}
    x, weights, states = _read(4, inputs, named_weights, _pair(initial_state))
    results, (h, c) = _layer(
        lambda x, carry: list(_lstm_step(x, (carry[0], carry[1]), weights)),
        x,
        weights,
        states,
        2,
        sequence_length,
        reverse,
        d.flag(time_major),
    )
    return _named(results, name), (h, c)


# ------------------------------------------------------------------------------------------------- GRU


def _gru_weights(
    kernel: ArrayLike, recurrent_kernel: ArrayLike, bias: ArrayLike | None, gates: str, reset_after: bool
) -> tuple[dict[str, Any], str, bool]:
    """The weights by name, the order of the gates, and whether the reset gate comes after the product."""
    chosen(gates, {"zrn": 0, "rzn": 1}, "gates")
    after = d.flag(reset_after)
    named_weights = {"kernel": kernel, "recurrent_kernel": recurrent_kernel, "bias": bias}
    if bias is not None and d.type_of(bias).ndim == 2:
        if not after or d.type_of(bias).shape[0] != 2:
            raise ShapeError(
                f"bias must be [3 · units], or with reset_after [2, 3 · units], not {d.type_of(bias)!r}"
            )
        own, inner = (squeeze(part_of(bias, 0, i, 1), 0) for i in (0, 1))
        named_weights |= {"bias": own, "recurrent_bias": inner}
    return named_weights, str(gates), after


@d.guarded("gru_cell")
def gru_cell(
    inputs: ArrayLike,
    state: ArrayLike,
    kernel: ArrayLike,
    recurrent_kernel: ArrayLike,
    bias: ArrayLike | None = None,
    gates: str = "zrn",
    reset_after: bool = True,
    name: str | None = None,
) -> Tensor:
    """One step of :func:`gru`.

    Args:
        inputs: [..., features].
        state: h, [..., units].
        kernel: [features, 3 · units].
        recurrent_kernel: [units, 3 · units].
        bias: [3 · units] or [2, 3 · units], as for :func:`gru`; None for none.
        gates: "zrn" or "rzn", as for :func:`gru`.
        reset_after: as for :func:`gru`.
        name: of the result.

    Returns:
        The next state.

    Raises:
        ShapeError, ArgumentError: the shapes do not fit; the order of the gates is unknown.

    Examples:
        >>> gates = np.zeros((1, 3))
        >>> sg.gru_cell(np.ones((1, 1)), np.ones((1, 1)), gates, gates)
        array([[0.5]])
    """
    named_weights, order, after = _gru_weights(kernel, recurrent_kernel, bias, gates, reset_after)
    x, weights, (h,) = _read(3, inputs, named_weights, [state])
    return _named(_gru_step(_one_step(x, [h], weights), h, weights, order, after), name)


@d.guarded("gru")
def gru(
    inputs: ArrayLike,
    kernel: ArrayLike,
    recurrent_kernel: ArrayLike,
    bias: ArrayLike | None = None,
    initial_state: ArrayLike | None = None,
    *,
    gates: str = "zrn",
    reset_after: bool = True,
    sequence_length: ArrayLike | None = None,
    reverse: bool = False,
    time_major: bool = False,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:
    """A layer of gated recurrent units.

    With a = x · kernel + bias and b = h · recurrent_kernel + recurrent bias in three parts each:
    z = sigmoid(a_z + b_z), r = sigmoid(a_r + b_r), n = tanh(a_n + r · b_n); h becomes z · h + (1 - z) · n.

    Args:
        inputs: [batch, time, features], floating-point.
        kernel: [features, 3 · units].
        recurrent_kernel: [units, 3 · units].
        bias: [3 · units]; or [2, 3 · units], the second row being the recurrent bias; None for none.
        initial_state: [batch, units]; None for zeros.
        gates: the order of the parts: "zrn" as in Keras, or "rzn" as in PyTorch.
        reset_after: whether r is multiplied after h · recurrent_kernel, as above and in PyTorch; otherwise
            n = tanh(a_n + (r · h) · recurrent_kernel_n), as in the paper.
        sequence_length: [batch], the number of steps of each sequence; None for all.
        reverse: whether the last step comes first. Results have the positions of their inputs.
        time_major: whether inputs and results are [time, batch, ...].
        name: of the results.

    Returns:
        h after each step, [batch, time, units], zeros after the end of a sequence; and the last h.

    Raises:
        ShapeError, ArgumentError: the shapes do not fit; the order of the gates is unknown.

    References:
        Cho et al. 2014, arXiv:1406.1078.

    Examples:
        >>> ys, h = sg.gru(np.ones((1, 5, 2)), np.ones((2, 9)), np.ones((3, 9)))
        >>> ys.shape, h.shape
        ((1, 5, 3), (1, 3))
    """
    named_weights, order, after = _gru_weights(kernel, recurrent_kernel, bias, gates, reset_after)
    x, weights, states = _read(3, inputs, named_weights, [initial_state])
    results, (h,) = _layer(
        lambda x, carry: [_gru_step(x, carry[0], weights, order, after)],
        x,
        weights,
        states,
        1,
        sequence_length,
        reverse,
        d.flag(time_major),
    )
    return _named(results, name), h

"""Recurrent layers as scans: RNN, GRU and LSTM, in both directions.

All inputs are multiplied by the weights at once, before the loop. If sequences have lengths, steps beyond
them do not change the state, in either direction, and their results are 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import stopgrad as sg
from stopgrad.base.types import Size
from stopgrad.graph.operands import Tensor
from stopgrad.interop.onnx.operators.activations import bent, line
from stopgrad.interop.onnx.operators.calling import Call, Rule, Table
from stopgrad.interop.shared.conversions import along, brought

Activation = Callable[[sg.Output], sg.Output]

State = tuple[sg.Output, ...]
"""The states of a layer."""


def _scaled(x: sg.Output, factor: float) -> sg.Output:
    return x if factor == 1 else sg.multiply(x, brought(factor, x.dtype))


def _thresholded(x: sg.Output, alpha: float, beta: float) -> sg.Output:
    return sg.where(sg.greater(x, brought(alpha, x.dtype)), x, brought(0, x.dtype))


ACTIVATIONS_OF_CELLS: dict[
    str, tuple[Callable[[sg.Output, float, float], sg.Output], float | None, float | None]
] = {
    "relu": (lambda x, alpha, beta: sg.relu(x), None, None),
    "tanh": (lambda x, alpha, beta: sg.tanh(x), None, None),
    "sigmoid": (lambda x, alpha, beta: sg.sigmoid(x), None, None),
    "softsign": (lambda x, alpha, beta: sg.softsign(x), None, None),
    "softplus": (lambda x, alpha, beta: sg.softplus(x), None, None),
    "affine": (lambda x, alpha, beta: sg.add(_scaled(x, alpha), brought(beta, x.dtype)), 1.0, 0.0),
    "leakyrelu": (lambda x, alpha, beta: sg.leaky_relu(x, alpha), 0.01, None),
    "thresholdedrelu": (_thresholded, 1.0, None),
    "scaledtanh": (lambda x, alpha, beta: _scaled(sg.tanh(_scaled(x, beta)), alpha), 1.0, 1.0),
    "hardsigmoid": (line, 0.2, 0.5),
    "elu": (lambda x, alpha, beta: bent(x, alpha, 1.0), 1.0, None),
}
"""By lower-case name: a function of x, alpha and beta, and the defaults of these; None for one that it does
not use."""


def _bound(
    function: Callable[[Any, float, float], Any], alpha: float, beta: float, clip: float | None
) -> Activation:
    """A function of x alone, after clipping x to [-clip, clip]."""
    if clip is None:
        return lambda x: function(x, alpha, beta)
    return lambda x: function(
        sg.clip_by_value(x, brought(-clip, x.dtype), brought(clip, x.dtype)), alpha, beta
    )


def _activations(node: Call, default: Sequence[str], directions: int) -> list[list[Activation]]:
    """The activations of each direction; alphas and betas go in order to those that use them."""
    names = list(node.attribute("activations") or [*default] * directions)
    if len(names) != len(default) * directions:
        node.fail(f"activations has {len(names)} names; {directions} directions take {len(default)} each")
    parameters: list[Iterator[float]] = [
        iter(node.attribute(name) or ()) for name in ("activation_alpha", "activation_beta")
    ]
    clip = node.attribute("clip")
    functions: list[Activation] = []
    for name in names:
        if str(name).lower() not in ACTIVATIONS_OF_CELLS:
            node.fail(f"the activation {name!r} is unknown")
        function, *defaults = ACTIVATIONS_OF_CELLS[str(name).lower()]
        alpha, beta = (
            0.0 if usual is None else float(next(values, usual))
            for usual, values in zip(defaults, parameters, strict=True)
        )
        functions.append(_bound(function, alpha, beta, clip))
    width = len(default)
    return [functions[i * width : (i + 1) * width] for i in range(directions)]


class Layer:
    """One direction of a recurrent layer.

    Attributes:
        node: the node, for its attributes.
        activations: its functions, in the operator's order.
        kernel: [hidden, gates · hidden], by which the state is multiplied.
        bias: of that product, [gates · hidden], or None if it is added to the inputs already.
        peepholes: [3 · hidden], or None.
        units: the number of hidden units.
    """

    node: Call
    activations: list[Activation]
    kernel: sg.Output
    bias: sg.Output | None
    peepholes: sg.Output | None
    units: Size

    def __init__(
        self,
        node: Call,
        activations: list[Activation],
        kernel: sg.Output,
        bias: sg.Output | None,
        peepholes: sg.Output | None,
    ) -> None:
        self.node, self.activations = node, activations
        self.kernel, self.bias, self.peepholes = kernel, bias, peepholes
        self.units = kernel.shape[0]

    def gates(self, x: sg.Output, count: int) -> list[sg.Output]:
        """The parts of the gates, split along the last axis."""
        return [x[..., i * self.units : (i + 1) * self.units] for i in range(count)]


def _rnn_step(layer: Layer, x: sg.Output, state: State) -> State:
    (h,) = state
    return (layer.activations[0](sg.add(x, sg.matmul(h, layer.kernel))),)


def _gru_step(layer: Layer, x: sg.Output, state: State) -> State:
    (h,) = state
    f, g = layer.activations
    units = layer.units
    xz, xr, xn = layer.gates(x, 3)
    if layer.node.attribute("linear_before_reset", 0):
        inner = sg.matmul(h, layer.kernel)
        inner = inner if layer.bias is None else sg.add(inner, layer.bias)
        hz, hr, hn = layer.gates(inner, 3)
        z, r = f(sg.add(xz, hz)), f(sg.add(xr, hr))
        n = g(sg.add(xn, sg.multiply(r, hn)))
    else:
        hz, hr = layer.gates(sg.matmul(h, layer.kernel[:, : 2 * units]), 2)
        z, r = f(sg.add(xz, hz)), f(sg.add(xr, hr))
        n = g(sg.add(xn, sg.matmul(sg.multiply(r, h), layer.kernel[:, 2 * units :])))
    return (sg.add(n, sg.multiply(z, sg.subtract(h, n))),)


def _lstm_step(layer: Layer, x: sg.Output, state: State) -> State:
    h, c = state
    f, g, out = layer.activations
    xi, xo, xf, xc = layer.gates(sg.add(x, sg.matmul(h, layer.kernel)), 4)
    pi, po, pf = (None,) * 3 if layer.peepholes is None else layer.gates(layer.peepholes, 3)
    i = f(_peeped(xi, pi, c))
    forget = sg.subtract(1.0, i) if layer.node.attribute("input_forget", 0) else f(_peeped(xf, pf, c))
    c = sg.add(sg.multiply(forget, c), sg.multiply(i, g(xc)))
    return sg.multiply(f(_peeped(xo, po, c)), out(c)), c


def _peeped(x: sg.Output, weight: sg.Output | None, c: sg.Output) -> sg.Output:
    return x if weight is None else sg.add(x, sg.multiply(weight, c))


Step = Callable[[Layer, sg.Output, State], State]
"""The states after one more element."""


class Kind:
    """The differences between the three operators: gates, activations, states and step."""

    gates: int
    activations: Sequence[str]
    states: int
    step: Step

    def __init__(self, gates: int, activations: Sequence[str], states: int, step: Step) -> None:
        self.gates, self.activations, self.states, self.step = gates, activations, states, step


def recurrent(kind: Kind) -> Rule:
    """The rule for one kind of layer."""

    def rule(
        node: Call,
        x: sg.Output,
        w: sg.Output,
        r: sg.Output,
        b: sg.Output | None = None,
        lengths: sg.Output | None = None,
        h: sg.Output | None = None,
        c: sg.Output | None = None,
        peepholes: sg.Output | None = None,
    ) -> tuple[Any, ...]:
        names = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
        direction = str(node.attribute("direction", "forward"))
        if direction not in names:
            node.fail(f"direction={direction!r} is unknown; it is one of {', '.join(names)}")
        ways = names[direction]
        batch_first = bool(node.attribute("layout", 0))  # With layout 1 the batch comes first.
        x = sg.swapaxes(x, 0, 1) if batch_first else x
        states = [s if s is None or not batch_first else sg.swapaxes(s, 0, 1) for s in (h, c)[: kind.states]]
        functions = _activations(node, list(kind.activations), len(ways))
        inside = None if lengths is None else _inside(x, lengths)
        runs = []
        for i, backwards in enumerate(ways):
            projected, layer = _prepared(
                node, kind, functions[i], x, w[i], r[i], _of_direction(b, i), _of_direction(peepholes, i)
            )
            start = tuple(_start(s, i, x, layer.units) for s in states)
            runs.append(_run(kind, layer, projected, start, inside, backwards))
        ys = sg.stack([y for y, _ in runs], 1) if node.wants(0) else None
        last = [sg.stack([end[i] for _, end in runs], 0) for i in range(kind.states)]
        if batch_first:
            ys = None if ys is None else sg.transpose(ys, (2, 0, 1, 3))
            last = [sg.swapaxes(s, 0, 1) for s in last]
        return ys, *last

    return rule


def _of_direction(x: sg.Output | None, i: int) -> sg.Output | None:
    return None if x is None else x[i]


def _start(state: sg.Output | None, i: int, x: sg.Output, units: Size) -> Tensor:
    return sg.zeros([x.shape[1], units], x.dtype) if state is None else state[i]


def _inside(x: sg.Output, lengths: sg.Output) -> Tensor:
    """Whether each element is before the end of its sequence: [time, batch, 1]."""
    steps = along(sg.range(0, x.shape[0], dtype=lengths.dtype), 0, 3)
    return sg.less(steps, along(lengths, 1, 3))


def _prepared(
    node: Call,
    kind: Kind,
    activations: list[Activation],
    x: sg.Output,
    w: sg.Output,
    r: sg.Output,
    b: sg.Output | None,
    peepholes: sg.Output | None,
) -> tuple[sg.Output, Layer]:
    """The products of all inputs with the weights, [time, batch, gates · hidden], and the layer."""
    units = r.shape[-1]
    width = kind.gates * units
    projected, inner = sg.matmul(x, sg.transpose(w)), None
    if b is not None:
        outer, inner = b[:width], b[width:]
        if not node.attribute("linear_before_reset", 0):
            outer, inner = sg.add(outer, inner), None
        projected = sg.add(projected, outer)
    return projected, Layer(node, activations, sg.transpose(r), inner, peepholes)


def _run(
    kind: Kind,
    layer: Layer,
    projected: sg.Output,
    start: tuple[Any, ...],
    inside: sg.Output | None,
    backwards: bool,
) -> tuple[Any, tuple[Any, ...]]:
    """The states after each step, and the last ones."""

    def step(state: State, now: Any) -> tuple[State, sg.Output]:
        x, here = now if inside is not None else (now, None)
        new = kind.step(layer, x, state)
        if here is None:
            return new, new[0]
        following = tuple(sg.where(here, a, b) for a, b in zip(new, state, strict=True))
        return following, sg.where(here, new[0], brought(0, new[0].dtype))

    xs = projected if inside is None else (projected, inside)
    last, ys = sg.scan(step, start, xs, reverse=backwards)
    return ys, last


RECURRENT: Table = {
    "RNN": recurrent(Kind(1, ("Tanh",), 1, _rnn_step)),
    "GRU": recurrent(Kind(3, ("Sigmoid", "Tanh"), 1, _gru_step)),
    "LSTM": recurrent(Kind(4, ("Sigmoid", "Tanh", "Tanh"), 2, _lstm_step)),
}

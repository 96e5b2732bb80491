"""The optimisers as functions of a loss."""

from __future__ import annotations

from typing import Any, Unpack

from stopgrad.base.errors import ArgumentError
from stopgrad.base.types import DTypeLike, bfloat16
from stopgrad.graph.graph import Operation, Output
from stopgrad.graph.public import guarded
from stopgrad.train.optimizers.adaptive import Adagrad, Adam, AdamW, RMSprop
from stopgrad.train.optimizers.descent import SGD, Lion
from stopgrad.train.optimizers.matrix_rules import Adafactor, Muon
from stopgrad.train.optimizers.optimizer_arguments import How
from stopgrad.train.optimizers.rules import Rate, Rule
from stopgrad.train.optimizers.update import Update, built

__all__ = ["adafactor", "adagrad", "adam", "adamw", "lion", "muon", "rmsprop", "sgd"]


@guarded("optimizers.sgd")
def sgd(
    loss: Output | Operation,
    parameters: Any,
    learning_rate: Rate = 1e-3,
    momentum: float = 0.0,
    dampening: float = 0.0,
    weight_decay: float = 0.0,
    nesterov: bool = False,
    *,
    maximize: bool = False,
    **how: Unpack[How],
) -> Update:
    """A step along the gradient, or along an average of the gradients so far; as ``torch.optim.SGD``.

    Args:
        loss: the loss to minimise, a scalar of a graph.
        parameters: the parameters to update, of the same graph, as a sequence, a dict or a nested structure
            of these. The keys of a dict are their names; otherwise they have their names in the graph.
        learning_rate: a number; a scalar of the graph, such as a placeholder; or a schedule.
        momentum: the decay of the average of gradients.
        dampening: a new gradient is added to the average times 1 - dampening; the first is not dampened.
        weight_decay: adds this times the parameter to its gradient.
        nesterov: whether to use Nesterov momentum, which looks ahead by one step.
        maximize: whether to maximise the loss instead.
        how: groups, clipping, accumulation and more: see :class:`How`.

    Returns:
        An :class:`Update`.

    Raises:
        ArgumentError: a hyperparameter is out of its range.
        GraphError, ShapeError, DTypeError: the loss is no scalar of a graph, or the parameters are not all
            floating-point parameters of that graph.
        GradientError: no gradient reaches any of the parameters.

    References:
        Polyak 1964 (momentum); Nesterov 1983, in the form of Sutskever et al. 2013, "On the importance of
        initialization and momentum in deep learning". Optax's momentum is this one without dampening.

    Examples:
        >>> with sg.Graph().as_default() as graph:
        ...     w = sg.parameter([1.0, 2.0], name="w")
        ...     loss = sg.reduce_sum(w * w)
        ...     update = sg.optimizers.sgd(loss, [w], learning_rate=0.25)
        >>> with sg.Session(graph) as session:
        ...     float(session.run([loss, update.run])[0]), session.value(w).tolist()
        (5.0, [0.5, 1.0])
    """
    rule = SGD(learning_rate, momentum, dampening, weight_decay, nesterov, maximize=maximize)
    return built(loss, parameters, rule, how)


@guarded("optimizers.adam")
def adam(
    loss: Output | Operation,
    parameters: Any,
    learning_rate: Rate = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    amsgrad: bool = False,
    *,
    maximize: bool = False,
    **how: Unpack[How],
) -> Update:
    """A step along the average gradient, over its root mean square; as ``torch.optim.Adam``.

    Args:
        loss, parameters, learning_rate, maximize, how: as for :func:`sgd`.
        betas: the decays of the averages of gradients and of their squares.
        eps: added to the root mean square.
        weight_decay: adds this times the parameter to its gradient.
        amsgrad: whether to divide by the greatest root mean square so far.

    Returns:
        An :class:`Update`.

    Raises:
        As :func:`sgd`.

    References:
        Kingma & Ba 2015, "Adam: a method for stochastic optimization", arXiv 1412.6980; Reddi et al. 2018,
        "On the convergence of Adam and beyond" (amsgrad, here of the squares before their bias correction, as
        in PyTorch; Optax corrects first).

    Examples:
        >>> with sg.Graph().as_default() as graph:
        ...     w = sg.parameter([1.0, -2.0], name="w")
        ...     update = sg.optimizers.adam(sg.reduce_sum(w * w), [w], learning_rate=0.25)
        >>> with sg.Session(graph) as session:
        ...     _ = session.run(update.run)
        ...     session.value(w).round(3).tolist(), sorted(update.state)
        ([0.75, -1.75], ['adam/m/w', 'adam/step', 'adam/v/w'])
    """
    rule = Adam(learning_rate, betas, eps, weight_decay, amsgrad, maximize=maximize)
    return built(loss, parameters, rule, how)


@guarded("optimizers.adamw")
def adamw(
    loss: Output | Operation,
    parameters: Any,
    learning_rate: Rate = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 1e-2,
    amsgrad: bool = False,
    *,
    maximize: bool = False,
    **how: Unpack[How],
) -> Update:
    """:func:`adam` with weight decay that is decoupled from the gradient; as ``torch.optim.AdamW``.

    Args:
        loss, parameters, learning_rate, maximize, how: as for :func:`sgd`.
        betas, eps, amsgrad: as for :func:`adam`.
        weight_decay: each step shrinks parameters by the learning rate times this. 0.01 by default, as in
            PyTorch; Optax's is 0.0001.

    Returns:
        An :class:`Update`.

    Raises:
        As :func:`sgd`.

    References:
        Loshchilov & Hutter 2019, "Decoupled weight decay regularization", arXiv 1711.05101.

    Examples:
        >>> with sg.Graph().as_default() as graph:
        ...     w = sg.parameter([1.0, -2.0], name="w")
        ...     update = sg.optimizers.adamw(sg.reduce_sum(w * w), {"w": w}, weight_decay=0.1)
        >>> update
        <Update of 1 parameters with 3 of state>
    """
    rule = AdamW(learning_rate, betas, eps, weight_decay, amsgrad, maximize=maximize)
    return built(loss, parameters, rule, how)


@guarded("optimizers.lion")
def lion(
    loss: Output | Operation,
    parameters: Any,
    learning_rate: Rate = 1e-4,
    betas: tuple[float, float] = (0.9, 0.99),
    weight_decay: float = 0.0,
    *,
    maximize: bool = False,
    **how: Unpack[How],
) -> Update:
    """A step of the same length in each element, along the sign of an average gradient.

    Args:
        loss, parameters, learning_rate, maximize, how: as for :func:`sgd`.
        betas: the weight of the average, beside the new gradient, in the step; and the average's decay.
        weight_decay: each step shrinks parameters by the learning rate times this. 0 by default, as in the
            authors' code; Optax's is 0.001.

    Returns:
        An :class:`Update`.

    Raises:
        As :func:`sgd`.

    References:
        Chen et al. 2023, "Symbolic discovery of optimization algorithms", arXiv 2302.06675; as
        ``optax.lion``. PyTorch does not have it.

    Examples:
        >>> with sg.Graph().as_default() as graph:
        ...     w = sg.parameter([1.0, -2.0], name="w")
        ...     update = sg.optimizers.lion(sg.reduce_sum(w * w), [w], learning_rate=0.25)
        >>> with sg.Session(graph) as session:
        ...     _ = session.run(update.run)
        ...     session.value(w).tolist()
        [0.75, -1.75]
    """
    rule = Lion(learning_rate, betas, weight_decay, maximize=maximize)
    return built(loss, parameters, rule, how)


@guarded("optimizers.rmsprop")
def rmsprop(
    loss: Output | Operation,
    parameters: Any,
    learning_rate: Rate = 1e-2,
    alpha: float = 0.99,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    momentum: float = 0.0,
    centered: bool = False,
    *,
    maximize: bool = False,
    **how: Unpack[How],
) -> Update:
    """A step along the gradient, over the root of an average of its squares; as ``torch.optim.RMSprop``.

    Args:
        loss, parameters, learning_rate, maximize, how: as for :func:`sgd`.
        alpha: the decay of the average of squares. Optax calls it ``decay``, 0.9 by default.
        eps: added to the root; Optax adds it to the average.
        weight_decay: adds this times the parameter to its gradient.
        momentum: the decay of an average of the steps.
        centered: whether to divide by the standard deviation instead.

    Returns:
        An :class:`Update`.

    Raises:
        As :func:`sgd`.

    References:
        Tieleman & Hinton 2012, "Neural networks for machine learning", lecture 6.5; centered: Graves 2013,
        "Generating sequences with recurrent neural networks", arXiv 1308.0850.

    Examples:
        >>> with sg.Graph().as_default() as graph:
        ...     w = sg.parameter([1.0, -2.0], name="w")
        ...     sorted(sg.optimizers.rmsprop(sg.reduce_sum(w * w), [w], momentum=0.9).state)
        ['rmsprop/momentum/w', 'rmsprop/step', 'rmsprop/v/w']
    """
    rule = RMSprop(learning_rate, alpha, eps, weight_decay, momentum, centered, maximize=maximize)
    return built(loss, parameters, rule, how)


@guarded("optimizers.adagrad")
def adagrad(
    loss: Output | Operation,
    parameters: Any,
    learning_rate: Rate = 1e-2,
    lr_decay: float = 0.0,
    weight_decay: float = 0.0,
    initial_accumulator_value: float = 0.0,
    eps: float = 1e-10,
    *,
    maximize: bool = False,
    **how: Unpack[How],
) -> Update:
    """A step along the gradient, over the root of the sum of all its squares; as ``torch.optim.Adagrad``.

    Args:
        loss, parameters, learning_rate, maximize, how: as for :func:`sgd`.
        lr_decay: in step t the learning rate is divided by ``1 + (t - 1) * lr_decay``.
        weight_decay: adds this times the parameter to its gradient.
        initial_accumulator_value: the initial value of the sum. Optax's default is 0.1.
        eps: added to the root.

    Returns:
        An :class:`Update`.

    Raises:
        As :func:`sgd`.

    References:
        Duchi et al. 2011, "Adaptive subgradient methods for online learning and stochastic optimization".

    Examples:
        >>> with sg.Graph().as_default() as graph:
        ...     w = sg.parameter([1.0, -2.0], name="w")
        ...     update = sg.optimizers.adagrad(sg.reduce_sum(w * w), [w], learning_rate=0.25)
        >>> with sg.Session(graph) as session:
        ...     _ = session.run(update.run)
        ...     session.value(w).tolist()
        [0.75, -1.75]
    """
    rule = Adagrad(learning_rate, lr_decay, weight_decay, initial_accumulator_value, eps, maximize=maximize)
    return built(loss, parameters, rule, how)


@guarded("optimizers.adafactor")
def adafactor(
    loss: Output | Operation,
    parameters: Any,
    learning_rate: Rate = 1e-2,
    beta2_decay: float = -0.8,
    eps: tuple[float | None, float] = (None, 1e-3),
    d: float = 1.0,
    weight_decay: float = 0.0,
    *,
    maximize: bool = False,
    **how: Unpack[How],
) -> Update:
    """A step over a root mean square that is stored by rows and columns; as ``torch.optim.Adafactor``.

    For a matrix of m rows and n columns, or each in a stack of them, only m + n numbers are stored.

    Args:
        loss, parameters, maximize, how: as for :func:`sgd`.
        learning_rate: the size of a step relative to the parameter's root mean square; it is limited to
            ``1 / sqrt(t)`` in step t.
        beta2_decay: in step t, new squares have the weight ``t ** beta2_decay`` in the averages of squares.
        eps: the root of the minimum of squares, by default the dtype's precision; and the minimum of a
            parameter's root mean square.
        d: steps with a greater root mean square are scaled down to this.
        weight_decay: each step shrinks parameters by the learning rate times this.

    Returns:
        An :class:`Update`.

    Raises:
        As :func:`sgd`.

    References:
        Shazeer & Stern 2018, "Adafactor: adaptive learning rates with sublinear memory cost",
        arXiv 1804.04235, with PyTorch's details: no momentum, even small matrices are stored by rows and
        columns, and the weight decay is scaled by the learning rate only. Optax's stores matrices below 128
        rows and columns whole, and scales differently.

    Examples:
        >>> with sg.Graph().as_default() as graph:
        ...     w = sg.parameter(np.ones((3, 2)), name="w")
        ...     update = sg.optimizers.adafactor(sg.reduce_sum(w * w), [w])
        ...     {name: x.shape for name, x in update.state.items()}
        {'adafactor/step': (), 'adafactor/rows/w': (3, 1), 'adafactor/columns/w': (1, 2)}
    """
    rule = Adafactor(learning_rate, beta2_decay, eps, d, weight_decay, maximize=maximize)
    return built(loss, parameters, rule, how)


@guarded("optimizers.muon")
def muon(
    loss: Output | Operation,
    parameters: Any,
    learning_rate: Rate = 1e-3,
    weight_decay: float = 0.1,
    momentum: float = 0.95,
    nesterov: bool = True,
    ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
    eps: float = 1e-7,
    ns_steps: int = 5,
    adjust_lr_fn: str | None = None,
    *,
    others: Rule | None = None,
    ns_dtype: DTypeLike = bfloat16,
    maximize: bool = False,
    **how: Unpack[How],
) -> Update:
    """A step along the orthogonal matrix nearest to an average gradient; as ``torch.optim.Muon``.

    Args:
        loss, parameters, learning_rate, maximize, how: as for :func:`sgd`.
        weight_decay: each step shrinks parameters by the learning rate times this.
        momentum: the decay of the average of gradients.
        nesterov: whether to use Nesterov momentum, which looks ahead by one step.
        ns_coefficients, ns_steps: of the Newton-Schulz iteration that finds the matrix approximately: its
            singular values lie between about 0.7 and 1.2.
        eps: the minimum of the norm that the gradient is divided by.
        adjust_lr_fn: the factor of the learning rate for m rows and n columns: ``"original"`` or None for
            ``sqrt(max(1, m / n))``; ``"match_rms_adamw"`` for ``0.2 * sqrt(max(m, n))``.
        others: a rule, such as ``sg.optimizers.AdamW()``, for parameters that are no matrices. Embeddings
            and output layers, which are matrices, should have another rule, too: give it in ``groups``.
        ns_dtype: of the iteration; bfloat16 as in PyTorch. On most CPUs, which emulate it, float32 is faster.

    Returns:
        An :class:`Update`.

    Raises:
        ArgumentError: as :func:`sgd`, and if a parameter is no matrix and there are no *others*.

    References:
        Jordan 2024, "Muon: an optimizer for hidden layers in neural networks"; Liu et al. 2025, "Muon is
        scalable for LLM training", arXiv 2502.16982 (``"match_rms_adamw"``).

    Examples:
        >>> with sg.Graph().as_default() as graph:
        ...     w, b = sg.parameter(np.ones((3, 2)), name="w"), sg.parameter(np.ones(2), name="b")
        ...     loss = sg.reduce_sum(w + b)
        ...     update = sg.optimizers.muon(loss, [w, b], others=sg.optimizers.AdamW())
        ...     list(update.state)
        ['muon/step', 'muon/momentum/w', 'muon/m/b', 'muon/v/b']
    """
    rule = Muon(
        *(learning_rate, weight_decay, momentum, nesterov, ns_coefficients, eps, ns_steps, adjust_lr_fn),
        ns_dtype=ns_dtype,
        maximize=maximize,
    )
    if others is not None and not isinstance(others, Rule):
        raise ArgumentError(f"others is a rule, such as sg.optimizers.AdamW(), not {others!r:.60}")
    return built(loss, parameters, rule, how, others)

"""The optimisers as functions of a loss."""

from __future__ import annotations

from typing import Any

from stopgrad.optimizers.adaptive import Adam, AdamW
from stopgrad.optimizers.descent import SGD
from stopgrad.optimizers.rules import Rate
from stopgrad.optimizers.update import Update, built
from stopgrad.public import guarded

__all__ = ["adam", "adamw", "sgd"]


@guarded("optimizers.sgd")
def sgd(
    loss: Any,
    parameters: Any,
    learning_rate: Rate = 1e-3,
    momentum: float = 0.0,
    dampening: float = 0.0,
    weight_decay: float = 0.0,
    nesterov: bool = False,
    *,
    maximize: bool = False,
) -> Update:
    """A step along the gradient, or along an average of the gradients so far; as ``torch.optim.SGD``.

    Args:
        loss: what is to fall: a scalar of a graph.
        parameters: those to move: parameters of the same graph, as a sequence, a dict or a nested structure
            of these. In a dict, its keys are their names; else they are called as in the graph.
        learning_rate: a number; a scalar of the graph, such as a placeholder; or a schedule.
        momentum: how much of the average is kept in a step.
        dampening: how much less of a new gradient is added to the average. The first is taken whole.
        weight_decay: adds this times the parameter to its gradient.
        nesterov: whether to go along the average as it will be.
        maximize: whether the loss is to grow instead.

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
    return built(loss, parameters, rule)


@guarded("optimizers.adam")
def adam(
    loss: Any,
    parameters: Any,
    learning_rate: Rate = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    amsgrad: bool = False,
    *,
    maximize: bool = False,
) -> Update:
    """A step along the average gradient, over its root mean square; as ``torch.optim.Adam``.

    Args:
        loss, parameters, learning_rate, maximize: as for :func:`sgd`.
        betas: how much of the average, and of that of the squares, is kept in a step.
        eps: is added to the root mean square.
        weight_decay: adds this times the parameter to its gradient.
        amsgrad: whether to divide by the greatest root mean square so far.

    Returns:
        An :class:`Update`.

    Raises:
        As :func:`sgd`.

    References:
        Kingma & Ba 2015, "Adam: a method for stochastic optimization", arXiv 1412.6980; Reddi et al. 2018,
        "On the convergence of Adam and beyond" (amsgrad, here of the squares before their correction, as
        PyTorch has it; Optax corrects first).

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
    return built(loss, parameters, rule)


@guarded("optimizers.adamw")
def adamw(
    loss: Any,
    parameters: Any,
    learning_rate: Rate = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 1e-2,
    amsgrad: bool = False,
    *,
    maximize: bool = False,
) -> Update:
    """:func:`adam` with the weight decay apart from the gradient; as ``torch.optim.AdamW``.

    Args:
        loss, parameters, learning_rate, maximize: as for :func:`sgd`.
        betas, eps, amsgrad: as for :func:`adam`.
        weight_decay: shrinks parameters in a step by the learning rate times this. 0.01 by default, as in
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
    return built(loss, parameters, rule)

"""The values at which a question about gradients is examined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from stopgrad.base.errors import FeedError
from stopgrad.engines import engine as engine_named
from stopgrad.flow.asked import Asked
from stopgrad.graph.graph import Output
from stopgrad.graph.operands import NumpyArray
from stopgrad.run.feeds import feed_value
from stopgrad.run.plans import plan_for
from stopgrad.run.session import Session


def fed_to(
    what: str,
    asked: Asked,
    feed_dict: Mapping[Any, Any] | None,
    outputs: Sequence[Output] = (),
    session: Session | None = None,
) -> dict[Output, NumpyArray]:
    """The values of the placeholders and parameters that ys, xs and other *outputs* need.

    Parameters have their values in a session; without one, their first values.
    """
    feeds = {} if feed_dict is None else feed_dict
    if not isinstance(feeds, Mapping):
        raise FeedError(f"{what}: feed_dict is a dict from tensors to values, not {type(feeds).__name__}")
    plan = plan_for(asked.graph, (*asked.ys, *asked.xs.values(), *outputs), (*asked.feeds, *feeds))
    numpy = engine_named("numpy")
    values = [*asked.feeds.values(), *feeds.values()]
    fed = {x: np.asarray(feed_value(x, v, numpy)) for x, v in zip(plan.feeds, values, strict=True)}
    return fed | {p: p.op.values[0].array if session is None else session.value(p) for p in plan.parameters}

"""TensorFlow as one of the worlds that are asked: functions with their arguments, and watched losses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from stopgrad.base.errors import ArgumentError
from stopgrad.flow.flow_report import Flow
from stopgrad.interop.tensorflow.ablating import ablate as ablate
from stopgrad.interop.tensorflow.asking import explain, report_on
from stopgrad.interop.tensorflow.differences import check_gradients as check_gradients
from stopgrad.interop.tensorflow.nans import trace_nan as trace_nan
from stopgrad.interop.tensorflow.training_checks import Training as Training


def report(ys: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Flow, str]:
    """The report on a function, a model or a loss, and a note on it."""
    if callable(ys) and not isinstance(ys, (tf.Tensor, tf.Variable)):
        return explain(ys, *args, **kwargs), ""
    if len(args) > 1 or kwargs:
        raise ArgumentError("explain: of a loss of TensorFlow, say in one argument what is asked about")
    return report_on("explain", ys, args[0] if args else None), ""

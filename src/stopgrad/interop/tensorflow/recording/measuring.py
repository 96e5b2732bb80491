"""How large gradients are that TensorFlow gave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from stopgrad.flow.magnitudes.magnitude import Magnitude
from stopgrad.interop.tensorflow.recording import internals


def magnitudes_of(sources: Sequence[Any], gradients: Sequence[Any]) -> list[Magnitude | None]:
    """How large each gradient is; None where there is none, or it has no values since it is only traced."""
    return [_magnitude(source, gradient) for source, gradient in zip(sources, gradients, strict=True)]


def _magnitude(source: Any, gradient: Any) -> Magnitude | None:
    if not isinstance(getattr(gradient, "values", gradient), internals.EagerTensor):
        return None
    array, values = _array(gradient), _array(source)
    return Magnitude(
        float(np.linalg.norm(array)),
        array.size,
        int(np.count_nonzero(array == 0)),
        int(np.count_nonzero(np.isnan(array))),
        int(np.count_nonzero(np.isinf(array))),
        float(np.linalg.norm(values)),
    )


def _array(x: Any) -> np.ndarray[Any, Any]:
    """The values of a tensor, a variable or slices of one."""
    whole = tf.convert_to_tensor(x)
    return np.asarray(whole, np.complex128 if whole.dtype.is_complex else np.float64).ravel()

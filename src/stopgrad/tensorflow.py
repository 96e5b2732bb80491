"""For TensorFlow and Keras: explain and watch live code; load and save graphs. See :mod:`stopgrad.interop.tensorflow`."""

from typing import Any as _Any

from stopgrad.interop import tensorflow as _tensorflow
from stopgrad.interop.tensorflow import *


def __getattr__(name: str) -> _Any:
    return getattr(_tensorflow, name)


def __dir__() -> list[str]:
    return dir(_tensorflow)

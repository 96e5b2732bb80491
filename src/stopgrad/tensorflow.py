"""For TensorFlow and Keras: live code, and graphs from files. See :mod:`stopgrad.interop.tensorflow`."""

from typing import Any as _Any

from stopgrad.interop import tensorflow as _tensorflow
from stopgrad.interop.tensorflow import *


def __getattr__(name: str) -> _Any:
    return getattr(_tensorflow, name)


def __dir__() -> list[str]:
    return dir(_tensorflow)

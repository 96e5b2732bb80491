"""The gallery of mistakes in TensorFlow and Keras: how its programs are asked about.

``python tests/helpers/tensorflow_mistakes.py`` writes docs/tensorflow-mistakes.md anew.
"""

from __future__ import annotations

import inspect
import logging
import warnings
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

import tensorflow as tf
from mistakes import Gallery

import stopgrad.tensorflow as sgtf

HEAD = """# Mistakes in TensorFlow and Keras, and what the reports say of them

{count} small programs in TensorFlow and Keras, each with a mistake that people reported, what
`stopgrad.tensorflow` says of it, and the cure. They are the files of {files};
`tests/interop/tensorflow/live/test_mistakes.py` runs each and checks that the line marked `# <- here` is the
one that is named, that nothing is said against the cured program, and that a gradient is said to arrive where
TensorFlow gives one. The page is written from them by `python tests/helpers/tensorflow_mistakes.py`. Each is
asked about the gradient that it takes:

```python
with sgtf.watch() as seen:
    broken(*example())
print(seen.gradient_calls[-1].explain())
```

Where a program returns a loss and what is to learn, these are asked about: `seen.explain(loss, xs)`.
"""


class Asked:
    """A program that ran under a watch.

    Attributes:
        flow: the report on it.
        given: by the names of the sources of its gradient calls, whether TensorFlow gave a gradient.
        reports: the report on each of its gradient calls.
    """

    def __init__(self, program: Callable[..., Any], args: Sequence[Any]) -> None:
        with sgtf.watch() as seen:
            made = called(program, args)
        asked = isinstance(made, tuple)
        self.flow = seen.explain(*made) if asked else seen.gradient_calls[-1].explain()
        self.given = [call.given for call in seen.gradient_calls]
        self.reports = [call.explain() for call in seen.gradient_calls]


def called(program: Callable[..., Any], args: Sequence[Any]) -> Any:
    """What a program returns, without what it says."""
    log = logging.getLogger("tensorflow")
    level, log.level = log.level, logging.ERROR
    try:
        with warnings.catch_warnings(action="ignore"), redirect_stdout(StringIO()):
            return program(*args)
    finally:
        log.level = level


def asked(program: Callable[..., Any], args: Sequence[Any]) -> Asked:
    """A program that ran: each is run once."""
    code = inspect.unwrap(program).__code__
    key = code.co_filename, code.co_name
    if key not in _ASKED:
        tf.random.set_seed(0)
        _ASKED[key] = Asked(program, args)
    return _ASKED[key]


_ASKED: dict[tuple[str, str], Asked] = {}


def block(program: Callable[..., Any], args: Sequence[Any], held: Sequence[str]) -> None:
    with sgtf.watch():
        loss, variables = called(program, args)
    sgtf.assert_blocked(loss, [variable for variable in variables if variable.path in held])


TENSORFLOW = Gallery(
    name="tensorflow_mistakes",
    head=HEAD,
    explain=lambda program, args: asked(program, args).flow,
    block=block,
    explained="seen.gradient_calls[-1].explain()",
    blocked="sgtf.assert_blocked(loss, {held})",
    symptoms=("none", "inert", "leak"),
)

if __name__ == "__main__":
    TENSORFLOW.write()

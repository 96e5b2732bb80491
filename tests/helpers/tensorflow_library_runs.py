"""Runs the losses of TensorFlow's libraries without and with a watch, and says where the watch is wrong.

python tests/helpers/tensorflow_library_runs.py             # the table of docs/verdicts.md, and what is wrong
python tests/helpers/tensorflow_library_runs.py gpflow      # some
"""

from __future__ import annotations

import importlib.metadata
import os
import random
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from library_checks import Findings


class Run:
    """A loss that was computed and differentiated, and a step of training.

    Attributes:
        values: of the loss, the gradients, and the variables after the step.
        time: the processor time that it took.
        given: for each gradient that was asked for, by source, whether the tape gave one.
        flows: the reports, by source; none without a watch.
        corrected: the sources for which a report had to follow what the tape gave.
    """

    def __init__(self, build: Callable[[], Any], watched: bool) -> None:
        self._seeded()
        case = build()
        self._seeded()
        self.given: list[Mapping[str, bool | None]] = []
        self.flows: list[Any] = []
        self.corrected: list[str] = []
        seen = sgtf.watch()
        begun = time.process_time()
        if watched:
            with seen:
                self.values = self._trained(case)
        else:
            self.values = self._trained(case)
        self.time = time.process_time() - begun
        if watched:
            for call in seen.gradient_calls:
                self.given.append(call.given)
                self.flows.append(call.explain())

    def _seeded(self) -> None:
        random.seed(0)
        np.random.seed(0)
        tf.random.set_seed(0)
        keras = sys.modules.get("keras")
        if keras is not None:
            keras.utils.set_random_seed(0)

    def _trained(self, case: Any) -> dict[str, Any]:
        values: dict[str, Any] = {}
        if case.loss is None:
            case.step()
        else:
            with tf.GradientTape() as tape:
                loss = case.loss()
            variables = case.variables()
            gradients = tape.gradient(loss, variables)
            values["loss"] = np.asarray(loss)
            for i, (v, g) in enumerate(zip(variables, gradients, strict=True)):
                if g is not None:
                    values[f"gradient {i}"] = np.asarray(tf.convert_to_tensor(g))
                    v.assign(v - 0.01 * tf.convert_to_tensor(g))
        for i, v in enumerate(case.variables()):
            values[f"variable {i}"] = np.asarray(tf.convert_to_tensor(v))
        return values


def examined(build: Callable[[], Any]) -> tuple[Findings, float]:
    """What is wrong of a loss; and the time with a watch over that without.

    Raises:
        Exception: whatever the library raises.
    """
    Run(build, False)  # What is done once only.
    plain = Run(build, False)
    differ, corrected = watching._wrong, []

    def noted(*args: Any) -> list[str]:
        wrong = differ(*args)
        corrected.extend(wrong)
        return wrong

    watching._wrong = noted
    try:
        watched = Run(build, True)
    finally:
        watching._wrong = differ
    found = Findings()
    found.verdicts += [f"{name}: only the tape knew" for name in corrected]
    for flow, given in zip(watched.flows, watched.given, strict=True):
        for name, some in given.items():
            found.parameters += 1
            held = any(cut.reason == NOT_TRAINED for cut in flow[name].cuts)
            if some is not None and flow[name].arrives is not some and not held:
                found.verdicts.append(f"{name}: {flow[name].status}, and the tape gives {some}")
        found.lines += [x.message for x in flow.findings if x.kind == "not followed"]
    if not watched.flows:
        found.verdicts.append("no gradient was seen")
    if plain.values.keys() != watched.values.keys():
        found.changed.append("other values are there")
    for name, x in plain.values.items():
        if x.tobytes() != watched.values[name].tobytes():
            found.changed.append(f"{name} is another number with a watch")
    return found, watched.time / max(plain.time, 1e-6)


def row(package: str) -> None:
    """Print the row of a library, and on the error stream what is wrong."""
    names, results = [], []
    for name, entry in tensorflow_libraries.CASES.items():
        if entry.package == package:
            names.append(name.replace("_", " "))
            results.append(examined(entry.build))
            for text in results[-1][0].all:
                print(f"{package}, {names[-1]}: {text}", file=sys.stderr)
    version = importlib.metadata.version(package)
    wrong = sum(len(found.verdicts) for found, _ in results)
    count = sum(found.parameters for found, _ in results)
    ratio = statistics.median([ratio for _, ratio in results])
    print(f"| {package} | {version} | {', '.join(names)} | {count} | {wrong} | {ratio:.1f} |", flush=True)


def main(wanted: Sequence[str]) -> None:
    packages = sorted({entry.package for entry in tensorflow_libraries.CASES.values()})
    for package in wanted or packages:
        legacy = str(int(package in tensorflow_libraries.KERAS_2))
        environment = {**os.environ, "TF_USE_LEGACY_KERAS": legacy, "TF_CPP_MIN_LOG_LEVEL": "3"}
        environment |= {"KERAS_BACKEND": "tensorflow", "DDE_BACKEND": "tensorflow"}
        subprocess.run([sys.executable, __file__, "--one", package], env=environment, check=False)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    import tensorflow as tf
    import tensorflow_libraries

    import stopgrad.tensorflow as sgtf
    from stopgrad.interop.tensorflow import watching
    from stopgrad.interop.tensorflow.recording.graphs import NOT_TRAINED

    if sys.argv[1:2] == ["--one"]:
        row(sys.argv[2])
    else:
        main(sys.argv[1:])

"""The three graphs of TensorFlow's page on StopGradient, written by TensorFlow, looked at without it.

    softmax:          exp(x) / Σ exp(x)
    stable softmax:   the same of x - max x
    stopped softmax:  the same of x - sg(max x)

All three are one function, and so are their gradients. The second overflows nowhere, but its gradient has a
path more, through the maximum, whose contributions add up to nothing; the third cuts that path. `explain`
says so of the files, and counting the operations of the gradients shows what the path costs.

`python -m tests.helpers.tensorflow_graphs` writes the files, where TensorFlow is installed.
"""

from pathlib import Path

import numpy as np

import stopgrad as sg
import stopgrad.tensorflow as sgtf

GRAPHS = ("softmax", "stable_softmax", "stopped_softmax")


def load(name):
    return sgtf.load(Path(__file__).with_name(f"{name}.pb"))


def gradient(model, x, g):
    """The gradient for the cotangent g, and how many operations were generated for it."""
    with sg.Graph().as_default() as graph:
        place = sg.placeholder(sg.float32, x.shape)
        y = model(place)
        before = len(graph)
        (dx,) = sg.gradients(y, [place], g)
        count = len(graph) - before
    return sg.Session(graph, engine="numpy").run(dx, {place: x}), count


def main():
    x = np.array([[1.0, 2.0, 4.0, 3.0], [500.0, 501.0, 499.0, 498.0]], np.float32)
    g = np.array([[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]], np.float32)
    for name in GRAPHS:
        model = load(name)
        (place,) = model.inputs.values()
        (output,) = model.outputs.values()
        with np.errstate(over="ignore", invalid="ignore"):  # exp(500) is infinite.
            dx, count = gradient(model, x, g)
        status = sg.explain(output, [place])[place].status
        print(f"{name}: {status}; {count} operations of gradient; {np.isfinite(dx).all(1)} are finite")


if __name__ == "__main__":
    main()

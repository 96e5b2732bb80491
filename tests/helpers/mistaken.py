"""Programs with ordinary mistakes, with the line and the words that a reader of the error needs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mistake:
    """A program.

    Attributes:
        source: its text.
        line: the user's line, which the traceback shows.
        cure: what the message says.
    """

    source: str
    line: str
    cure: str


MISTAKES = {
    "wrong shapes in a layer, in a function, in a gradient": Mistake(
        """import numpy as np
import stopgrad as sg

def dense(w, x):
    return sg.tanh(x @ w)

def model(params, x):
    for w in params:
        x = dense(w, x)
    return x

def loss(params, x):
    return sg.reduce_sum(model(params, x) ** 2)

@sg.function
def step(params, x):
    return sg.grad(loss)(params, x)

def main():
    step([np.ones((4, 3)), np.ones((4, 3))], np.ones((2, 4)))

main()
""",
        "sg.tanh(x @ w)",
        "the inner sizes 3 and 4 differ",
    ),
    "a condition on a value while tracing": Mistake(
        """import numpy as np
import stopgrad as sg

def activation(x):
    if x > 0:
        return x
    return 0.1 * x

@sg.function
def f(x):
    return activation(x)

f(np.float32(2.0))
""",
        "if x > 0:",
        "use sg.cond(condition, true_function, false_function, *operands)",
    ),
    "a placeholder that is not fed": Mistake(
        """import stopgrad as sg

with sg.Graph().as_default() as graph:
    x = sg.placeholder(sg.float32, [3], name="x")
    y = x * 2.0
with sg.Session(graph) as session:
    session.run(y)
""",
        "session.run(y)",
        "add it to feed_dict",
    ),
    "a wrong custom gradient": Mistake(
        """import numpy as np
import stopgrad as sg

@sg.custom_gradient
def cube(x):
    def grad(upstream):
        return 2.0 * x**2 * upstream
    return x**3, grad

def loss(x):
    return sg.reduce_sum(cube(x))

sg.check_gradients(loss, np.ones(3), raises=True)
""",
        "return 2.0 * x**2 * upstream",
        "generated 2, numeric 3 at [0]",
    ),
    "arguments that a function does not take": Mistake(
        """import numpy as np
import stopgrad as sg

def loss(x):
    return sg.reduce_sum(sg.log(x - 1.0))

sg.trace_nan(loss, np.ones(3), raises=True)
""",
        "sg.trace_nan(loss, np.ones(3), raises=True)",
        "unexpected keyword argument 'raises'",
    ),
    "a gate with a wrong condition": Mistake(
        """import numpy as np
import stopgrad as sg

def loss(w, x):
    h = sg.stop_gradient(x @ w, when="evaluation")
    return sg.reduce_sum(h * h)

sg.grad(loss)(np.ones((3, 2)), np.ones((2, 3)))
""",
        'h = sg.stop_gradient(x @ w, when="evaluation")',
        "it holds text, not numbers",
    ),
    "the gradient of an integer": Mistake(
        """import numpy as np
import stopgrad as sg

def loss(n):
    return sg.reduce_sum(n * n)

sg.grad(loss)(np.arange(3))
""",
        "sg.grad(loss)(np.arange(3))",
        "pass a float, or convert with sg.cast",
    ),
    "a carry that grows": Mistake(
        """import numpy as np
import stopgrad as sg

def step(carry, x):
    carry = sg.concat([carry, x], 0)
    return carry, x

def f(xs):
    return sg.scan(step, np.zeros(2), xs)

sg.function(f)(np.ones((5, 2)))
""",
        "return sg.scan(step, np.zeros(2), xs)",
        "the carry must keep its shape",
    ),
    "gradients that do not flow": Mistake(
        """import numpy as np
import stopgrad as sg

def loss(w, x):
    return sg.reduce_sum(sg.stop_gradient(x @ w) ** 2)

sg.assert_flows(loss, np.ones((3, 2)), np.ones((2, 3)), to="w")
""",
        "sg.assert_flows(loss, ",
        "stop_gradient",
    ),
    "a file that does not exist": Mistake(
        """import stopgrad as sg

def restore(path):
    return sg.load(path)

restore("nowhere/weights.npz")
""",
        "return sg.load(path)",
        "there is no such file",
    ),
    "a misspelt name": Mistake(
        """import numpy as np
import stopgrad as sg

@sg.function
def f(x):
    return sg.reducesum(x)

f(np.ones(3))
""",
        "return sg.reducesum(x)",
        "did you mean sg.reduce_sum?",
    ),
    "an ONNX model with an unknown operator": Mistake(
        """import onnx
from onnx import TensorProto, helper
import stopgrad.onnx as sgo

node = helper.make_node("Frobnicate", ["x"], ["y"], domain="my.ops")
x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])
y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])
opsets = [helper.make_opsetid("", 20), helper.make_opsetid("my.ops", 1)]
onnx.save(helper.make_model(helper.make_graph([node], "g", [x], [y]), opset_imports=opsets), "model.onnx")
sgo.load("model.onnx")
""",
        'sgo.load("model.onnx")',
        "with a function that says what they compute",
    ),
    "wrong shapes in a PyTorch model": Mistake(
        """import torch
import stopgrad.torch as sgt

model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(4, 1))

def loss(model, x):
    return model(x).sum()

sgt.explain(loss, model, torch.ones(2, 4))
""",
        "return model(x).sum()",
        "shapes cannot be multiplied (2x3 and 4x1)",
    ),
}

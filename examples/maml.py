"""MAML and its first-order form: weights from which one step of descent learns a new task.

    loss(θ) = mean over tasks of L_test(θ′),    θ′ = θ - α ∇L_train(θ)        MAML
                                                θ′ = θ - α sg(∇L_train(θ))    first-order MAML

The outer gradient goes through the inner step, and so through a gradient: second derivatives. The first
order stops the inner gradient: θ′ is θ plus a given number, and no second derivative is generated at all.

Finn, Abbeel & Levine 2017, "Model-agnostic meta-learning for fast adaptation of deep networks" (arXiv
1703.03400), eq. 1, algorithm 1 and section 5.2; the tasks are those of section 5.1.
"""

import numpy as np

import stopgrad as sg

ALPHA, POINTS = 0.05, 10


def init(rng, hidden=40):
    sizes = {"W1": (1, hidden), "W2": (hidden, hidden), "W3": (hidden, 1)}
    params = {
        k: rng.standard_normal(s, np.float32) * np.sqrt(2.0 / np.float32(s[0])) for k, s in sizes.items()
    }
    return params | {"b1": np.zeros(hidden, np.float32), "b2": np.zeros(hidden, np.float32)}


def predict(params, x):
    h = sg.tanh(x @ params["W1"] + params["b1"])
    return sg.tanh(h @ params["W2"] + params["b2"]) @ params["W3"]


def error(params, x, y):
    return ((predict(params, x) - y) ** 2).mean()


def adapt(params, x, y, first_order=False):
    """The weights after one step on a task."""
    gradient = sg.grad(error)(params, x, y)
    if first_order:
        gradient = sg.stop_gradient(gradient)
    return {k: p - ALPHA * gradient[k] for k, p in params.items()}


def loss(params, tasks, first_order=False):
    """The error after adapting, over tasks: x_train, y_train, x_test, y_test [tasks, points, 1]."""

    def of_task(x_train, y_train, x_test, y_test):
        return error(adapt(params, x_train, y_train, first_order), x_test, y_test)

    return sg.vmap(of_task)(*tasks).mean()


def sinusoids(rng, count):
    """Tasks: a sine curve of some amplitude and phase, at points to learn from and at others."""
    amplitude, phase = rng.uniform(0.5, 2.0, (count, 1, 1)), rng.uniform(0.0, np.pi, (count, 1, 1))
    x = rng.uniform(-3.0, 3.0, (2, count, POINTS, 1))
    y = amplitude * np.sin(x - phase)
    return [a.astype(np.float32) for a in (x[0], y[0], x[1], y[1])]


def loss_example():
    rng = np.random.default_rng(0)
    return init(rng), sinusoids(rng, 4)


def train(steps=200, seed=0, engine="auto", first_order=False):
    """Adam on batches of tasks; the weights, and the losses on the way."""
    rng = np.random.default_rng(seed)
    params = init(rng)
    mean = square = {k: np.zeros_like(p) for k, p in params.items()}

    @sg.function(engine=engine)
    def step(params, mean, square, n, tasks):
        value, gradient = sg.value_and_grad(loss)(params, tasks, first_order)
        mean = {k: 0.9 * m + 0.1 * gradient[k] for k, m in mean.items()}
        square = {k: 0.999 * s + 0.001 * gradient[k] ** 2 for k, s in square.items()}
        rate = 3e-3 * sg.sqrt(1.0 - 0.999**n) / (1.0 - 0.9**n)
        params = {k: p - rate * mean[k] / (sg.sqrt(square[k]) + 1e-8) for k, p in params.items()}
        return params, mean, square, value

    losses = []
    for i in range(steps):
        params, mean, square, value = step(params, mean, square, np.float32(i + 1), sinusoids(rng, 25))
        losses.append(float(value))
    return params, losses


if __name__ == "__main__":
    unseen = sinusoids(np.random.default_rng(1), 500)
    for first_order in (False, True):
        params, _ = train(2000, first_order=first_order)
        before = np.mean((predict(params, unseen[2]) - unseen[3]) ** 2)
        after = loss(params, unseen)
        name = "first-order MAML" if first_order else "MAML            "
        print(f"{name}  error on new tasks before a step {before:.3f}, after it {after:.3f}")

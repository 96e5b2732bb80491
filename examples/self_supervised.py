"""Representations without labels: DINO and VICReg; and consistency models.

    DINO:         CE( sg(softmax((t - c) / τ_t)), softmax(s / τ_s) ),  teacher and centre c as moving averages
    VICReg:       λ ‖z - z'‖² + μ/d Σ_j max(0, 1 - std z_j) + ν/d Σ_{i≠j} cov(z)_ij²: no stop, nothing given
    consistency:  d( f_θ(x + t_{n+1} ε, t_{n+1}), sg(f_θ(x + t_n ε, t_n)) )

Three answers to one question: what keeps a network that is to say the same of two things from always saying
the same? A teacher that gives and does not take; a variance that must not vanish; or an end of the chain
where the answer is known (f(x, 0) = x), from which it is handed on, one stop at a time.

Caron et al. 2021 (arXiv 2104.14294), algorithm 1; Bardes et al. 2021 (arXiv 2105.04906), eq. 1 to 6; Song et
al. 2023, "Consistency models" (arXiv 2303.01469), eq. 10, with the target of Song and Dhariwal 2023 (arXiv
2310.14189).
"""

import numpy as np

import stopgrad as sg


def init(rng, inputs=8, hidden=32, outputs=6):
    return {
        "W1": rng.normal(size=(inputs, hidden)) / np.sqrt(inputs),
        "W2": rng.normal(size=(hidden, outputs)) / np.sqrt(hidden),
    }


def network(params, x):
    return sg.tanh(x @ params["W1"]) @ params["W2"]


# DINO


def dino_loss(student, teacher, centre, view1, view2, student_heat=0.1, teacher_heat=0.04):
    """The loss over both orders of the views, and the mean of what the teacher says, for the centre."""
    said = [network(student, v) for v in (view1, view2)]
    given = [network(teacher, v) for v in (view1, view2)]
    total = 0.0
    for t, s in ((given[0], said[1]), (given[1], said[0])):
        target = sg.stop_gradient(sg.softmax((t - centre) / teacher_heat))
        total = total - (target * sg.log_softmax(s / student_heat)).sum(axis=-1).mean() / 2.0
    return total, sg.stop_gradient(sg.concat(given, 0).mean(axis=0))


def dino_loss_example():
    rng = np.random.default_rng(0)
    return init(rng), init(rng), np.zeros(6), *views(rng, 8)


def vicreg_loss_example():
    rng = np.random.default_rng(0)
    return init(rng), *views(rng, 8)


def train_dino(steps=300, seed=0, centred=True, engine="auto"):
    """The student, and the entropies of its teacher's choices; without a centre it makes but one."""
    rng = np.random.default_rng(seed)
    student = init(rng)
    teacher, centre = dict(student), np.zeros(6)

    @sg.function(engine=engine)
    def step(student, teacher, centre, view1, view2):
        (_, mean), gradient = sg.value_and_grad(dino_loss, has_aux=True)(
            student, teacher, centre, view1, view2
        )
        student = {k: p - 0.05 * gradient[k] for k, p in student.items()}
        teacher = {k: 0.98 * p + 0.02 * student[k] for k, p in teacher.items()}
        if centred:
            centre = 0.9 * centre + 0.1 * mean
        chosen = sg.argmax(network(teacher, view1) - centre, axis=1)
        share = sg.one_hot(chosen, 6, dtype="float64").mean(axis=0)
        return student, teacher, centre, -sg.xlogy(share, share).sum()

    entropies = []
    for _ in range(steps):
        student, teacher, centre, entropy = step(student, teacher, centre, *views(rng))
        entropies.append(float(entropy))
    return student, entropies


def views(rng, count=64, noise=0.5):
    """Two noisy sights of each thing."""
    things = 1.0 + rng.normal(size=(count, 8))
    return [things + noise * rng.normal(size=(count, 8)) for _ in range(2)]


# VICReg


def vicreg_loss(params, view1, view2, likeness=25.0, spread=25.0, apart=1.0):
    a, b = network(params, view1), network(params, view2)
    total = likeness * ((a - b) ** 2).sum(axis=1).mean()
    for z in (a, b):
        z = z - z.mean(axis=0)
        deviation = sg.sqrt((z**2).sum(axis=0) / (len(z) - 1) + 1e-4)
        covariance = z.T @ z / (len(z) - 1)
        total = total + spread * sg.relu(1.0 - deviation).mean()
        beside = (covariance**2).sum() - (sg.diag_part(covariance) ** 2).sum()
        total = total + apart * beside / z.shape[1]
    return total


def train_vicreg(steps=200, seed=0, spread=25.0, engine="auto"):
    """The parameters and the losses on the way. Where spread weighs nothing, all goes to one point."""
    rng = np.random.default_rng(seed)
    params = init(rng)

    @sg.function(engine=engine)
    def step(params, view1, view2):
        value, gradient = sg.value_and_grad(vicreg_loss)(params, view1, view2, spread=spread)
        return {k: p - 0.01 * gradient[k] for k, p in params.items()}, value

    losses = []
    for _ in range(steps):
        params, value = step(params, *views(rng, noise=0.1))
        losses.append(float(value))
    return params, losses


# Consistency models

TIMES = np.linspace(0.0, 2.0, 9)


def denoised(params, x, t):
    """f(x, t) of points [count, 2]: x itself where t = 0."""
    skip = 1.0 / (1.0 + t**2)
    features = sg.concat([x * sg.sqrt(skip), sg.sqrt(skip), t], axis=1)
    return skip * x + t * sg.sqrt(skip) * network(params, features)


def consistency_loss(params, x, noise, n):
    """For points x [count, 2], their noise, and numbers n [count] of steps on the way from data to noise."""
    near, far = (sg.cast(sg.gather(TIMES, k), x.dtype)[:, None] for k in (n, n + 1))
    target = sg.stop_gradient(denoised(params, x + near * noise, near))
    return ((denoised(params, x + far * noise, far) - target) ** 2).sum(axis=1).mean()


def train_consistency(steps=500, seed=0, engine="auto"):
    """Adam: the parameters and the losses on the way."""
    rng = np.random.default_rng(seed)
    params = init(rng, 4, 64, 2)
    mean = square = {k: np.zeros_like(p) for k, p in params.items()}

    @sg.function(engine=engine)
    def step(params, mean, square, t, x, noise, n):
        value, gradient = sg.value_and_grad(consistency_loss)(params, x, noise, n)
        mean = {k: 0.9 * m + 0.1 * gradient[k] for k, m in mean.items()}
        square = {k: 0.99 * v + 0.01 * gradient[k] ** 2 for k, v in square.items()}
        rate = 0.01 * sg.sqrt(1.0 - 0.99**t) / (1.0 - 0.9**t)
        params = {k: p - rate * mean[k] / (sg.sqrt(square[k]) + 1e-8) for k, p in params.items()}
        return params, mean, square, value

    losses = []
    for t in range(1, steps + 1):
        x, noise = circle(rng, 256), rng.normal(size=(256, 2))
        n = rng.integers(len(TIMES) - 1, size=256)
        params, mean, square, value = step(params, mean, square, np.float64(t), x, noise, n)
        losses.append(float(value))
    return params, losses


def circle(rng, count):
    angle = rng.uniform(0.0, 2.0 * np.pi, size=count)
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)


def off_circle(params, count=1000):
    """How far, on average, points lie from the circle that are made of noise in one step."""
    start = 2.0 * np.random.default_rng(1).normal(size=(count, 2))
    made = denoised(params, start, np.full((count, 1), TIMES[-1]))
    return np.abs(np.linalg.norm(made, axis=1) - 1.0).mean()


if __name__ == "__main__":
    for name, centred in (("centred", True), ("not centred", False)):
        _, entropies = train_dino(1000, centred=centred)
        print(f"DINO, {name}: entropy of the choices {entropies[0]:.2f} -> {np.mean(entropies[-20:]):.2f}")
    for spread in (25.0, 0.0):
        params, losses = train_vicreg(1000, spread=spread)
        spread_out = network(params, views(np.random.default_rng(1), 1000)[0]).std()
        print(
            f"VICReg, spread {spread}: loss {losses[0]:.2f} -> {losses[-1]:.2f}, deviation {spread_out:.2f}"
        )
    params, _ = train_consistency(2000)
    before = off_circle(init(np.random.default_rng(0), 4, 64, 2))
    print(f"consistency: off the circle {before:.2f} -> {off_circle(params):.2f}")

"""A loop of training that survives: killed at any moment and started again, it goes on where it was.

    python train.py run                       # on all devices of this machine; kill -9 it, start it again
    stopgrad launch -n 4 train.py run         # in four processes

The parameters, the optimiser's state, the key of the dropout and the position in the data come back, so that
the losses are those of a run that was never killed, bit for bit.
"""

import sys

import numpy as np
from rich.progress import Progress

import stopgrad as sg

WIDTH, BATCH, STEPS, EVERY = 64, 64, 400, 25


def examples(count=4096):
    x = np.random.default_rng(0).uniform(-1, 1, (count, 8)).astype(np.float32)
    return {"x": x, "y": np.sin(3 * x[:, 0]) + x[:, 1] * x[:, 2]}


def model():
    """What is fed, the loss, and the operations that make one step."""
    x = sg.placeholder(sg.float32, [BATCH, 8], name="x", sharding=("data", None))
    y = sg.placeholder(sg.float32, [BATCH], name="y", sharding=("data",))
    key = sg.parameter(np.array([0, 1], np.uint32), name="key")
    r, hidden, params = np.random.default_rng(0), x, []
    for i, (rows, columns) in enumerate([(8, WIDTH), (WIDTH, WIDTH), (WIDTH, 1)]):
        w = sg.parameter(r.normal(0, rows**-0.5, (rows, columns)).astype(np.float32), name=f"layer_{i}/w")
        hidden = sg.dropout(sg.tanh(hidden), 0.02, key=sg.random_fold_in(key, i)) @ w if i else hidden @ w
        params.append(w)
    loss = sg.reduce_mean(sg.square(hidden[:, 0] - y))
    update = sg.optimizers.adamw(loss, params, learning_rate=sg.optimizers.cosine(5e-3, STEPS))
    return {"x": x, "y": y}, loss, [update.run, sg.assign(key, sg.random_fold_in(key, 99))]


def train(folder, steps=STEPS):
    with sg.Mesh(data=-1), sg.Graph().as_default():
        fed, loss, step = model()
        batches, losses = sg.data.batches(examples(), BATCH, key=1), {}
        with (
            sg.Session() as session,
            sg.Checkpoints(folder, session, data=batches) as checkpoints,
            Progress(disable=sg.distributed.process_index() > 0) as progress,
        ):
            start = checkpoints.restore() or 0
            bar = progress.add_task("training", total=steps, completed=start)
            for i in range(start, steps):
                batch = next(batches)
                losses[i] = float(session.run([loss, step], {fed[name]: batch[name] for name in fed})[0])
                progress.update(bar, advance=1, description=f"loss {losses[i]:.4f}")
                if (i + 1) % EVERY == 0 or i + 1 == steps:
                    checkpoints.save(i + 1)
    return losses


if __name__ == "__main__":
    sg.distributed.initialize()
    losses = train(sys.argv[1])
    if losses and sg.distributed.process_index() == 0:
        first, last = min(losses), max(losses)
        print(f"step {first}: loss {losses[first]:.3f}; step {last}: loss {losses[last]:.4f}")

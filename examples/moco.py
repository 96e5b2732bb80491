"""MoCo: contrast with a queue of keys that a slowly following encoder has made.

    loss = -log exp(q·k₊/τ) / (exp(q·k₊/τ) + Σᵢ exp(q·kᵢ/τ)),    q = f_q(view₁),    k₊ = sg(f_k(view₂))

The keys kᵢ come from earlier batches and wait in a queue; the key encoder follows the query encoder as a
moving average. Keys are data to the loss: the positive one is stopped, those in the queue come from
elsewhere. If they were learnt too, the queue's keys would be the answers of a network that is gone.

He et al. 2020, "Momentum contrast for unsupervised visual representation learning" (arXiv 1911.05722),
eq. 1, 2 and algorithm 1.
"""

import numpy as np

import stopgrad as sg

TEMPERATURE, MOMENTUM, QUEUE, BATCH = 0.2, 0.99, 512, 64


def init(rng, inputs=16, hidden=64, points=8):
    sizes = {"W1": (inputs, hidden), "W2": (hidden, points)}
    return {k: rng.standard_normal(s, np.float32) / np.sqrt(np.float32(s[0])) for k, s in sizes.items()}


def encode(params, x):
    return sg.l2_normalize(sg.relu(x @ params["W1"]) @ params["W2"], axis=-1)


def loss(query_params, key_params, queue, view1, view2):
    """The loss, and the new keys."""
    q = encode(query_params, view1)
    k = sg.stop_gradient(encode(key_params, view2))
    positive = (q * k).sum(axis=-1, keepdims=True)
    negative = q @ queue.T
    logits = sg.concat([positive, negative], axis=1) / TEMPERATURE
    labels = sg.zeros([len(logits)], sg.int32)  # The positive key is the first.
    return sg.sparse_softmax_cross_entropy_with_logits(labels, logits).mean(), k


def enqueue(queue, keys, pointer):
    """The queue with its oldest keys replaced, and where the oldest are now."""
    places = (pointer + np.arange(len(keys))) % len(queue)
    return queue.at[places].set(keys), (pointer + len(keys)) % len(queue)


def views(rng, count, dimensions=16, hidden=4):
    """Two views of the same points of a flat sheet, each with its own noise beside the sheet."""
    sheet = np.random.default_rng(99).normal(size=(hidden, dimensions))
    inside = rng.normal(size=(count, hidden)) @ sheet
    return [(inside + 0.3 * rng.normal(size=inside.shape)).astype(np.float32) for _ in range(2)]


def loss_example():
    rng = np.random.default_rng(0)
    queue = np.asarray(encode(init(rng), rng.standard_normal((QUEUE, 16), np.float32)))
    return init(rng), init(rng), queue, *views(rng, 16)


def train(steps=300, seed=0, engine="auto"):
    """Gradient descent on the query encoder: both encoders, and the losses on the way."""
    rng = np.random.default_rng(seed)
    query_params = init(rng)
    key_params = dict(query_params)
    queue, pointer = np.asarray(encode(init(rng), rng.standard_normal((QUEUE, 16), np.float32))), np.int32(0)

    @sg.function(engine=engine)
    def step(query_params, key_params, queue, pointer, view1, view2):
        contrast = sg.value_and_grad(loss, has_aux=True)
        (value, keys), gradient = contrast(query_params, key_params, queue, view1, view2)
        query_params = {k: p - 0.1 * gradient[k] for k, p in query_params.items()}
        key_params = {k: MOMENTUM * p + (1.0 - MOMENTUM) * query_params[k] for k, p in key_params.items()}
        return query_params, key_params, *enqueue(queue, keys, pointer), value

    losses = []
    for _ in range(steps):
        query_params, key_params, queue, pointer, value = step(
            query_params, key_params, queue, pointer, *views(rng, BATCH)
        )
        losses.append(float(value))
    return query_params, key_params, losses


def found(params, seed=1):
    """How often a view's nearest point among 500 others' is the other view of the same thing."""
    view1, view2 = views(np.random.default_rng(seed), 500)
    likeness = encode(params, view1) @ encode(params, view2).T
    return float((likeness.argmax(axis=1) == np.arange(500)).mean())


if __name__ == "__main__":
    untrained = init(np.random.default_rng(0))
    params, _, losses = train(2000)
    print(f"loss {np.mean(losses[QUEUE // BATCH : 20]):.3f} -> {np.mean(losses[-20:]):.3f}")
    print(f"the other view found among 500, untrained: {found(untrained):.1%}, trained: {found(params):.1%}")

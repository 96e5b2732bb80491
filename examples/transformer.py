"""A small causal transformer: trained with dropout, its embedding tied, and asked to go on from a beginning.

    x ← x + drop(attention(norm(x)));  x ← x + drop(mlp(norm(x)));  logits = norm(x) Eᵀ

The embedding E is used twice, to read and to say. With ``tied="read"`` or ``tied="say"`` a stop leaves it to
learn from one of the two uses only.

Vaswani et al. 2017 (arXiv 1706.03762); pre-norm as in Xiong et al. 2020 (arXiv 2002.04745); Press and Wolf
2017, "Using the output embedding to improve language models" (arXiv 1608.05859).
"""

import numpy as np

import stopgrad as sg

HEADS = 4
TEXT = "the cat sat on the mat. the dog sat on the log. the cat saw the dog. the dog saw the cat. "
LETTERS = sorted(set(TEXT))


def init(rng, letters=None, width=32, layers=2, length=64):
    letters = len(LETTERS) if letters is None else letters

    def matrix(rows, columns):
        return (rng.normal(size=(rows, columns)) / np.sqrt(rows)).astype(np.float32)

    layer = lambda: {
        "qkv": matrix(width, 3 * width),
        "out": matrix(width, width),
        "up": matrix(width, 4 * width),
        "down": matrix(4 * width, width),
    }
    return {
        "embedding": matrix(letters, width) * np.float32(np.sqrt(letters / width)),
        "places": 0.1 * matrix(length, width),
        "layers": [layer() for _ in range(layers)],
    }


def norm(x):
    return (x - x.mean(axis=-1, keepdims=True)) / sg.sqrt(x.var(axis=-1, keepdims=True) + 1e-5)


def attention(layer, x):
    batch, length, width = x.shape
    heads = (x @ layer["qkv"]).reshape(batch, length, 3, HEADS, width // HEADS)
    q, k, v = sg.unstack(sg.transpose(heads, [2, 0, 3, 1, 4]))
    found = sg.scaled_dot_product_attention(q, k, v, is_causal=True)
    return sg.transpose(found, [0, 2, 1, 3]).reshape(batch, length, width) @ layer["out"]


def logits(params, tokens, key=None, rate=0.1, tied="both"):
    """What comes next after each of tokens [batch, length]. With a key, some is dropped."""
    embedding = params["embedding"]
    x = sg.stop_gradient(embedding, when=tied == "say")[tokens] + params["places"][: tokens.shape[1]]
    for i, layer in enumerate(params["layers"]):
        for j, part in enumerate((attention, lambda layer, x: sg.gelu(x @ layer["up"]) @ layer["down"])):
            made = part(layer, norm(x))
            x = x + (made if key is None else sg.dropout(made, rate, key=sg.random_fold_in(key, 2 * i + j)))
    return norm(x) @ sg.stop_gradient(embedding, when=tied == "read").T


def loss(params, tokens, key=None, tied="both"):
    said = logits(params, tokens[:, :-1], key, tied=tied)
    return sg.sparse_softmax_cross_entropy_with_logits(tokens[:, 1:], said).mean()


def data(rng, count=16, length=32):
    text = np.array([LETTERS.index(c) for c in TEXT * 2], np.int32)
    starts = rng.integers(len(TEXT), size=count)
    return np.stack([text[s : s + length + 1] for s in starts])


def loss_example():
    rng = np.random.default_rng(0)
    return init(rng, length=8), data(rng, 2, 8)


def train(steps=60, seed=0, engine="auto"):
    """Adam: the parameters and the losses on the way."""
    rng = np.random.default_rng(seed)
    params = init(rng)
    zeros = sg.map_structure(np.zeros_like, params)
    state = {"params": params, "mean": zeros, "square": zeros}

    @sg.function(engine=engine)
    def step(state, t, tokens, key):
        value, gradient = sg.value_and_grad(loss)(state["params"], tokens, key)
        mean = sg.map_structure(lambda m, g: 0.9 * m + 0.1 * g, state["mean"], gradient)
        square = sg.map_structure(lambda v, g: 0.99 * v + 0.01 * g**2, state["square"], gradient)
        rate = 0.01 * sg.sqrt(1.0 - 0.99**t) / (1.0 - 0.9**t)
        moved = sg.map_structure(
            lambda p, m, v: p - rate * m / (sg.sqrt(v) + 1e-8), state["params"], mean, square
        )
        return {"params": moved, "mean": mean, "square": square}, value

    key = sg.random_key(seed)
    losses = []
    for t in range(1, steps + 1):
        state, value = step(state, np.float32(t), data(rng), sg.random_fold_in(key, t))
        losses.append(float(value))
    return state["params"], losses


def continued(params, beginning, count=40, engine="auto"):
    """The likeliest letter, again and again: a loop over a buffer of fixed length, compiled once."""
    tokens = np.zeros((1, len(beginning) + count), np.int32)
    tokens[0, : len(beginning)] = [LETTERS.index(c) for c in beginning]

    @sg.function(engine=engine)
    def write(params, tokens):
        def one(i, tokens):
            return tokens.at[:, i].set(
                sg.argmax(logits(params, tokens)[:, i - 1], axis=-1, output_type="int32")
            )

        return sg.fori_loop(len(beginning), tokens.shape[1], one, tokens)

    return "".join(LETTERS[i] for i in write(params, tokens)[0])


if __name__ == "__main__":
    params, losses = train(400)
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}")
    print(repr(continued(params, "the dog ")))

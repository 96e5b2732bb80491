"""Beam search through a recurrent network with an embedding: many sentences at once, one loop, compiled once.

    score(y₁ … y_t) = Σ log p(y_s | y_<s); of all continuations of the beams, the best few are kept

The network is trained on its own text (teacher forcing) and then searched. Nothing is learnt through the
search: it only chooses, and the whole of it stands in a ``no_gradient`` block, so that a loss which uses what
was found (as in sequence-level training) gets the gradient of the score of that sentence, and none of the
search for it.

Sutskever et al. 2014, "Sequence to sequence learning" (arXiv 1409.3215); Wiseman and Rush 2016,
"Sequence-to-sequence learning as beam-search optimization" (arXiv 1606.02960).
"""

import numpy as np

import stopgrad as sg

START, END = 0, 1


def init(rng, words=8, width=16):
    return {
        "embedding": rng.normal(size=(words, width)),
        "W": rng.normal(size=(2 * width, width)) / np.sqrt(2 * width),
        "out": rng.normal(size=(width, words)) / np.sqrt(width),
    }


def following(params, h, word):
    """The state after a word, and the log probabilities of the next: [..., width] and [..., words]."""
    h = sg.tanh(sg.concat([sg.embedding_lookup(params["embedding"], word), h], axis=-1) @ params["W"])
    return h, sg.log_softmax(h @ params["out"])


def log_probability(params, sentences):
    """Of sentences [count, length], which begin after START; what follows END counts for nothing."""

    def step(carry, word):
        h, before, ended = carry
        h, log_p = following(params, h, before)
        said = sg.where(ended, 0.0, sg.take_along_axis(log_p, word[:, None], axis=1)[:, 0])
        return (h, word, ended | (word == END)), said

    count = sentences.shape[0]
    h = sg.zeros([count, params["W"].shape[1]], params["W"].dtype)
    first = (h, sg.fill([count], np.int32(START)), sg.zeros([count], sg.bool))
    return sg.scan(step, first, sentences.T)[1].sum(axis=0)


def beam_search(params, beams=3, length=6):
    """The best sentences [beams, length] that the search finds, and their scores."""
    with sg.no_gradient():
        words, width = params["embedding"].shape
        h = np.zeros((beams, width))
        scores = np.where(np.arange(beams) == 0, 0.0, -np.inf)  # All beams begin alike; one is enough.
        first = (h, scores, np.full(beams, START, np.int32), np.zeros((beams, length), np.int32))
        # A sentence that has ended is continued by END, for nothing.
        pause = np.where(np.arange(words) == END, 0.0, -np.inf)

        def step(t, carry):
            h, scores, before, sentences = carry
            h, log_p = following(params, h, before)
            log_p = sg.where((before == END)[:, None], pause, log_p)
            scores, best = sg.top_k((scores[:, None] + log_p).reshape(-1), beams)
            beam, word = best // words, best % words
            return h[beam], scores, word, sentences[beam].at[:, t].set(word)

        _, scores, _, sentences = sg.fori_loop(0, length, step, first)
        return sentences, scores


def loss(params, sentences):
    return -log_probability(params, sentences).mean()


def data(rng, count=64, length=6):
    """Sentences of a small grammar: words go up by one or two until they are beyond the last."""
    sentences = np.full((count, length), END, np.int32)
    for row in sentences:
        word = 2
        for t in range(length):
            row[t] = word
            word += rng.choice([1, 2], p=[0.7, 0.3])
            if word > 7:
                break
    return sentences


def loss_example():
    rng = np.random.default_rng(0)
    return init(rng), data(rng, 8)


def train(steps=80, seed=0, engine="auto"):
    """Gradient descent: the parameters and the losses on the way."""
    rng = np.random.default_rng(seed)
    params = init(rng)

    @sg.function(engine=engine)
    def step(params, sentences):
        value, gradient = sg.value_and_grad(loss)(params, sentences)
        return {k: p - 0.2 * gradient[k] for k, p in params.items()}, value

    losses = []
    for _ in range(steps):
        params, value = step(params, data(rng))
        losses.append(float(value))
    return params, losses


if __name__ == "__main__":
    params, losses = train(1000)
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}")
    sentences, scores = sg.function(beam_search)(params)
    for sentence, score in zip(sentences, scores, strict=True):
        print(f"{np.exp(score):.3f}", sentence)

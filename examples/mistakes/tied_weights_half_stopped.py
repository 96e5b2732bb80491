"""A tied embedding of which only one use learns.

Symptom: inert
Seen in: tied input and output embeddings (Press & Wolf 2017, arXiv 1608.05859), where a stop was put at one
use. "Partly stopped" is the whole story: some paths are cut, and the gradient that arrives looks healthy.

Whether that is a mistake only the author knows; the report says where it was decided.
"""

import numpy as np

import stopgrad as sg

LEARNS = ("embedding", "w")


def broken(embedding, w, words, following):
    features = sg.tanh(embedding[words] @ w)
    logits = features @ sg.stop_gradient(embedding).T  # <- here
    return sg.sparse_softmax_cross_entropy_with_logits(following, logits).mean()


def cured(embedding, w, words, following):
    features = sg.tanh(embedding[words] @ w)
    logits = features @ embedding.T
    return sg.sparse_softmax_cross_entropy_with_logits(following, logits).mean()


def example():
    rng = np.random.default_rng(0)
    return (
        rng.normal(size=(4, 2)),
        rng.normal(size=(2, 2)),
        np.array([0, 1, 2, 3, 1]),
        np.array([1, 2, 3, 0, 2]),
    )

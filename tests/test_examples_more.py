"""Of the second half of the example programs: that they reach their aims, and what holds of them exactly.

Their losses and gradients are compared with JAX in test_examples.py.
"""

from __future__ import annotations


import numpy as np
import pytest

import stopgrad as sg
from examples_references import example

pytest.importorskip("jax")


# --------------------------------------------------------------------------------------------- training


def lora() -> None:
    lora = example("lora")
    before = lora.init(np.random.default_rng(0))
    params, losses = lora.train(150, engine="xla")
    assert losses[-1] < 0.1 * losses[0]
    np.testing.assert_array_equal(params["W"], before["W"])
    x = np.random.default_rng(1).normal(size=(5, 20))
    np.testing.assert_allclose(x @ lora.merged(params), lora.adapted(params, x), atol=1e-12)


def quantisation() -> None:
    quantisation = example("quantisation")
    params, losses = quantisation.train(600, engine="xla")
    assert losses[-1] < 0.7 * losses[0]
    x, y = quantisation.data(np.random.default_rng(1))
    assert ((quantisation.network(params, x) > 0) == (y > 0)).mean() > 0.72
    for name in ("W1", "W2"):
        step = params[name.replace("W", "step")]
        levels = quantisation.lsq(params[name], step) / step
        np.testing.assert_allclose(levels, np.round(levels), atol=1e-9)
        assert levels.min() >= -8
        assert levels.max() <= 7


def classification_losses() -> None:
    """The focal loss finds more of the rarest class than label smoothing does."""
    losses = example("classification_losses")
    x, labels = losses.data(np.random.default_rng(1), 4000)
    found = {}
    for loss in (losses.smoothed, losses.focal):
        params, values = losses.train(loss, 100, engine="xla")
        right = (x @ params["W"] + params["b"]).argmax(axis=1) == labels
        assert values[-1] < 0.6 * values[0]
        assert right.mean() > 0.9
        found[loss] = right[labels == 3].mean()
    assert found[losses.focal] > found[losses.smoothed] + 0.15


def truncated_bptt() -> None:
    """Windows longer than the delay learn to remember so long; shorter ones learn much less."""
    bptt = example("truncated_bptt")
    long, short = (bptt.train(40, size=size, engine="xla")[-1] for size in (10, 2))
    assert np.mean(long[-6:]) < 0.1
    assert np.mean(short[-30:]) > 1.5 * np.mean(long[-6:])


def gated_rnn() -> None:
    """Always saying 1 costs 1/6; in so few steps only the gradient with gates gets below that."""
    rnn = example("gated_rnn")
    assert np.mean(rnn.train(300, engine="xla")[-1][-10:]) < 0.05
    plain = rnn.train(300, max_norm=None, cut_rate=0.0, engine="xla")[-1]
    assert np.mean(plain[-10:]) > 0.1


def transformer() -> None:
    transformer = example("transformer")
    params, losses = transformer.train(70, engine="xla")
    assert losses[0] > 2.0
    assert np.mean(losses[-5:]) < 0.5
    written = transformer.continued(params, "the dog ", 12, engine="xla")
    assert set(written.split()) & {"sat", "on", "saw", "the"} >= {"the"}


def batch_renormalisation() -> None:
    """In use, with the running statistics, it is right."""
    renorm = example("batch_renormalisation")
    params, statistics, losses = renorm.train(120, engine="xla")
    assert np.mean(losses[-10:]) < 0.4 * np.mean(losses[:10])
    x, labels = renorm.data(np.random.default_rng(1), 1000)
    said, _ = renorm.logits(params, statistics, x, training=False)
    assert (said.argmax(axis=1) == labels).mean() > 0.85


def vae() -> None:
    """The bound of many samples is the tighter one."""
    vae = example("vae")
    _, one = vae.train(steps=400, engine="xla")
    _, many = vae.train(vae.iwae_loss, (10,), 400, engine="xla")
    assert np.mean(one[-20:]) < 0.5 * one[0]
    assert np.mean(many[-20:]) < np.mean(one[-20:])


def energy_based() -> None:
    _, _, errors = example("energy_based").train(150, engine="xla")
    assert np.mean(errors[-30:]) < 0.5 * np.mean(errors[:10])


def mixture_of_experts() -> None:
    """With the loss of balance every expert has its part; without it one has none."""
    experts = example("mixture_of_experts")
    params, losses = experts.train(500, engine="xla")
    assert np.mean(losses[-20:]) < 0.4 * np.mean(losses[:5])
    assert experts.first_choices(params).min() > 0.1
    params, _ = experts.train(500, strength=0.0, engine="xla")
    assert experts.first_choices(params).min() < 0.05


def beam_search() -> None:
    """What it finds after training is grammatical: words go up by one or two, until they end."""
    beam_search = example("beam_search")
    params, losses = beam_search.train(150, engine="xla")
    assert losses[-1] < 0.5 * losses[0]
    sentences, scores = sg.function(beam_search.beam_search, engine="xla")(params)
    assert (np.diff(scores) <= 0.0).all()
    for sentence in sentences:
        assert sentence[0] == 2
        words = sentence[sentence != beam_search.END]
        assert set(np.diff(words)) <= {1, 2}


def preference() -> None:
    """Both find the best answer to each question, from pairs and from rewards."""
    preference = example("preference")
    params, losses = preference.train_dpo(engine="xla")
    assert np.mean(losses[-5:]) < 0.75 * np.mean(losses[:5])
    np.testing.assert_array_equal(params["logits"].argmax(axis=1), np.arange(5))
    params, rewards = preference.train_grpo(engine="xla")
    assert rewards[0] < -1.0
    assert np.mean(rewards[-5:]) > -0.3
    np.testing.assert_array_equal(params["logits"].argmax(axis=1), np.arange(5))


def dino() -> None:
    """The centre keeps all outputs in use; without it one takes all."""
    train = example("self_supervised").train_dino
    assert np.mean(train(engine="xla")[-1][-20:]) > 1.5
    assert np.mean(train(centred=False, engine="xla")[-1][-20:]) < 0.9


def vicreg() -> None:
    vicreg = example("self_supervised")
    params, losses = vicreg.train_vicreg(200, engine="xla")
    assert np.mean(losses[-10:]) < losses[0] - 3.0
    z = vicreg.network(params, vicreg.views(np.random.default_rng(1), 1000)[0])
    assert z.std(axis=0).min() > 0.4


def consistency() -> None:
    consistency = example("self_supervised")
    params, _ = consistency.train_consistency(engine="xla")
    before = consistency.off_circle(consistency.init(np.random.default_rng(0), 4, 64, 2))
    assert consistency.off_circle(params) < 0.8 * before


AIMS = {
    f.__name__: f
    for f in (
        *(lora, quantisation, classification_losses, truncated_bptt, gated_rnn, transformer),
        *(batch_renormalisation, vae, energy_based, mixture_of_experts, beam_search, preference),
        *(dino, vicreg, consistency),
    )
}


@pytest.mark.parametrize("name", AIMS)
def test_a_short_training_reaches_its_aim(name: str) -> None:
    AIMS[name]()



"""Of the second half of the example programs: that they reach their aims, and what holds of them exactly.

Their losses and gradients are compared with JAX in test_examples.py.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from all_engines import each_engine
from examples_references import all_cases, example
from scipy.special import ndtr, softmax
from scipy.stats import multivariate_normal

import stopgrad as sg
from stopgrad.base.structure import flatten, unflatten

pytestmark = pytest.mark.slow

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
    """Both bounds fall, down to -log p(x) nearly: its bounds, and the encoder can be the posterior."""
    vae = example("vae")
    x = vae.data(np.random.default_rng(0))
    for loss, samples in ((vae.elbo_loss, ()), (vae.iwae_loss, (10,))):
        params, losses = vae.train(loss, samples, 300, engine="xla")
        assert np.mean(losses[-20:]) < 0.5 * losses[0]
        assert exact_loss(params, x) - 0.05 < np.mean(losses[-20:]) < exact_loss(params, x) + 0.5


def exact_loss(params: Any, x: Any) -> float:
    """-log p(x) of the VAE's model, which is a normal distribution."""
    W, b = params["decoder"]["W"], params["decoder"]["b"]
    return -multivariate_normal.logpdf(x, b, W.T @ W + 0.25 * np.eye(len(b))).mean()


def energy_based() -> None:
    """The walks' covariance becomes the data's; SVGD's points become a standard normal."""
    energy = example("energy_based")
    _, _, errors = energy.train(150, engine="xla")
    assert np.mean(errors[-30:]) < 0.5 * np.mean(errors[:10])

    @sg.function(engine="xla")
    def move(x: Any) -> Any:
        return x + 0.5 * energy.stein(lambda x: -0.5 * (x**2).sum(axis=-1), x)

    x = 3.0 * np.random.default_rng(0).normal(size=(50, 2)) + 4.0
    for _ in range(300):
        x = move(x)
    assert np.abs(x.mean(axis=0)).max() < 0.1
    assert np.abs(x.std(axis=0) - 1.0).max() < 0.25


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
    """The term for the spread is what keeps points from falling into one."""
    vicreg = example("self_supervised")
    x = vicreg.views(np.random.default_rng(1), 1000)[0]
    for spread, low, high in ((25.0, 0.5, 2.0), (0.0, 0.0, 0.2)):
        params, losses = vicreg.train_vicreg(spread=spread, engine="xla")
        assert np.mean(losses[-10:]) < 0.7 * losses[0]
        deviations = vicreg.network(params, x).std(axis=0)
        assert low <= deviations.min()
        assert deviations.max() <= high


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


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.nightly if name == "gated_rnn" else ()) for name in AIMS]
)
def test_a_short_training_reaches_its_aim(name: str) -> None:
    AIMS[name]()


# ------------------------------------------------------------------------------------ what holds exactly


CASES = all_cases()


@pytest.mark.parametrize("key", CASES, ids=["-".join(key) for key in CASES])
def test_a_loss_of_float32_is_float32(key: tuple[str, str]) -> None:
    """No number that stands in a program makes float64 of what a user gives."""
    case, module = CASES[key], example(key[0])
    f = case.call(module) if case.call is not None else getattr(module, key[1])
    leaves, spec = flatten(case.arguments(module, np.random.default_rng(0)))
    with sg.Graph().as_default():
        kinds = [sg.float32 if x.dtype.kind == "f" else x.dtype for x in leaves]
        inputs = [sg.placeholder(kind, x.shape) for kind, x in zip(kinds, leaves, strict=True)]
        assert f(*unflatten(spec, inputs)).dtype == np.float32


def test_lora_begins_as_the_trained_network_and_keeps_it() -> None:
    lora = example("lora")
    rng = np.random.default_rng(0)
    params = lora.init(rng)
    x, y = lora.data(rng, params, 10)
    np.testing.assert_array_equal(lora.adapted(params, x), x @ params["W"])
    flow = sg.explain(lora.loss, params, x, y, argnums=0)
    assert {name: found.status for name, found in flow.items()} == {
        "params.W": "stopped",
        "params.A": "flows",
        "params.B": "flows",
    }
    gradient = sg.grad(lora.loss)(params, x, y)
    assert not gradient["A"].any()  # As B is zero.
    assert gradient["B"].any()


def test_quantised_numbers_are_the_hard_ones_bit_for_bit() -> None:
    quantisation = example("quantisation")
    x, step, alpha = np.random.default_rng(0).normal(size=(5, 8)), np.array(0.13), np.array(0.8)
    levels = np.round(np.clip(x / step, -8, 7))
    np.testing.assert_array_equal(quantisation.lsq(x, step), step * levels)
    np.testing.assert_array_equal(quantisation.fixed_step(x, step), step * levels)
    scale = 15 / alpha
    np.testing.assert_array_equal(quantisation.pact(x, alpha), np.round(np.clip(x, 0, alpha) * scale) / scale)


@each_engine
def test_the_step_and_the_bound_learn_as_lsq_and_pact_say(engine: str) -> None:
    """Element by element, against eq. 3 of LSQ and of PACT; without the gates nothing would arrive."""
    quantisation = example("quantisation")
    x, step, alpha = np.random.default_rng(1).normal(size=40), np.array(0.13), np.array(0.8)

    def jacobian(f: Any) -> Any:
        return sg.function(sg.jacobian(lambda p: f(x, p)), engine=engine)

    ratio = x / step
    expected = np.select([ratio <= -8, ratio >= 7], [-8.0, 7.0], np.round(ratio) - ratio)
    assert len({-8.0, 7.0} & set(expected)) == 2
    np.testing.assert_allclose(jacobian(quantisation.lsq)(step) * np.sqrt(40 * 7), expected, atol=1e-12)
    np.testing.assert_array_equal(jacobian(quantisation.pact)(alpha), x >= alpha)
    assert sg.explain(sg.round, x)["x"].status == "not differentiable"


def test_the_focal_weight_held_constant_is_another_loss_of_the_same_value() -> None:
    losses = example("classification_losses")
    rng = np.random.default_rng(2)
    logits, labels = rng.normal(size=(6, 4)), rng.integers(4, size=6)
    np.testing.assert_array_equal(
        losses.focal(logits, labels), losses.focal(logits, labels, constant_weight=True)
    )
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    chosen, onehot = p[np.arange(6), labels][:, None], np.eye(4)[labels]
    constant = sg.grad(lambda logits: losses.focal(logits, labels, constant_weight=True))(logits)
    np.testing.assert_allclose(constant, (1 - chosen) ** 2 * (p - onehot) / 6, atol=1e-12)
    whole = sg.grad(lambda logits: losses.focal(logits, labels))(logits)
    factor = (1 - chosen) ** 2 - 2 * (1 - chosen) * chosen * np.log(chosen)
    np.testing.assert_allclose(whole, factor * (p - onehot) / 6, atol=1e-12)


def test_a_window_does_not_reach_back_into_the_one_before() -> None:
    bptt = example("truncated_bptt")
    rng = np.random.default_rng(3)
    params = bptt.init(rng, hidden=4)
    with sg.Graph().as_default():
        x1, x2, y = (sg.placeholder("float64", (5, 3), name=name) for name in ("x1", "x2", "y"))
        first, h = bptt.loss(params, np.zeros((3, 4)), x1, y)
        second, _ = bptt.loss(params, h, x2, y)
        sg.assert_flows(first, [x1])
        sg.assert_flows(second, [x2])
        sg.assert_blocked(second, [x1], by=h)
        unstopped, _ = bptt.window(params, np.zeros((3, 4)), x1)
        sg.assert_flows(bptt.loss(params, unstopped, x2, y)[0], [x1])


def test_gates_for_gradients_leave_a_network_as_it_is() -> None:
    rnn = example("gated_rnn")
    rng = np.random.default_rng(4)
    params, (x, y) = rnn.init(rng, hidden=5), rnn.data(rng, steps=8, count=3)
    cut = np.arange(8) % 2 == 0
    gradients = []
    for gates in ({}, {"max_norm": 1e-3}, {"cut": cut}):
        value, gradient = sg.value_and_grad(lambda params, gates=gates: rnn.loss(params, x, y, **gates))(
            params
        )
        assert value == rnn.loss(params, x, y)
        gradients.append(gradient["U"])
    assert all(np.abs(gradients[0] - other).max() > 1e-4 for other in gradients[1:])


@each_engine
def test_decoding_writes_what_recomputation_writes(engine: str) -> None:
    """The loop over a buffer of fixed length beside NumPy, which begins anew for each letter."""
    transformer = example("transformer")
    params, _ = transformer.train(40)
    text = "the dog "
    for _ in range(12):
        tokens = np.array([transformer.LETTERS.index(letter) for letter in text])
        text += transformer.LETTERS[said(params, tokens).argmax()]
    assert transformer.continued(params, "the dog ", 12, engine=engine) == text


def said(params: Any, tokens: np.ndarray, heads: int = 4) -> np.ndarray:
    """What a transformer says after the last of some tokens."""

    def norm(x: np.ndarray) -> np.ndarray:
        return (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)

    x = params["embedding"][tokens].astype(np.float64) + params["places"][: len(tokens)]
    hidden = np.triu(np.full((len(x), len(x)), -np.inf), 1)
    for layer in params["layers"]:
        q, k, v = np.split(norm(x) @ layer["qkv"], 3, axis=1)
        parts = zip(*(np.split(each, heads, axis=1) for each in (q, k, v)), strict=True)
        found = [softmax(q @ k.T / np.sqrt(q.shape[1]) + hidden, axis=1) @ v for q, k, v in parts]
        x = x + np.concatenate(found, axis=1) @ layer["out"]
        h = norm(x) @ layer["up"]
        x = x + (h * ndtr(h)) @ layer["down"]
    return norm(x)[-1] @ params["embedding"].T


def test_dropout_is_drawn_anew_for_each_key_and_place() -> None:
    transformer = example("transformer")
    rng = np.random.default_rng(5)
    params, tokens = transformer.init(rng, width=8, length=6), rng.integers(5, size=(2, 6), dtype=np.int32)
    keys = sg.random_split(sg.random_key(0), 3)
    assert len({float(transformer.loss(params, tokens, key)) for key in (*keys, keys[0], None)}) == 4


def test_batch_renormalisation_says_what_the_running_statistics_say() -> None:
    """Where nothing is clipped; but its gradient is that of batch normalisation, times r."""
    renorm = example("batch_renormalisation")
    rng = np.random.default_rng(6)
    x, weights = rng.normal(size=(2, 10, 4))
    mean, deviation = 0.1 * rng.normal(size=4), np.exp(0.3 * rng.normal(size=4))
    y, (new_mean, new_deviation) = renorm.renormalised(x, mean, deviation)
    np.testing.assert_allclose(y, (x - mean) / deviation, atol=1e-12)
    batch = np.sqrt(x.var(axis=0) + renorm.EPSILON)
    np.testing.assert_allclose(new_mean, 0.9 * mean + 0.1 * x.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(new_deviation, 0.9 * deviation + 0.1 * batch, atol=1e-12)

    found = sg.grad(lambda x: (weights * renorm.renormalised(x, mean, deviation)[0]).sum())(x)
    g, normal = weights * batch / deviation, (x - x.mean(axis=0)) / batch
    expected = (g - g.mean(axis=0) - normal * (g * normal).mean(axis=0)) / batch
    np.testing.assert_allclose(found, expected, atol=1e-12)
    for i in (0, 1):
        flow = sg.explain(lambda x, i=i: renorm.renormalised(x, mean, deviation)[1][i].sum(), x)
        assert flow["x"].status == "stopped"


def exact_posterior(vae: Any, rng: np.random.Generator) -> Any:
    """Parameters of which the encoder is the decoder's posterior, as its columns are at right angles."""
    W = np.linalg.qr(rng.normal(size=(5, 2)))[0].T * np.array([[1.5], [0.7]])
    b, variance = rng.normal(size=5), 1.0 / (1.0 + (W**2).sum(axis=1) / 0.25)
    encoder = {
        "W": W.T / 0.25 * variance,
        "b": -b @ W.T / 0.25 * variance,
        "log_sigma": np.log(variance) / 2.0,
    }
    return {"decoder": {"W": W, "b": b}, "encoder": encoder}


@each_engine
def test_at_the_exact_posterior_the_encoder_gradient_has_no_noise(engine: str) -> None:
    """Sticking the landing is zero for each draw, as is the doubly reparametrised one; the plain are not."""
    vae = example("vae")
    rng = np.random.default_rng(7)
    params, x = exact_posterior(vae, rng), rng.normal(size=(4, 5))
    for loss, shape in ((vae.elbo_loss, (4, 2)), (vae.iwae_loss, (3, 4, 2))):
        for quiet in (True, False):
            f = sg.function(sg.value_and_grad(lambda p, noise: loss(p, x, noise, quiet)), engine=engine)
            value, gradient = f(params, rng.normal(size=shape))
            np.testing.assert_allclose(value, exact_loss(params, x), rtol=1e-12)
            for found in gradient["encoder"].values():
                assert (np.abs(found).max() < 1e-12) == quiet


def test_more_samples_bound_the_likelihood_tighter() -> None:
    vae = example("vae")
    rng = np.random.default_rng(8)
    params, x = vae.init(rng, inputs=4), rng.normal(size=(50, 4))
    one = vae.elbo_loss(params, x, rng.normal(size=(50, 2)))
    few, many = (vae.iwae_loss(params, x, rng.normal(size=(k, 50, 2))) for k in (5, 500))
    assert many < few < one
    np.testing.assert_allclose(many, exact_loss(params, x), atol=0.05)


@each_engine
def test_the_direction_of_svgd_is_the_sum_of_its_paper(engine: str) -> None:
    energy = example("energy_based")
    x, centre, h = np.random.default_rng(9).normal(size=(6, 2)), np.array([1.0, -1.0]), 0.8
    expected = np.zeros_like(x)
    for i, j in itertools.product(range(6), repeat=2):
        kernel = np.exp(-((x[i] - x[j]) ** 2).sum() / (2 * h**2))
        expected[i] += kernel * (centre - x[j]) + kernel * (x[i] - x[j]) / h**2
    f = sg.function(
        lambda x: energy.stein(lambda x: -0.5 * ((x - centre) ** 2).sum(axis=-1), x, h), engine=engine
    )
    np.testing.assert_allclose(f(x), expected / 6, atol=1e-12)


@each_engine
def test_an_expert_takes_no_more_than_its_capacity(engine: str) -> None:
    """Who is let in, counted one by one; who is not gets nothing said, and hands no gradient back."""
    experts = example("mixture_of_experts")
    rng = np.random.default_rng(10)
    params, x = experts.init(rng), rng.normal(size=(12, 8))
    params["gate"] = rng.normal(size=(8, 4))
    for capacity in (1, 3, 24):

        def said(x: Any) -> Any:
            found = experts.layer(params, x, capacity)[0]
            return found.sum(), (found, experts.route(params, x, capacity)[0])

        f = sg.function(sg.value_and_grad(said, has_aux=True), engine=engine)
        (_, (found, weights)), gradient = f(x)
        assert weights.shape == (12, 4, capacity)
        assert ((weights > 0).sum(axis=0) <= 1).all()  # One token to a place.
        p = softmax(x @ params["gate"], axis=1)
        order, taken = np.argsort(-p, axis=1), np.zeros(4, int)
        expected = np.zeros((12, 4))
        for choice, token in itertools.product(range(2), range(12)):
            expert = order[token, choice]
            if taken[expert] < capacity:
                expected[token, expert] = p[token, expert] / p[token, order[token, :2]].sum()
            taken[expert] += 1
        assert (taken > capacity).any() == (capacity < 24)
        np.testing.assert_allclose(weights.sum(axis=2), expected, atol=1e-12)
        left_out = expected.sum(axis=1) == 0.0
        assert left_out.any() == (capacity < 24)
        assert not found[left_out].any()
        assert not gradient[left_out].any()
        assert gradient[~left_out].all()


def test_the_loss_of_balance_is_one_where_all_experts_are_alike() -> None:
    experts = example("mixture_of_experts")
    params = experts.init(np.random.default_rng(11)) | {"gate": np.zeros((8, 4))}
    _, balance = experts.route(params, np.ones((4, 8)), 8)
    np.testing.assert_allclose(balance, 1.0)
    params["gate"] = np.eye(8)[:, :4] * 50.0  # All to the first.
    np.testing.assert_allclose(experts.route(params, np.eye(8)[[0, 0, 0]], 8)[1], 4.0, rtol=1e-6)


def every_sentence(params: Any, length: int, module: Any) -> tuple[np.ndarray, np.ndarray]:
    """All sentences that there are, those that end early once, the best first; and their scores."""
    words = range(params["embedding"].shape[0])
    found = []
    for sentence in itertools.product(words, repeat=length):
        end = sentence.index(module.END) if module.END in sentence else length
        if set(sentence[end:]) <= {module.END}:
            found.append(sentence)
    sentences = np.array(found, np.int32)
    scores = module.log_probability(params, sentences)
    order = np.argsort(-scores)
    return sentences[order], scores[order]


@each_engine
@pytest.mark.parametrize("seed", range(3))
def test_a_beam_that_is_wide_enough_finds_the_best_of_all_sentences(engine: str, seed: int) -> None:
    """With as many beams as there are beginnings nothing is left out, and all are found in order."""
    module = example("beam_search")
    params = module.init(np.random.default_rng(seed), words=4, width=5)
    sentences, scores = every_sentence(params, 4, module)
    assert len(sentences) == 1 + 3 + 9 + 27 + 81
    np.testing.assert_allclose(np.exp(scores).sum(), 1.0)
    found, said = sg.function(lambda params: module.beam_search(params, 64, 4), engine=engine)(params)
    np.testing.assert_array_equal(found, sentences[:64])
    np.testing.assert_allclose(said, scores[:64], atol=1e-12)


def test_one_beam_says_the_likeliest_word_each_time() -> None:
    module = example("beam_search")
    params = module.init(np.random.default_rng(3), words=6, width=5)
    h, word, expected = np.zeros(5), np.int32(module.START), []
    for _ in range(5):
        h, log_p = module.following(params, h, word)
        word = np.int32(module.END if expected and expected[-1] == module.END else log_p.argmax())
        expected.append(word)
    np.testing.assert_array_equal(module.beam_search(params, 1, 5)[0], [expected])


def test_a_loss_of_what_was_found_learns_nothing_through_the_search() -> None:
    module = example("beam_search")
    params = module.init(np.random.default_rng(4), words=5, width=4)
    found, _ = module.beam_search(params, 3, 4)
    of_search = sg.grad(lambda params: module.loss(params, module.beam_search(params, 3, 4)[0]))(params)
    of_given = sg.grad(lambda params: module.loss(params, found))(params)
    for name, expected in of_given.items():
        np.testing.assert_allclose(of_search[name], expected, atol=1e-12)
    scores = sg.explain(lambda params: module.beam_search(params, 3, 4)[1].sum(), params)
    assert {flow.status for flow in scores.values()} == {"stopped"}


def test_dpo_at_its_reference_is_the_logarithm_of_two() -> None:
    """There its gradient is that of -β/2 (log π(y⁺) - log π(y⁻)), whatever the policy."""
    preference = example("preference")
    rng = np.random.default_rng(12)
    params = preference.init(rng)
    better, worse, question = np.array([1, 2, 0]), np.array([0, 5, 3]), np.array([0, 1, 4])
    value, gradient = sg.value_and_grad(preference.dpo_loss)(params, params, question, better, worse)
    np.testing.assert_allclose(value, np.log(2.0))
    expected = np.zeros_like(params["logits"])
    np.add.at(expected, (question, better), -0.25 / 3)  # log π's denominators cancel.
    np.add.at(expected, (question, worse), 0.25 / 3)
    np.testing.assert_allclose(gradient["logits"], expected, atol=1e-12)


def test_grpo_begins_as_reinforce_and_ends_at_its_clips() -> None:
    preference = example("preference")
    rng = np.random.default_rng(13)
    params = preference.init(rng, questions=1)
    question, answers, rewards = np.array([0]), np.array([[0, 3, 3, 5]]), np.array([[1.0, 0.0, 2.0, -1.0]])
    gradient = sg.grad(preference.grpo_loss)(params, params, params, question, answers, rewards)["logits"]
    p = softmax(params["logits"][0])
    advantage = (rewards[0] - rewards.mean()) / (rewards.std() + 1e-6)
    expected = -sum(a * (np.eye(6)[y] - p) for a, y in zip(advantage, answers[0], strict=True)) / 4
    np.testing.assert_allclose(gradient[0], expected, atol=1e-12)

    # Where the good answers have become 1.2 times as likely, and the bad 0.8 times, nothing is left to do.
    old = {"logits": params["logits"] + np.array([[-1.0, 0.0, 0.0, 0.0, 0.0, 1.0]])}
    few = np.array([[0, 5]]), np.array([[1.0, -1.0]])
    clipped = sg.grad(lambda p: preference.grpo_loss(p, old, p, question, *few, beta=0.0))(params)
    assert not clipped["logits"].any()


def test_a_consistency_model_is_known_at_its_end_and_learns_from_there() -> None:
    """Where t = 0 it says x; from there the targets come, which are numbers to the gradient."""
    module = example("self_supervised")
    rng = np.random.default_rng(14)
    params, x, noise = module.init(rng, 4, 8, 2), *rng.normal(size=(2, 5, 2))
    np.testing.assert_array_equal(module.denoised(params, x, np.zeros((5, 1))), x)
    n = np.array([0, 1, 3, 5, 7])
    near, far = module.TIMES[n][:, None], module.TIMES[n + 1][:, None]
    target = module.denoised(params, x + near * noise, near)

    def with_numbers(params: Any) -> Any:
        return ((module.denoised(params, x + far * noise, far) - target) ** 2).sum(axis=1).mean()

    found = sg.grad(module.consistency_loss)(params, x, noise, n)
    for name, expected in sg.grad(with_numbers)(params).items():
        np.testing.assert_allclose(found[name], expected, atol=1e-12)


def test_what_teaches_and_what_is_taught() -> None:
    """DINO's student learns and its teacher does not; VICReg has no stop at all, and both views flow."""
    module = example("self_supervised")
    rng = np.random.default_rng(15)
    student, teacher = module.init(rng), module.init(rng)
    x1, x2 = module.views(rng, 6)
    loss = sg.explain(lambda *args: module.dino_loss(*args)[0], student, teacher, np.zeros(6), x1, x2)
    assert [flow.status for flow in loss.values()] == ["flows"] * 2 + ["stopped"] * 3 + ["partly stopped"] * 2
    mean = sg.explain(lambda *args: module.dino_loss(*args)[1].sum(), student, teacher, np.zeros(6), x1, x2)
    assert not {flow.status for flow in mean.values()} & {"flows", "partly stopped"}
    vicreg = sg.explain(module.vicreg_loss, student, x1, x2)
    assert {flow.status for flow in vicreg.values()} == {"flows"}

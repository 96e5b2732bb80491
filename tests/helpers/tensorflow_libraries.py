"""Losses of TensorFlow's libraries, on small models with random weights; they run one library to a process.

Most of these libraries want an environment of their own: see docs/verdicts.md.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from library_checks import Cases


@dataclass(frozen=True)
class Case:
    """A loss of a library.

    Attributes:
        variables: what it is differentiated for, once the loss was computed.
        loss: computes it; None if *step* has a tape of its own.
        step: trains for one step; the gradients that it asks for are held against what the tape gives it.
    """

    variables: Callable[[], Sequence[Any]]
    loss: Callable[[], Any] | None = None
    step: Callable[[], object] | None = None


CASES: Cases[Case] = Cases()
case = CASES.of
KERAS_2 = frozenset(
    {
        "deepctr", "larq", "neural-structured-learning", "tensorflow-gan", "tensorflow-lattice",
        "tensorflow-recommenders", "tf-agents", "tf-keras",
    }
)  # fmt: skip
"""The libraries whose ``tf.keras`` must be Keras 2: with TF_USE_LEGACY_KERAS=1."""


def library(name: str) -> Any:
    return importlib.import_module(name)


def normal(*shape: int, seed: int = 0) -> Any:
    return tf.constant(np.random.default_rng((seed, *shape)).normal(size=shape).astype(np.float32))


def of_layer(layer: Any, loss: Callable[[], Any]) -> Case:
    return Case(lambda: layer.trainable_weights, loss)


def mean_square(x: Any) -> Any:
    return tf.reduce_mean(tf.square(tf.cast(x, tf.float32)))


# ------------------------------------------------------------------------------------------ Keras 3


@case("keras-hub")
def masked_language_model() -> Case:
    hub = library("keras_hub")
    net = hub.models.BertBackbone(50, 1, 2, 8, 16, max_sequence_length=6)
    head = hub.layers.MaskedLMHead(token_embedding=net.token_embedding)
    ids = tf.constant([[3, 4, 5, 6, 7, 8]])
    given = {"token_ids": ids, "padding_mask": tf.ones_like(ids), "segment_ids": tf.zeros_like(ids)}
    return Case(
        lambda: [*net.trainable_weights, *head.trainable_weights[1:]],
        lambda: mean_square(head(net(given)["sequence_output"], mask_positions=tf.constant([[1, 2]]))),
    )


@case("keras-hub")
def frozen_backbone() -> Case:
    hub = library("keras_hub")
    keras = library("keras")
    net = hub.models.GPT2Backbone(50, 1, 2, 8, 16, max_sequence_length=6)
    head = keras.layers.Dense(2)
    net.trainable = False
    ids = tf.constant([[3, 4, 5, 6, 7, 8]])
    given = {"token_ids": ids, "padding_mask": tf.ones_like(ids)}
    return Case(lambda: [*net.weights, *head.trainable_weights], lambda: mean_square(head(net(given))))


@case("spektral")
def graph_attention() -> Case:
    layers = library("spektral.layers")
    first, second = layers.GCNConv(4, activation="relu"), layers.GATConv(3)
    x, a = normal(5, 3), tf.eye(5) + tf.cast(normal(5, 5) > 0.5, tf.float32)
    mask = [tf.ones((5, 1)), None]
    return Case(
        lambda: [*first.trainable_weights, *second.trainable_weights],
        lambda: mean_square(second([first([x, a], mask=mask), a], mask=mask)),
    )


@case("keras-rs")
def crossed_features() -> Case:
    layers = library("keras_rs.layers")
    cross, dot = layers.FeatureCross(), layers.DotInteraction()
    x = normal(4, 3)
    return Case(lambda: cross.trainable_weights, lambda: mean_square(dot([cross(x, x), x])))


@case("keras-rs")
def ranked_pairs() -> Case:
    losses, keras = library("keras_rs.losses"), library("keras")
    net, loss = keras.layers.Dense(1), losses.PairwiseHingeLoss()
    x, y = normal(2, 5, 3), tf.constant([[0.0, 1, 2, 0, 1], [1, 0, 0, 2, 1]])
    return of_layer(net, lambda: loss(y, net(x)[..., 0]))


@case("bayesflow")
def coupling_flow() -> Case:
    networks = library("bayesflow.networks")
    flow = networks.CouplingFlow(depth=2, subnet_kwargs={"widths": (8,)})
    x, conditions = normal(6, 2), normal(6, 3)
    flow.build((6, 2), (6, 3))
    return of_layer(flow, lambda: flow.compute_metrics(x, conditions=conditions, stage="training")["loss"])


@case("bayesflow")
def flow_matching() -> Case:
    networks = library("bayesflow.networks")
    flow = networks.FlowMatching(subnet_kwargs={"widths": (8,)})
    x, conditions = normal(6, 2), normal(6, 3)
    flow.build((6, 2), (6, 3))
    return of_layer(flow, lambda: flow.compute_metrics(x, conditions=conditions, stage="training")["loss"])


@case("keras-tcn")
def temporal_convolutions() -> Case:
    net = library("tcn").TCN(4, kernel_size=2, dilations=(1, 2), use_skip_connections=True)
    return of_layer(net, lambda: mean_square(net(normal(2, 6, 3), training=True)))


@case("keras-self-attention")
def attention_of_sequences() -> Case:
    net = library("keras_self_attention").SeqSelfAttention(units=4)
    return of_layer(net, lambda: mean_square(net(normal(2, 5, 3))))


@case("kapre")
def spectrograms() -> Case:
    keras, kapre = library("keras"), library("kapre")
    net = keras.Sequential(
        [kapre.STFT(n_fft=16), kapre.Magnitude(), keras.layers.Flatten(), keras.layers.Dense(2)]
    )
    return of_layer(net, lambda: mean_square(net(normal(2, 64, 1))))


@case("scikeras")
def regressor() -> Case:
    keras, wrappers = library("keras"), library("scikeras.wrappers")

    def build() -> Any:
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4, "tanh"), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.1), "mse")
        return model

    fitted = wrappers.KerasRegressor(build, epochs=1, batch_size=8, verbose=0, shuffle=False)
    x = normal(8, 3).numpy()
    return Case(lambda: fitted.model_.trainable_weights, step=lambda: fitted.fit(x, x.sum(1)))


@case("keras-tuner")
def tuned() -> Case:
    keras, tuner = library("keras"), library("keras_tuner")

    class Of(tuner.HyperModel):  # type: ignore[misc, name-defined]
        def build(self, hp: Any) -> Any:
            units = hp.Int("units", 2, 4)
            model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(units), keras.layers.Dense(1)])
            model.compile(keras.optimizers.SGD(0.1), "mse")
            return model

    x = normal(8, 3).numpy()
    model = Of().build(tuner.HyperParameters())
    return Case(
        lambda: model.trainable_weights, step=lambda: model.fit(x, x.sum(1), verbose=0, shuffle=False)
    )


@case("keras-cv")
def boxes_and_focus() -> Case:
    losses, keras = library("keras_cv.losses"), library("keras")
    net = keras.layers.Dense(3)
    x, y = normal(4, 5), tf.one_hot([0, 1, 2, 1], 3)
    focal, smooth = losses.FocalLoss(from_logits=True), losses.SmoothL1Loss()
    return of_layer(net, lambda: tf.reduce_mean(focal(y, net(x))) + tf.reduce_mean(smooth(y, net(x))))


@case("keras-cv")
def contrasted_images() -> Case:
    losses, keras = library("keras_cv.losses"), library("keras")
    net, loss = keras.layers.Dense(3), losses.SimCLRLoss(0.5)
    return of_layer(net, lambda: tf.reduce_mean(loss(net(normal(4, 5)), net(normal(4, 5, seed=1)))))


@case("larq")
def binary_weights() -> Case:
    larq, keras = library("larq"), library("tensorflow").keras
    net = keras.Sequential(
        [
            keras.layers.InputLayer((5,)),
            larq.layers.QuantDense(4, kernel_quantizer="ste_sign", kernel_constraint="weight_clip"),
            larq.layers.QuantDense(2, input_quantizer="approx_sign", kernel_quantizer="swish_sign"),
        ]
    )
    return of_layer(net, lambda: mean_square(net(normal(3, 5))))


@case("deepxde")
def heat_equation() -> Case:
    dde = library("deepxde")
    net = dde.nn.FNN([1, 8, 1], "tanh", "Glorot uniform")
    x = normal(6, 1)

    def loss() -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = net(x)
        return mean_square(tape.gradient(y, x) - 2.0 * x) + mean_square(net(tf.zeros((1, 1))))

    return Case(lambda: net.trainable_variables, loss)


@case("deepxde")
def heat_equation_trained() -> Case:
    dde = library("deepxde")
    area = dde.geometry.Interval(-1, 1)
    ends = dde.icbc.DirichletBC(area, lambda x: 0.0, lambda _, on: on)
    data = dde.data.PDE(area, lambda x, y: dde.grad.hessian(y, x) - 1.0, ends, 8, 2)
    model = dde.Model(data, dde.nn.FNN([1, 8, 1], "tanh", "Glorot uniform"))
    model.compile("sgd", lr=0.01, verbose=0)
    return Case(lambda: model.net.trainable_variables, step=lambda: model.train(iterations=1, verbose=0))


# ------------------------------------------------------------------------------------ without Keras


@case("gpflow")
def process_regression() -> Case:
    gpflow = library("gpflow")
    x = np.linspace(0.0, 1.0, 6)[:, None]
    model = gpflow.models.GPR((x, np.sin(6 * x)), gpflow.kernels.Matern52() + gpflow.kernels.Linear())
    return Case(lambda: model.trainable_variables, model.training_loss)


@case("gpflow")
def inducing_points() -> Case:
    gpflow = library("gpflow")
    x = np.linspace(0.0, 1.0, 8)[:, None]
    model = gpflow.models.SVGP(
        gpflow.kernels.SquaredExponential(), gpflow.likelihoods.Bernoulli(), x[::2].copy(), num_data=8
    )
    data = (x, (np.sin(6 * x) > 0).astype(float))
    return Case(lambda: model.trainable_variables, lambda: -model.elbo(data))


@case("gpflow")
def natural_gradients() -> Case:
    gpflow = library("gpflow")
    x = np.linspace(0.0, 1.0, 8)[:, None]
    model = gpflow.models.SVGP(
        gpflow.kernels.SquaredExponential(), gpflow.likelihoods.Gaussian(), x[::2].copy(), num_data=8
    )
    data = (x, np.sin(6 * x))
    natural = gpflow.optimizers.NaturalGradient(0.1)
    return Case(
        lambda: model.trainable_variables,
        step=lambda: natural.minimize(lambda: -model.elbo(data), [(model.q_mu, model.q_sqrt)]),
    )


@case("dm-sonnet")
def codebook() -> Case:
    snt = library("sonnet")
    encoder, decoder = snt.Linear(4), snt.Linear(3)
    codes = snt.nets.VectorQuantizer(4, 5, 0.25)
    x = normal(6, 3)

    def loss() -> Any:
        found = codes(encoder(x), is_training=True)
        return mean_square(decoder(found["quantize"]) - x) + found["loss"]

    return Case(
        lambda: [*encoder.trainable_variables, *codes.trainable_variables, *decoder.trainable_variables], loss
    )


@case("dm-sonnet")
def codebook_of_averages() -> Case:
    snt = library("sonnet")
    encoder, decoder = snt.Linear(4), snt.Linear(3)
    codes = snt.nets.VectorQuantizerEMA(4, 5, 0.25, 0.99)
    x = normal(6, 3)

    def loss() -> Any:
        found = codes(encoder(x), is_training=True)
        return mean_square(decoder(found["quantize"]) - x) + found["loss"]

    return Case(lambda: [*encoder.trainable_variables, codes.embeddings, *decoder.trainable_variables], loss)


@case("dm-sonnet")
def unrolled() -> Case:
    snt = library("sonnet")
    core = snt.LSTM(4)
    x = normal(5, 2, 3)
    return Case(
        lambda: core.trainable_variables,
        lambda: mean_square(snt.dynamic_unroll(core, x, core.initial_state(2))[0]),
    )


@case("tensorflow-probability")
def masked_flow() -> Case:
    tfp = library("tensorflow_probability")
    made = tfp.bijectors.AutoregressiveNetwork(params=2, hidden_units=[8], activation="tanh")
    flow = tfp.distributions.TransformedDistribution(
        tfp.distributions.Sample(tfp.distributions.Normal(0.0, 1.0), [2]),
        tfp.bijectors.MaskedAutoregressiveFlow(made),
    )
    x = normal(5, 2)
    return Case(lambda: made.trainable_variables, lambda: -tf.reduce_mean(flow.log_prob(x)))


@case("tensorflow-probability")
def surrogate() -> Case:
    tfp = library("tensorflow_probability")
    mean, scale = tf.Variable([0.1, 0.2], name="mean"), tf.Variable([0.3, 0.4], name="scale")

    def loss() -> Any:
        q = tfp.distributions.MultivariateNormalDiag(mean, tf.nn.softplus(scale))
        return tfp.vi.monte_carlo_variational_loss(
            lambda z: -tf.reduce_sum(z**4, -1), q, sample_size=3, seed=(1, 2)
        )

    return Case(lambda: [mean, scale], loss)


@case("tensorflow-probability")
def score_of_discrete() -> Case:
    tfp = library("tensorflow_probability")
    logits = tf.Variable([0.1, 0.2, 0.3], name="logits")

    def loss() -> Any:
        q = tfp.distributions.OneHotCategorical(logits, dtype=tf.float32)
        return tfp.monte_carlo.expectation(
            f=lambda z: tf.reduce_sum(z * [1.0, 2, 3], -1),
            samples=q.sample(4, seed=(1, 2)),
            log_prob=q.log_prob,
            use_reparameterization=False,
        )

    return Case(lambda: [logits], loss)


@case("tensorflow-probability")
def hidden_states() -> Case:
    tfd = library("tensorflow_probability").distributions
    start, move, mean = (
        tf.Variable(normal(*s), name=n) for s, n in (((2,), "s"), ((2, 2), "m"), ((2,), "l"))
    )

    def loss() -> Any:
        return -tfd.HiddenMarkovModel(
            tfd.Categorical(start), tfd.Categorical(move), tfd.Normal(mean, 1.0), 4
        ).log_prob(normal(4))

    return Case(lambda: [start, move, mean], loss)


@case("tf-slim")
def slim_losses() -> Case:
    slim, w = library("tf_slim"), tf.Variable(normal(3, 2), name="w")
    return Case(
        lambda: [w],
        lambda: (
            slim.losses.softmax_cross_entropy(normal(4, 3) @ w, tf.one_hot([0, 1, 1, 0], 2))
            + slim.losses.hinge_loss(normal(4, 3) @ w, tf.one_hot([0, 1, 1, 0], 2))
        ),
    )


@case("tensorflow-graphics")
def rotated() -> Case:
    quaternion = library("tensorflow_graphics.geometry.transformation.quaternion")
    q = tf.Variable([[0.1, 0.2, 0.3, 0.9]], name="q")
    return Case(lambda: [q], lambda: mean_square(quaternion.rotate(normal(1, 3), quaternion.normalize(q))))


# ------------------------------------------------------------------------------------------ Keras 2


def dense(*units: int) -> Any:
    keras = tf.keras
    return keras.Sequential([keras.layers.Dense(n, "tanh" if n > 1 else None) for n in units])


@case("tf-keras")
def fitted() -> Case:
    model = dense(4, 1)
    model.compile(tf.keras.optimizers.SGD(0.1), "mse")
    x = normal(8, 3)
    return Case(
        lambda: model.trainable_weights,
        step=lambda: model.fit(x, tf.reduce_sum(x, 1), verbose=0, shuffle=False, batch_size=8),
    )


@case("tensorflow-recommenders")
def retrieval() -> Case:
    tfrs = library("tensorflow_recommenders")
    users, items = dense(4), dense(4)
    task = tfrs.tasks.Retrieval()
    return Case(
        lambda: [*users.trainable_weights, *items.trainable_weights],
        lambda: task(users(normal(5, 3)), items(normal(5, 2)), compute_metrics=False),
    )


@case("tensorflow-recommenders")
def deep_and_cross() -> Case:
    tfrs = library("tensorflow_recommenders")
    cross = tfrs.layers.dcn.Cross(projection_dim=2)
    return of_layer(cross, lambda: mean_square(cross(normal(5, 3))))


@case("tensorflow-gan")
def penalised_critic() -> Case:
    losses = library("tensorflow_gan.python.losses.losses_impl")
    generator, critic = dense(3), dense(4, 1)
    real = normal(4, 3)

    def loss() -> Any:
        fake = generator(normal(4, 2))
        point = tf.stop_gradient(0.3 * real + 0.7 * fake)
        with tf.GradientTape() as tape:
            tape.watch(point)
            score = critic(point)
        slopes = tape.gradient(score, point)
        penalty = tf.reduce_mean((tf.norm(slopes, axis=1) - 1.0) ** 2)
        return losses.wasserstein_discriminator_loss(critic(real), critic(fake)) + penalty

    return Case(lambda: [*generator.trainable_weights, *critic.trainable_weights], loss)


@case("tensorflow-lattice")
def monotonic() -> Case:
    tfl = library("tensorflow_lattice")
    first = tfl.layers.PWLCalibration(np.linspace(-2.0, 2.0, 4), output_min=0.0, output_max=1.0)
    second = tfl.layers.Lattice([2, 2], monotonicities=["increasing", "none"])

    def loss() -> Any:
        x = normal(5, 1)
        return mean_square(second(tf.concat([first(x), tf.sigmoid(x)], 1)))

    return Case(lambda: [*first.trainable_weights, *second.trainable_weights], loss)


@case("deepctr")
def click_rates() -> Case:
    columns, models = library("deepctr.feature_column"), library("deepctr.models")
    features = [columns.SparseFeat("a", 5, 4), columns.SparseFeat("b", 3, 4), columns.DenseFeat("c", 1)]
    model = models.DeepFM(features, features, dnn_hidden_units=(4,), task="regression")
    given = {"a": tf.constant([0, 1, 2]), "b": tf.constant([0, 1, 2]), "c": normal(3, 1)}
    return of_layer(model, lambda: mean_square(model(given, training=True)))


@case("neural-structured-learning")
def adversarial_neighbours() -> Case:
    nsl = library("neural_structured_learning")
    model = nsl.keras.AdversarialRegularization(
        dense(4, 1), label_keys=["y"], adv_config=nsl.configs.make_adv_reg_config(multiplier=0.2)
    )
    model.compile(tf.keras.optimizers.SGD(0.1), "mse")
    x = normal(6, 3)
    batch = {"feature": x, "y": tf.reduce_sum(x, 1, keepdims=True)}
    return Case(
        lambda: model.trainable_weights, step=lambda: model.fit(batch, batch_size=6, verbose=0, shuffle=False)
    )


def environment() -> tuple[Any, Any, Any]:
    """What an agent sees and does: the specification of its time steps, of its actions, and of both."""
    specs, steps = library("tf_agents.specs.tensor_spec"), library("tf_agents.trajectories.time_step")
    seen = steps.time_step_spec(specs.TensorSpec((3,), tf.float32))
    return specs, seen, library("tf_agents.trajectories.trajectory")


def experience(trajectory: Any, action: Any) -> Any:
    count = (2, 2)
    return trajectory.Trajectory(
        step_type=tf.ones(count, tf.int32),
        observation=normal(*count, 3),
        action=action,
        policy_info=(),
        next_step_type=tf.ones(count, tf.int32),
        reward=normal(*count),
        discount=tf.ones(count),
    )


@case("tf-agents")
def double_q_learning() -> Case:
    specs, seen, trajectory = environment()
    dqn = library("tf_agents.agents.dqn.dqn_agent")
    action = specs.BoundedTensorSpec((), tf.int32, 0, 1)
    net = library("tf_agents.networks.q_network").QNetwork(seen.observation, action, fc_layer_params=(4,))
    agent = dqn.DdqnAgent(seen, action, net, tf.keras.optimizers.legacy.SGD(0.1))
    agent.initialize()
    batch = experience(trajectory, tf.constant([[0, 1], [1, 0]]))
    return Case(lambda: net.trainable_weights, step=lambda: agent.train(batch))


@case("tf-agents")
def soft_actor() -> Case:
    specs, seen, trajectory = environment()
    sac = library("tf_agents.agents.sac.sac_agent")
    networks = library("tf_agents.agents.ddpg.critic_network")
    actors = library("tf_agents.networks.actor_distribution_network")
    heads = library("tf_agents.agents.sac.tanh_normal_projection_network")
    action = specs.BoundedTensorSpec((1,), tf.float32, -1.0, 1.0)
    actor = actors.ActorDistributionNetwork(
        seen.observation,
        action,
        fc_layer_params=(4,),
        continuous_projection_net=heads.TanhNormalProjectionNetwork,
    )
    critic = networks.CriticNetwork((seen.observation, action), joint_fc_layer_params=(4,))
    sgd = tf.keras.optimizers.legacy.SGD
    agent = sac.SacAgent(seen, action, critic, actor, sgd(0.1), sgd(0.1), sgd(0.1))
    agent.initialize()
    batch = experience(trajectory, normal(2, 2, 1))
    return Case(
        lambda: [*actor.trainable_weights, *critic.trainable_weights], step=lambda: agent.train(batch)
    )

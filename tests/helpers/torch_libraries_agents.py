"""Losses of libraries that learn to act, and of trainers of language models by preferences and rewards."""

from __future__ import annotations

import tempfile
from typing import Any

import torch
from torch import nn
from torch_libraries import Case, Line, Verdict, case, library

# --------------------------------------------------------------------------------------------------- torchrl


def actor(discrete: bool = False) -> nn.Module:
    """A policy over four numbers of state, as torchrl wants it."""
    modules, nets = library("torchrl.modules"), library("tensordict.nn")
    if discrete:
        net = nets.TensorDictModule(nn.Linear(4, 2), in_keys=["observation"], out_keys=["logits"])
        return modules.ProbabilisticActor(
            net, in_keys=["logits"], distribution_class=modules.OneHotCategorical, return_log_prob=True
        )
    net = nn.Sequential(nn.Linear(4, 4), nets.NormalParamExtractor())
    mean = nets.TensorDictModule(net, in_keys=["observation"], out_keys=["loc", "scale"])
    return modules.ProbabilisticActor(
        mean, in_keys=["loc", "scale"], distribution_class=modules.TanhNormal, return_log_prob=True
    )


def critic(of_actions: bool = False) -> nn.Module:
    modules = library("torchrl.modules")
    if of_actions:

        class Pair(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.net = nn.Linear(6, 1)

            def forward(self, state: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
                return self.net(torch.cat([state, action], -1))

        return modules.ValueOperator(Pair(), in_keys=["observation", "action"])
    return modules.ValueOperator(nn.Linear(4, 1), in_keys=["observation"])


def steps(policy: nn.Module, count: int = 6) -> Any:
    """Steps of an episode, with actions of the policy."""
    tensordict = library("tensordict")
    data = tensordict.TensorDict({"observation": torch.randn(count, 4)}, [count])
    with torch.no_grad():
        policy(data)
    data["next"] = tensordict.TensorDict(
        {
            "observation": torch.randn(count, 4),
            "reward": torch.randn(count, 1),
            "done": torch.zeros(count, 1, dtype=torch.bool),
            "terminated": torch.zeros(count, 1, dtype=torch.bool),
        },
        [count],
    )
    return data


def summed(module: nn.Module, data: Any, names: str = "loss") -> torch.Tensor:
    """The losses that a loss module returns."""
    return sum(value for name, value in module(data.clone()).items() if name.startswith(names))


@case("torchrl")
def advantage_actor_critic() -> Case:
    """The advantage is computed with detached parameters of the critic, which are kept between calls."""
    losses = library("torchrl.objectives")
    policy = actor()
    module, data = losses.A2CLoss(policy, critic()), steps(policy)
    module.make_value_estimator(losses.ValueEstimators.TD0)
    return Case(module, lambda: summed(module, data), {"critic*": "partly stopped"}, detached_critic())


def detached_critic() -> tuple[Line, ...]:
    """Its parameters, for the value of a state; as its own target, for that of the next state."""
    tensordict, values = library("tensordict.base"), library("torchrl.objectives.value.advantages")
    return (
        Line("            return x.detach()", tensordict.TensorDictBase.detach, "critic*"),
        Line("data = [val.data for val in vals]", tensordict.TensorDictBase._data, "critic*"),
        Line("            value_ = value_.detach()", values, "critic*"),
    )


@case("torchrl")
def advantage_actor_critic_once_more() -> Case:
    """The detached parameters are those of an earlier call, before the watch began."""
    losses = library("torchrl.objectives")
    policy = actor()
    module, data = losses.A2CLoss(policy, critic()), steps(policy)
    module.make_value_estimator(losses.ValueEstimators.TD0)
    summed(module, data)
    return Case(module, lambda: summed(module, data), {"critic*": "partly stopped"}, detached_critic())


@case("torchrl")
def clipped_policy() -> Case:
    losses, values = library("torchrl.objectives"), library("torchrl.objectives.value")
    policy, value = actor(), critic()
    data = steps(policy)
    values.GAE(gamma=0.9, lmbda=0.9, value_network=value)(data)
    module = losses.ClipPPOLoss(policy, value)
    return Case(module, lambda: summed(module, data))


@case("torchrl")
def soft_actor_critic() -> Case:
    losses = library("torchrl.objectives")
    policy = actor()
    module = losses.SACLoss(policy, critic(True), num_qvalue_nets=2, target_entropy=-2.0)
    data, own = steps(policy), library("torchrl.objectives.sac").SACLoss
    target = "        with torch.no_grad():"
    lines = (
        Line(target, own._compute_target_v2, "log_alpha"),
        Line(target, own._compute_target_v2, "actor*"),
        Line(target, own._alpha.fget, "log_alpha"),
        Line('return loss_actor, {"log_prob": log_prob.detach()}', own, "actor*"),
        Line("            return x.detach()", library("tensordict.base").TensorDictBase.detach, "qvalue*"),
    )
    return Case(module, lambda: summed(module, data), {"*": "partly stopped"}, lines)


@case("torchrl")
def deep_q_learning() -> Case:
    losses, modules = library("torchrl.objectives"), library("torchrl.modules")
    policy = modules.QValueActor(
        nn.Linear(4, 2), in_keys=["observation"], spec=library("torchrl.data").OneHot(2)
    )
    module, data = losses.DQNLoss(policy, delay_value=True, action_space="one-hot"), steps(policy)
    return Case(module, lambda: summed(module, data))


@case("torchrl")
def deterministic_policy() -> Case:
    losses, nets = library("torchrl.objectives"), library("tensordict.nn")
    policy = nets.TensorDictModule(nn.Linear(4, 2), in_keys=["observation"], out_keys=["action"])
    module, data = losses.DDPGLoss(policy, critic(True)), steps(policy)
    tensordict = library("tensordict.base").TensorDictBase
    lines = (
        Line("data = [val.data for val in vals]", tensordict._data, "actor*"),
        Line("            return x.detach()", tensordict.detach, "value*"),
    )
    return Case(module, lambda: summed(module, data), {"*": "partly stopped"}, lines)


# --------------------------------------------------------------------------- stable-baselines3, tianshou


def environment(discrete: bool = False) -> Any:
    """A world of four numbers, in which nothing depends on what one does."""
    gym = library("gymnasium")

    class World(gym.Env):  # type: ignore[name-defined, misc]
        observation_space = gym.spaces.Box(-1.0, 1.0, (4,))
        action_space = gym.spaces.Discrete(2) if discrete else gym.spaces.Box(-1.0, 1.0, (2,))

        def reset(self, seed: int | None = None, options: Any = None) -> Any:
            self.count = 0
            return self.observe(), {}

        def step(self, action: Any) -> Any:
            self.count += 1
            return self.observe(), float(self.count % 3), self.count >= 5, False, {}

        def observe(self) -> Any:
            numpy = library("numpy")
            return numpy.sin(numpy.arange(4.0) * (self.count + 1)).astype(numpy.float32)

    return World()


def small(**options: Any) -> dict[str, Any]:
    return {"policy_kwargs": {"net_arch": [6]}, "device": "cpu", "verbose": 0, **options}


def rolled_out(learner: Any) -> Any:
    """A learner that is about to train on what it gathered."""
    callback = library("stable_baselines3.common.callbacks").CheckpointCallback(1000, "")
    learner.set_logger(library("stable_baselines3.common.logger").Logger(None, []))
    _, callback = learner._setup_learn(8, None)
    learner.collect_rollouts(learner.env, callback, learner.rollout_buffer, 8)
    return learner


@case("stable-baselines3")
def proximal_policy() -> Case:
    learner = rolled_out(
        library("stable_baselines3").PPO(
            "MlpPolicy", environment(), n_steps=8, batch_size=8, n_epochs=1, **small()
        )
    )
    return Case(learner.policy, learner.train, calls=[Verdict()])


@case("stable-baselines3")
def advantages() -> Case:
    learner = rolled_out(
        library("stable_baselines3").A2C("MlpPolicy", environment(True), n_steps=8, **small())
    )
    return Case(learner.policy, learner.train, calls=[Verdict()])


def replayed(name: str, discrete: bool = False, **options: Any) -> Any:
    """A learner with a memory of some steps."""
    kind = getattr(library("stable_baselines3"), name)
    learner = kind("MlpPolicy", environment(discrete), buffer_size=50, learning_starts=0, **small(**options))
    learner.set_logger(library("stable_baselines3.common.logger").Logger(None, []))
    numpy = library("numpy")
    learner.action_space.seed(0)
    state, _ = learner.env.envs[0].reset()
    for _ in range(12):
        action = numpy.asarray(learner.action_space.sample())
        after, reward, done, _, info = learner.env.envs[0].step(action)
        learner.replay_buffer.add(state, after, action, numpy.array([reward]), numpy.array([done]), [info])
        state = learner.env.envs[0].reset()[0] if done else after
    return learner


@case("stable-baselines3")
def soft_actor_critics() -> Case:
    """Three passes: the entropy's weight, the critics, the actor."""
    learner = replayed("SAC")
    module = library("stable_baselines3.sac.sac").SAC
    entropy = Line("(log_prob + self.target_entropy).detach()", module, "actor.*")
    target = tuple(
        Line("            with th.no_grad():", module, keys) for keys in ("actor.*", "critic_target.*")
    )
    calls = [
        Verdict({"actor.*": "stopped", "critic*": "disconnected"}, (entropy,)),
        Verdict({"actor.*": "stopped", "critic_target.*": "stopped"}, target),
        Verdict({"critic_target.*": "disconnected"}),
    ]
    return Case(learner.policy, lambda: learner.train(1, 8), calls=calls)


@case("stable-baselines3")
def twin_delayed() -> Case:
    learner = replayed("TD3", policy_delay=1)
    line = Line("            with th.no_grad():", library("stable_baselines3.td3.td3").TD3, "*_target.*")
    calls = [
        Verdict({"actor.*": "disconnected", "*_target.*": "stopped"}, (line,)),
        Verdict({"critic.qf1.*": "disconnected", "*_target.*": "disconnected"}),
    ]
    return Case(learner.policy, lambda: learner.train(1, 8), calls=calls)


@case("stable-baselines3")
def deep_q_network() -> Case:
    learner = replayed("DQN", discrete=True)
    line = Line("            with th.no_grad():", library("stable_baselines3.dqn.dqn").DQN, "q_net_target.*")
    calls = [Verdict({"q_net_target.*": "stopped"}, (line,))]
    return Case(learner.policy, lambda: learner.train(1, 8), calls=calls)


def remembered(discrete: bool) -> Any:
    """Steps in a memory of tianshou."""
    data, numpy = library("tianshou.data"), library("numpy")
    buffer, draws = data.ReplayBuffer(20), numpy.random.default_rng(0)
    for _ in range(12):
        action = draws.integers(2) if discrete else draws.normal(size=2).astype("float32")
        done = bool(draws.random() < 0.2)
        buffer.add(
            data.Batch(
                obs=draws.normal(size=4).astype("float32"),
                obs_next=draws.normal(size=4).astype("float32"),
                act=action,
                rew=draws.normal(),
                terminated=done,
                truncated=False,
                info={},
            )
        )
    return buffer


@case("tianshou")
def q_network() -> Case:
    """The target goes through NumPy, where returns are computed."""
    policies, common = library("tianshou.policy"), library("tianshou.utils.net.common")
    net = common.Net(4, 2, hidden_sizes=[6])
    policy = policies.DQNPolicy(
        net, torch.optim.SGD(net.parameters(), 0.1), estimation_step=1, target_update_freq=100
    )
    buffer = remembered(True)
    calls = [Verdict({"model_old.*": "disconnected"})]
    return Case(policy, lambda: policy.update(8, buffer) and None, calls=calls)


def soft_policy() -> Any:
    """A soft actor and critic of tianshou's nets."""
    policies, common = library("tianshou.policy"), library("tianshou.utils.net.common")
    continuous = library("tianshou.utils.net.continuous")
    actor = continuous.ActorProb(common.Net(4, hidden_sizes=[6]), 2, unbounded=True, conditioned_sigma=True)
    critics = [continuous.Critic(common.Net(4, 2, hidden_sizes=[6], concat=True)) for _ in range(2)]
    optimizers = [torch.optim.SGD(net.parameters(), 0.1) for net in (actor, *critics)]
    pairs = [
        part for net, optimizer in zip(critics, optimizers[1:], strict=True) for part in (net, optimizer)
    ]
    return policies.SACPolicy(actor, optimizers[0], *pairs)


@case("tianshou")
def soft_actor() -> Case:
    """A pass for each critic, and one for the actor."""
    policy, buffer = soft_policy(), remembered(False)
    calls = [
        Verdict({"critic1.*": "flows", "*": "disconnected"}),
        Verdict({"critic2.*": "flows", "*": "disconnected"}),
        Verdict({"*_old.*": "disconnected"}),
    ]
    return Case(policy, lambda: policy.update(8, buffer) and None, calls=calls)


# -------------------------------------------------------------------------------------------------------- trl


def tiny(**options: Any) -> nn.Module:
    gpt = library("transformers.models.gpt2")
    config = gpt.GPT2Config(
        vocab_size=20,
        n_positions=32,
        n_embd=8,
        n_layer=1,
        n_head=2,
        bos_token_id=1,
        eos_token_id=1,
        **options,
    )
    return gpt.GPT2LMHeadModel(config)


def tokenizer() -> Any:
    """Words of one letter."""
    made, words = library("tokenizers"), library("transformers")
    letters = {**{"<pad>": 0, "<end>": 1}, **{chr(97 + i): i + 2 for i in range(18)}}
    model = made.Tokenizer(made.models.WordLevel(letters, unk_token="a"))
    model.pre_tokenizer = made.pre_tokenizers.WhitespaceSplit()
    return words.PreTrainedTokenizerFast(
        tokenizer_object=model, pad_token="<pad>", eos_token="<end>", bos_token="<end>", unk_token="a"
    )


def rows(**columns: list[str]) -> Any:
    return library("datasets").Dataset.from_dict(columns)


def options_of(kind: Any, **options: Any) -> Any:
    return kind(
        output_dir=tempfile.gettempdir(),
        use_cpu=True,
        bf16=False,
        report_to=[],
        max_steps=1,
        per_device_train_batch_size=2,
        disable_tqdm=True,
        **options,
    )


def loss_of(trainer: Any) -> Case:
    """The loss of a trainer's first batch."""
    batch = trainer._prepare_inputs(next(iter(trainer.get_train_dataloader())))
    return Case(trainer.model, lambda: trainer.compute_loss(trainer.model, dict(batch)))


@case("trl")
def direct_preferences() -> Case:
    trl = library("trl")
    data = rows(prompt=["a b", "c d"], chosen=[" e f g", " h i"], rejected=[" j k", " l m n"])
    trainer = trl.DPOTrainer(
        tiny(),
        ref_model=tiny(),
        args=options_of(trl.DPOConfig),
        train_dataset=data,
        processing_class=tokenizer(),
    )
    return loss_of(trainer)


@case("trl")
def supervised() -> Case:
    trl = library("trl")
    data = rows(text=["a b c d e", "f g h i"])
    trainer = trl.SFTTrainer(
        tiny(),
        args=options_of(trl.SFTConfig, max_length=16),
        train_dataset=data,
        processing_class=tokenizer(),
    )
    return loss_of(trainer)


@case("trl")
def rewarded_choices() -> Case:
    trl, gpt = library("trl"), library("transformers.models.gpt2")
    config = gpt.GPT2Config(
        vocab_size=20, n_positions=32, n_embd=8, n_layer=1, n_head=2, num_labels=1, pad_token_id=0
    )
    data = rows(chosen=["a b c", "d e f"], rejected=["g h", "i j k"])
    trainer = trl.RewardTrainer(
        gpt.GPT2ForSequenceClassification(config),
        args=options_of(trl.RewardConfig),
        train_dataset=data,
        processing_class=tokenizer(),
    )
    return loss_of(trainer)


@case("trl")
def group_relative_policy() -> Case:
    """The advantages are given; the ratio's denominator is the policy itself, detached."""
    trl = library("trl")
    trainer = trl.GRPOTrainer(
        tiny(),
        reward_funcs=lambda completions, **_: [float(len(one)) for one in completions],
        args=options_of(trl.GRPOConfig, num_generations=2, max_completion_length=4),
        train_dataset=rows(prompt=["a b", "c d"]),
        processing_class=tokenizer(),
    )
    trainer.current_gradient_accumulation_steps = 1
    ids = torch.randint(2, 20, (2, 8))
    batch = {
        "prompt_ids": ids[:, :4],
        "prompt_mask": torch.ones(2, 4, dtype=torch.long),
        "completion_ids": ids[:, 4:],
        "completion_mask": torch.ones(2, 4, dtype=torch.long),
        "advantages": torch.tensor([0.7, -0.4]),
        "num_items_in_batch": torch.tensor(8),
    }
    line = Line(
        "old_per_token_logps = per_token_logps.detach() if", library("trl.trainer.grpo_trainer").GRPOTrainer
    )
    return Case(
        trainer.model, lambda: trainer._compute_loss(trainer.model, batch), {"*": "partly stopped"}, (line,)
    )

"""Losses of libraries for differential equations, processes, flows and inference."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch_libraries import Case, Line, case, library, stirred

# ---------------------------------------------------------------------------------- torchdiffeq, torchsde


class Slope(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(2, 2)

    def forward(self, t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.net(y))


def differential() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    return (
        nn.ModuleDict({"start": nn.Linear(3, 2), "slope": Slope()}),
        torch.randn(4, 3),
        torch.tensor([0.0, 1.0]),
    )


@case("torchdiffeq")
def solved_by_steps() -> Case:
    """Only the first step's size has a gradient: later ones are chosen without."""
    odes, misc = library("torchdiffeq"), library("torchdiffeq._impl.misc")
    model, x, t = differential()
    line = Line("@torch.no_grad()", misc._optimal_step_size)
    return Case(
        model,
        lambda: odes.odeint(model["slope"], model["start"](x), t)[-1].square().mean(),
        {"*": "partly stopped"},
        (line,),
    )


@case("torchdiffeq")
def solved_in_fixed_steps() -> Case:
    odes = library("torchdiffeq")
    model, x, t = differential()
    options = {"step_size": 0.25}
    return Case(
        model,
        lambda: odes.odeint(model["slope"], model["start"](x), t, method="rk4", options=options)[-1].sum(),
    )


@case("torchdiffeq")
def adjoint() -> Case:
    """A function of its own solves without gradients; its backward solves another equation for them."""
    odes = library("torchdiffeq")
    model, x, t = differential()
    return Case(model, lambda: odes.odeint_adjoint(model["slope"], model["start"](x), t)[-1].square().mean())


@case("torchdiffeq")
def adjoint_of_data() -> Case:
    """What starts at data: of the function's arguments only the parameters require a gradient."""
    odes = library("torchdiffeq")
    model, x, t = Slope(), torch.randn(4, 2), torch.tensor([0.0, 0.5, 1.0])
    return Case(model, lambda: odes.odeint_adjoint(model, x, t).square().mean())


@case("torchdiffeq")
def adjoint_of_chosen_parameters() -> Case:
    """Parameters that the adjoint is not told of get nothing from it: a mistake to find."""
    odes = library("torchdiffeq")
    model, x, t = differential()
    only = (model["slope"].net.weight,)
    line = Line(
        "OdeintAdjointMethod.apply(", odes.odeint_adjoint, "slope.net.bias", "inside OdeintAdjointMethod"
    )
    return Case(
        model,
        lambda: (
            odes.odeint_adjoint(model["slope"], model["start"](x), t, adjoint_params=only)[-1].square().mean()
        ),
        {"slope.net.bias": "stopped"},
        (line,),
    )


class Falling(nn.Module):
    """A ball: the height is 0 when it lands."""

    def __init__(self) -> None:
        super().__init__()
        self.gravity = nn.Parameter(torch.tensor(9.0))
        self.height = nn.Parameter(torch.tensor([2.0]))

    def forward(self, t: torch.Tensor, y: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        return y[1], -self.gravity * torch.ones_like(y[1])


@case("torchdiffeq")
def time_of_an_event() -> Case:
    """The instant is found by halving, without gradients; a function of its own gives it one."""
    odes = library("torchdiffeq")
    model = Falling()

    def loss() -> torch.Tensor:
        start = (model.height, torch.zeros(1))
        event = lambda t, y: y[0].squeeze()
        when, _ = odes.odeint_event(model, start, torch.tensor(0.0), event_fn=event, atol=1e-6, rtol=1e-6)
        return when

    misc, events = library("torchdiffeq._impl.misc"), library("torchdiffeq._impl.event_handling")
    lines = (
        Line("@torch.no_grad()", misc._optimal_step_size),
        Line("    with torch.no_grad():", events.find_event),
    )
    return Case(model, loss, {"*": "partly stopped"}, lines)


class Noisy(nn.Module):
    noise_type, sde_type = "diagonal", "ito"

    def __init__(self) -> None:
        super().__init__()
        self.drift, self.spread = nn.Linear(2, 2), nn.Linear(2, 2)

    def f(self, t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.drift(y)

    def g(self, t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(self.spread(y))


@case("torchsde")
def stochastic() -> Case:
    sdes = library("torchsde")
    model, y, t = (
        nn.ModuleDict({"start": nn.Linear(3, 2), "sde": Noisy()}),
        torch.randn(4, 3),
        torch.tensor([0.0, 0.5]),
    )
    return Case(
        model,
        lambda: sdes.sdeint(model["sde"], model["start"](y), t, dt=0.1, method="euler")[-1].square().mean(),
    )


@case("torchsde")
def stochastic_adjoint() -> Case:
    sdes = library("torchsde")
    model, y, t = (
        nn.ModuleDict({"start": nn.Linear(3, 2), "sde": Noisy()}),
        torch.randn(4, 3),
        torch.tensor([0.0, 0.5]),
    )
    model["sde"].sde_type = "stratonovich"

    def loss() -> torch.Tensor:
        found = sdes.sdeint_adjoint(model["sde"], model["start"](y), t, dt=0.1, method="midpoint")
        return found[-1].square().mean()

    return Case(model, loss)


# ------------------------------------------------------------------------------------- gpytorch, botorch


def process(kind: Any = None) -> tuple[nn.Module, nn.Module, torch.Tensor, torch.Tensor]:
    """A Gaussian process, its likelihood, and data."""
    gp = library("gpytorch")

    class Process(gp.models.ExactGP):  # type: ignore[name-defined, misc]
        def __init__(self, x: torch.Tensor, y: torch.Tensor, likelihood: nn.Module) -> None:
            super().__init__(x, y, likelihood)
            self.mean = gp.means.ConstantMean()
            self.kernel = gp.kernels.ScaleKernel(gp.kernels.RBFKernel(ard_num_dims=2))

        def forward(self, x: torch.Tensor) -> Any:
            return gp.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

    x, y = torch.rand(12, 2), torch.randn(12)
    likelihood = gp.likelihoods.GaussianLikelihood()
    return Process(x, y, likelihood).train(), likelihood, x, y


@case("gpytorch")
def marginal_likelihood() -> Case:
    gp = library("gpytorch")
    model, likelihood, x, y = process()
    evidence = gp.mlls.ExactMarginalLogLikelihood(likelihood, model)
    return Case(model, lambda: -evidence(model(x), y))


@case("gpytorch")
def marginal_likelihood_by_conjugate_gradients() -> Case:
    """Solves and log-determinants by iterations inside functions of linear_operator's own."""
    gp = library("gpytorch")
    model, likelihood, x, y = process()
    evidence = gp.mlls.ExactMarginalLogLikelihood(likelihood, model)

    def loss() -> torch.Tensor:
        with gp.settings.max_cholesky_size(1), gp.settings.fast_computations(True, True, True):
            return -evidence(model(x), y)

    return Case(model, loss)


@case("gpytorch")
def predictions_of_a_process() -> Case:
    """In evaluation, what is kept of the training data is detached unless one asks otherwise."""
    kept = library("gpytorch.models.exact_prediction_strategies")
    model, _, _, _ = process()
    model.eval()
    nn.init.constant_(model.mean.raw_constant, 0.3)
    x = torch.rand(3, 2)
    line = Line("            mean_cache = mean_cache.detach()", kept.DefaultPredictionStrategy)
    status = {"likelihood.*": "stopped", "*": "partly stopped"}
    return Case(model, lambda: model(x).mean.square().sum(), status, (line,))


@case("gpytorch")
def inducing_points() -> Case:
    """A sparse process, learnt by the evidence lower bound, in batches."""
    gp = library("gpytorch")

    class Sparse(gp.models.ApproximateGP):  # type: ignore[name-defined, misc]
        def __init__(self, points: torch.Tensor) -> None:
            found = gp.variational.CholeskyVariationalDistribution(len(points))
            strategy = gp.variational.VariationalStrategy(self, points, found, learn_inducing_locations=True)
            super().__init__(strategy)
            self.mean, self.kernel = (
                gp.means.ConstantMean(),
                gp.kernels.ScaleKernel(gp.kernels.MaternKernel()),
            )

        def forward(self, x: torch.Tensor) -> Any:
            return gp.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

    model = nn.ModuleDict(
        {"process": Sparse(torch.rand(5, 2)), "likelihood": gp.likelihoods.BernoulliLikelihood()}
    )
    bound = gp.mlls.VariationalELBO(model["likelihood"], model["process"], num_data=20)
    x, y = torch.rand(8, 2), torch.randint(0, 2, (8,)).float()
    model["process"](x)  # The first call sets the variational parameters, from the prior.
    return Case(stirred(model.train()), lambda: -bound(model["process"](x), y))


@case("gpytorch")
def deep_kernel() -> Case:
    gp = library("gpytorch")
    model, likelihood, x, y = process()
    both = nn.ModuleDict(
        {"features": nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 2)), "process": model}
    )
    evidence = gp.mlls.ExactMarginalLogLikelihood(likelihood, model)

    def loss() -> torch.Tensor:
        z = both["features"](x)
        model.set_train_data(z, y, strict=False)
        return -evidence(model(z), y)

    return Case(both, loss)


@case("botorch")
def expected_improvement() -> Case:
    """Where to look next: the candidates get the gradient. Of the training data, what is kept is detached."""
    models, found = library("botorch.models"), library("botorch.acquisition")
    x = torch.rand(8, 2, dtype=torch.float64)
    model = models.SingleTaskGP(x, x.sin().sum(-1, keepdim=True))
    model.eval()
    both = nn.Module()
    both.model, both.candidates = model, nn.Parameter(torch.rand(1, 2, dtype=torch.float64))
    improvement = found.LogExpectedImprovement(model, best_f=1.0)
    return Case(both, lambda: -improvement(both.candidates), CANDIDATES, caches())


CANDIDATES = {"*.raw_noise": "stopped", "*": "partly stopped"}
"""Of the candidates, choices between formulas are comparisons, which have no derivative."""


def caches() -> tuple[Line, ...]:
    """What gpytorch keeps for predictions: of the mean, and of the covariance."""
    kept = library("gpytorch.models.exact_prediction_strategies").DefaultPredictionStrategy
    mean, covariance = "            mean_cache = mean_cache.detach()", "            res = res.detach()"
    keys = [(mean, "model.*"), (covariance, "*.raw_noise"), (covariance, "*.raw_lengthscale")]
    return tuple(Line(text, kept, key) for text, key in keys)


@case("botorch")
def sampled_improvement() -> Case:
    """Monte Carlo with base samples that are kept."""
    models, found = library("botorch.models"), library("botorch.acquisition")
    sampling = library("botorch.sampling")
    x = torch.rand(8, 2, dtype=torch.float64)
    model = models.SingleTaskGP(x, x.sin().sum(-1, keepdim=True))
    model.eval()
    both = nn.Module()
    both.model, both.candidates = model, nn.Parameter(torch.rand(2, 2, dtype=torch.float64))
    sampler = sampling.SobolQMCNormalSampler(torch.Size([16]), seed=0)
    improvement = found.qLogExpectedImprovement(model, best_f=0.5, sampler=sampler)
    return Case(both, lambda: -improvement(both.candidates), CANDIDATES, caches())


# ------------------------------------------------------------------------------------------------ pyro-ppl


class Inference(nn.Module):
    """The parameters of pyro's store, as a module's."""

    def __init__(self, guide: nn.Module, model: Any) -> None:
        super().__init__()
        self.guide, self.model = guide, model


def regression() -> tuple[Any, torch.Tensor, torch.Tensor]:
    pyro = library("pyro")
    dist, pnn = library("pyro.distributions"), library("pyro.nn")
    pyro.clear_param_store()

    class Regression(pnn.PyroModule):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = pnn.PyroModule[nn.Linear](3, 1)
            self.net.weight = pnn.PyroSample(dist.Normal(0.0, 1.0).expand([1, 3]).to_event(2))
            self.spread = nn.Parameter(torch.tensor(0.3))

        def forward(self, x: torch.Tensor, y: torch.Tensor | None = None) -> torch.Tensor:
            mean = self.net(x).squeeze(-1)
            with pyro.plate("data", len(x)):
                return pyro.sample("y", dist.Normal(mean, self.spread.exp()), obs=y)

    return Regression(), torch.randn(6, 3), torch.randn(6)


@case("pyro-ppl")
def evidence_bound() -> Case:
    """A step of stochastic variational inference, with a guide that can be sampled by reparameterisation."""
    infer, guides = library("pyro.infer"), library("pyro.infer.autoguide")
    model, x, y = regression()
    guide = guides.AutoNormal(model)
    guide(x, y)
    both = Inference(guide, model)
    return Case(
        both,
        lambda: infer.Trace_ELBO().differentiable_loss(model, guide, x, y),
        {"*": "partly stopped"},
        value_alone(),
    )


def value_alone(keys: str = "*") -> tuple[Line, ...]:
    """The surrogate is taken off as a number, so that it has a gradient and no value."""
    return (
        Line(
            "isinstance(x, numbers.Number) else x.item()",
            library("pyro.infer.util").torch_item,
            keys,
            "came back at",
        ),
    )


@case("pyro-ppl")
def evidence_bound_in_closed_form() -> Case:
    infer, guides = library("pyro.infer"), library("pyro.infer.autoguide")
    model, x, y = regression()
    guide = guides.AutoDiagonalNormal(model)
    guide(x, y)
    both = Inference(guide, model)
    return Case(
        both,
        lambda: infer.TraceMeanField_ELBO().differentiable_loss(model, guide, x, y),
        {"*": "partly stopped"},
        value_alone(),
    )


class Coins(nn.Module):
    """A discrete latent variable: its sample has no derivative, the score of it has one."""

    def __init__(self) -> None:
        super().__init__()
        self.prior, self.found = nn.Parameter(torch.tensor(0.2)), nn.Parameter(torch.tensor(-0.4))
        self.shift = nn.Parameter(torch.tensor([0.5, -0.5]))

    def model(self, y: torch.Tensor) -> None:
        pyro, dist = library("pyro"), library("pyro.distributions")
        with pyro.plate("data", len(y)):
            z = pyro.sample("z", dist.Bernoulli(logits=self.prior.expand(len(y))))
            pyro.sample("y", dist.Normal(self.shift[z.long()], 1.0), obs=y)

    def guide(self, y: torch.Tensor) -> None:
        pyro, dist = library("pyro"), library("pyro.distributions")
        with pyro.plate("data", len(y)):
            pyro.sample("z", dist.Bernoulli(logits=self.found.expand(len(y))))


@case("pyro-ppl")
def score_of_a_discrete_sample() -> Case:
    infer, module = library("pyro.infer"), library("pyro.infer.trace_elbo")
    model, y = Coins(), torch.randn(6)
    sampling = library("pyro.distributions.torch_distribution").TorchDistributionMixin
    lines = (
        Line("log_r.add((stacks[name], log_r_term.detach()))", module),
        Line("else self.sample(sample_shape)", sampling, "found"),
        *value_alone(),
    )
    return Case(
        model,
        lambda: infer.Trace_ELBO().differentiable_loss(model.model, model.guide, y),
        {"*": "partly stopped"},
        lines,
    )


# ------------------------------------------------------------------------------------------ normflows, zuko


def flow_of_normflows(layers: Any) -> nn.Module:
    flows = library("normflows")
    return flows.NormalizingFlow(flows.distributions.DiagGaussian(2), layers)


@case("normflows")
def forward_divergence() -> Case:
    flows = library("normflows")
    nets = [flows.nets.MLP([1, 8, 2], init_zeros=False) for _ in range(2)]
    layers = [
        one for net in nets for one in (flows.flows.AffineCouplingBlock(net), flows.flows.Permute(2, "swap"))
    ]
    model, x = flow_of_normflows(layers), torch.randn(6, 2)
    return Case(stirred(model), lambda: model.forward_kld(x))


@case("normflows")
def residual_flow() -> Case:
    """Its log-determinant is estimated, and differentiated, inside a function of the library's own.

    How many terms it has is drawn by NumPy, from a parameter's value.
    """
    flows = library("normflows")
    net = flows.nets.LipschitzMLP([2, 8, 2], init_zeros=False, lipschitz_const=0.9)
    model, x = flow_of_normflows([flows.flows.Residual(net, reduce_memory=True)]), torch.randn(6, 2)
    apart = {"*.geom_p": "disconnected", "*.lamb": "disconnected"}
    return Case(stirred(model), lambda: model.forward_kld(x), apart)


class Standard(nn.Module):
    """A target for flows that are sampled."""

    def log_prob(self, z: torch.Tensor) -> torch.Tensor:
        return -0.5 * z.square().sum(-1)


@case("normflows")
def without_the_score() -> Case:
    """The path derivative: parameters are frozen for the second way through the flow."""
    flows = library("normflows")
    nets = [flows.nets.MLP([1, 8, 2], init_zeros=False) for _ in range(2)]
    layers = [
        one for net in nets for one in (flows.flows.AffineCouplingBlock(net), flows.flows.Permute(2, "swap"))
    ]
    model = flow_of_normflows(layers)
    model.p = Standard()
    line = Line("param.requires_grad = flag", library("normflows.utils.optim").set_requires_grad)
    return Case(
        stirred(model), lambda: model.reverse_kld(8, score_fn=False), {"*": "partly stopped"}, (line,)
    )


@case("zuko")
def spline_flow() -> Case:
    """Which piece of the spline: a search has no derivative."""
    zuko = library("zuko")
    model, x, y = (
        zuko.flows.NSF(2, context=3, transforms=1, hidden_features=(8,)),
        torch.randn(6, 2),
        torch.randn(6, 3),
    )
    return Case(stirred(model), lambda: -model(y).log_prob(x).mean(), {"*": "partly stopped"})


@case("zuko")
def continuous_flow() -> Case:
    """An ODE whose adjoint is the backward of a function of the library's own."""
    zuko = library("zuko")
    model, x = zuko.flows.CNF(2, hidden_features=(8,)), torch.randn(6, 2)
    return Case(stirred(model), lambda: -model().log_prob(x).mean())


@case("zuko")
def inverted_flow() -> Case:
    """A flow without a closed inverse: samples are found by halving, and differentiated implicitly."""
    zuko = library("zuko")
    model = zuko.flows.UNAF(2, transforms=1, hidden_features=(8,), signal=4)
    return Case(stirred(model), lambda: model().rsample((4,)).square().mean())

"""Losses of libraries for images, graphs, spikes, operators, meta-learning, privacy and memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch_libraries import Case, Line, case, library, stirred

# ----------------------------------------------------------------------------------- higher, geoopt, entmax


@case("higher")
def meta_learning() -> Case:
    """MAML: two steps of a copy, differentiated."""
    higher = library("higher")
    model, (x, y) = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)), torch.randn(2, 6, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loss() -> torch.Tensor:
        with higher.innerloop_ctx(model, optimizer, copy_initial_weights=False) as (copy, inner):
            for _ in range(2):
                inner.step((copy(x) - 1.0).square().mean())
            return copy(y).square().mean()

    return Case(model, loss)


@case("higher")
def meta_learning_of_copies() -> Case:
    """The mistake that its documentation warns of: the steps begin at a copy of the weights."""
    higher = library("higher")
    model, (x, y) = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)), torch.randn(2, 6, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loss() -> torch.Tensor:
        with higher.innerloop_ctx(model, optimizer) as (copy, inner):
            inner.step((copy(x) - 1.0).square().mean())
            return copy(y).square().mean()

    line = Line("t = t.clone().detach().requires_grad_(t.requires_grad)", library("higher.utils"))
    return Case(model, loss, {"*": "stopped"}, (line,))


@case("geoopt")
def points_of_a_ball() -> Case:
    """Distances between points of hyperbolic space."""
    geoopt = library("geoopt")
    ball = geoopt.PoincareBall()
    model = nn.ParameterDict({name: geoopt.ManifoldParameter(0.3 * torch.rand(4, 2), ball) for name in "ab"})
    for _ in range(3):  # Its formulas are compiled after they ran a few times, and round in another way then.
        ball.dist(model["a"], model["b"]).square().sum().backward()
    model.zero_grad()
    return Case(model, lambda: ball.dist(model["a"], model["b"]).square().sum())


@case("geoopt")
def map_of_a_sphere() -> Case:
    """Very short steps take another formula: the comparison has no derivative."""
    geoopt = library("geoopt")
    sphere = geoopt.Sphere()
    model = nn.Module()
    model.point = geoopt.ManifoldParameter(sphere.projx(torch.randn(4, 3)), sphere)
    model.step = nn.Linear(3, 3)

    def loss() -> torch.Tensor:
        there = sphere.expmap(model.point, sphere.proju(model.point, model.step(model.point)))
        return (there - 1.0).square().sum()

    return Case(model, loss, {"*": "partly stopped"})


def classified(kind: str, **options: Any) -> Case:
    """A linear classifier with one of entmax's maps or losses, each a function of its own."""
    function = getattr(library("entmax"), kind)
    model, x, y = nn.Linear(3, 4), torch.randn(6, 3), torch.tensor([0, 1, 2, 3, 0, 1])
    if kind.endswith("loss"):
        return Case(model, lambda: function(model(x), y, **options).sum())
    return Case(model, lambda: -function(model(x), dim=-1, **options).square().sum())


@case("entmax")
def sparse_softmax() -> Case:
    return classified("sparsemax")


@case("entmax")
def sparse_softmax_by_bisection() -> Case:
    return classified("entmax_bisect", alpha=1.3)


@case("entmax")
def sparse_loss() -> Case:
    return classified("entmax15_loss")


@case("entmax")
def learnt_sparsity() -> Case:
    """How sparse the map is is learnt, too."""
    entmax = library("entmax")
    model, x = nn.Linear(3, 4), torch.randn(6, 3)
    model.alpha = nn.Parameter(torch.tensor(1.4))
    return Case(model, lambda: entmax.entmax_bisect(model(x), model.alpha, dim=-1).square().sum())


# --------------------------------------- kornia, segmentation-models-pytorch, pytorch-msssim, neuraloperator


@case("kornia")
def registration() -> Case:
    """An image is moved onto another: the homography is learnt, up to its scale."""
    tracker = library("kornia.geometry")
    model = nn.Module()
    model.homography = nn.Parameter(torch.eye(3)[None] + 0.01 * torch.randn(1, 3, 3))
    a, b = torch.rand(2, 1, 1, 8, 8)

    def loss() -> torch.Tensor:
        moved = tracker.transform.warp_perspective(a, model.homography, (8, 8))
        return library("kornia.losses").ssim_loss(moved, b, 3)

    line = Line("magnitude = matrix.detach().abs()", library("kornia.geometry.transform.imgwarp"))
    return Case(model, loss, {"*": "partly stopped"}, (line,))


@case("kornia")
def augmented() -> Case:
    """Augmentations hand gradients on to what made the image; which channel is the greatest has none."""
    augmentation = library("kornia.augmentation")
    model = nn.Conv2d(3, 3, 3, padding=1)
    pipeline = nn.Sequential(
        augmentation.ColorJiggle(0.1, 0.1, 0.1, 0.1, p=1.0), augmentation.RandomAffine(10.0, p=1.0)
    )
    x = torch.rand(2, 3, 8, 8)
    return Case(model, lambda: pipeline(torch.sigmoid(model(x))).square().mean(), {"*": "partly stopped"})


@case("kornia")
def focal() -> Case:
    """Where the weight has no slope, its base is detached."""
    losses = library("kornia.losses.focal")
    model, x, y = nn.Conv2d(3, 4, 1), torch.rand(2, 3, 4, 4), torch.randint(0, 4, (2, 4, 4))
    line = Line("focal_weight = torch.where(saturated, base.detach().pow(gamma)", losses)
    return Case(
        model,
        lambda: losses.focal_loss(model(x), y, alpha=0.5, reduction="mean"),
        {"*": "partly stopped"},
        (line,),
    )


def segmented(loss: nn.Module, status: str = "flows") -> Case:
    """A network whose encoder is deeper than it is used."""
    smp = library("segmentation_models_pytorch")
    model = smp.Unet(
        "timm-mobilenetv3_small_minimal_100",
        encoder_weights=None,
        encoder_depth=3,
        decoder_channels=(8, 4, 4),
        classes=3,
    )
    x, y = torch.rand(2, 3, 32, 32), torch.randint(0, 3, (2, 32, 32))
    unused = dict.fromkeys((f"encoder.model.blocks.{i}.*" for i in (2, 3, 4, 5)), "disconnected")
    return Case(model, lambda: loss(model(x), y), {**unused, "*": status})


@case("segmentation-models-pytorch")
def overlap() -> Case:
    return segmented(library("segmentation_models_pytorch.losses").DiceLoss("multiclass"))


@case("segmentation-models-pytorch")
def sorted_errors() -> Case:
    """Errors are sorted; their order, which has no derivative, weighs them."""
    losses = library("segmentation_models_pytorch.losses.lovasz")
    return segmented(losses.LovaszLoss("multiclass"), "partly stopped")


@case("pytorch-msssim")
def structural_similarity() -> Case:
    module = library("pytorch_msssim")
    model, x = nn.Conv2d(3, 3, 3, padding=1), torch.rand(1, 3, 24, 24)
    return Case(model, lambda: 1.0 - module.ssim(torch.sigmoid(model(x)), x, data_range=1.0, win_size=5))


@case("neuraloperator")
def learnt_operator() -> Case:
    """A Fourier neural operator and a norm of Sobolev's."""
    models, losses = library("neuralop.models"), library("neuralop.losses")
    model = models.FNO(n_modes=(4, 4), hidden_channels=6, in_channels=1, out_channels=1, n_layers=1)
    criterion, (x, y) = losses.H1Loss(d=2), torch.randn(2, 2, 1, 8, 8)
    return Case(stirred(model), lambda: criterion(model(x), y))


# --------------------------------------------------------------------------------- snntorch, torch-geometric


@case("snntorch")
def spikes() -> Case:
    """A spike has the gradient of another function; how a neuron is reset is detached."""
    snn, neurons = library("snntorch"), library("snntorch._neurons.neurons")
    model = nn.ModuleDict(
        {"first": nn.Linear(5, 4), "spike": snn.Leaky(beta=0.9, learn_beta=True), "last": nn.Linear(4, 2)}
    )
    x = torch.rand(4, 3, 5)

    def loss() -> torch.Tensor:
        state, found = model["spike"].init_leaky(), []
        for now in x:
            spike, state = model["spike"](3.0 * model["first"](now), state)
            found.append(model["last"](spike))
        return torch.stack(found).square().mean()

    line = Line("reset = self.spike_grad(mem_shift).clone().detach()", neurons, "[fs]*")
    return Case(
        model, loss, {"last.*": "flows", "spike.threshold": "stopped", "*": "partly stopped"}, (line,)
    )


def graph() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Nodes, edges, labels."""
    edges = torch.tensor([[0, 1, 2, 3, 4, 5, 0, 2], [1, 2, 3, 4, 5, 0, 3, 5]])
    return torch.randn(6, 4), edges, torch.tensor([0, 1, 0, 1, 0, 1])


@case("torch-geometric")
def attention_on_graphs() -> Case:
    """The greatest of a softmax over neighbours is that of detached scores."""
    nets, softmax = library("torch_geometric.nn"), library("torch_geometric.utils._softmax")
    x, edges, y = graph()
    model = nets.GAT(4, 6, num_layers=2, out_channels=2, heads=2)
    nn.init.normal_(model.convs[0].bias)
    text = "        src_max = scatter(src.detach(), index, dim, dim_size=N, reduce='max')"
    lines = tuple(Line(text, softmax, keys) for keys in ("convs.0.*", "convs.1.[!b]*"))
    status = {"convs.1.bias": "flows", "*": "partly stopped"}
    return Case(model, lambda: nn.functional.cross_entropy(model(x, edges), y), status, lines)


@case("torch-geometric")
def graph_autoencoder() -> Case:
    nets = library("torch_geometric.nn")
    x, edges, _ = graph()

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mean, self.spread = nets.GCNConv(4, 3), nets.GCNConv(4, 3)

        def forward(self, x: torch.Tensor, edges: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.mean(x, edges), self.spread(x, edges)

    model = nets.VGAE(Encoder())

    def loss() -> torch.Tensor:
        z = model.encode(x, edges)
        return model.recon_loss(z, edges) + model.kl_loss() / 6.0

    return Case(stirred(model), loss)


@case("torch-geometric")
def adversarial_graph_autoencoder() -> Case:
    """The discriminator learns from detached embeddings."""
    nets, module = library("torch_geometric.nn"), library("torch_geometric.nn.models.autoencoder")
    x, edges, _ = graph()
    model = nets.ARGA(nets.GCN(4, 3, num_layers=1), nn.Linear(3, 1))
    line = Line("fake = torch.sigmoid(self.discriminator(z.detach()))", module, "encoder.*")
    return Case(
        model, lambda: model.discriminator_loss(model.encode(x, edges)), {"encoder.*": "stopped"}, (line,)
    )


@case("torch-geometric")
def reversible_graph_network() -> Case:
    """Its functions free the memory of what they are given, and compute it once more from their results."""
    nets = library("torch_geometric.nn")
    x, edges, y = graph()
    model = nn.ModuleDict(
        {
            "first": nn.Linear(4, 4),
            "middle": nets.GroupAddRev(nets.SAGEConv(2, 2), num_groups=2),
            "last": nn.Linear(4, 2),
        }
    )

    def loss() -> torch.Tensor:
        return nn.functional.cross_entropy(model["last"](model["middle"](model["first"](x), edges)), y)

    return Case(model, loss)


# ---------------------------------------------------------------------------------------- opacus, fairscale


@case("opacus")
def private() -> Case:
    """Gradients of each example are computed by hooks; the loss is what it was."""
    module = library("opacus").GradSampleModule(nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)))
    x, y = torch.randn(6, 4), torch.tensor([0, 1, 0, 1, 0, 1])
    return Case(module, lambda: nn.functional.cross_entropy(module(x), y))


@case("fairscale")
def checkpointed() -> Case:
    """A checkpoint of a library's own: its backward runs the module once more."""
    wrapper = library("fairscale.nn.checkpoint").checkpoint_wrapper
    model = nn.Sequential(
        nn.Linear(4, 4), wrapper(nn.Sequential(nn.Linear(4, 4), nn.Tanh())), nn.Linear(4, 1)
    )
    x = torch.randn(3, 4)
    return Case(model, lambda: model(x).square().mean())


@case("fairscale")
def checkpointed_input() -> Case:
    """What is checkpointed first has no input that requires a gradient."""
    wrapper = library("fairscale.nn.checkpoint").checkpoint_wrapper
    model = nn.Sequential(wrapper(nn.Sequential(nn.Linear(4, 4), nn.Tanh())), nn.Linear(4, 1))
    x = torch.randn(3, 4)
    return Case(model, lambda: model(x).square().mean())


# ------------------------------------------------------------------------------------------------- diffusers


@case("diffusers")
def denoised() -> Case:
    diffusers = library("diffusers")
    model = diffusers.UNet2DModel(
        sample_size=8,
        in_channels=3,
        out_channels=3,
        layers_per_block=1,
        block_out_channels=(8, 8),
        norm_num_groups=2,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        attention_head_dim=4,
    )
    schedule = diffusers.DDPMScheduler(num_train_timesteps=20)
    x, noise, t = torch.rand(2, 3, 8, 8), torch.randn(2, 3, 8, 8), torch.tensor([3, 17])

    def loss() -> torch.Tensor:
        return (model(schedule.add_noise(x, noise, t), t).sample - noise).square().mean()

    return Case(stirred(model), loss)


@case("diffusers")
def autoencoded() -> Case:
    diffusers = library("diffusers")
    model = diffusers.AutoencoderKL(
        block_out_channels=(8,), norm_num_groups=2, latent_channels=2, layers_per_block=1, sample_size=8
    )
    x = torch.rand(1, 3, 8, 8)

    def loss() -> torch.Tensor:
        found = model.encode(x).latent_dist
        return (model.decode(found.sample()).sample - x).square().mean() + 0.1 * found.kl().mean()

    return Case(stirred(model), loss)


@case("diffusers")
def average_of_weights() -> Case:
    """Distilled from its moving average, which is no module of its own but copied into one."""
    module = library("diffusers.training_utils")
    model, teacher = nn.Linear(3, 3), nn.Linear(3, 3)
    average = module.EMAModel(model.parameters(), decay=0.9)
    nn.init.normal_(model.weight)
    both, x = nn.ModuleDict({"model": model, "teacher": teacher.requires_grad_(False)}), torch.randn(2, 3)

    def loss() -> torch.Tensor:
        average.step(model.parameters())
        average.copy_to(teacher.parameters())
        return (model(x) - teacher(x)).square().mean()

    line = Line("param.data.copy_(s_param.to(param.device).data)", module.EMAModel.copy_to, "model.*")
    return Case(both, loss, {"teacher.*": "stopped", "*": "partly stopped"}, (line,))

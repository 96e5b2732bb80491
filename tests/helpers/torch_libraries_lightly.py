"""Losses and heads of lightly, as its example scripts put them together, on a tiny backbone."""

from __future__ import annotations

import copy

import torch
from torch import nn
from torch_libraries import Case, Line, case, library


def backbone() -> nn.Module:
    """What these libraries call so: images in, 8 features out."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )


def views(count: int = 2) -> list[torch.Tensor]:
    return [torch.randn(6, 3, 8, 8) for _ in range(count)]


class Momentum(nn.Module):
    """A student and its exponential moving average, as the example scripts of lightly have them."""

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.backbone, self.projection_head = backbone(), head
        self.backbone_momentum = copy.deepcopy(self.backbone)
        self.projection_head_momentum = copy.deepcopy(self.projection_head)
        utils = library("lightly.models.utils")
        utils.deactivate_requires_grad(self.backbone_momentum)
        utils.deactivate_requires_grad(self.projection_head_momentum)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.projection_head(self.backbone(x))

    def forward_momentum(self, x: torch.Tensor) -> torch.Tensor:
        return self.projection_head_momentum(self.backbone_momentum(x))

    def update(self) -> None:
        utils = library("lightly.models.utils")
        utils.update_momentum(self.backbone, self.backbone_momentum, m=0.9)
        utils.update_momentum(self.projection_head, self.projection_head_momentum, m=0.9)


MOMENTUM = {
    "*_momentum.*": "stopped",
    "backbone.*": "partly stopped",
    "projection_head.*": "partly stopped",
}
"""Of a step that begins with the update of the average: the student has a part in it, behind the cut."""


class BYOL(Momentum):
    def __init__(self) -> None:
        modules = library("lightly.models.modules")
        super().__init__(modules.BYOLProjectionHead(8, 8, 4))
        self.prediction_head = modules.BYOLPredictionHead(4, 8, 4)

    def predict(self, x: torch.Tensor) -> torch.Tensor:
        return self.prediction_head(self(x))

    def target(self, x: torch.Tensor) -> torch.Tensor:
        z = self.forward_momentum(x)
        z = z.detach()
        return z


@case("lightly")
def byol() -> Case:
    model, criterion, (x0, x1) = BYOL(), library("lightly.loss").NegativeCosineSimilarity(), views()

    def loss() -> torch.Tensor:
        model.update()
        p0, z0, p1, z1 = model.predict(x0), model.target(x0), model.predict(x1), model.target(x1)
        return 0.5 * (criterion(p0, z1) + criterion(p1, z0))

    return Case(model, loss, MOMENTUM, tuple(Line("z = z.detach()", BYOL.target, key) for key in MOMENTUM))


@case("lightly")
def byol_without_detach() -> Case:
    """What is left then is that the copy requires no gradient."""
    model, criterion, (x0, x1) = BYOL(), library("lightly.loss").NegativeCosineSimilarity(), views()

    def loss() -> torch.Tensor:
        return criterion(model.predict(x0), model.forward_momentum(x1))

    return Case(
        model,
        loss,
        {"*_momentum.*": "stopped"},
        (Line("", keys="*_momentum.*", reason="requires_grad"),),
    )


@case("lightly")
def simsiam() -> Case:
    modules, criterion = library("lightly.models.modules"), library("lightly.loss").NegativeCosineSimilarity()
    model = nn.Module()
    model.backbone = backbone()
    model.projection_head = modules.SimSiamProjectionHead(8, 8, 6)
    model.prediction_head = modules.SimSiamPredictionHead(6, 4, 6)
    x0, x1 = views()

    def forward(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        z = model.projection_head(model.backbone(x))
        p = model.prediction_head(z)
        z = z.detach()
        return z, p

    def loss() -> torch.Tensor:
        (z0, p0), (z1, p1) = forward(x0), forward(x1)
        return 0.5 * (criterion(z0, p1) + criterion(z1, p0))

    partly = {"backbone.*": "partly stopped", "projection_head.*": "partly stopped"}
    return Case(model, loss, partly, tuple(Line("z = z.detach()", forward, key) for key in partly))


@case("lightly")
def moco() -> Case:
    model = Momentum(library("lightly.models.modules").MoCoProjectionHead(8, 8, 4))
    criterion = library("lightly.loss").NTXentLoss(memory_bank_size=(16, 4))
    (x0, x1) = views()

    def loss() -> torch.Tensor:
        model.update()
        return criterion(model(x0), model.forward_momentum(x1).detach())

    return Case(model, loss, MOMENTUM, tuple(Line(".detach()", loss, key) for key in MOMENTUM))


@case("lightly")
def vicreg() -> Case:
    model = nn.Sequential(backbone(), library("lightly.models.modules.heads").VICRegProjectionHead(8, 8, 4))
    criterion, (x0, x1) = library("lightly.loss").VICRegLoss(), views()
    return Case(model, lambda: criterion(model(x0), model(x1)))


@case("lightly")
def dino() -> Case:
    """The student's last layer is of constant norm: ``weight_g`` requires no gradient."""
    head, utils = library("lightly.models.modules").DINOProjectionHead, library("lightly.models.utils")
    model = nn.Module()
    model.student_backbone, model.student_head = backbone(), head(8, 8, 4, 10, freeze_last_layer=1)
    model.teacher_backbone, model.teacher_head = copy.deepcopy(model.student_backbone), head(8, 8, 4, 10)
    utils.deactivate_requires_grad(model.teacher_backbone)
    utils.deactivate_requires_grad(model.teacher_head)
    criterion, xs = library("lightly.loss").DINOLoss(output_dim=10), views(3)

    def loss() -> torch.Tensor:
        teacher = [model.teacher_head(model.teacher_backbone(x)) for x in xs[:2]]
        student = [model.student_head(model.student_backbone(x)) for x in xs]
        return criterion(teacher, student, epoch=0)

    status = {"teacher_*": "stopped", "student_head.last_layer.weight_g": "stopped"}
    return Case(model, loss, status, tuple(Line("", keys=key, reason="requires_grad") for key in status))


@case("lightly")
def swav() -> Case:
    """The library takes the codes without gradient: the line is its own."""
    modules, losses = library("lightly.models.modules"), library("lightly.loss.swav_loss")
    model = nn.Module()
    model.backbone = backbone()
    model.projection_head = modules.SwaVProjectionHead(8, 8, 4)
    model.prototypes = modules.SwaVPrototypes(4, n_prototypes=5)
    criterion, xs = losses.SwaVLoss(), views(3)

    def scores(x: torch.Tensor) -> torch.Tensor:
        return model.prototypes(nn.functional.normalize(model.projection_head(model.backbone(x)), dim=1))

    def loss() -> torch.Tensor:
        model.prototypes.normalize()
        high, low = [scores(x) for x in xs[:2]], [scores(xs[2])]
        return criterion(high, low)

    cut = Line(
        "with torch.no_grad():", losses.SwaVLoss, other="outputs = high_resolution_outputs[i].detach()"
    )
    return Case(model, loss, {"*": "partly stopped"}, (cut,))


@case("lightly")
def tico() -> Case:
    losses = library("lightly.loss.tico_loss")
    model = nn.Sequential(backbone(), library("lightly.models.modules.heads").TiCoProjectionHead(8, 8, 4))
    criterion, (x0, x1) = losses.TiCoLoss(), views()
    cut = Line("B = torch.mm(z_a.T, z_a).detach() / z_a.shape[0]", losses)
    return Case(model, lambda: criterion(model(x0), model(x1)), {"*": "partly stopped"}, (cut,))


@case("lightly")
def dcl_weights() -> Case:
    """Weights that the library detaches, and wraps once more by ``torch.tensor``."""
    losses = library("lightly.loss.dcl_loss")
    model = nn.Sequential(backbone(), nn.Linear(8, 4))
    criterion, (x0, x1) = losses.DCLWLoss(), views()
    cut = Line("return torch.tensor(2 - out0.shape[0]", losses.negative_mises_fisher_weights)
    return Case(model, lambda: criterion(model(x0), model(x1)), {"*": "partly stopped"}, (cut,))


@case("lightly")
def visreg() -> Case:
    losses = library("lightly.loss.visreg_loss")
    model = nn.Sequential(backbone(), nn.Linear(8, 4))
    x = views(1)[0]
    cut = Line("z_norm = (z - mean) / (std.detach() + eps)", losses)
    return Case(model, lambda: losses.visreg_shape_loss(model(x), 3), {"*": "partly stopped"}, (cut,))


# ----------------------------------------------------------------- losses, of tensors that require gradients


def of_tensors(loss: str, sizes: dict[str, tuple[int, ...]], *lines: Line, **status: str) -> Case:
    """A loss of tensors: what each is called is the name of an argument."""
    inputs = nn.ParameterDict({name: nn.Parameter(torch.randn(size)) for name, size in sizes.items()})
    criterion = getattr(library("lightly.loss"), loss)()
    return Case(inputs, lambda: criterion(**inputs), status, lines)


def pair(first: str, second: str) -> dict[str, tuple[int, ...]]:
    return {first: (6, 4), second: (6, 4)}


@case("lightly")
def barlow_twins() -> Case:
    return of_tensors("BarlowTwinsLoss", pair("z_a", "z_b"))


@case("lightly")
def decoupled() -> Case:
    return of_tensors("DCLLoss", pair("out0", "out1"))


@case("lightly")
def spread() -> Case:
    """The nearest neighbour is found by a position."""
    loss = library("lightly.loss.koleo_loss").KoLeoLoss
    return of_tensors("KoLeoLoss", {"x": (6, 4)}, Line("argmax", loss), x="partly stopped")


@case("lightly")
def model_aware() -> Case:
    """Its temperature and the weights of its terms are taken without gradient: two lines."""
    loss = library("lightly.loss.macl_loss").MACLLoss
    lines = (Line("A = torch.mean(pos.detach())", loss), Line("loss: Tensor = -V.detach()", loss))
    return of_tensors("MACLLoss", pair("z0", "z1"), *lines, z0="partly stopped", z1="partly stopped")


@case("lightly")
def masked_siamese() -> Case:
    """Targets are computed without gradients, from the prototypes too."""
    line = Line("with torch.no_grad():", library("lightly.loss.msn_loss").MSNLoss.forward, "[tp]*")
    sizes = {"anchors": (6, 4), "targets": (3, 4), "prototypes": (5, 4)}
    return of_tensors("MSNLoss", sizes, line, targets="stopped", prototypes="partly stopped")


@case("lightly")
def latent_prediction() -> Case:
    line = Line("target = target.detach()", library("lightly.loss.latent_distance"), "target")
    sizes = dict.fromkeys(("predicted", "target", "embeddings"), (2, 3, 4))
    return of_tensors("LeWMLoss", sizes, line, target="stopped")


@case("lightly")
def aligned_patches() -> Case:
    line = Line(
        "teacher = teacher_features.detach()", library("lightly.loss.dense_relational_utils"), "teacher*"
    )
    sizes = dict.fromkeys(("student_features", "teacher_features"), (2, 5, 4))
    return of_tensors("PatchKernelAlignmentLoss", sizes, line, teacher_features="stopped")


@case("lightly")
def clustered_patches() -> Case:
    """Two lines cut, one behind the other."""
    module = library("lightly.loss.capi_loss")
    line = Line("@torch.no_grad()", module, "teacher_logits", other="logits=teacher_logits.detach()")
    sizes = dict.fromkeys(("student_logits", "teacher_logits"), (2, 5, 4))
    return of_tensors("CAPILoss", sizes, line, teacher_logits="stopped")

"""Tiny models and losses of timm and torchvision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import nn
from torch_libraries import Case, Line, case, library


@case("timm")
def timm_vit() -> Case:
    vit = library("timm.models.vision_transformer")
    model = vit.VisionTransformer(
        img_size=8, patch_size=4, embed_dim=8, depth=2, num_heads=2, num_classes=3, drop_path_rate=0.1
    )
    x, y = torch.randn(4, 3, 8, 8), torch.tensor([0, 1, 2, 0])
    return Case(model, lambda: nn.functional.cross_entropy(model(x), y))


def tiny_timm_resnet() -> nn.Module:
    resnet = library("timm.models.resnet")
    return resnet.ResNet(
        resnet.BasicBlock,
        (1, 1, 1, 1),
        channels=(4, 4, 8, 8),
        stem_width=4,
        num_classes=3,
        zero_init_last=False,  # Zeros would keep gradients from what is before them.
    )


@case("timm")
def timm_frozen_stages() -> Case:
    """``timm.utils.freeze`` freezes parameters, and makes batch norms ones without parameters."""
    model = tiny_timm_resnet()
    library("timm.utils").freeze(model, ["conv1", "bn1", "layer1", "layer2"])
    x, y = torch.randn(4, 3, 32, 32), torch.tensor([0, 1, 2, 0])
    frozen = {"conv1.*": "stopped", "layer1.*": "stopped", "layer2.*": "stopped"}
    lines = tuple(Line("", keys=key, reason="requires_grad") for key in frozen)
    return Case(model, lambda: nn.functional.cross_entropy(model(x), y), frozen, lines)


def distilled(model: nn.Module, average: nn.Module, update: Callable[[nn.Module], None]) -> Case:
    """A model that is drawn towards its moving average."""
    both, x = nn.ModuleDict({"model": model, "average": average}), torch.randn(4, 3, 32, 32)

    def loss() -> torch.Tensor:
        update(model)
        return (model(x) - average(x)).square().mean()

    return Case(both, loss)


@case("timm")
def timm_distilled_from_its_average() -> Case:
    """Parameters of the average require gradients, which nothing keeps away: a mistake to find."""
    model, ema = tiny_timm_resnet(), library("timm.utils.model_ema")
    average = ema.ModelEmaV3(model)
    lines = (Line("@torch.no_grad()", ema.ModelEmaV3.update),)
    return replace(
        distilled(model, average.module, average.update), status={"*": "partly stopped"}, cuts=lines
    )


@case("timm")
def timm_distilled_from_its_frozen_average() -> Case:
    model, ema = tiny_timm_resnet(), library("timm.utils.model_ema")
    average = ema.ModelEma(model)
    lines = (
        Line("", keys="average.*", reason="requires_grad"),
        Line("with torch.no_grad():", ema.ModelEma.update),
    )
    return replace(
        distilled(model, average.ema, average.update),
        status={"average.*": "stopped", "*": "partly stopped"},
        cuts=lines,
    )


@case("torchvision")
def vision_resnet() -> Case:
    resnet = library("torchvision.models.resnet")
    norm = library("torchvision.ops.misc").FrozenBatchNorm2d
    model = resnet.ResNet(resnet.BasicBlock, [1, 1, 1, 1], num_classes=3, norm_layer=norm)
    x, y = torch.randn(2, 3, 32, 32), torch.tensor([0, 2])
    return Case(model, lambda: nn.functional.cross_entropy(model(x), y))


@case("torchvision")
def vision_boxes() -> Case:
    """The complete IoU loss takes its weight without gradient."""
    boxes = library("torchvision.ops.ciou_loss")
    model, x = nn.Linear(3, 4), torch.randn(5, 3)
    truth = torch.tensor([[0.0, 0.0, 2.0, 3.0]]).expand(5, 4)

    def loss() -> torch.Tensor:
        corner, size = model(x).split(2, dim=-1)
        found = torch.cat([corner, corner + size.exp()], dim=-1)
        return boxes.complete_box_iou_loss(found, truth, reduction="sum")

    lines = (Line("with torch.no_grad():", boxes.complete_box_iou_loss),)
    return Case(model, loss, {"*": "partly stopped"}, lines)


@case("torchvision")
def vision_detector() -> Case:
    """RetinaNet: anchors are matched to boxes, outside of any gradient."""
    detection = library("torchvision.models.detection.retinanet")
    anchors = library("torchvision.models.detection.anchor_utils")
    trunk = nn.Sequential(nn.Conv2d(3, 8, 3, stride=4), nn.ReLU())
    trunk.out_channels = 8
    model = detection.RetinaNet(
        trunk,
        num_classes=3,
        anchor_generator=anchors.AnchorGenerator(((12,),), ((1.0,),)),
        head=detection.RetinaNetHead(8, 1, 3, norm_layer=lambda n: nn.GroupNorm(2, n)),
        min_size=32,
        max_size=32,
    )
    trunk[0].weight.requires_grad_(False)
    images = [torch.rand(3, 32, 32), torch.rand(3, 32, 32)]
    truth = {"boxes": torch.tensor([[1.0, 2.0, 14.0, 15.0]]), "labels": torch.tensor([1])}

    def loss() -> torch.Tensor:
        return sum(model(images, [truth, truth]).values())

    return Case(model, loss, {"backbone.0.weight": "stopped"})

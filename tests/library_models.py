"""Models and losses of PyTorch libraries, unchanged and tiny, with what is true of their gradients.

Nothing is downloaded: the models are built from configurations, with random weights.
"""

from __future__ import annotations

import copy
import importlib
import importlib.util
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

HERE = Path(__file__)


def library(name: str) -> ModuleType:
    """A module of a library, or the reason why a test of it is skipped."""
    top = name.partition(".")[0]
    if importlib.util.find_spec(top) is None:
        pytest.skip(f"{top} is not installed")
    if top in ("torchvision", "lightly", "timm", "transformers", "peft", "pytorch_lightning"):
        _let_torchvision_import()
    return importlib.import_module(name)


_DECLARED: list[Any] = []


def _let_torchvision_import() -> None:
    """Declare the two operators without which ``import torchvision`` fails beside a PyTorch for the CPU.

    The registry's torchvision is built for CUDA, so that its operators written in C++ do not load beside a
    PyTorch for the CPU. Its Python needs only that two of them be known; no test here calls one.
    """
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None or _DECLARED:
        return
    try:
        torch.ops.load_library(str(Path(spec.origin).with_name("_C.so")))
    except OSError:
        declared = torch.library.Library("torchvision", "FRAGMENT")
        for name in ("nms", "qnms"):
            declared.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _DECLARED.append(declared)


@dataclass(frozen=True)
class Line:
    """A line of source, found by what is written there.

    Attributes:
        of: the module, class or function in whose source it stands; this file unless given.
        text: what only that line of it holds.
        keys: the parameters that it cuts, as a pattern.
        reason: a word of what the report says.
    """

    text: str
    of: Any = None
    keys: str = "*"
    reason: str = ""

    @property
    def place(self) -> tuple[str, int]:
        """Its file, and its number there."""
        if self.of is None:
            lines, first, file = HERE.read_text().splitlines(), 1, str(HERE)
        else:
            lines, first = inspect.getsourcelines(self.of)
            file = str(inspect.getsourcefile(self.of))
        found = [
            i for i, line in enumerate(lines, max(first, 1)) if self.text in line and "Line(" not in line
        ]
        assert len(found) == 1, f"{self.text!r} stands on {len(found)} lines of {file}"
        return file, found[0]


@dataclass(frozen=True)
class Case:
    """A loss of a library, and what is true of it.

    Attributes:
        model: whose parameters are asked about.
        loss: computes it.
        status: of the parameters that match a pattern, the first that does; of the others "flows".
        cuts: the lines that keep gradients from parameters.
    """

    model: nn.Module
    loss: Callable[[], torch.Tensor]
    status: Mapping[str, str] = field(default_factory=dict)
    cuts: tuple[Line, ...] = ()


CASES: dict[str, Callable[[], Case]] = {}


def case(build: Callable[[], Case]) -> Callable[[], Case]:
    CASES[build.__name__] = build
    return build


def backbone() -> nn.Module:
    """What these libraries call so: images in, 8 features out."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )


def views(count: int = 2) -> list[torch.Tensor]:
    return [torch.randn(6, 3, 8, 8) for _ in range(count)]


# --------------------------------------------------------------------------------------------- lightly


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


class BYOL(Momentum):
    def __init__(self) -> None:
        modules = library("lightly.models.modules")
        super().__init__(modules.BYOLProjectionHead(8, 8, 4))
        self.prediction_head = modules.BYOLPredictionHead(4, 8, 4)

    def predict(self, x: torch.Tensor) -> torch.Tensor:
        return self.prediction_head(self(x))

    def target(self, x: torch.Tensor) -> torch.Tensor:
        z = self.forward_momentum(x)
        z = z.detach()  # of the target of BYOL
        return z


@case
def byol() -> Case:
    model, criterion, (x0, x1) = BYOL(), library("lightly.loss").NegativeCosineSimilarity(), views()

    def loss() -> torch.Tensor:
        model.update()
        p0, z0, p1, z1 = model.predict(x0), model.target(x0), model.predict(x1), model.target(x1)
        return 0.5 * (criterion(p0, z1) + criterion(p1, z0))

    return Case(
        model, loss, {"*_momentum.*": "stopped"}, (Line("# of the target of BYOL", keys="*_momentum.*"),)
    )


@case
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


@case
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
        z = z.detach()  # of SimSiam
        return z, p

    def loss() -> torch.Tensor:
        (z0, p0), (z1, p1) = forward(x0), forward(x1)
        return 0.5 * (criterion(z0, p1) + criterion(z1, p0))

    partly = {"backbone.*": "partly stopped", "projection_head.*": "partly stopped"}
    return Case(model, loss, partly, tuple(Line("# of SimSiam", keys=key) for key in partly))


@case
def moco() -> Case:
    model = Momentum(library("lightly.models.modules").MoCoProjectionHead(8, 8, 4))
    criterion = library("lightly.loss").NTXentLoss(memory_bank_size=(16, 4))
    (x0, x1) = views()

    def loss() -> torch.Tensor:
        model.update()
        return criterion(model(x0), model.forward_momentum(x1).detach())  # of the keys of MoCo

    return Case(
        model, loss, {"*_momentum.*": "stopped"}, (Line("# of the keys of MoCo", keys="*_momentum.*"),)
    )


@case
def vicreg() -> Case:
    model = nn.Sequential(backbone(), library("lightly.models.modules.heads").VICRegProjectionHead(8, 8, 4))
    criterion, (x0, x1) = library("lightly.loss").VICRegLoss(), views()
    return Case(model, lambda: criterion(model(x0), model(x1)))


@case
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


@case
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

    cut = Line("with torch.no_grad():", losses.SwaVLoss)
    return Case(model, loss, {"*": "partly stopped"}, (cut,))


@case
def tico() -> Case:
    losses = library("lightly.loss.tico_loss")
    model = nn.Sequential(backbone(), library("lightly.models.modules.heads").TiCoProjectionHead(8, 8, 4))
    criterion, (x0, x1) = losses.TiCoLoss(), views()
    cut = Line("B = torch.mm(z_a.T, z_a).detach() / z_a.shape[0]", losses)
    return Case(model, lambda: criterion(model(x0), model(x1)), {"*": "partly stopped"}, (cut,))


@case
def dcl_weights() -> Case:
    """Weights that the library detaches, and wraps once more by ``torch.tensor``."""
    losses = library("lightly.loss.dcl_loss")
    model = nn.Sequential(backbone(), nn.Linear(8, 4))
    criterion, (x0, x1) = losses.DCLWLoss(), views()
    cut = Line("return torch.tensor(2 - out0.shape[0]", losses.negative_mises_fisher_weights)
    return Case(model, lambda: criterion(model(x0), model(x1)), {"*": "partly stopped"}, (cut,))


@case
def visreg() -> Case:
    losses = library("lightly.loss.visreg_loss")
    model = nn.Sequential(backbone(), nn.Linear(8, 4))
    x = views(1)[0]
    cut = Line("z_norm = (z - mean) / (std.detach() + eps)", losses)
    return Case(model, lambda: losses.visreg_shape_loss(model(x), 3), {"*": "partly stopped"}, (cut,))


# ---------------------------------------------------------------------------------------- transformers


def tokens(vocabulary: int = 20) -> torch.Tensor:
    return torch.randint(0, vocabulary, (2, 7))


def tiny_bert() -> nn.Module:
    bert = library("transformers.models.bert")
    config = bert.BertConfig(
        vocab_size=20,
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=12,
        max_position_embeddings=16,
    )
    return bert.BertForMaskedLM(config).train()


def tiny_gpt(**options: Any) -> nn.Module:
    gpt = library("transformers.models.gpt2")
    config = gpt.GPT2Config(vocab_size=20, n_positions=16, n_embd=8, n_layer=2, n_head=2, **options)
    return gpt.GPT2LMHeadModel(config).train()


@case
def bert_masked() -> Case:
    """Labels of -100 are passed over; the output layer is the embedding."""
    model, ids = tiny_bert(), tokens()
    labels = ids.clone()
    labels[torch.rand(ids.shape) < 0.5] = -100
    mask = torch.ones_like(ids)
    mask[1, 5:] = 0
    return Case(model, lambda: model(input_ids=ids, attention_mask=mask, labels=labels).loss)


@case
def bert_frozen_embeddings() -> Case:
    """Of the tied output layer only the bias is left to be trained."""
    model, ids = tiny_bert(), tokens()
    model.bert.embeddings.requires_grad_(False)
    return Case(
        model,
        lambda: model(input_ids=ids, labels=ids).loss,
        {"bert.embeddings.*": "stopped"},
        (Line("", keys="bert.embeddings.*", reason="requires_grad"),),
    )


@case
def gpt() -> Case:
    model, ids = tiny_gpt(), tokens()
    return Case(model, lambda: model(input_ids=ids, labels=ids).loss)


@case
def gpt_frozen_blocks() -> Case:
    model, ids = tiny_gpt(), tokens()
    model.transformer.h[0].requires_grad_(False)
    return Case(
        model,
        lambda: model(input_ids=ids, labels=ids).loss,
        {"transformer.h.0.*": "stopped"},
        (Line("", keys="transformer.h.0.*", reason="requires_grad"),),
    )


@case
def gpt_checkpointed() -> Case:
    """Activations are computed once more in the backward pass; nothing is cut by that."""
    model, ids = tiny_gpt(use_cache=False), tokens()
    model.activation_checkpointing_enable({"use_reentrant": False})
    return Case(model, lambda: model(input_ids=ids, labels=ids).loss)


@case
def gpt_checkpointed_reentrant() -> Case:
    model, ids = tiny_gpt(use_cache=False), tokens()
    model.activation_checkpointing_enable({"use_reentrant": True})
    return Case(model, lambda: model(input_ids=ids, labels=ids).loss)


def checkpointed_behind_frozen_embeddings() -> tuple[nn.Module, Callable[[], torch.Tensor]]:
    model, ids = tiny_gpt(use_cache=False, tie_word_embeddings=False), tokens()
    model.transformer.wte.requires_grad_(False)
    model.transformer.wpe.requires_grad_(False)
    model.activation_checkpointing_enable({"use_reentrant": True})
    return model, lambda: model(input_ids=ids, labels=ids).loss


@case
def gpt_checkpointed_behind_frozen_embeddings() -> Case:
    """The library makes the embeddings' result require a gradient, so that the blocks get theirs."""
    model, loss = checkpointed_behind_frozen_embeddings()
    return Case(model, loss, {"transformer.w?e.weight": "stopped"})


@case
def gpt_checkpointed_without_gradients() -> Case:
    """The known mistake: nothing that goes into the checkpointed blocks requires a gradient."""
    model, loss = checkpointed_behind_frozen_embeddings()
    model.disable_input_require_grads()
    return Case(model, loss, {"transformer.ln_f.*": "flows", "transformer.*": "stopped"})


@case
def gpt_lora() -> Case:
    peft = library("peft")
    options = peft.LoraConfig(
        r=2, target_modules=["c_attn"], init_lora_weights=False, fan_in_fan_out=True, lora_dropout=0.1
    )
    model, ids = peft.get_peft_model(tiny_gpt(), options), tokens()
    return Case(
        model,
        lambda: model(input_ids=ids, labels=ids).loss,
        {"*lora_*": "flows", "*": "stopped"},
        (Line("", keys="*.base_layer.*", reason="requires_grad"),),
    )


@case
def dac_quantizer() -> Case:
    """A vector quantizer with a straight-through estimator: three lines detach."""
    dac = library("transformers.models.dac.modeling_dac")
    config = library("transformers.models.dac").DacConfig(hidden_size=6, codebook_dim=3, codebook_size=5)
    model, x = dac.DacVectorQuantize(config), torch.randn(2, 6, 4)

    def loss() -> torch.Tensor:
        quantized, commitment, codebook = model(x)[:3]
        return (quantized**2).mean() + commitment.mean() + codebook.mean()

    through = "quantized_representation = projected_latents + ("
    lines = (
        Line("commitment_loss = F.mse_loss(", dac, "codebook.*"),
        Line("codebook_loss = F.mse_loss(", dac, "in_proj.*"),
        Line(through, dac, "codebook.*"),
    )
    status = {"in_proj.*": "partly stopped", "codebook.*": "partly stopped"}
    return Case(model, loss, status, lines)


def gumbel_quantizer() -> tuple[nn.Module, ModuleType]:
    speech = library("transformers.models.wav2vec2.modeling_wav2vec2")
    config = library("transformers.models.wav2vec2").Wav2Vec2Config(
        conv_dim=(6,), conv_stride=(1,), conv_kernel=(1,), codevector_dim=4, num_codevectors_per_group=3
    )
    model = speech.Wav2Vec2GumbelVectorQuantizer(config)
    nn.init.normal_(model.codevectors)
    return model, speech


@case
def gumbel_quantizer_in_training() -> Case:
    """A hard sample of a Gumbel softmax: PyTorch detaches, in a call of the library."""
    model, speech = gumbel_quantizer()
    x = torch.randn(2, 5, 6)
    cut = Line("codevector_probs = nn.functional.gumbel_softmax(", speech, "weight_proj.*")
    return Case(model, lambda: model(x)[0].square().mean(), {"weight_proj.*": "partly stopped"}, (cut,))


@case
def gumbel_quantizer_in_evaluation() -> Case:
    """The nearest code instead: a position has no derivative."""
    model, speech = gumbel_quantizer()
    model.eval()
    x = torch.randn(2, 5, 6)
    cut = Line("codevector_idx = hidden_states.argmax(dim=-1)", speech, "weight_proj.*")
    return Case(model, lambda: model(x)[0].square().mean(), {"weight_proj.*": "not differentiable"}, (cut,))


@case
def mixtral() -> Case:
    """Experts that are chosen by the greatest scores; the scores get their gradient as weights."""
    mixtral = library("transformers.models.mixtral")
    config = mixtral.MixtralConfig(
        vocab_size=20,
        hidden_size=8,
        intermediate_size=12,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        num_local_experts=3,
        bos_token_id=1,
        eos_token_id=2,
        output_router_logits=True,
    )
    model, ids = mixtral.MixtralForCausalLM(config).train(), tokens()
    return Case(model, lambda: model(input_ids=ids, labels=ids).loss)


@case
def masked_autoencoder() -> Case:
    """Positions are made by sines and frozen; patches are hidden at random."""
    vit = library("transformers.models.vit_mae")
    config = vit.ViTMAEConfig(
        image_size=8,
        patch_size=4,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        decoder_hidden_size=8,
        decoder_num_hidden_layers=1,
        decoder_num_attention_heads=2,
        decoder_intermediate_size=8,
        mask_ratio=0.5,
    )
    model, x = vit.ViTMAEForPreTraining(config).train(), torch.randn(2, 3, 8, 8)
    nn.init.normal_(model.decoder.mask_token)  # Zeros at first, of which norms make zeros.
    frozen = {"*position_embeddings": "stopped", "*decoder_pos_embed": "stopped"}
    return Case(model, lambda: model(pixel_values=x).loss, frozen)


# ------------------------------------------------------------------------------------ timm, torchvision


@case
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


@case
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


@case
def timm_distilled_from_its_average() -> Case:
    """Parameters of the average require gradients, which nothing keeps away: a mistake to find."""
    model = tiny_timm_resnet()
    average = library("timm.utils").ModelEmaV3(model)
    return distilled(model, average.module, average.update)


@case
def timm_distilled_from_its_frozen_average() -> Case:
    model = tiny_timm_resnet()
    average = library("timm.utils").ModelEma(model)
    lines = (Line("", keys="average.*", reason="requires_grad"),)
    return replace(distilled(model, average.ema, average.update), status={"average.*": "stopped"}, cuts=lines)


@case
def vision_resnet() -> Case:
    resnet = library("torchvision.models.resnet")
    norm = library("torchvision.ops.misc").FrozenBatchNorm2d
    model = resnet.ResNet(resnet.BasicBlock, [1, 1, 1, 1], num_classes=3, norm_layer=norm)
    x, y = torch.randn(2, 3, 32, 32), torch.tensor([0, 2])
    return Case(model, lambda: nn.functional.cross_entropy(model(x), y))


@case
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


@case
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

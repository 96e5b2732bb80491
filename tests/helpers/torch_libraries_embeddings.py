"""Losses of libraries that learn embeddings: metric learning, students and teachers, averages, sentences."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch_libraries import Case, Line, case, library, stirred

LABELS = torch.tensor([0, 0, 1, 1, 2, 2])


def embedder() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 4))


# --------------------------------------------------------------------------------- pytorch-metric-learning


def metric(model: nn.Module, criterion: nn.Module, *lines: Line, miner: Any = None) -> Case:
    """A loss of embeddings; where it has lines, these cut some of the paths to the model."""
    both, x = nn.ModuleDict({"model": model, "criterion": criterion}), torch.randn(6, 5)

    def loss() -> torch.Tensor:
        found = model(x)
        return criterion(found, LABELS, miner(found, LABELS)) if miner else criterion(found, LABELS)

    status = {"model.*": "partly stopped"} if lines else {}
    return Case(both, loss, status, lines)


@case("pytorch-metric-learning")
def contrastive_with_temperature() -> Case:
    """The greatest similarity is taken off without gradient, for the sake of numbers."""
    losses = library("pytorch_metric_learning.losses.ntxent_loss")
    return metric(embedder(), losses.NTXentLoss(0.2), Line(").detach()", losses.NTXentLoss))


@case("pytorch-metric-learning")
def supervised_contrastive() -> Case:
    losses = library("pytorch_metric_learning.losses.supcon_loss")
    return metric(embedder(), losses.SupConLoss(0.2), Line("mat = mat - mat_max.detach()", losses))


@case("pytorch-metric-learning")
def circle() -> Case:
    """Weights of pairs are their similarities, without gradient."""
    losses = library("pytorch_metric_learning.losses.circle_loss")
    lines = (
        "torch.relu(self.op - anchor_positive.detach())",
        "torch.relu(anchor_negative.detach() - self.on)",
    )
    return metric(embedder(), losses.CircleLoss(), *[Line(text, losses.CircleLoss) for text in lines])


@case("pytorch-metric-learning")
def memory_of_earlier_batches() -> Case:
    """A queue of embeddings, which are kept without history."""
    losses = library("pytorch_metric_learning.losses")
    line = Line("= embeddings.detach()", losses.CrossBatchMemory, "model.*")
    criterion = losses.CrossBatchMemory(losses.TripletMarginLoss(margin=2.0), 4, memory_size=12)
    return metric(embedder(), criterion, line)


@case("pytorch-metric-learning")
def proxies() -> Case:
    """Each class has a learnt proxy."""
    return metric(embedder(), library("pytorch_metric_learning.losses").ProxyAnchorLoss(3, 4))


@case("pytorch-metric-learning")
def soft_triples() -> Case:
    return metric(embedder(), library("pytorch_metric_learning.losses").SoftTripleLoss(3, 4, 2))


@case("pytorch-metric-learning")
def mined_triplets() -> Case:
    """The hardest pairs of a batch: who they are has no derivative, how far apart they are has one."""
    miner = library("pytorch_metric_learning.miners").BatchHardMiner()
    made = metric(embedder(), library("pytorch_metric_learning.losses").TripletMarginLoss(2.0), miner=miner)
    return Case(made.model, made.loss, {"*": "partly stopped"})


# -------------------------------------------------------------------- byol-pytorch, vit-pytorch, ema-pytorch


def transformer(**options: Any) -> nn.Module:
    sizes = {
        "image_size": 8,
        "patch_size": 4,
        "num_classes": 3,
        "dim": 8,
        "depth": 1,
        "heads": 2,
        "mlp_dim": 8,
    }
    return library("vit_pytorch").ViT(dim_head=4, **sizes, **options)


def same(x: torch.Tensor) -> torch.Tensor:
    """No augmentation."""
    return x


@case("byol-pytorch")
def bootstrapped() -> Case:
    """The online encoder has a part in its average, behind the cut. Its last layer is not used."""
    byol = library("byol_pytorch.byol_pytorch")
    net = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.Flatten(), nn.Linear(36, 6), nn.Linear(6, 6))
    model = byol.BYOL(
        net,
        image_size=8,
        hidden_layer=-2,
        projection_size=4,
        projection_hidden_size=8,
        augment_fn=same,
        use_simplicial_embeddings=False,
    )
    x = torch.rand(4, 3, 8, 8)

    def loss() -> torch.Tensor:
        model.update_moving_average()
        return model(x)

    return Case(model, loss, targets(*BYOL_ENCODERS), cut_at_targets(byol))


BYOL_ENCODERS = ("target_encoder.*", "online_encoder.*", "net.*")


def targets(target: str, *online: str) -> dict[str, str]:
    return {
        "*net.3.*": "disconnected",
        target: "stopped",
        **dict.fromkeys(online, "partly stopped"),
    }


def cut_at_targets(byol: Any) -> tuple[Line, ...]:
    """The targets of both views."""
    calls = ("target_proj_two.detach())", "target_proj_one.detach())")
    keys = ("net.[02]*", "*_encoder.net.[02]*", "*_encoder.projector*")
    return tuple(Line(call, byol.BYOL, key) for call in calls for key in keys)


@case("byol-pytorch")
def without_momentum() -> Case:
    """SimSiam: the encoder is its own target."""
    byol = library("byol_pytorch.byol_pytorch")
    net = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.Flatten(), nn.Linear(36, 6))
    model = byol.BYOL(net, 8, -1, 4, 8, augment_fn=same, use_momentum=False, use_simplicial_embeddings=False)
    x = torch.rand(4, 3, 8, 8)
    partly = dict.fromkeys(("net.*", "online_encoder.*"), "partly stopped")
    return Case(model, lambda: model(x), partly, cut_at_targets(byol))


@case("vit-pytorch")
def teacher_of_itself() -> Case:
    """DINO: the logits of the teacher, computed without gradients, are detached once more."""
    dino = library("vit_pytorch.dino")
    model = dino.Dino(
        transformer(),
        image_size=8,
        hidden_layer="to_latent",
        projection_hidden_size=8,
        num_classes_K=5,
        projection_layers=2,
        augment_fn=same,
        augment_fn2=same,
    )
    x = torch.rand(2, 3, 8, 8)

    def loss() -> torch.Tensor:
        model.update_moving_average()
        return model(x)

    line = "teacher_logits = teacher_logits.detach()"
    lines = tuple(Line(line, dino, key) for key in ("net.[!m]*", "*encoder.net.[!m]*", "*encoder.projector*"))
    status = {"*net.mlp_head.*": "disconnected", "teacher_encoder.*": "stopped", "*": "partly stopped"}
    return Case(stirred(model), loss, status, lines)


@case("vit-pytorch")
def masked_patches() -> Case:
    """The class token and the head of the encoder play no part in it."""
    mae = library("vit_pytorch.mae")
    model = mae.MAE(
        encoder=transformer(pool="mean"),
        decoder_dim=8,
        masking_ratio=0.5,
        decoder_heads=2,
        decoder_dim_head=4,
    )
    x = torch.rand(2, 3, 8, 8)
    apart = dict.fromkeys(("encoder.cls_token", "encoder.mlp_head.*"), "disconnected")
    return Case(stirred(model), lambda: model(x), apart)


@case("vit-pytorch")
def distilled_transformer() -> Case:
    """A teacher that requires gradients is used without."""
    distill = library("vit_pytorch.distill")
    sizes = {
        "image_size": 8,
        "patch_size": 4,
        "num_classes": 3,
        "dim": 8,
        "depth": 1,
        "heads": 2,
        "mlp_dim": 8,
    }
    teacher = nn.Sequential(nn.Flatten(), nn.Linear(192, 3))
    model = distill.DistillWrapper(student=distill.DistillableViT(**sizes), teacher=teacher)
    x, y = torch.rand(2, 3, 8, 8), torch.tensor([0, 2])
    line = Line("F.softmax(teacher_logits / T, dim = -1).detach(),", distill.DistillWrapper, "teacher.*")
    return Case(model, lambda: model(x, y), {"teacher.*": "stopped"}, (line,))


@case("ema-pytorch")
def towards_its_average() -> Case:
    """The average was detached when it was made, and is updated under ``no_grad``, through ``.data``."""
    ema = library("ema_pytorch.ema_pytorch")
    model = embedder()
    average = ema.EMA(model, beta=0.9, update_after_step=0, update_every=1, include_online_model=False)
    both, x = nn.ModuleDict({"model": model, "average": average}), torch.randn(3, 5)
    average.update()  # The first makes it equal to the model.
    nn.init.normal_(model[0].weight)

    def loss() -> torch.Tensor:
        average.update()
        return (model(x) - average(x)).square().mean()

    line = Line("@torch.no_grad()", ema.EMA.update_moving_average)
    return Case(both, loss, {"average.*": "stopped", "*": "partly stopped"}, (line,))


# ------------------------------------------------------------------------------------- sentence-transformers


def sentences() -> tuple[nn.Module, list[dict[str, torch.Tensor]]]:
    """An encoder of sentences, of random weights, and three batches of tokens."""
    package = library("sentence_transformers")
    models = library("sentence_transformers.models")
    bert = library("transformers.models.bert")
    config = bert.BertConfig(
        vocab_size=20,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=12,
        max_position_embeddings=16,
    )

    class Words(nn.Module):
        """What ``models.Transformer`` does, without reading anything from a disc."""

        def __init__(self) -> None:
            super().__init__()
            self.bert = bert.BertModel(config, add_pooling_layer=False)

        def forward(self, features: dict[str, torch.Tensor], **_: Any) -> dict[str, torch.Tensor]:
            found = self.bert(features["input_ids"], features["attention_mask"])
            return {**features, "token_embeddings": found.last_hidden_state}

    model = package.SentenceTransformer(modules=[Words(), models.Pooling(8), models.Dense(8, 4)])
    ids = torch.randint(0, 20, (3, 4, 6))
    return model.train(), [{"input_ids": one, "attention_mask": torch.ones_like(one)} for one in ids]


@case("sentence-transformers")
def negatives_of_a_batch() -> Case:
    model, batches = sentences()
    criterion = library("sentence_transformers.losses").MultipleNegativesRankingLoss(model)
    return Case(model, lambda: criterion(batches, None))


@case("sentence-transformers")
def nested_embeddings() -> Case:
    """Matryoshka: the embedding is computed once, and each of its parts has a loss."""
    model, batches = sentences()
    losses = library("sentence_transformers.losses")
    criterion = losses.MatryoshkaLoss(model, losses.MultipleNegativesRankingLoss(model), [4, 2])
    return Case(model, lambda: criterion(batches[:2], None))


@case("sentence-transformers")
def similarity_of_cosines() -> Case:
    model, batches = sentences()
    criterion = library("sentence_transformers.losses").CoSENTLoss(model)
    return Case(model, lambda: criterion(batches[:2], torch.tensor([0.1, 0.9, 0.4, 0.6])))


@case("sentence-transformers")
def cached_negatives() -> Case:
    """Gradients of embeddings are kept; a hook of the loss, which is a new leaf, hands them on.

    The watch does not see what a hook differentiates, and says wrongly that the leaf cuts all paths.
    """
    model, batches = sentences()
    losses = library("sentence_transformers.losses")
    criterion = losses.CachedMultipleNegativesRankingLoss(model, mini_batch_size=2)
    return Case(model, lambda: criterion(batches[:2], None))

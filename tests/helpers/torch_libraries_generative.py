"""Losses of libraries for generative models: diffusion, codebooks, transformers of every kind."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch_libraries import Case, Line, case, library, stirred

# ------------------------------------------------------------------------------ denoising-diffusion-pytorch


def unet(**options: Any) -> nn.Module:
    package = library("denoising_diffusion_pytorch")
    return package.Unet(
        dim=8, dim_mults=(1, 2), attn_dim_head=4, attn_heads=2, full_attn=(False, True), **options
    )


@case("denoising-diffusion-pytorch")
def noise_that_is_predicted() -> Case:
    package = library("denoising_diffusion_pytorch")
    model = package.GaussianDiffusion(unet(), image_size=8, timesteps=10)
    x = torch.rand(2, 3, 8, 8)
    return Case(model, lambda: model(x))


class SelfConditioned(nn.Module):
    """Every step is conditioned on a first guess, where the library draws lots."""

    def __init__(self) -> None:
        super().__init__()
        package = library("denoising_diffusion_pytorch")
        self.diffusion = package.GaussianDiffusion(
            unet(self_condition=True), image_size=8, timesteps=10, objective="pred_v"
        )


@case("denoising-diffusion-pytorch")
def self_conditioned() -> Case:
    """The first guess is made under ``no_grad``; the draws of this seed make one."""
    module = library("denoising_diffusion_pytorch.denoising_diffusion_pytorch")
    model, x = SelfConditioned(), torch.rand(2, 3, 8, 8)
    line = Line("with torch.no_grad():", module.GaussianDiffusion.p_losses)
    return Case(model, lambda: model.diffusion(x), {"*": "partly stopped"}, (line,))


@case("denoising-diffusion-pytorch")
def learnt_variance() -> Case:
    """The bound teaches the variance alone: the mean is detached in it."""
    package = library("denoising_diffusion_pytorch")
    model = package.LearnedGaussianDiffusion(unet(learned_variance=True), image_size=8, timesteps=10)
    x = torch.rand(2, 3, 8, 8)
    line = Line("detached_model_mean = model_mean.detach()", package.LearnedGaussianDiffusion)
    return Case(model, lambda: model(x), {"*": "partly stopped"}, (line,))


@case("denoising-diffusion-pytorch")
def elucidated() -> Case:
    package = library("denoising_diffusion_pytorch")
    model = package.ElucidatedDiffusion(unet(random_fourier_features=True), image_size=8)
    x = torch.rand(2, 3, 8, 8)
    frozen = {"net.time_mlp.0.weights": "stopped"}
    return Case(
        model, lambda: model(x), frozen, (Line("", keys="net.time_mlp.0.weights", reason="requires_grad"),)
    )


@case("denoising-diffusion-pytorch")
def weights_of_norm_one() -> Case:
    """Karras's network normalises its weights in place, before each step of training."""
    module = library("denoising_diffusion_pytorch.karras_unet")
    model = module.KarrasUnet(
        image_size=8,
        dim=8,
        dim_max=8,
        num_downsamples=1,
        num_blocks_per_stage=1,
        attn_res=(4,),
        attn_dim_head=4,
    )
    x, noise, times = torch.rand(2, 4, 8, 8), torch.randn(2, 4, 8, 8), torch.tensor([0.1, 0.7])
    frozen = {"to_time_emb.0.weights": "stopped"}
    return Case(stirred(model), lambda: (model(x + noise, time=times) - noise).square().mean(), frozen)


# --------------------------------------------------------------------------------- vector-quantize-pytorch


def around(quantizer: nn.Module, size: int = 6) -> tuple[nn.Module, torch.Tensor]:
    """An autoencoder around a quantizer."""
    model = nn.ModuleDict(
        {"encoder": nn.Linear(5, size), "quantizer": quantizer, "decoder": nn.Linear(size, 5)}
    )
    return model, torch.randn(2, 7, 5)


@case("vector-quantize-pytorch")
def codebook_of_averages() -> Case:
    """Codes are averages, and no parameters; the way to the encoder is straight through."""
    module = library("vector_quantize_pytorch.vector_quantize_pytorch")
    model, x = around(module.VectorQuantize(6, 8, rotation_trick=False, threshold_ema_dead_code=0))

    def loss() -> torch.Tensor:
        found, _, commit = model["quantizer"](model["encoder"](x))
        return (model["decoder"](found) - x).square().mean() + commit.sum()

    lines = (
        Line("return src + (tgt - src).detach()", module, "encoder.*"),
        Line("commit_quantize = maybe_detach(quantize)", module, "encoder.*"),
    )
    return Case(model, loss, {"encoder.*": "partly stopped"}, lines)


@case("vector-quantize-pytorch")
def rotated_codes() -> Case:
    """The rotation from a vector to its code counts as a constant: three lines."""
    module = library("vector_quantize_pytorch.vector_quantize_pytorch")
    model, x = around(module.VectorQuantize(6, 8, rotation_trick=True, threshold_ema_dead_code=0))

    def loss() -> torch.Tensor:
        found, _, commit = model["quantizer"](model["encoder"](x))
        return (model["decoder"](found) - x).square().mean() + commit.sum()

    lines = (
        Line("w = l2norm(u + q, dim = 1).detach()", module, "encoder.*"),
        Line("2 * (e @ rearrange(u, 'b d -> b d 1').detach()", module, "encoder.*"),
        Line("rotated = rotated_tgt * safe_div(norm_tgt, norm_src).detach()", module, "encoder.*"),
        Line("commit_quantize = maybe_detach(quantize)", module, "encoder.*"),
    )
    return Case(model, loss, {"encoder.*": "partly stopped"}, lines)


@case("vector-quantize-pytorch")
def learnt_codebook() -> Case:
    module = library("vector_quantize_pytorch.vector_quantize_pytorch")
    quantizer = module.VectorQuantize(
        6, 8, rotation_trick=False, learnable_codebook=True, ema_update=False, threshold_ema_dead_code=0
    )
    model, x = around(quantizer)

    def loss() -> torch.Tensor:
        found, _, commit = model["quantizer"](model["encoder"](x))
        return (model["decoder"](found) - x).square().mean() + commit.sum()

    line = "return src + (tgt - src).detach()"
    lines = tuple(Line(line, module, keys) for keys in ("encoder.*", "quantizer.*"))
    return Case(model, loss, {"encoder.*": "partly stopped", "quantizer.*": "partly stopped"}, lines)


@case("vector-quantize-pytorch")
def finite_scalars() -> Case:
    """Rounding, straight through; nothing is learnt in it."""
    module = library("vector_quantize_pytorch.finite_scalar_quantization")
    model, x = around(module.FSQ([5, 5, 5]), 3)

    def loss() -> torch.Tensor:
        return (model["decoder"](model["quantizer"](model["encoder"](x))[0]) - x).square().mean()

    line = Line("return z + (zhat - z).detach()", module.round_ste, "encoder.*")
    return Case(model, loss, {"encoder.*": "partly stopped"}, (line,))


@case("vector-quantize-pytorch")
def lookup_free() -> Case:
    module = library("vector_quantize_pytorch.lookup_free_quantization")
    model, x = around(
        module.LFQ(codebook_size=8, dim=3, entropy_loss_weight=0.1, commitment_loss_weight=0.2), 3
    )

    def loss() -> torch.Tensor:
        found, _, aside = model["quantizer"](model["encoder"](x))
        return (model["decoder"](found) - x).square().mean() + aside

    lines = (
        Line("x = x + (quantized - x).detach()", module, "encoder.*"),
        Line("commit_loss = F.mse_loss(original_input, quantized.detach()", module, "encoder.*"),
    )
    return Case(model, loss, {"encoder.*": "partly stopped"}, lines)


@case("vector-quantize-pytorch")
def transformed_codebook() -> Case:
    """SimVQ: a fixed codebook behind a learnt map."""
    module = library("vector_quantize_pytorch.sim_vq")
    model, x = around(module.SimVQ(6, 8, rotation_trick=False))

    def loss() -> torch.Tensor:
        found, _, commit = model["quantizer"](model["encoder"](x))
        return (model["decoder"](found) - x).square().mean() + commit

    lines = (
        Line("F.mse_loss(x.detach(), quantized) +", module, "encoder.*"),
        Line("F.mse_loss(x, quantized.detach())", module, "[eq]*"),
        Line("quantized = (quantized - x).detach() + x", module, "[eq]*"),
    )
    return Case(model, loss, {"encoder.*": "partly stopped", "quantizer.*": "partly stopped"}, lines)


# -------------------------------------------------------------------- x-transformers, performer-pytorch


def decoder(**options: Any) -> nn.Module:
    package = library("x_transformers")
    layers = package.Decoder(dim=8, depth=1, heads=2, attn_dim_head=4, **options)
    return package.TransformerWrapper(num_tokens=12, max_seq_len=16, attn_layers=layers)


def tokens(length: int = 8) -> torch.Tensor:
    return torch.randint(1, 12, (2, length))


@case("x-transformers")
def next_token() -> Case:
    package = library("x_transformers")
    model, ids = package.AutoregressiveWrapper(decoder()), tokens()
    return Case(stirred(model), lambda: model(ids))


@case("x-transformers")
def preferred_sequences() -> Case:
    """DPO: the reference is frozen, and computed without gradients."""
    module = library("x_transformers.dpo")
    model, mask = module.DPO(decoder()), torch.arange(8).expand(2, 8) < 3
    nn.init.normal_(model.policy_model.to_logits.weight)
    better, worse = tokens(), tokens()
    return Case(
        model,
        lambda: model(better, worse, prompt_mask=mask),
        {"ref_model.*": "stopped"},
        (Line("", keys="ref_model.*", reason="requires_grad is False"),),
    )


@case("x-transformers")
def belief_states() -> Case:
    """A function of its own makes leaves of its arguments, and its backward hands their gradients on."""
    module = library("x_transformers.belief_state_wrapper")
    package = library("x_transformers")
    layers = [package.Decoder(dim=8, depth=1, heads=2, attn_dim_head=4) for _ in range(2)]
    nets = [package.TransformerWrapper(num_tokens=12, max_seq_len=16, attn_layers=one) for one in layers]
    model, ids = module.BeliefStateWrapper(*nets), tokens()
    return Case(stirred(model), lambda: model(ids), {"*to_logits.*": "disconnected"})


@case("x-transformers")
def masked_with_self_conditioning() -> Case:
    module, package = library("x_transformers.nonautoregressive_wrapper"), library("x_transformers")
    layers = package.Encoder(dim=8, depth=1, heads=2, attn_dim_head=4)
    net = package.TransformerWrapper(num_tokens=13, max_seq_len=8, attn_layers=layers)
    model = module.NonAutoregressiveWrapper(net, mask_id=12, self_cond=True, self_cond_train_prob=1.0)
    ids = tokens()
    status = {"net.to_logits.*": "flows", "net.*": "partly stopped", "null_embed": "disconnected"}
    keys = ("net.[!t]*", "net.token_emb.*")
    lines = tuple(Line("with torch.no_grad():", module.NonAutoregressiveWrapper, key) for key in keys)
    return Case(stirred(model), lambda: model(ids).loss, status, lines)


@case("x-transformers")
def continuous_values() -> Case:
    package = library("x_transformers")
    layers = package.Decoder(dim=8, depth=1, heads=2, attn_dim_head=4)
    net = package.ContinuousTransformerWrapper(dim_in=3, dim_out=3, max_seq_len=8, attn_layers=layers)
    model, x = package.ContinuousAutoregressiveWrapper(net), torch.randn(2, 8, 3)
    return Case(stirred(model), lambda: model(x))


@case("performer-pytorch")
def linear_attention() -> Case:
    """The greatest exponents are taken off without gradient; layers have two names each."""
    module = library("performer_pytorch.performer_pytorch")
    model = module.PerformerLM(
        num_tokens=12, max_seq_len=8, dim=8, depth=1, heads=2, dim_head=4, causal=False, nb_features=6
    )
    ids = tokens()
    of_queries = "torch.amax(data_dash, dim=-1, keepdim=True).detach()) + eps)"
    of_keys = "torch.amax(data_dash, dim=(-1, -2), keepdim=True).detach()) + eps)"
    before = ("token_emb.weight", "performer.*.layers.0.0.norm.*")
    lines = [
        Line(text, module, keys)
        for text, own in ((of_queries, "*.to_q.weight"), (of_keys, "*.to_k.weight"))
        for keys in (own, *before)
    ]
    partly = dict.fromkeys([line.keys for line in lines], "partly stopped")

    def loss() -> torch.Tensor:
        return nn.functional.cross_entropy(model(ids).transpose(1, 2), ids)

    return Case(stirred(model), loss, partly, tuple(lines))


@case("performer-pytorch")
def reversible_layers() -> Case:
    """The backward computes the layers once more, and differentiates them itself."""
    module = library("performer_pytorch.performer_pytorch")
    model = module.PerformerLM(
        num_tokens=12,
        max_seq_len=8,
        dim=8,
        depth=2,
        heads=2,
        dim_head=4,
        reversible=True,
        generalized_attention=True,
        nb_features=6,
    )
    ids = tokens()

    def loss() -> torch.Tensor:
        return nn.functional.cross_entropy(model(ids).transpose(1, 2), ids)

    return Case(stirred(model), loss)

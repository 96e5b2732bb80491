"""Tiny models of transformers, with adapters by peft: built from configurations, with random weights."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch import nn
from torch_libraries import Case, Line, case, library


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


def checkpoint(model: Any, reentrant: bool) -> None:
    """Let a model compute activations once more in the backward pass."""
    of_this_release = hasattr(model, "activation_checkpointing_enable")
    enable = model.activation_checkpointing_enable if of_this_release else model.gradient_checkpointing_enable
    enable({"use_reentrant": reentrant})


@case("transformers")
def bert_masked() -> Case:
    """Labels of -100 are passed over; the output layer is the embedding."""
    model, ids = tiny_bert(), tokens()
    labels = ids.clone()
    labels[torch.rand(ids.shape) < 0.5] = -100
    mask = torch.ones_like(ids)
    mask[1, 5:] = 0
    return Case(model, lambda: model(input_ids=ids, attention_mask=mask, labels=labels).loss)


@case("transformers")
def bert_frozen_embeddings() -> Case:
    """Of the tied output layer only the bias is left to be trained."""
    model, ids = tiny_bert(), tokens()
    model.bert.embeddings.requires_grad_(False)
    return Case(
        model,
        lambda: model(input_ids=ids, labels=ids).loss,
        {"bert.embeddings.*": "stopped", "cls.predictions.decoder.weight": "stopped"},
        (Line("", keys="bert.embeddings.*", reason="requires_grad"),),
    )


@case("transformers")
def gpt() -> Case:
    model, ids = tiny_gpt(), tokens()
    return Case(model, lambda: model(input_ids=ids, labels=ids).loss)


@case("transformers")
def gpt_frozen_blocks() -> Case:
    model, ids = tiny_gpt(), tokens()
    model.transformer.h[0].requires_grad_(False)
    return Case(
        model,
        lambda: model(input_ids=ids, labels=ids).loss,
        {"transformer.h.0.*": "stopped"},
        (Line("", keys="transformer.h.0.*", reason="requires_grad"),),
    )


@case("transformers")
def gpt_checkpointed() -> Case:
    """Activations are computed once more in the backward pass; nothing is cut by that."""
    model, ids = tiny_gpt(use_cache=False), tokens()
    checkpoint(model, reentrant=False)
    return Case(model, lambda: model(input_ids=ids, labels=ids).loss)


@case("transformers")
def gpt_checkpointed_reentrant() -> Case:
    model, ids = tiny_gpt(use_cache=False), tokens()
    checkpoint(model, reentrant=True)
    return Case(model, lambda: model(input_ids=ids, labels=ids).loss)


def checkpointed_behind_frozen_embeddings() -> tuple[nn.Module, Callable[[], torch.Tensor]]:
    model, ids = tiny_gpt(use_cache=False, tie_word_embeddings=False), tokens()
    model.transformer.wte.requires_grad_(False)
    model.transformer.wpe.requires_grad_(False)
    checkpoint(model, reentrant=True)
    return model, lambda: model(input_ids=ids, labels=ids).loss


@case("transformers")
def gpt_checkpointed_behind_frozen_embeddings() -> Case:
    """The library makes the embeddings' result require a gradient, so that the blocks get theirs."""
    model, loss = checkpointed_behind_frozen_embeddings()
    return Case(model, loss, {"transformer.w?e.weight": "stopped"})


@case("transformers")
def gpt_checkpointed_without_gradients() -> Case:
    """The known mistake: nothing that goes into the checkpointed blocks requires a gradient."""
    model, loss = checkpointed_behind_frozen_embeddings()
    model.disable_input_require_grads()
    line = Line(
        "", keys="transformer.[hw]*", reason="checkpoint(use_reentrant=True) of inputs that require no"
    )
    return Case(model, loss, {"transformer.ln_f.*": "flows", "transformer.*": "stopped"}, (line,))


@case("peft")
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


@case("transformers")
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
        Line("commitment_loss = F.mse_loss(", dac, "[ci]*"),
        Line("codebook_loss = F.mse_loss(", dac, "in_proj.*"),
        Line(through, dac, "[ci]*"),
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


@case("transformers")
def gumbel_quantizer_in_training() -> Case:
    """A hard sample of a Gumbel softmax: PyTorch detaches in it, but as a whole it passes gradients."""
    model, _ = gumbel_quantizer()
    x = torch.randn(2, 5, 6)
    return Case(model, lambda: model(x)[0].square().mean())


@case("transformers")
def gumbel_quantizer_in_evaluation() -> Case:
    """The nearest code instead: a position has no derivative."""
    model, speech = gumbel_quantizer()
    model.eval()
    x = torch.randn(2, 5, 6)
    cut = Line("codevector_idx = hidden_states.argmax(dim=-1)", speech, "weight_proj.*")
    return Case(model, lambda: model(x)[0].square().mean(), {"weight_proj.*": "not differentiable"}, (cut,))


@case("transformers")
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
    open = dict.fromkeys(("*.experts.*", "model.norm.weight", "lm_head.weight"), "flows")
    line = Line(
        "router_indices = torch.topk(router_",
        library("transformers.models.mixtral.modeling_mixtral"),
        "*.gate.*",
    )
    return Case(
        model, lambda: model(input_ids=ids, labels=ids).loss, {**open, "*": "partly stopped"}, (line,)
    )


@case("transformers")
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

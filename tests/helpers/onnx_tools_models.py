"""Eight architectures built small, and how they become ONNX files, for the table of tools.

Every parameter and running statistic is noise, so that no two numbers of a module are equal: a number of a
file is found in the module by its value, wherever a tool has moved it.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn

HEADS, WIDTH = 4, 64
TEXT = {
    "vocab_size": 60,
    "hidden_size": WIDTH,
    "num_hidden_layers": 2,
    "num_attention_heads": HEADS,
    "intermediate_size": 96,
    "max_position_embeddings": 32,
}


class Only(nn.Module):
    """A model of transformers: its inputs by name, and one of its outputs."""

    def __init__(self, inner: nn.Module, names: tuple[str, ...], output: str) -> None:
        super().__init__()
        self.inner, self.names, self.output = inner, names, output

    def forward(self, *inputs: torch.Tensor) -> Any:
        given = dict(zip(self.names, inputs, strict=True))
        return getattr(self.inner(**given), self.output)


class Attentive(nn.Module):
    """Attention over the pixels, as in U-Nets for diffusion."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(4, width)
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, c, h, w = x.shape
        t = self.norm(x).flatten(2).transpose(1, 2)
        q, k, v = (f(t).view(n, h * w, 2, c // 2).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        y = self.out(y.transpose(1, 2).reshape(n, h * w, c))
        return x + y.transpose(1, 2).reshape(n, c, h, w)


class Block(nn.Module):
    def __init__(self, into: int, out: int) -> None:
        super().__init__()
        self.norm, self.conv = nn.GroupNorm(4, into), nn.Conv2d(into, out, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(4, out), nn.Conv2d(out, out, 3, padding=1)
        self.skip = nn.Conv2d(into, out, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.conv(nn.functional.silu(self.norm(x)))
        return self.skip(x) + self.conv2(nn.functional.silu(self.norm2(h)))


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.a = nn.Conv2d(3, 16, 3, padding=1), Block(16, 16)
        self.down, self.b, self.attention = nn.Conv2d(16, 32, 3, 2, 1), Block(32, 32), Attentive(32)
        self.up, self.c, self.last = nn.ConvTranspose2d(32, 16, 2, 2), Block(32, 16), nn.Conv2d(16, 3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.a(self.first(x))
        b = self.attention(self.b(self.down(a)))
        return self.last(self.c(torch.cat([a, self.up(b)], 1)))


Made = tuple[nn.Module, dict[str, torch.Tensor]]


def _tokens(length: int = 8) -> torch.Tensor:
    return torch.randint(1, 50, (2, length))


def _mask() -> torch.Tensor:
    mask = torch.ones(2, 8, dtype=torch.int64)
    mask[1, 6:] = 0
    return mask


def bert() -> Made:
    inner = transformers.BertModel(transformers.BertConfig(**TEXT), add_pooling_layer=False)
    return inner, {"input_ids": _tokens(), "attention_mask": _mask(), "token_type_ids": _tokens() % 2}


def gpt2() -> Made:
    sizes = {"vocab_size": 60, "n_embd": WIDTH, "n_layer": 2, "n_head": HEADS, "n_positions": 32}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, use_cache=False)), {
        "input_ids": _tokens()
    }


def llama() -> Made:
    config = transformers.LlamaConfig(**TEXT, num_key_value_heads=2, use_cache=False)
    return transformers.LlamaForCausalLM(config), {"input_ids": _tokens()}


def whisper() -> Made:
    config = transformers.WhisperConfig(
        **{"vocab_size": 60, "num_mel_bins": 8, "d_model": WIDTH, "max_source_positions": 16},
        **{"encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 96, "decoder_ffn_dim": 96},
        **{"encoder_attention_heads": HEADS, "decoder_attention_heads": HEADS},
        **{"max_target_positions": 32, "use_cache": False, "pad_token_id": 0, "bos_token_id": 1},
        **{"eos_token_id": 2, "decoder_start_token_id": 1},
    )
    inner = transformers.WhisperForConditionalGeneration(config)
    return inner, {"input_features": torch.randn(2, 8, 32), "decoder_input_ids": _tokens()}


def vit() -> Made:
    sizes = {key: TEXT[key] for key in ("hidden_size", "num_hidden_layers", "num_attention_heads")}
    config = transformers.ViTConfig(**sizes, intermediate_size=96, image_size=16, patch_size=8)
    return transformers.ViTModel(config, add_pooling_layer=False), {"pixel_values": torch.randn(2, 3, 16, 16)}


def resnet() -> Made:
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[16, 32], depths=[1, 1], layer_type="basic", num_labels=4
    )
    return transformers.ResNetForImageClassification(config), {"pixel_values": torch.randn(2, 3, 32, 32)}


def mobilenet() -> Made:
    config = transformers.MobileNetV2Config(
        depth_multiplier=0.25, min_depth=4, finegrained_output=False, num_labels=4, image_size=32
    )
    return transformers.MobileNetV2ForImageClassification(config), {"pixel_values": torch.randn(2, 3, 32, 32)}


def unet() -> Made:
    return UNet(), {"pixel_values": torch.randn(2, 3, 8, 8)}


MODELS: dict[str, Callable[[], Made]] = {
    "BERT": bert,
    "GPT-2": gpt2,
    "Llama": llama,
    "Whisper": whisper,
    "ViT": vit,
    "ResNet": resnet,
    "MobileNet": mobilenet,
    "U-Net": unet,
}
KINDS = {"BERT": "bert", "GPT-2": "gpt2", "Whisper": "bart", "ViT": "vit", "U-Net": "unet"}
"""What onnxruntime.transformers calls the kind of a model; others are ``bert``, the most general."""


def module_of(name: str) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    """A module with one output, in inference mode, and its inputs by name, in order."""
    torch.manual_seed(0)
    inner, inputs = MODELS[name]()
    inner.eval().requires_grad_(True)  # Whisper's sines are a parameter that is frozen, which no file says.
    with torch.no_grad():
        for x in inner.parameters():
            x += 0.03 * torch.randn(x.shape)
        for key, x in inner.named_buffers():
            if key.endswith("running_mean"):
                x += 0.1 * torch.randn(x.shape)
            elif key.endswith("running_var"):
                x += torch.rand(x.shape)
    if name == "U-Net":
        return inner, inputs
    output = "last_hidden_state" if name in ("BERT", "ViT") else "logits"
    return Only(inner, tuple(inputs), output), inputs


# ---------------------------------------------------------------------------------------------- exporters


class InapplicableError(Exception):
    """An exporter is not for such a model."""


def _dynamo(module: nn.Module, inputs: dict[str, torch.Tensor], path: Path) -> None:
    torch.onnx.export(
        *(module, tuple(inputs.values()), path),
        dynamo=True,
        external_data=False,
        verbose=False,
        input_names=list(inputs),
        output_names=["y"],
    )


def _script(module: nn.Module, inputs: dict[str, torch.Tensor], path: Path) -> None:
    with _masks_that_can_be_traced():
        torch.onnx.export(
            *(module, tuple(inputs.values()), str(path)),
            dynamo=False,
            verbose=False,
            input_names=list(inputs),
            output_names=["y"],
            opset_version=17,
        )


@contextlib.contextmanager
def _masks_that_can_be_traced() -> Any:
    """Without vmap and diff, on which this exporter fails; transformers has made its masks so since 4.53."""
    from optimum.exporters.onnx import model_patcher
    from transformers import masking_utils

    masks = masking_utils.ALL_MASK_ATTENTION_FUNCTIONS
    before = masks["sdpa"], masking_utils.find_packed_sequence_indices
    masks.register("sdpa", model_patcher.sdpa_mask_without_vmap)
    masking_utils.find_packed_sequence_indices = model_patcher.find_packed_sequence_indices_patched
    try:
        yield
    finally:
        masks.register("sdpa", before[0])
        masking_utils.find_packed_sequence_indices = before[1]


TASKS = {
    "BERT": "feature-extraction",
    "GPT-2": "text-generation",
    "Llama": "text-generation",
    "ViT": "feature-extraction",
    "ResNet": "image-classification",
    "MobileNet": "image-classification",
}


def _optimum(level: str | None) -> Callable[[nn.Module, dict[str, torch.Tensor], Path], None]:
    def export(module: Any, inputs: dict[str, torch.Tensor], path: Path) -> None:
        from optimum.exporters.onnx import onnx_export_from_model

        if not isinstance(module, Only):
            raise InapplicableError("optimum exports models of transformers only")
        name = next(key for key in MODELS if isinstance(module.inner, type(MODELS[key]()[0])))
        if name not in TASKS:
            raise InapplicableError("optimum makes several files of encoders with decoders")
        with tempfile.TemporaryDirectory() as folder:
            onnx_export_from_model(
                module.inner,
                output=folder,
                task=TASKS[name],
                optimize=level,
                do_validation=False,
                no_post_process=True,
            )
            shutil.copy(Path(folder) / "model.onnx", path)

    return export


EXPORTERS: dict[str, Callable[[nn.Module, dict[str, torch.Tensor], Path], None]] = {
    "dynamo": _dynamo,
    "script": _script,
    "optimum": _optimum(None),
    **{f"optimum {level}": _optimum(level) for level in ("O1", "O2", "O3")},
}

"""Small modules of many architectures, each with the inputs of an export."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm
from torch_libraries import library

transformers: Any = library("transformers")
vision: Any = library("torchvision.models")

Made = tuple[nn.Module, tuple[torch.Tensor, ...]]
ARCHITECTURES: dict[str, Callable[[], Made]] = {}


def architecture(make: Callable[[], Made]) -> Callable[[], Made]:
    ARCHITECTURES[make.__name__] = make
    return make


def tokens() -> tuple[torch.Tensor]:
    return (torch.randint(1, 50, (2, 8)),)


def image(size: int, channels: int = 3) -> tuple[torch.Tensor]:
    return (torch.randn(1, channels, size, size),)


TEXT = {
    "vocab_size": 60,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 32,
}
PATCHES = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "image_size": 16,
    "patch_size": 8,
}


class Only(nn.Module):
    """A model of transformers, of whose outputs one is asked for."""

    def __init__(self, inner: nn.Module, output: str = "last_hidden_state") -> None:
        super().__init__()
        self.inner, self.output = inner, output

    def forward(self, x: torch.Tensor) -> Any:
        return getattr(self.inner(x), self.output)


class Recurrent(nn.Module):
    def __init__(self, layer: nn.Module, width: int) -> None:
        super().__init__()
        self.layer, self.last = layer, nn.Linear(width, 3)

    def forward(self, x: torch.Tensor) -> Any:
        return self.last(self.layer(x)[0][:, -1])


class Causal(nn.Module):
    """Attention with a mask and a factor that are buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.table, self.last = nn.Linear(8, 24), nn.Embedding(50, 8), nn.Linear(8, 50)
        self.positions = nn.Parameter(torch.randn(8, 8) * 0.1)
        self.register_buffer("mask", torch.full((8, 8), float("-inf")).triu(1))
        self.register_buffer("scale", torch.tensor([0.35]))

    def forward(self, x: torch.Tensor) -> Any:
        q, k, v = self.qkv(self.table(x) + self.positions).chunk(3, -1)
        return self.last((q @ k.transpose(1, 2) * self.scale + self.mask).softmax(-1) @ v)


class Sines(nn.Module):
    """Sines of positions, a buffer, and a parameter of one number."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.last = nn.Embedding(50, 8), nn.Linear(8, 5)
        self.gain = nn.Parameter(torch.tensor(2.0))
        angles = torch.arange(32.0)[:, None] * torch.exp(torch.arange(0, 8, 2) * (-9.21 / 8))
        self.register_buffer("sines", torch.stack([angles.sin(), angles.cos()], -1).flatten(1))

    def forward(self, x: torch.Tensor) -> Any:
        return self.last(self.table(x) + self.sines[: x.shape[1]]) * self.gain


class Normalised(nn.Module):
    """Means and deviations of the pixels are buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.48, 0.45, 0.40]).view(1, 3, 1, 1))
        self.register_buffer("deviation", torch.tensor([0.22, 0.23, 0.24]).view(1, 3, 1, 1))
        self.conv, self.norm, self.act = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.PReLU()
        self.last = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> Any:
        x = (x - self.mean) / self.deviation
        return self.last(self.act(self.norm(self.conv(x))).mean((2, 3)))


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(2, 4, 3, padding=1), nn.GroupNorm(2, 4)
        self.down, self.up = nn.Conv2d(4, 8, 3, padding=1, stride=2), nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.last = nn.Conv2d(8, 1, 1)

    def forward(self, x: torch.Tensor) -> Any:
        h = torch.relu(self.norm(self.first(x)))
        return self.last(torch.cat([h, self.up(torch.relu(self.down(h)))], 1))


@architecture
def perceptron() -> Made:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), (torch.randn(2, 4),)


@architecture
def lstm() -> Made:
    return Recurrent(nn.LSTM(4, 5, 2, batch_first=True, bidirectional=True), 10), (torch.randn(2, 6, 4),)


@architecture
def gru() -> Made:
    return Recurrent(nn.GRU(4, 5, batch_first=True), 5), (torch.randn(2, 6, 4),)


@architecture
def encoder() -> Made:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return nn.TransformerEncoder(layer, 2), (torch.randn(2, 5, 8),)


@architecture
def causal() -> Made:
    return Causal(), tokens()


@architecture
def sines() -> Made:
    return Sines(), tokens()


@architecture
def weight_normalised() -> Made:
    layers = [weight_norm(nn.Conv1d(3, 4, 3)), nn.ReLU(), nn.Flatten(), nn.Linear(24, 3)]
    return nn.Sequential(*layers), (torch.randn(2, 3, 8),)


@architecture
def normalised() -> Made:
    return Normalised(), image(8)


@architecture
def unet() -> Made:
    return UNet(), image(8, 2)


@architecture
def vgg() -> Made:
    first = [nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)]
    second = [nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 10)]
    return nn.Sequential(*first, *second), image(16)


@architecture
def resnet18() -> Made:
    return vision.resnet18(num_classes=5), image(32)


@architecture
def mobilenet_v3() -> Made:
    return vision.mobilenet_v3_small(num_classes=4), image(32)


@architecture
def squeezenet() -> Made:
    return vision.squeezenet1_1(num_classes=4), image(64)


@architecture
def shufflenet_v2() -> Made:
    return vision.shufflenet_v2_x0_5(num_classes=4), image(32)


@architecture
def convnext() -> Made:
    config = transformers.ConvNextConfig(hidden_sizes=[8, 16], depths=[1, 1], num_stages=2, patch_size=4)
    return Only(transformers.ConvNextModel(config), "pooler_output"), image(32)


@architecture
def vit() -> Made:
    return Only(transformers.ViTModel(transformers.ViTConfig(**PATCHES), add_pooling_layer=False)), image(16)


@architecture
def deit() -> Made:
    config = transformers.DeiTConfig(**PATCHES)
    return Only(transformers.DeiTModel(config, add_pooling_layer=False)), image(16)


@architecture
def swin() -> Made:
    sizes = {"image_size": 16, "patch_size": 2, "embed_dim": 8, "window_size": 4}
    config = transformers.SwinConfig(**sizes, depths=[1, 1], num_heads=[1, 2])
    return Only(transformers.SwinModel(config, add_pooling_layer=False)), image(16)


@architecture
def bert() -> Made:
    return Only(transformers.BertModel(transformers.BertConfig(**TEXT), add_pooling_layer=False)), tokens()


@architecture
def roberta() -> Made:
    config = transformers.RobertaConfig(**TEXT)
    return Only(transformers.RobertaModel(config, add_pooling_layer=False)), tokens()


@architecture
def distilbert() -> Made:
    sizes = {"vocab_size": 60, "dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24}
    config = transformers.DistilBertConfig(**sizes, max_position_embeddings=32)
    return Only(transformers.DistilBertModel(config)), tokens()


@architecture
def albert() -> Made:
    config = transformers.AlbertConfig(**TEXT, embedding_size=8, inner_group_num=1)
    return Only(transformers.AlbertModel(config, add_pooling_layer=False)), tokens()


@architecture
def t5_encoder() -> Made:
    sizes = {"vocab_size": 60, "d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2}
    return Only(transformers.T5EncoderModel(transformers.T5Config(**sizes))), tokens()


@architecture
def gpt2() -> Made:
    sizes = {"vocab_size": 60, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32}
    config = transformers.GPT2Config(**sizes, use_cache=False)
    return Only(transformers.GPT2LMHeadModel(config), "logits"), tokens()


@architecture
def llama() -> Made:
    config = transformers.LlamaConfig(
        **TEXT, num_key_value_heads=1, use_cache=False, tie_word_embeddings=False
    )
    return Only(transformers.LlamaForCausalLM(config), "logits"), tokens()


@architecture
def qwen2() -> Made:
    config = transformers.Qwen2Config(
        **TEXT, num_key_value_heads=1, use_cache=False, tie_word_embeddings=True
    )
    return Only(transformers.Qwen2ForCausalLM(config), "logits"), tokens()

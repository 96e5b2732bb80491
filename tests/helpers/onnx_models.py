"""PyTorch modules with random weights, exported to ONNX both ways, for the tests of `stopgrad.onnx`.

Exports are slow. What they wrote is kept in the tests' cache folder, below a name that says which versions
and which text of this file made it.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import sys
import tempfile
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib.metadata import version
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import nn
from torch._decomp import get_decompositions
from torch.nn import functional
from torch_libraries import library

onnxscript = pytest.importorskip("onnxscript")

WAYS = ("dynamo", "script")
OPSET = {"dynamo": 20, "script": 17}
BATCH = 3


class Perceptron(nn.Module):
    """Three linear layers."""

    def __init__(self, width: int = 16, inputs: int = 8, classes: int = 5) -> None:
        super().__init__()
        self.first = nn.Linear(inputs, width)
        self.middle = nn.Linear(width, width)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Any) -> Any:
        return self.head(functional.gelu(self.middle(torch.tanh(self.first(x)))))


class Block(nn.Module):
    """A residual block: two convolutions, with the input added."""

    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inner, outer, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outer)
        self.conv2 = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outer)
        self.shortcut = nn.Sequential()
        if stride != 1 or inner != outer:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer)
            )

    def forward(self, x: Any) -> Any:
        h = self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(x)))))
        return functional.relu(h + self.shortcut(x))


class ResNet(nn.Module):
    """A convolutional network with residual blocks."""

    def __init__(self, width: int = 4, blocks: int = 1, classes: int = 5) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, width, 3, 1, 1, bias=False)
        self.bn = nn.BatchNorm2d(width)
        sizes = [(width, 1), (2 * width, 2), (4 * width, 2)]
        layers: list[nn.Module] = []
        inner = width
        for outer, stride in sizes:
            for i in range(blocks):
                layers.append(Block(inner, outer, stride if i == 0 else 1))
                inner = outer
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(inner, classes)

    def forward(self, x: Any) -> Any:
        h = self.layers(functional.max_pool2d(functional.relu(self.bn(self.conv(x))), 3, 2, 1))
        return self.head(functional.adaptive_avg_pool2d(h, 1).flatten(1))


class UNet(nn.Module):
    """Down by pooling, up by a transposed convolution and by interpolation, with what was seen joined on."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.down1 = nn.Sequential(nn.Conv2d(2, width, 3, padding=1), nn.GroupNorm(2, width), nn.SiLU())
        self.down2 = nn.Sequential(
            nn.Conv2d(width, 2 * width, 3, padding=1), nn.InstanceNorm2d(2 * width), nn.ELU()
        )
        self.middle = nn.Conv2d(2 * width, 4 * width, 3, padding=2, dilation=2)
        self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
        self.join2 = nn.Conv2d(4 * width, width, 3, padding=1)
        self.join1 = nn.Conv2d(2 * width, width, 3, padding=1)
        self.out = nn.Conv2d(width, 1, 1)

    def forward(self, x: Any) -> Any:
        first = self.down1(x)
        second = self.down2(functional.max_pool2d(first, 2))
        h = functional.leaky_relu(self.middle(functional.avg_pool2d(second, 2)))
        h = functional.relu(self.join2(torch.cat([self.up2(h), second], 1)))
        h = functional.interpolate(h, scale_factor=2.0, mode="bilinear", align_corners=False)
        return self.out(functional.softplus(self.join1(torch.cat([h, first], 1))))


class Recurrent(nn.Module):
    """Two layers of LSTM, the second in both directions, and a head on the last step."""

    def __init__(self, width: int = 5, inputs: int = 3, classes: int = 4) -> None:
        super().__init__()
        self.first = nn.LSTM(inputs, width, batch_first=True)
        self.second = nn.LSTM(width, width, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * width, classes)

    def forward(self, x: Any) -> Any:
        h, _ = self.second(self.first(x)[0])
        return self.head(h[:, -1])


class Encoder(nn.Module):
    """A BERT with a mask of what is padding; its last hidden states and the pooled one."""

    def __init__(self, width: int = 16, layers: int = 2, heads: int = 2, length: int = 16) -> None:
        super().__init__()
        bert = library("transformers.models.bert")
        configuration = bert.BertConfig(
            vocab_size=31, hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads,
            intermediate_size=2 * width, max_position_embeddings=length, attn_implementation="eager",
            hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        )  # fmt: skip
        self.model = bert.BertModel(configuration)

    def forward(self, ids: Any, seen: Any) -> Any:
        made = self.model(input_ids=ids, attention_mask=seen)
        return made.last_hidden_state, made.pooler_output


class Decoder(nn.Module):
    """A GPT-2 with its language model's head, whose weights are those of the embedding.

    Without a mask, transformers looks where packed sequences begin, with an operator that the older
    exporter lacks.
    """

    def __init__(self, width: int = 16, layers: int = 2, heads: int = 2, length: int = 16) -> None:
        super().__init__()
        gpt = library("transformers.models.gpt2")
        configuration = gpt.GPT2Config(
            vocab_size=31, n_embd=width, n_layer=layers, n_head=heads, n_positions=length,
            bos_token_id=0, eos_token_id=0,
            attn_implementation="eager", use_cache=False,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        )  # fmt: skip
        self.model = gpt.GPT2LMHeadModel(configuration)

    def forward(self, ids: Any, seen: Any) -> Any:
        return self.model(input_ids=ids, attention_mask=seen).logits


def _floats(*shape: int) -> Callable[[Any, int, Any], tuple[Any, ...]]:
    return lambda generator, batch, dtype: (torch.randn(batch, *shape, generator=generator, dtype=dtype),)


def _ids(length: int) -> Callable[[Any, int, Any], tuple[Any, ...]]:
    """Words, and which of them are no padding."""

    def draw(generator: Any, batch: int, dtype: Any) -> tuple[Any, ...]:
        ids = torch.randint(1, 31, (batch, length), generator=generator)
        seen = torch.ones(batch, length, dtype=torch.int64)
        seen[0, length - 2 :] = 0
        return ids, seen

    return draw


@dataclass(frozen=True)
class Case:
    """A model to build, what it is fed, and whether it is exported as it trains."""

    build: Callable[[], nn.Module]
    names: tuple[str, ...]
    draw: Callable[[Any, int, Any], tuple[Any, ...]]
    training: bool = False


CASES: dict[str, Case] = {
    "mlp": Case(Perceptron, ("x",), _floats(8)),
    "resnet, training": Case(ResNet, ("x",), _floats(3, 12, 12), training=True),
    "resnet, resting": Case(ResNet, ("x",), _floats(3, 12, 12)),
    "unet": Case(UNet, ("x",), _floats(2, 8, 8)),
    "lstm": Case(Recurrent, ("x",), _floats(4, 3)),
    "bert": Case(Encoder, ("ids", "seen"), _ids(6)),
    "gpt": Case(Decoder, ("ids", "seen"), _ids(6)),
}

LARGER: dict[str, Case] = {
    "mlp": Case(lambda: Perceptron(256, 784, 10), ("x",), _floats(784)),
    "resnet, training": Case(lambda: ResNet(16, 3, 10), ("x",), _floats(3, 32, 32), training=True),
    "resnet, resting": Case(lambda: ResNet(16, 3, 10), ("x",), _floats(3, 32, 32)),
    "unet": Case(lambda: UNet(16), ("x",), _floats(2, 32, 32)),
    "lstm": Case(lambda: Recurrent(32, 3, 4), ("x",), _floats(20, 3)),
    "bert": Case(lambda: Encoder(64, 4, 4, 64), ("ids", "seen"), _ids(32)),
    "gpt": Case(lambda: Decoder(64, 4, 4, 64), ("ids", "seen"), _ids(32)),
}


@dataclass(frozen=True)
class Exported:
    """A module and the ONNX file that was made of it."""

    module: nn.Module
    names: tuple[str, ...]
    path: Path
    draw: Callable[[int], tuple[Any, ...]]


def exported(name: str, way: str, dtype: Any = torch.float32, *, larger: bool = False) -> Exported:
    """A model and its export, with an open batch size."""
    case = (LARGER if larger else CASES)[name]
    torch.manual_seed(0)
    module = case.build().to(dtype)
    _stirred(module)
    module.train(case.training)

    def draw(batch: int, seed: int = 1) -> tuple[Any, ...]:
        return case.draw(torch.Generator().manual_seed(seed), batch, dtype)

    label = f"{name}{' larger' if larger else ''} {way} {str(dtype).removeprefix('torch.')}"
    path = folder() / f"{label.replace(', ', ' ').replace(' ', '-')}.onnx"
    if not path.exists():
        part = path.with_suffix(f".{os.getpid()}.part")
        state = {key: value.clone() for key, value in module.state_dict().items()}
        _write(module, case, draw(BATCH), way, part)
        module.load_state_dict(state)
        os.replace(part, path)
    return Exported(module, case.names, path, draw)


def _stirred(module: nn.Module) -> None:
    """Biases, scales and running statistics that are not the zeros and ones that they start as."""
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for values in (*module.parameters(), *module.buffers()):
            if values.is_floating_point() and values.ndim == 1:
                values += 0.2 * torch.rand(values.shape, generator=generator, dtype=values.dtype)


def folder() -> Path:
    """Where exports are kept, of these versions and of these models."""
    text = inspect.getsource(sys.modules[__name__])
    versions = (torch.__version__, onnx.__version__, onnxscript.__version__, version("transformers"))
    key = hashlib.sha256("|".join((text, *versions)).encode()).hexdigest()[:16]
    base = os.environ.get("STOPGRAD_CACHE_DIR", str(Path(tempfile.gettempdir()) / "stopgrad-tests"))
    made = Path(base) / "onnx-models" / key
    made.mkdir(parents=True, exist_ok=True)
    return made


def _write(module: nn.Module, case: Case, given: tuple[Any, ...], way: str, path: Path) -> None:
    """Export a module as it is: no weights folded into others, so that each keeps its name."""
    options: dict[str, Any] = {"input_names": list(case.names), "opset_version": OPSET[way]}
    with warnings.catch_warnings(), redirect_stdout(StringIO()):
        warnings.simplefilter("ignore")
        if way == "script":
            options |= {"dynamic_axes": {name: {0: "batch"} for name in case.names}}
            options |= {"training": torch.onnx.TrainingMode.PRESERVE, "do_constant_folding": False}
            torch.onnx.export(module, given, str(path), dynamo=False, **options)
            return
        batch = torch.export.Dim("batch", min=2, max=1024)
        program = torch.export.export(module, given, dynamic_shapes=tuple({0: batch} for _ in case.names))
        if case.training:
            program = program.run_decompositions(_in_steps())
        options |= {"optimize": False, "external_data": False, "verbose": False}
        torch.onnx.export(program, (), str(path), dynamo=True, **options)


def _in_steps() -> dict[Any, Any]:
    """Batch norm as means and products: this exporter writes it as if the module did not train.

    PyTorch 2.13 translates it to ``BatchNormalization`` without ``training_mode``.
    """
    aten = torch.ops.aten
    table: dict[Any, Any] = torch.export.default_decompositions()
    table.update(get_decompositions([aten._native_batch_norm_legit_functional, aten.batch_norm]))
    return table


def by_name(model: onnx.ModelProto) -> dict[str, np.ndarray[Any, Any]]:
    """The initializers of a model."""
    return {x.name: onnx.numpy_helper.to_array(x) for x in model.graph.initializer}

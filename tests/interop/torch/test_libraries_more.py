"""Many architectures under a watch: for every parameter, what is said is what autograd does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("stopgrad.torch")

import torch
from torch_libraries import library

import stopgrad.torch as sgt

pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.filterwarnings("ignore")]

# What configurations call their sizes; each takes those that it knows.
TINY = {
    **dict.fromkeys(("vocab_size",), 20),
    **dict.fromkeys(("hidden_size", "d_model", "dim", "n_embd", "embedding_size", "d_ff"), 8),
    **dict.fromkeys(("num_hidden_layers", "num_layers", "n_layers", "n_layer"), 2),
    **dict.fromkeys(("num_attention_heads", "num_heads", "n_heads", "n_head", "num_key_value_heads"), 2),
    **dict.fromkeys(("encoder_layers", "decoder_layers", "bos_token_id", "decoder_start_token_id"), 1),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads", "eos_token_id"), 2),
    **dict.fromkeys(("intermediate_size", "hidden_dim", "encoder_ffn_dim", "decoder_ffn_dim"), 12),
    **dict.fromkeys(("max_position_embeddings", "n_positions"), 32),
    **dict.fromkeys(("d_kv", "state_size", "head_dim"), 4),
    **dict.fromkeys(("num_local_experts", "num_experts"), 3),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), 8),
    **dict.fromkeys(("pad_token_id",), 0),
    **dict.fromkeys(("num_experts_per_tok",), 2),
}

LANGUAGE = [
    "BertForMaskedLM",
    "RobertaForMaskedLM",
    "DistilBertForMaskedLM",
    "ElectraForMaskedLM",
    "AlbertForMaskedLM",
    "DebertaForMaskedLM",
    "BigBirdForMaskedLM",
    "LongformerForMaskedLM",
    "MPNetForMaskedLM",
    "ConvBertForMaskedLM",
    "RoFormerForMaskedLM",
    "NystromformerForMaskedLM",
    "FNetForMaskedLM",
    "SqueezeBertForMaskedLM",
    "LlamaForCausalLM",
    "MistralForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen2MoeForCausalLM",
    "GemmaForCausalLM",
    "Gemma2ForCausalLM",
    "PhiForCausalLM",
    "OPTForCausalLM",
    "GPTNeoXForCausalLM",
    "BloomForCausalLM",
    "MambaForCausalLM",
    "OlmoForCausalLM",
    "StableLmForCausalLM",
    "CohereForCausalLM",
    "XGLMForCausalLM",
    "RwkvForCausalLM",
    "BartForConditionalGeneration",
    "MBartForConditionalGeneration",
    "PegasusForConditionalGeneration",
    "GptOssForCausalLM",
]


@pytest.fixture(autouse=True)
def _small() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


def check(model: Any, compute: Callable[[], Any]) -> None:
    """Each parameter of a model gets a gradient where the report says so, and no other."""
    for parameter in model.parameters():
        if parameter.requires_grad and not parameter.detach().any():
            torch.nn.init.normal_(parameter, std=0.1)  # Zeros would keep gradients from what is before them.
    with sgt.watch() as seen:
        loss = compute()
    flow = seen.explain(loss, model)
    loss.backward()
    wrong = {
        name: flow[name].status
        for name, parameter in model.named_parameters(remove_duplicate=False)
        if flow[name].arrives != (parameter.grad is not None)
    }
    assert not wrong, wrong


def tiny(name: str) -> Any:
    """A language model of transformers, by the name of its class."""
    transformers = library("transformers")
    kind = getattr(transformers, name)
    defaults = kind.config_class()
    known = {*vars(defaults), *kind.config_class.attribute_map}
    return kind(kind.config_class(**{key: size for key, size in TINY.items() if key in known})).train()


@pytest.mark.parametrize("name", LANGUAGE)
def test_language_models(name: str) -> None:
    model, ids = tiny(name), torch.randint(3, 20, (2, 7))
    check(model, lambda: model(input_ids=ids, labels=ids).loss)


@pytest.mark.parametrize("family", ["test_vit*", "test_*net*", "test_ma*"])
def test_image_models_of_timm(family: str) -> None:
    timm = library("timm")
    names = timm.list_models(family)
    assert names
    for name in names:
        model = timm.create_model(name, pretrained=False, num_classes=3).train()
        x, y = torch.randn(2, *model.default_cfg["input_size"]), torch.tensor([0, 2])
        check(model, lambda: torch.nn.functional.cross_entropy(model(x), y))


@pytest.mark.parametrize(
    "name",
    ["mobilenet_v3_small", "shufflenet_v2_x0_5", "densenet121", "swin_t", "convnext_tiny", "regnet_y_400mf"],
)
def test_image_models_of_torchvision(name: str) -> None:
    model = getattr(library("torchvision.models"), name)(num_classes=3).train()
    x, y = torch.randn(4, 3, 64, 64), torch.tensor([0, 2, 1, 1])
    check(model, lambda: torch.nn.functional.cross_entropy(model(x), y))

"""An unknown name that another library has is an error that tells ours: on the package, and on outputs."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys

import pytest
from together import together

import stopgrad as sg
from stopgrad.base.hints import HINTS, OF_OUTPUTS, hint_for, hint_for_output

PUBLIC = set(sg.__all__)

EXPECTED = {
    # TensorFlow
    "Variable": "sg.parameter",
    "GradientTape": "sg.gradients",
    "reduce_summ": "sg.reduce_sum",
    "global_variables_initializer": "sg.Session",
    "Tensor": "sg.Output",
    "recompute_grad": "sg.checkpoint",
    "vectorized_map": "sg.vmap",
    "math": "sg.exp",
    "keras": "sg.matmul",
    "control_dependencies": "sg.Session",
    # JAX
    "jit": "sg.function",
    "jacrev": "sg.jacobian",
    "remat": "sg.checkpoint",
    "PRNGKey": "sg.random_key",
    "lax": "sg.exp",
    "numpy": "sg.exp",
    # NumPy
    "sum": "sg.reduce_sum",
    "mean": "sg.reduce_mean",
    "prod": "sg.reduce_prod",
    "max": "sg.reduce_max",
    "min": "sg.reduce_min",
    "any": "sg.reduce_any",
    "all": "sg.reduce_all",
    "var": "sg.reduce_variance",
    "std": "sg.reduce_std",
    "arange": "sg.range",
    "asarray": "sg.constant",
    "concatenate": "sg.concat",
    "vstack": "sg.concat",
    "dot": "sg.matmul",
    "newaxis": "sg.expand_dims",
    "arctan2": "sg.atan2",
    # PyTorch
    "detach": "sg.stop_gradient",
    "no_grad": "sg.no_gradient",
    "requires_grad": "sg.gradients",
    "backward": "sg.gradients",
    "cat": "sg.concat",
    "clamp": "sg.clip_by_value",
    "unsqueeze": "sg.expand_dims",
    "tensor": "sg.constant",
    "functional": "sg.nn.relu",
    "optim": "sg.optimizers.adamw",
    "bmm": "sg.matmul",
    "randn": "sg.random_normal",
    "cross_entropy": "sg.sparse_softmax_cross_entropy_with_logits",
    "float": "sg.float32",
    "huber_loss": "sg.huber",
    "embedding": "sg.embedding_lookup",
    "batch_norm": "sg.batch_normalization",
    "BatchNorm2d": "sg.batch_normalization",
    "LSTM": "sg.lstm",
    "nan_to_num": "sg.is_finite",
    "string": "no tensors of text",
    "ragged": "sg.where",
    "fft2": "sg.fft.fftn",
    "pixel_shuffle": "sg.depth_to_space",
    "quantile": "sg.sort",
    "index_add": "sg.scatter_add",
    "interpolate": "sg.resize",
    "prelu": "sg.where",
    "state_dict": "sg.save",
    "diagonal": "sg.diag_part",
    "tree_util": "sg.tree.map",
    "io_callback": "sg.debug_callback",
    # misspelt
    "matmull": "sg.matmul",
    "stop_grandient": "sg.stop_gradient",
    "exmp1": "sg.expm1",
    "conactenate": "concatenate? It is sg.concat",
}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_name_of_others_says_what_is_written_here(name: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(sg, name)
    message = str(caught.value)
    assert message.startswith(f"stopgrad has no {name!r}")
    assert EXPECTED[name] in message


def test_there_are_many() -> None:
    assert len(HINTS) > 350
    assert len(OF_OUTPUTS) > 80


@together(("table", "name"), [(t, n) for t in (HINTS, OF_OUTPUTS) for n in t])
def test_whatever_a_hint_names_exists(table: dict[str, str], name: str) -> None:
    named = re.findall(r"\bsg\.(\w+(?:\.\w+)?)", table[name])
    for path in named:
        found = sg
        for part in path.split("."):
            assert hasattr(found, part), f"{table[name]!r}: there is no sg.{path}"
            found = getattr(found, part)
    assert named or re.search(r"\bx\b|np\.|math\.|leave it out|there (are|is) no|optree|scalar", table[name])


def test_no_name_that_is_there_has_a_hint() -> None:
    assert not PUBLIC & set(HINTS), "these exist now: take their hints away"


def test_tensorflows_name_is_told_apart_from_our_package_of_it() -> None:
    importlib.import_module("stopgrad.train.adapters")  # From here on there is sg.train.
    with pytest.raises(AttributeError, match=r"no 'AdamOptimizer'; .*sg\.optimizers\.adamw"):
        sg.train.AdamOptimizer  # noqa: B018


@together("name", OF_OUTPUTS)
def test_an_output_has_no_attribute_that_has_a_hint(name: str) -> None:
    with sg.Graph().as_default():
        x = sg.placeholder(sg.float32, [2])
    assert not hasattr(x, name), "this exists now: take its hint away"
    assert hint_for_output(name) == f"an output has no {name!r}; it is {OF_OUTPUTS[name]}"


def test_attributes_that_hints_name_exist() -> None:
    with sg.Graph().as_default():
        x = sg.placeholder(sg.float32, [2])
    for text in [*HINTS.values(), *OF_OUTPUTS.values()]:
        for path in re.findall(r"\bx((?:\.\w+)+)", text):
            found: object = x
            for part in path.split(".")[1:]:
                assert hasattr(found, part), f"{text!r}: an output has no {path[1:]}"
                found = getattr(found, part)


def test_what_nobody_knows_is_said_plainly() -> None:
    with pytest.raises(AttributeError, match=r"stopgrad has no 'qwertyuiop'; dir\(sg\) lists"):
        sg.qwertyuiop  # type: ignore[attr-defined]  # noqa: B018
    assert hint_for_output("qwertyuiop") is None
    assert hint_for("sum", ()) == "stopgrad has no 'sum'; it is sg.reduce_sum"


def test_private_names_are_not_looked_up() -> None:
    with pytest.raises(AttributeError, match="module 'stopgrad' has no attribute '_sum'"):
        sg._sum  # type: ignore[attr-defined]  # noqa: B018
    assert not hasattr(sg, "__wrapped__")


def test_what_is_there_stays_and_star_imports_work() -> None:
    assert "sum" not in dir(sg)
    made = subprocess.run(
        [sys.executable, "-c", "from stopgrad import *; print(reduce_sum.__name__)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert made.stdout == "reduce_sum\n"

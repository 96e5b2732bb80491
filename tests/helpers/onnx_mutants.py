"""Mutants of ONNX files, made from a seed, and what must hold of any of them when it is loaded.

As a command, a fuzzer in a process of its own, with a bound on its memory:
``python tests/helpers/onnx_mutants.py SEED SECONDS FOLDER [WORDS]`` prints a report, as JSON, and leaves what
broke in the folder; with words, such as ``layer,form``, of the seeds whose names have one of them: layers are
the fused and quantised ones, forms whole models that optimisers and quantisers have written.
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import sys
import tempfile
import time
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.descriptor import FieldDescriptor
from onnx.backend.test.loader import load_model_tests
from onnx_forms import forms
from onnx_layers import LAYERS, model_of

import stopgrad as sg
import stopgrad.onnx as sgo
from stopgrad.interop.onnx.operators import OPERATORS as TRANSLATED

SECONDS = 5.0
"""Of the processor, for one file."""
BYTES = 2**30
"""Of address space, more than what the process has when it begins."""
LARGEST = 200_000
"""Larger files are not mutated: they are no other, only slower."""

# ------------------------------------------------------------------------------------------------ seeds


def seeds() -> dict[str, bytes]:
    """Real models, kept on disk: the node tests of onnx, what it has, fused and quantised layers, forms."""
    base = os.environ.get("STOPGRAD_CACHE_DIR", str(Path(tempfile.gettempdir()) / "stopgrad-tests"))
    path = Path(base) / f"onnx-seeds-{onnx.__version__}-forms.zip"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}")
        with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as file:
            for name, content in _gathered():
                file.writestr(name, content)
        os.replace(part, path)
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name) for name in file.namelist()}


def _gathered() -> Iterator[tuple[str, bytes]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = load_model_tests(kind="node")
    for case in cases:
        if case.model.ByteSize() <= LARGEST:
            yield case.name, case.model.SerializeToString()
            inputs = case.data_sets[0][0] if case.data_sets else []
            yield f"{case.name} with known sizes", _known(case.model, inputs).SerializeToString()
    for name, layer in LAYERS.items():
        if name.startswith(("contrib", "microsoft", "quantized")):
            yield f"layer {name}", model_of(layer, np.float32).SerializeToString()
    for name, form in forms():
        yield f"form {name}", form.SerializeToString()
    data = Path(onnx.__file__).parent / "backend" / "test" / "data"
    for path in sorted(data.rglob("*.onnx")):
        if path.stat().st_size <= LARGEST:
            yield str(path.relative_to(data)), path.read_bytes()


def _known(model: Any, inputs: Sequence[Any]) -> Any:
    """A model whose small whole-number inputs, which may say sizes, are stored in it."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    for x, value in zip(list(made.graph.input), inputs, strict=False):
        if isinstance(value, np.ndarray) and value.dtype.kind in "iub" and value.ndim <= 1:
            made.graph.input.remove(x)
            made.graph.initializer.append(onnx.numpy_helper.from_array(value, x.name))
    return made


# ---------------------------------------------------------------------------------------------- mutants

NUMBERS = (
    0,
    1,
    -1,
    2,
    3,
    7,
    16,
    127,
    255,
    2**16,
    2**31 - 1,
    -(2**31),
    2**32,
    2**40,
    2**62,
    2**63 - 1,
    -(2**63),
)
REALS = (0.0, -0.0, 1.0, -1.0, 1e-45, 3e38, float("inf"), float("-inf"), float("nan"))
WORDS = (
    "",
    "x",
    "\x00",
    "../x",
    "/dev/zero",
    "ai.onnx.ml",
    "com.microsoft",
    "stopgrad",
    "StopGradient",
    "é" * 9,
    "a" * 5000,
)
OPERATORS = sorted(
    {schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain}
    | {name.rpartition("::")[2] for name in TRANSLATED}
)
CPP = FieldDescriptor


def mutant(r: random.Random, models: Sequence[bytes]) -> bytes:
    """A model with something wrong in it."""
    content = r.choice(models)
    if r.random() < 0.3:
        for _ in range(r.choice((1, 1, 1, 2, 8))):
            content = r.choice(BYTE_WISE)(r, content)
        return content
    model = onnx.ModelProto()
    model.ParseFromString(content)
    for _ in range(r.choice((1, 1, 1, 2, 3, 6))):
        mutate_field(r, model)
    try:
        return bytes(model.SerializeToString())
    except Exception:  # What protobuf does not write, such as text that is none.
        return content


def _flipped(r: random.Random, content: bytes) -> bytes:
    found = bytearray(content)
    if found:
        found[r.randrange(len(found))] ^= 1 << r.randrange(8)
    return bytes(found)


def _cut(r: random.Random, content: bytes) -> bytes:
    return content[: r.randrange(len(content) + 1)]


def _without(r: random.Random, content: bytes) -> bytes:
    i = r.randrange(len(content) + 1)
    return content[:i] + content[i + r.randrange(20) :]


def _doubled(r: random.Random, content: bytes) -> bytes:
    i, j = sorted((r.randrange(len(content) + 1), r.randrange(len(content) + 1)))
    return content[:j] + content[i:]


def _noisy(r: random.Random, content: bytes) -> bytes:
    i = r.randrange(len(content) + 1)
    return content[:i] + r.randbytes(r.randrange(1, 9)) + content[i + r.randrange(9) :]


BYTE_WISE: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    _flipped,
    _flipped,
    _cut,
    _without,
    _doubled,
    _noisy,
)


def messages(root: Any) -> list[Any]:
    """A message and all those in it."""
    found = [root]
    for message in found:
        for field, value in message.ListFields():
            if field.cpp_type == CPP.CPPTYPE_MESSAGE:
                found += value if field.is_repeated else [value]
    return found


def mutate_field(r: random.Random, model: Any) -> None:
    """Change one field of one message in a model."""
    message = r.choice(messages(model))
    fields = [field for field, _ in message.ListFields()] if r.random() < 0.85 else []
    field = r.choice(fields or list(message.DESCRIPTOR.fields))
    if field.is_repeated:
        _mutate_repeated(r, message, field, model)
    elif r.random() < 0.15:
        message.ClearField(field.name)
    elif field.cpp_type == CPP.CPPTYPE_MESSAGE:
        _graft(r, getattr(message, field.name), model)
    else:
        _set(message, field, _value(r, field, model))


def _mutate_repeated(r: random.Random, message: Any, field: Any, model: Any) -> None:
    values = getattr(message, field.name)
    choice = r.randrange(5)
    if choice == 0 and len(values):
        del values[r.randrange(len(values))]
    elif choice == 1 and len(values) > 1:
        kept = list(values)
        r.shuffle(kept)
        copies = [_copy(x) for x in kept]
        del values[:]
        values.extend(copies)
    elif field.cpp_type == CPP.CPPTYPE_MESSAGE:
        new = values.add() if choice == 2 or not len(values) else r.choice(list(values))
        _graft(r, new, model)
    else:
        new = _value(r, field, model)
        with suppress(ValueError, TypeError):  # A number that does not fit the field.
            if choice == 2 or not len(values):
                values.append(new)
            else:
                values[r.randrange(len(values))] = new


def _copy(x: Any) -> Any:
    if not hasattr(x, "DESCRIPTOR"):
        return x
    new = type(x)()
    new.CopyFrom(x)
    return new


def _graft(r: random.Random, message: Any, model: Any) -> None:
    """Put another message of its kind from the same model in the place of one."""
    alike = [m for m in messages(model) if m.DESCRIPTOR is message.DESCRIPTOR and m is not message]
    if alike:
        message.CopyFrom(_copy(r.choice(alike)))
    else:
        message.SetInParent()


def _set(message: Any, field: Any, value: Any) -> None:
    with suppress(ValueError, TypeError):  # A number that does not fit the field.
        setattr(message, field.name, value)


def _value(r: random.Random, field: Any, model: Any) -> Any:
    kind = field.cpp_type
    if kind in (CPP.CPPTYPE_FLOAT, CPP.CPPTYPE_DOUBLE):
        return r.choice(REALS)
    if kind == CPP.CPPTYPE_ENUM:
        return r.choice([value.number for value in field.enum_type.values])
    if kind != CPP.CPPTYPE_STRING:
        return r.choice(NUMBERS) if r.random() < 0.7 else r.randrange(-4, 30)
    if field.type == CPP.TYPE_BYTES:
        return r.randbytes(r.choice((0, 1, 4, 8, 33)))
    if field.name == "op_type" or r.random() < 0.1:
        return r.choice(OPERATORS)
    return r.choice(_texts(model)) if r.random() < 0.7 else r.choice(WORDS)


def _texts(model: Any) -> list[str]:
    found = {"x"}
    for message in messages(model):
        for field, value in message.ListFields():
            if field.type == CPP.TYPE_STRING:
                found.update(value if field.is_repeated else [value])
    return sorted(found)


# --------------------------------------------------------------------------------------------- checking


class SlowError(BaseException):
    """Loading took longer than it may; no handler of errors takes it for one of the model's."""


def _too_slow(signum: int, frame: Any) -> None:
    raise SlowError


@contextmanager
def bounded(nodes: int = 0) -> Iterator[None]:
    """Bound the processor time of a block: so much for any model, and a tenth of a millisecond for a node."""
    before = signal.signal(signal.SIGPROF, _too_slow)
    signal.setitimer(signal.ITIMER_PROF, SECONDS + 1e-4 * nodes)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


ASKED = {"quantized": "straight-through", "maximum_iterations": 3}
"""What one may ask for: gradients through rounding, and through loops that a condition ends."""


def outcome(source: Any, nodes: int = 0, *, train: bool = False, **asked: Any) -> tuple[str, str]:
    """How loading ends: ``("loaded", "")``, ``("refused", kind)``, or ``("broken", what is wrong)``.

    Args:
        source: what is loaded; if it can be, its gradients are built as well.
        nodes: how many there are; each has a little time.
        train: whether the graphs of a training are made of it instead.
        asked: of the loader.
    """
    try:
        with bounded(nodes), warnings.catch_warnings():
            warnings.simplefilter("error")
            if train:
                sgo.training(source, loss="mse", optimizer="sgd", folder=None, **asked)
            else:
                differentiate(sgo.load(source, **asked))
    except sg.InternalError as error:
        return "broken", f"{type(error).__name__}: {error}"
    except sg.StopgradError as error:
        return "refused", type(error).__name__
    except SlowError:
        return "broken", f"more than {SECONDS + 1e-4 * nodes:.1f} s"
    except BaseException as error:
        return "broken", f"{type(error).__name__}: {error}"
    return "loaded", ""


def differentiate(model: Any) -> None:
    """Build the gradients of what a model computes, by what it has of floats, if there are any."""
    ys = [y for y in model.outputs.values() if isinstance(y, sg.Output) and y.dtype.is_floating]
    xs = [
        x
        for x in [*model.inputs.values(), *model.parameters.values()]
        if isinstance(x, sg.Output) and x.dtype.is_floating
    ]
    if ys and xs:
        with suppress(sg.GradientError), model.graph.as_default():
            sg.gradients(ys, xs)


def main(seed: int, seconds: float, folder: Path, words: str = "") -> None:
    """Load mutants for some time, of seeds whose names have a word; every other one with what one may ask.

    Of every eighth one, the graphs of a training are made.
    """
    models = [content for name, content in seeds().items() if any(word in name for word in words.split(","))]
    random.Random(seed).shuffle(models)
    until = time.process_time() + min(10.0, seconds / 4)
    # Mutants of what loads get further. What is imported late is not their doing.
    tried = [content for content in models if time.process_time() < until and outcome(content)[0] == "loaded"]
    models = tried or models
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + BYTES, used + BYTES))
    found: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    broken: list[dict[str, str]] = []
    until = time.monotonic() + seconds
    current = folder / "current.onnx"
    slowest, n = 0.0, 0
    while time.monotonic() < until and len(broken) < 20:
        content = mutant(random.Random(f"{seed} {n}"), models)
        current.write_bytes(content)
        began = time.process_time()
        how, what = outcome(content, train=n % 8 == 7, **(ASKED if n % 2 else {}))
        slowest = max(slowest, time.process_time() - began)
        found[how] += 1
        if how == "refused":
            kinds[what] += 1
        elif how == "broken":
            path = folder / f"broken-{seed}-{n}.onnx"
            path.write_bytes(content)
            broken.append({"file": str(path), "why": what})
        n += 1
    current.unlink()
    print(json.dumps({"tried": n, **found, "kinds": kinds, "slowest": round(slowest, 2), "failures": broken}))


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3]), *sys.argv[4:])

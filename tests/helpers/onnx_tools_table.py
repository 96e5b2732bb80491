"""What becomes of eight architectures when tools rewrite their ONNX files: read, gradient, trained.

    python tests/helpers/onnx_tools_table.py measure FOLDER [MODEL ...]
    python tests/helpers/onnx_tools_table.py one FOLDER MODEL [TOOL] [EXPORTER]
    python tests/helpers/onnx_tools_table.py write FOLDER docs/onnx-tools.md

The first writes FOLDER/MODEL.json, one after the other, each in a process of its own; it needs torch,
transformers 4, optimum-onnx, onnxslim, onnxsim, onnxscript, onnxconverter-common and onnxruntime, and
takes about twenty minutes. The second measures some of it anew. The third writes the tables of the page.

For each file three errors, each a share of the largest number that it is compared with:

* read: the values beside those of ONNX Runtime, which runs the same file;
* gradient: of a weighted sum of the output by the weights, beside PyTorch's autograd in float64. Each number
  of the file is found in the module by its value; for those that a tool has changed (folded norms, for
  example), the slope along the gradient is held against the runtime's differences. Weights of 16 bits
  and beside quantised ones are found by their names instead;
* trained: a step of SGD by ``Trainer``, its loss and the step of each weight beside PyTorch's own.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import numpy_helper
from onnx_tools import HALF, QUANTISED, TOOLS
from onnx_tools_models import EXPORTERS, KINDS, MODELS, InapplicableError, module_of

import stopgrad as sg
import stopgrad.onnx as sgo

Array = np.ndarray[Any, Any]
BOUNDS = {"": (1e-4, 2e-3, 2e-3), "half": (3e-2, 0.1, 0.1), "quantised": (0.1, 0.5, 0.5)}
"""The largest errors that count as right: float32, 16 bits, and whole numbers."""
FLOOR = 1e-3
"""A tensor whose gradient is a smaller share of the largest is compared with that share."""


@dataclass
class Reference:
    """What PyTorch computes in float64, and where each number of the module is found.

    Attributes:
        inputs: by name; ``y`` the output; ``c`` the weights of the sum; ``t`` the target of the step.
        loss: the mean of the squares.
        numbers: the module's numbers in float32, sorted; ``single`` those that stand in it once.
        part: the parameter that each is of.
        slopes: the gradients of the weighted sum and of the loss, by each.
        named: by the name of the exported file's tensors, their values and gradients.
    """

    inputs: dict[str, Array]
    y: Array
    c: Array
    t: Array
    loss: float
    numbers: Array
    single: Array
    part: Array
    slopes: dict[str, Array]
    named: dict[str, dict[str, Array]] = field(default_factory=dict)


def reference(name: str) -> tuple[Any, Any, Reference]:
    import torch

    module, inputs = module_of(name)
    values = [x.detach().numpy().ravel() for x in module.parameters()]
    numbers, first, counts = np.unique(np.concatenate(values), return_index=True, return_counts=True)
    part = np.repeat(np.arange(len(values)), [len(x) for x in values])[first]
    module.double()
    y = module(*[x.double() if x.is_floating_point() else x for x in inputs.values()])
    c, t = torch.randn(y.shape, dtype=torch.float64), torch.randn(y.shape, dtype=torch.float64)
    c, t = c.float().double(), t.float().double()
    loss = ((y - t) ** 2).mean()
    slopes = {}
    for key, z in (("sum", (y * c).sum()), ("step", loss)):
        found = torch.autograd.grad(z, list(module.parameters()), retain_graph=True, materialize_grads=True)
        slopes[key] = np.concatenate([g.numpy().ravel() for g in found])[first]
    module.float()
    arrays = {key: x.numpy() for key, x in inputs.items()}
    flat = [x.detach().numpy() for x in (y, c.float(), t.float())]
    return (
        module,
        inputs,
        Reference(arrays, *flat, loss.item(), numbers, counts == 1, part, slopes),
    )


# -------------------------------------------------------------------------------------------- comparison


def places(ref: Reference, value: Array) -> tuple[Array, Array]:
    """Where the numbers of a tensor stand among the module's, and which are there."""
    at = np.minimum(np.searchsorted(ref.numbers, value.ravel()), len(ref.numbers) - 1)
    return at, ref.numbers[at] == value.ravel()


def by_number(ref: Reference, kind: str, values: dict[str, Array], found: dict[str, Array]) -> Any:
    """The largest error of the numbers that are in the module, their share, and which tensors are not."""
    sums, seen = np.zeros(len(ref.numbers)), np.zeros(len(ref.numbers), bool)
    other, total, inside = [], 0, 0
    for name, value in values.items():
        at, there = places(ref, value)
        total += value.size
        if there.mean() < 0.9:  # A tensor of other numbers, some of which are the module's by chance.
            other.append(name)
            continue
        np.add.at(sums, at[there], found[name].ravel()[there])
        seen[at[there]] = True
        inside += int(there.sum())
    wanted, sure = ref.slopes[kind], seen & ref.single
    worst, floor = 0.0, FLOOR * np.abs(wanted).max()
    for i in np.unique(ref.part[sure]):
        mine = sure & (ref.part == i)
        scale = max(np.abs(wanted[mine]).max(), floor)
        worst = max(worst, float(np.abs(sums - wanted)[mine].max() / scale))
    return worst, inside / max(total, 1), other


def by_name(ref: Reference, kind: str, values: dict[str, Array], found: dict[str, Array]) -> Any:
    """The same for tensors whose numbers were rounded: by name, and as a share of the norm."""
    largest = max((np.linalg.norm(one[kind]) for one in ref.named.values() if kind in one), default=1.0)
    worst, total, inside, other = 0.0, 0, 0, []
    for name, value in values.items():
        total += value.size
        one = ref.named.get(name, {})
        if kind not in one or one[kind].shape != value.shape:
            other.append(name)
            continue
        inside += value.size
        scale = max(np.linalg.norm(one[kind]), 10 * FLOOR * largest)
        worst = max(worst, float(np.linalg.norm(found[name] - one[kind]) / scale))
    return worst, inside / max(total, 1), other


def remembered(ref: Reference, kind: str, values: dict[str, Array], found: dict[str, Array]) -> None:
    """Keep the gradients of tensors by name: PyTorch's, where the numbers are its own.

    Those of the exported file come first, then what tools have made of it in float32 (folded norms, for
    example), under the names that they have in 16 bits and beside quantised tensors, too.
    """
    for name, value in values.items():
        if kind in ref.named.get(name, {}):
            continue
        at, there = places(ref, value)
        whole = np.where(there & ref.single[at], ref.slopes[kind][at], found[name].ravel())
        # Copies of one table have their own gradients, and the module's is the sum of these.
        same = np.allclose(whole, found[name].ravel(), rtol=1e-2, atol=1e-2 * np.abs(whole).max())
        one = ref.named.setdefault(name, {})
        one[kind] = (whole if same else found[name].ravel()).reshape(value.shape)


# ------------------------------------------------------------------------------------------------ running


def session(model: bytes | str) -> Any:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def fed(ref: Reference, names: Any) -> dict[str, Array]:
    """The inputs that a file asks for; exporters of transformers add masks and positions."""
    first = next(iter(ref.inputs.values()))
    more = {
        "attention_mask": np.ones(first.shape[:2], np.int64),
        "position_ids": np.broadcast_to(np.arange(first.shape[-1]), first.shape).astype(np.int64),
    }
    return {name: ref.inputs[name] if name in ref.inputs else more[name] for name in names}


def slope(
    path: Path,
    ref: Reference,
    values: dict[str, Array],
    found: dict[str, Array],
    names: Any,
    number: Callable[[Array, Reference], float],
) -> float:
    """The gradient of a number by some tensors beside the runtime's difference along it, as a share."""
    model = onnx.load(path)
    stored = {x.name: x for x in model.graph.initializer}
    names = [name for name in names if name in stored and values[name].dtype == np.float32]
    norm = np.sqrt(sum(float((found[name].astype(float) ** 2).sum()) for name in names))
    if not names or not norm:
        return 0.0

    def total(step: float) -> float:
        for name in names:
            moved = (values[name] + step * found[name] / norm).astype(np.float32)
            stored[name].CopyFrom(numpy_helper.from_array(moved, name))
        run = session(model.SerializeToString())
        y = run.run([run.get_outputs()[0].name], fed(ref, [x.name for x in run.get_inputs()]))[0]
        return number(y.astype(float), ref)

    errors = []
    for step in (1e-2, 1e-3):
        errors.append(abs((total(step) - total(-step)) / (2 * step) - norm) / norm)
    return float(min(errors))


def weighted(y: Array, ref: Reference) -> float:
    return float((y * ref.c).sum())


def squares(y: Array, ref: Reference) -> float:
    return float(((y - ref.t) ** 2).mean())


def examined(path: Path, ref: Reference, tool: str) -> dict[str, Any]:
    """The three errors of one file; what is refused, with what it says."""
    compare = by_name if tool in HALF | QUANTISED else by_number
    report: dict[str, Any] = {"fused": sorted({n.op_type for n in onnx.load(path).graph.node if n.domain})}
    if any(name.endswith("_scale") and not np.isfinite(x).all() for name, x in stored_in(path)):
        return {**report, "tool": "it wrote a scale that is infinite, for a mask of -inf"}
    try:
        run = session(str(path))
        given = fed(ref, [x.name for x in run.get_inputs()])
        expected = run.run([run.get_outputs()[0].name], given)[0]
    except Exception as error:
        if "NOT_IMPLEMENTED" not in str(error) and "Could not find an implementation" not in str(error):
            return {**report, "tool": f"the runtime cannot run the file: {short(error)}"}
        # An operator that only other devices have: beside the file that the tool was given.
        report["beside"], expected = short(error), ref.y
        given = fed(ref, [x.name for x in onnx.load(path).graph.input])
    how = {"quantized": "straight-through"} if tool in QUANTISED else {}
    try:
        model = sgo.load(path, **how)
        y = next(iter(model.outputs.values()))
        xs = {name: x for name, x in model.parameters.items() if x.dtype.is_floating}
        with model.graph.as_default():
            made = sg.gradients(sg.reduce_sum(sg.cast(y, sg.float32) * ref.c), list(xs.values()))
        asked = {name: g for name, g in zip(xs, made, strict=True) if g is not None}
        with sg.Session(model.graph, engine="numpy") as numbers:
            value, *found = numbers.run(
                [y, *asked.values()], {x: given[name] for name, x in model.inputs.items()}
            )
    except sg.StopgradError as error:
        return {**report, "refused": short(error)}
    report["read"] = float(np.abs(value - expected).max() / np.abs(expected).max())
    held = model.values()
    gradients = dict(zip(asked, (np.asarray(g, np.float32) for g in found), strict=True))
    values = {name: np.asarray(held[name]) for name in gradients}
    if tool not in HALF | QUANTISED:
        remembered(ref, "sum", values, gradients)
    worst, share, other = compare(ref, "sum", values, gradients)
    report |= {"gradient": worst, "share": share, "tensors": len(values)}
    if tool == "MatMulNBits":  # Other weights than the module's: only the runtime can say.
        report["gradient"] = slope(path, ref, values, gradients, values, weighted)
    elif other and tool not in HALF | QUANTISED:
        report |= {"slope": slope(path, ref, values, gradients, other, weighted), "changed": other}
    return report | trained(path, ref, tool, given)


def stored_in(path: Path) -> list[tuple[str, Array]]:
    return [(x.name, numpy_helper.to_array(x)) for x in onnx.load(path).graph.initializer]


def trained(path: Path, ref: Reference, tool: str, given: dict[str, Array]) -> dict[str, Any]:
    """A step of SGD, so long that the largest change of a weight is a tenth of the largest weight."""
    compare = by_name if tool in HALF | QUANTISED else by_number
    first = onnx.load(path, load_external_data=False).graph.output[0].name
    rate = float(0.1 * np.abs(ref.numbers).max() / np.abs(ref.slopes["step"]).max())
    with tempfile.TemporaryDirectory() as folder:
        try:
            files = sgo.training(path, loss="mse", optimizer="sgd", outputs=first, folder=f"{folder}/t")
            trainer = sgo.Trainer(f"{folder}/t", threads=1)
            before = trainer.state
            labels = {"labels": ref.t.astype(np.float32)}
            loss = trainer.step(**given, **labels, learning_rate=rate)
        except sg.StopgradError as error:
            if "the weights are quantised (" in str(error):
                return adapted(path, ref, first, given)
            return {"untrained": short(error)}
        after = trainer.state
    kinds = {name: one["kind"] for name, one in files.manifest["state"].items()}
    values = {name: x for name, x in before.items() if kinds[name] == "parameter"}
    moved = {name: (x.astype(float) - after[name].astype(float)) / rate for name, x in values.items()}
    if tool not in HALF | QUANTISED:
        remembered(ref, "step", values, moved)
    worst, share, _ = compare(ref, "step", values, moved)
    expected = ref.loss
    if tool == "MatMulNBits":
        worst = slope(path, ref, values, moved, values, squares)
        run = session(str(path))
        expected = squares(run.run([first], given)[0].astype(float), ref)
    if tool in HALF:  # A step is smaller than what 16 bits can tell: the new weights themselves.
        steps = {name: rate * one["step"] for name, one in ref.named.items() if "step" in one}
        wanted = {name: x - steps[name] for name, x in values.items() if name in steps}
        errors = [np.linalg.norm(after[n] - x) / np.linalg.norm(x) for n, x in wanted.items()]
        worst = float(max(errors, default=0.0))
    return {"loss": abs(loss - expected) / abs(expected), "trained": worst, "trained share": share}


def adapted(path: Path, ref: Reference, first: str, given: dict[str, Array]) -> dict[str, Any]:
    """Where all weights are quantised: how far twenty steps of adapters beside them lower the loss."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            how = {"optimizer": "adamw", "lora": {"weights": "*_quantized", "rank": 2}}
            sgo.training(path, loss="mse", outputs=first, folder=f"{folder}/t", **how)
            trainer = sgo.Trainer(f"{folder}/t", threads=1)
            labels = {"labels": ref.t.astype(np.float32)}
            losses = [trainer.step(**given, **labels, learning_rate=0.01) for _ in range(20)]
        except sg.StopgradError as error:
            return {"untrained": short(error)}
    return {"loss": abs(losses[0] - ref.loss) / ref.loss, "adapters": losses[-1] / losses[0]}


def short(error: BaseException) -> str:
    said = " ".join(str(error).split())
    return f"{type(error).__name__}: {said}"[:700]


def measure(name: str, folder: Path, wanted: str = "", exporters: str = "") -> None:
    """All tools on all exports of one model, or those whose names hold a text; others stay as they were."""
    module, inputs, ref = reference(name)
    path = folder / f"{name}.json"
    report: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    for exporter, export in EXPORTERS.items():
        if exporters not in exporter:
            continue
        ref.named.clear()
        source = folder / f"{name}-{exporter.replace(' ', '-')}.onnx"
        rows = report.setdefault(exporter, {})
        try:
            if not source.exists():
                with quiet():
                    export(module, inputs, source)
        except InapplicableError:
            del report[exporter]
            continue
        except Exception as error:
            rows["as exported"] = {"tool": short(error)}
            path.write_text(json.dumps(report, indent=1))
            continue
        given = fed(ref, [x.name for x in onnx.load(source).graph.input])
        for tool, rewrite in TOOLS.items():
            if wanted not in tool and tool != "as exported":
                continue
            if exporter.startswith("optimum ") and tool != "as exported":
                continue
            target = folder / f"{name}-changed.onnx"
            try:
                with quiet():
                    rewrite(source, target, given, KINDS.get(name, "bert"))
            except Exception as error:
                rows[tool] = {"tool": short(error)}
            else:
                try:
                    with quiet():
                        rows[tool] = examined(target, ref, tool)
                except Exception as error:
                    rows[tool] = {"broken": short(error)}
            print(name, exporter, tool, rows[tool], flush=True)
            path.write_text(json.dumps(report, indent=1))


@contextlib.contextmanager
def quiet() -> Any:
    """Without what tools print."""
    logging.disable(logging.WARNING)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


# ------------------------------------------------------------------------------------------------ writing

START, END = "<!-- table: begin -->", "<!-- table: end -->"


def kind_of(tool: str) -> str:
    return "half" if tool in HALF else "quantised" if tool in QUANTISED else ""


def marks(tool: str, row: dict[str, Any]) -> str:
    """Three marks, for read, gradient and trained; or who fails."""
    if "tool" in row:
        return "tool"
    if "read" not in row:
        return "refused"
    read, gradient, step = BOUNDS[kind_of(tool)]
    right = [row["read"] < read]
    if row["tensors"]:
        right.append(row["gradient"] < gradient and row.get("slope", 0.0) < 0.02)
    if "adapters" in row:
        right.append(row["adapters"] < 1)
    elif "trained" in row:
        right.append(row["trained"] < step and row["loss"] < max(step, 1e-3))
    signs = "".join("+" if one else "!" for one in right)
    return signs + ("a" if "adapters" in row else "") + ("–" if "untrained" in row else "")


def worst(rows: list[dict[str, Any]], key: str) -> str:
    found = [row[key] for row in rows if key in row and (key != "gradient" or row["tensors"])]
    return f"{max(found):.0e}".replace("e-0", "e-") if found else ""


def tables(reports: dict[str, Any]) -> str:
    lines: list[str] = []
    names = [name for name in MODELS if name in reports]
    heads = {"dynamo": "`torch.onnx.export(dynamo=True)`", "script": "`torch.onnx.export(dynamo=False)`"}
    for exporter in ("dynamo", "script", "optimum"):
        lines += [f"### {heads.get(exporter, '`optimum.exporters.onnx`')}", ""]
        lines += [f"| tool | {' | '.join(names)} | read | gradient | trained |"]
        lines += ["| --- |" + " --- |" * len(names) + " --: | --: | --: |"]
        tools = [(tool, exporter) for tool in TOOLS]
        if exporter == "optimum":
            tools += [("as exported", key) for key in EXPORTERS if key.startswith("optimum ")]
        for tool, source in tools:
            rows = [reports[name].get(source, {}).get(tool) for name in names]
            if not any(rows):
                continue
            shown = ["" if row is None else marks(tool, row) for row in rows]
            held = [row for row in rows if row and "read" in row]
            figures = " | ".join(worst(held, key) for key in ("read", "gradient", "trained"))
            label = source if source.startswith("optimum ") else tool
            lines.append(f"| {label} | {' | '.join(shown)} | {figures} |")
        lines.append("")
    return "\n".join([*lines, *failures(reports), counts(reports)])


def failures(reports: dict[str, Any]) -> list[str]:
    """What tools and what we say, each once, with where."""
    told: dict[tuple[str, str], list[str]] = {}
    for name, report in reports.items():
        for exporter, rows in report.items():
            for tool, row in rows.items():
                for key in ("tool", "refused", "broken", "untrained"):
                    if key in row:
                        said = row[key].partition(" at /")[0].replace("|", "/")
                        said = re.sub(r" ?(Load model from )?/tmp/\S+", "", said)[:160]
                        told.setdefault((key, f"{tool}: {said}"), []).append(f"{name} ({exporter})")
    lines = []
    heads = {
        "tool": "Where the tool or the runtime fails:",
        "refused": "What is refused:",
        "broken": "What breaks:",
        "untrained": "What is read and has a gradient, but no weights to train:",
    }
    for key, head in heads.items():
        found = {said: where for (one, said), where in told.items() if one == key}
        if found:
            lines += [head, "", *[f"- {said} — {', '.join(where)}" for said, where in found.items()], ""]
    return lines


def counts(reports: dict[str, Any]) -> str:
    cells = [
        marks(tool, row)
        for report in reports.values()
        for rows in report.values()
        for tool, row in rows.items()
    ]
    right = sum(1 for one in cells if one in ("+++", "++a"))
    ours = sum(1 for one in cells if one == "refused" or "!" in one)
    fail = cells.count("tool")
    rest = len(cells) - right - ours - fail
    return (
        f"{len(cells)} files: {right} read, differentiated and trained; {fail} that the tool or the runtime "
        f"fails on; {ours} refused or beyond the bounds; {rest} without weights to train."
    )


def write(folder: Path, page: Path) -> None:
    """Put the tables between the marks of the page."""
    reports = {name: json.loads((folder / f"{name}.json").read_text()) for name in MODELS}
    before, _, rest = page.read_text().partition(START)
    after = rest.partition(END)[2]
    page.write_text(f"{before}{START}\n\n{tables(reports)}\n\n{END}{after}")


if __name__ == "__main__":
    command, where, *rest = sys.argv[1:]
    if command == "one":
        import torch

        torch.set_num_threads(1)
        measure(rest[0], Path(where), *rest[1:])
    elif command == "write":
        write(Path(where), Path(rest[0]))
    elif command == "measure":
        Path(where).mkdir(exist_ok=True)
        for model in rest or MODELS:
            subprocess.run([sys.executable, __file__, "one", where, model], check=False)

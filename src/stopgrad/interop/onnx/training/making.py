"""``sgo.training``: writes a folder of plain ONNX, made from a model, that any runtime can train."""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import onnx

from stopgrad.base.errors import GradientError
from stopgrad.flow.explain import explain
from stopgrad.flow.flow_report import Flow
from stopgrad.graph.files import AnyPath
from stopgrad.graph.graph import Output, needed
from stopgrad.graph.operands import NumpyArray
from stopgrad.graph.public import guarded
from stopgrad.interop.imported import Model
from stopgrad.interop.onnx.loading import STRAIGHT, most_of, straight_of, weighed
from stopgrad.interop.onnx.nodes import all_nodes, called, text
from stopgrad.interop.onnx.operators.calling import dtype_of_code
from stopgrad.interop.onnx.operators.quantized import ROUNDS
from stopgrad.interop.onnx.patterns import patterns_of
from stopgrad.interop.onnx.reading import ModelSource, read
from stopgrad.interop.onnx.saving import OPSET, to_model
from stopgrad.interop.onnx.training.adapters import Lora, lora_of
from stopgrad.interop.onnx.training.aliases import with_first_names
from stopgrad.interop.onnx.training.beside import compare
from stopgrad.interop.onnx.training.budget.fitting import budget_of, fit, held_by, loss_in, notes_of
from stopgrad.interop.onnx.training.graph_building import RANDOM, Judgement, Step, judged, stepped
from stopgrad.interop.onnx.training.graph_signatures import (
    carried,
    eval_plan,
    gradients_plan,
    manifest_of,
    merge_plan,
    predict_plan,
    step_plan,
)
from stopgrad.interop.onnx.training.in_place import in_parts
from stopgrad.interop.onnx.training.manifest import Plan
from stopgrad.interop.onnx.training.modes import Forms, forms, opened, opens, taken_in
from stopgrad.interop.onnx.training.precision import lowered
from stopgrad.interop.onnx.training.tables import added_by_rows
from stopgrad.interop.onnx.training.tensors import fates, verdicts_of
from stopgrad.interop.onnx.training.training_description import (
    Asked,
    loss_of,
    optimizer_of,
    precision_of,
    schedule_of,
)
from stopgrad.interop.onnx.training.training_folders import checked, write_folder
from stopgrad.interop.onnx.training.wiring import Wired, wired
from stopgrad.interop.onnx.weights import Verdict
from stopgrad.interop.onnx.weights.sharing import shared
from stopgrad.interop.onnx.weights.weight_verdicts import QUANTISES
from stopgrad.interop.shared.building import scope_from
from stopgrad.rewrite import erase_gates, rewrite
from stopgrad.train.optimizers.update import Update

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class TrainingFiles:
    """The result of :func:`training`.

    Attributes:
        folder: the path; None if nothing was written.
        manifest: the contents of ``manifest.json``.
        flow: the flow report of the loss and all parameters.
        notes: remarks for the user that are no errors.
    """

    folder: Path | None
    manifest: Mapping[str, Any]
    flow: Flow
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        trained = sum(1 for entry in self.manifest["state"].values() if entry["kind"] == "parameter")
        where, frozen = str(self.folder or ""), len(self.manifest["frozen"])
        return f"<TrainingFiles {where!r}: {trained} trained, {frozen} frozen>"


@guarded("training")
def training(
    model: ModelSource | Model,
    *,
    loss: AnyPath | Callable[..., Output],
    optimizer: str | Callable[..., Update] = "adamw",
    folder: AnyPath | None,
    freeze: str | Iterable[str] = (),
    only: str | Iterable[str] = (),
    train: str | Iterable[str] = (),
    stop: str | Iterable[str] = (),
    outputs: str | Iterable[str] = (),
    clip: float | None = None,
    lora: str | Sequence[str] | Lora | Mapping[str, Any] | None = None,
    accumulate: int = 1,
    schedule: str | Callable[[Output], Output | float] | None = None,
    learning_rate: float | None = None,
    mode: str = "model",
    precision: str | None = None,
    loss_scale: float | None = None,
    opset: int = OPSET,
    split_shared: bool = False,
    quantized: str | None = STRAIGHT,
    maximum_iterations: int | None = None,
    memory: str | int | None = None,
    sizes: Mapping[str, int] | None = None,
    module: torch.nn.Module | None = None,
    inputs: torch.Tensor | Sequence[torch.Tensor] | None = None,
) -> TrainingFiles:
    """Write training graphs of a model: plain ONNX, which any stock runtime executes.

    The folder holds ``train_step.onnx``, ``gradients.onnx``, ``eval.onnx``, ``predict.onnx``, ``merge.onnx``,
    the first state as ``state.safetensors`` and ``manifest.json``, which says what is what.
    :class:`Trainer` runs it.

    Args:
        model: a path, bytes or an ``onnx.ModelProto``; or what :func:`load` returned.
        loss: ``"cross-entropy"``, ``"binary"``, ``"mse"``, ``"mae"``, ``"huber"``, ``"cosine"`` or
            ``"contrastive"``, with options after a colon (``"cross-entropy:axis=1,ignore=-100"``); the path
            of an ONNX model whose inputs are outputs of the model, by name or else in order, and labels; or a
            function from the dict of the outputs to a scalar, whose placeholders become inputs.
        optimizer: one of :mod:`stopgrad.optimizers` by name, with options after a colon
            (``"adamw:weight_decay=0.1,betas=0.9,0.95"``); or a function such as these.
        folder: where to write. An older training folder is replaced; anything else that is there is an error.
            None writes nothing, to see what would be trained: ``contents.manifest["tensors"]``.
        freeze: patterns of names of parameters that are not trained.
        only: patterns of names of the only parameters that are trained.
        train: patterns of names of tensors that are trained besides, though they look like constants.
        stop: patterns of names of scopes, nodes or values at which gradients stop.
        outputs: which outputs the loss reads, where the model has several.
        clip: the largest norm of all gradients together.
        lora: patterns of names of weights that get adapters, or a :class:`Lora`. All that *only* does not
            name is then frozen. Of what a pattern matches, matrices beside which no adapter fits get none,
            and a note says so.
        accumulate: over how many steps gradients are averaged before parameters are updated.
        schedule: of the learning rate, one of :mod:`stopgrad.optimizers` by name with options
            (``"cosine:..."``), or a function of the number of the step. Then no rate is fed.
        learning_rate: the default that :class:`Trainer` feeds; if not given, the optimiser's own.
        mode: ``"model"``: batch normalisation and dropout are as the file has them; ``"train"`` or
            ``"eval"``: all of them in that mode. The exported model is always for inference.
        precision: ``"float16"`` or ``"bfloat16"``: products of matrices and convolutions of the loss and its
            gradients are computed in it, all else and the weights are float32. The exported model stays.
        loss_scale: the first factor of the gradients on their way, which adapts, as that of
            ``torch.amp.GradScaler``; by default 65536 with float16, else none.
        opset: of the files written, from 18 to 26.
        split_shared: whether parameters that the exporter merged, since they began with the same numbers,
            become tensors of their own again. Tied weights stay one.
        quantized: ``"straight-through"``: gradients go through the rounding of quantised numbers as if it
            were not there, within their range, and a note says so; None: they end there. Weights that are
            stored as whole numbers stay so, and *lora* puts adapters beside them.
        maximum_iterations: the most steps of loops whose number of steps a computation decides, which thus
            have gradients. The files hold it: a step that needs more ends with an error of the runtime, which
            names the loop. What is exported has no such bound.
        memory: how much a step may take: bytes, or a text such as ``"2GiB"``. The backward pass then computes
            again what there is no room for, with the least recomputation that was found. What counts is
            weights, the optimiser's state, gradients, and what the passes make; not the process itself.
        sizes: of the axes that the model leaves open, by name, for which *memory* is reckoned; and how many
            elements tensors have of which a note says that their sizes are not known.
        module: the ``torch.nn.Module`` that the file was exported from. Exporters drop ``detach()``: with the
            module, its gradient is compared with the file's, and what differs is refused by name. Parameters
            that the exporter merged are then held apart.
        inputs: the arguments of *module* with which it is asked.

    Returns:
        The :class:`TrainingFiles`.

    Raises:
        ArgumentError: a pattern matches nothing, a name or an option is unknown, nothing is left to train.
        DTypeError, ShapeError: the loss does not fit the outputs.
        GradientError: no gradient arrives at what is to be trained.
        GraphError, EngineError: an operation cannot be read or written; all are named at once.
        FileError: a file is damaged, or the folder cannot be written. What was there is kept.
    """
    target = None if folder is None else checked(folder)
    dtype, scale = precision_of(precision, loss_scale)
    asked = Asked(
        loss=loss_of(loss),
        optimizer=optimizer_of(optimizer),
        freeze=patterns_of(freeze, "freeze"),
        only=patterns_of(only, "only"),
        train=patterns_of(train, "train"),
        stop=patterns_of(stop, "stop"),
        outputs=[outputs] if isinstance(outputs, str) else list(outputs),
        clip=clip,
        lora=lora_of(lora),
        accumulate=accumulate,
        schedule=schedule_of(schedule),
        learning_rate=learning_rate,
        mode=mode,
        opset=opset,
        split_shared=bool(split_shared) or module is not None,
        precision=dtype,
        loss_scale=scale,
        straight=straight_of(quantized),
        most=most_of(maximum_iterations),
        budget=budget_of(memory, sizes),
    )
    contents = _contents(model, asked, target is not None, (module, inputs))
    if target is not None:
        write_folder(target, contents.models, contents.state, contents.manifest)
    return TrainingFiles(target, contents.manifest, contents.flow, tuple(contents.notes))


@dataclass
class _Contents:
    """The contents of the files."""

    models: dict[str, Any]
    state: dict[str, NumpyArray]
    manifest: dict[str, Any]
    flow: Flow
    notes: list[str]


def _contents(source: ModelSource | Model, asked: Asked, whole: bool, beside: tuple[Any, Any]) -> _Contents:
    """The contents of the files; without the models if the *whole* is not asked for.

    *beside* are the module that the model was exported from, or None, and its inputs.
    """
    model, asked = _read_in(source, asked)
    shapes = model.shapes
    judging = _wired(model.trained, asked, shapes, model.verdicts)
    if asked.precision is not None:
        judging = lowered(judging, asked.precision)
    judgement = judged(judging, asked.loss, asked.outputs, [*shapes.statistics.values()])
    step = _step(judgement, asked, shapes.statistics)
    if beside[0] is not None:
        compare(*beside, model.trained, list(step.parameters), model.verdicts, asked.mode != "train")
    again = judgement
    if shapes.differ or asked.precision is not None:
        unstopped = _wired(model.used, replace(asked, stop=[]), shapes, model.verdicts)
        again = judged(unstopped, asked.loss, asked.outputs)
    plans = {
        "train_step": step_plan(step),
        "gradients": gradients_plan(step),
        "eval": eval_plan(step, again, dict.fromkeys(shapes.statistics.values())),
        "predict": predict_plan(step, model.used),
        "merge": merge_plan(step),
    }
    parts, update = in_parts(step)
    plans |= parts
    models = {name: _model(plan, asked.opset) for name, plan in plans.items() if plan.outputs and whole}
    memory = _fitted(models, plans, step, asked, bool(parts)) if whole else None
    weights = [port.name for port in plans["predict"].inputs if port.role == "parameter"]
    if not isinstance(source, Model) and opens(shapes.inference, weights):
        models["predict"] = opened(shapes.inference, weights)
    tensors = {name: fate.entry() for name, fate in fates(step, asked, shapes, model.verdicts).items()}
    first = judgement.wired
    xs = first.trained | {name: first.weights[name] for name in first.frozen}
    return _Contents(
        {f"{name}.onnx": file for name, file in models.items()},
        {port.name: port.value.op.value.array for port in carried(step)},
        manifest_of(asked, step, plans) | {"tensors": tensors} | {"memory": memory} | update,
        explain(judgement.loss, {name: x for name, x in xs.items() if x.dtype.is_floating}),
        [*model.notes, *shapes.notes, *judgement.notes, *_notes(step, memory)],
    )


class _Read(NamedTuple):
    """A model that is to be trained.

    Attributes:
        trained: as it is trained.
        used: as it is used; the same where the two forms do not differ.
        shapes: its forms.
        verdicts: on its tensors.
        notes: what is to be said of it.
    """

    trained: Model
    used: Model
    shapes: Forms
    verdicts: Mapping[str, Verdict]
    notes: list[str]


def _read_in(source: ModelSource | Model, asked: Asked) -> tuple[_Read, Asked]:
    """A model in the forms in which it is trained and used; and what is asked, by the names it has there."""
    if isinstance(source, Model):
        return _Read(source, source, Forms(None, None), verdicts_of(source), []), asked
    file = read(source)
    whole = taken_in(file)
    notes = shared(whole, asked.split_shared)
    shapes = forms(whole, asked.mode)
    asked = with_first_names(asked, shapes.training)
    named = [
        *asked.named(_floats_in(shapes.training)),
        *map(glob.escape, [*shapes.statistics, *shapes.fixed]),
    ]
    how = named, asked.straight, asked.most, asked.lora is not None
    trained, verdicts = weighed(file._replace(model=shapes.training), {}, *how)
    notes += _rounded(shapes.training, trained, asked.straight)
    used = trained
    if shapes.differ:
        used, _ = weighed(file._replace(model=shapes.inference), {}, *how)
    return _Read(trained, used, shapes, verdicts, notes), asked


def _floats_in(model: onnx.ModelProto) -> list[str]:
    """The names of the stored floating-point tensors."""
    dtypes = {text(tensor.name): dtype_of_code(tensor.data_type) for tensor in model.graph.initializer}
    return [name for name, dtype in dtypes.items() if dtype is not None and dtype.is_floating]


def _step(judgement: Judgement, asked: Asked, statistics: Mapping[str, str]) -> Step:
    """The step behind a loss.

    Raises:
        GradientError: among others, only a computed condition ends a loop.
    """
    try:
        return stepped(judgement, asked, statistics)
    except GradientError as error:
        loops = _endless(judgement.loss) if asked.most is None else []
        if not loops or _UNBOUNDED not in error.message:
            raise
        raise GradientError(
            f"only a computed condition ends {', '.join(map(repr, loops[:_SHOWN]))}, and a gradient needs to "
            "know how many steps there may be at most: say it with maximum_iterations= (--max-iterations)"
        ) from error


def _fitted(
    models: Mapping[str, Any], plans: Mapping[str, Plan], step: Step, asked: Asked, in_place: bool
) -> dict[str, Any] | None:
    """Make the graphs with gradients fit into a budget; what the manifest says of it, if there is one."""
    if asked.budget is None:
        return None
    main = "train_step" if not in_place else "backward" if "backward" in models else "gradients"
    backward = {name: models[name] for name in ("train_step", "gradients", "backward") if name in models}
    state = [port.value for port in carried(step)]
    held = held_by(models[main], state, step.gradients.values(), in_place)
    return fit(backward, main, loss_in(plans[main].outputs), asked.budget, held)


def _wired(model: Model, asked: Asked, shapes: Forms, verdicts: Mapping[str, Verdict]) -> Wired:
    """A model with its stops; parameters that are no weights are frozen."""
    constants = {name for name, verdict in verdicts.items() if not verdict.weight}
    return wired(
        model,
        freeze=asked.freeze,
        train=asked.train,
        only=asked.only,
        constants=constants,
        stop=asked.stop,
        lora=asked.lora,
        states={*shapes.statistics, *shapes.fixed, RANDOM},
        scales={name for name, verdict in verdicts.items() if verdict.why == QUANTISES},
        aliases=_aliases(shapes.training) if asked.stop else {},
    )


def _aliases(model: onnx.ModelProto) -> dict[str, str]:
    """The names of a model's nodes and values, each with the scope of its operations."""
    aliases: dict[str, str] = {}
    for node in [] if model is None else model.graph.node:
        scope = scope_from(called(node)).rstrip("/")
        aliases |= dict.fromkeys([called(node), *map(text, node.output)], scope)
    return aliases


def _model(plan: Plan, opset: int) -> onnx.ModelProto:
    """One of the graphs as a model, without gates, which have no effect any more."""
    xs, ys = [port.value for port in plan.inputs], [port.value for port in plan.outputs]
    done = rewrite(ys, xs, (erase_gates, added_by_rows))
    return to_model(
        dict(zip([port.name for port in plan.outputs], done.outputs, strict=True)),
        dict(zip([port.name for port in plan.inputs], done.inputs, strict=True)),
        opset=opset,
    )


_UNBOUNDED = "needs to know how many steps there may be"
"""What the error about a loop without a bound says."""


def _endless(loss: Output) -> list[str]:
    """The loops without a bound that a loss depends on, by the nodes of the file."""
    loops = [op for op in needed([loss], {}) if op.type == "While" and op.limit < 0]
    return list(dict.fromkeys(op.name.rpartition("/")[0] or op.name for op in loops))


def _rounded(model: onnx.ModelProto, loaded: Model, straight: bool) -> list[str]:
    """What is told of gradients at the rounding of quantised numbers."""
    nodes = [called(node) for node in all_nodes(model) if text(node.op_type) in ROUNDS]
    passed = any(op.type == "StraightThrough" for op in loaded.graph.operations)
    if not nodes or not (straight and passed):
        return []
    more = f" and {len(nodes) - _SHOWN} more" if len(nodes) > _SHOWN else ""
    return [
        f"gradients go straight through the rounding of quantised numbers at {', '.join(nodes[:_SHOWN])}"
        f"{more}, within their range; quantized=None (--quantized none) ends them there"
    ]


_SHOWN = 3


def _notes(step: Step, memory: Mapping[str, Any] | None) -> list[str]:
    notes = notes_of(memory) if memory else []
    return notes + [f"{name!r} is not trained: {reason}" for name, reason in step.untouched.items()]

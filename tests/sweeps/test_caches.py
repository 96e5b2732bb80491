"""What outlives a call: every container that modules and classes of the package keep, and what it may hold.

None holds an array, a graph or a function of a user, and all are bounded.
"""

from __future__ import annotations

import ast
import enum
import functools
import gc
import importlib
import inspect
import pkgutil
import sys
import tracemalloc
import types
import weakref
from collections import deque
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import numpy as np
import pytest
from all_engines import each_engine

import stopgrad as sg
from stopgrad.base import sizes, source
from stopgrad.base.dtypes import DType
from stopgrad.base.interning import Interned
from stopgrad.base.types import TensorType
from stopgrad.graph import inferred, interpreter, memoized, op
from stopgrad.graph.body import Body

pytestmark = pytest.mark.slow

CONTAINERS = (
    *(dict, list, set, bytearray, deque, Interned, ContextVar, functools._lru_cache_wrapper),
    *(weakref.WeakValueDictionary, weakref.WeakKeyDictionary, weakref.WeakSet),
)

# Those that change after the package has been imported: what each holds, and what bounds it.
CHANGES = {
    "stopgrad.scale.array_folders._UNDER_WAY": "folders being written, without their arrays once they are",
    "stopgrad.graph.builder.CURRENT": "who builds here and now: a link for each open block of a thread",
    "stopgrad.engines.registry.ENGINES": "engines, which somebody registered",
    "stopgrad.engines.registry._INSTANCES": "one of each engine",
    "stopgrad.engines.xla.native.paying._Slower.kinds": "one set of names, of this library's kernels",
    "stopgrad.graph.fingerprint._sources": "one text",
    "stopgrad.graph.docstrings._clean": "256 texts of families and rules",
    "stopgrad.graph.docstrings._entries": "the same, taken apart",
    "stopgrad.graph.docstrings._sections": "the same, by section",
    "stopgrad.graph.immediate._CALLS": "plans, by a public function and the types of its arguments: 4,096",
    "stopgrad.graph.immediate._PLANS": "lowerings made ready, by types and attributes: 4,096",
    "stopgrad.graph.interpreter._asks_for": "4,096 lowerings, which are functions of definitions",
    "stopgrad.interop.onnx.operators.blocked.block_size": "one number, of this processor",
    "stopgrad.base.memory._libc": "the name and version of the C library",
    "stopgrad.graph.rowwise._memory_is_kept": "one answer",
    "stopgrad.graph.memoized._CALLS": "definitions, by a public function, types and settings: memoized.CALLS",
    "stopgrad.graph.public._READERS": "code of public functions, and of those that they make, once",
    "stopgrad.interop.jax.foreign._EXPORTED": "weak: primitives; of each 16 programs, which are bytes",
    "stopgrad.graph.names._is_generated": "4,096 names, and whether they are valid",
    "stopgrad.graph.op.REGISTRY": "definitions, which somebody wrote",
    "stopgrad.graph.op.Op._inferred": "types, by types and attributes: inferred.REMEMBERED of all together",
    "stopgrad.ops.structural.foreign_programs._TRUSTED": "a hash of each program of JAX's that may run",
    "stopgrad.ops.structural.foreign_programs.loaded": "64 programs of JAX's, by their bytes",
    "stopgrad.ops.structural.foreign_programs.steps_of": "the same, taken apart: 64",
    "stopgrad.ops.special.gamma._derivative_of_cotangent": "64 polynomials, by their order",
    "stopgrad.base.tracebacks.CALLING": "code of our own modules that calls users' functions",
    "stopgrad.base.sizes._BINDING": "sizes, while a graph is checked against them",
    "stopgrad.base.sizes._DIMS": "weak: sizes that somebody holds",
    "stopgrad.base.sizes._ELSEWHERE": "weak: unknown sizes of other processes that somebody holds",
    "stopgrad.base.sizes._SYMBOLS": "weak: names and quotients in sizes that somebody holds",
    "stopgrad.base.source._INSTRUCTIONS": "numbers below source.INSTRUCTIONS",
    "stopgrad.base.source._CALLED": "weak: lines of libraries that somebody holds",
    "stopgrad.base.source._KINDS": "names of files: source.FILES",
    "stopgrad.base.source._positions": "places in code: lru_cache(8)",
    "stopgrad.base.constructs._parsed": "files taken apart: lru_cache(8)",
    "stopgrad.base.folders._WARNED": "names of folders that are not used, of each a warning was given",
    "stopgrad.flow.problems.source_names._assigned": "targets of assignments in files: lru_cache(64)",
    "stopgrad.interop.jax.training.written._parsed": "files taken apart: lru_cache(64)",
    "stopgrad.interop.shared.lifetimes._LIVING": "watches that have not ended",
    "stopgrad.interop.torch.recording.switches._PATCHED": "names of PyTorch's functions that are patched",
    "stopgrad.interop.tensorflow.recording.internals.NEEDS": "what is used of TensorFlow, each once",
    "stopgrad.interop.tensorflow.recording.internals.MISSING": "of these, what there is not",
    "stopgrad.interop.tensorflow.recording.operation_names.spelled": "public names: operation_names.NAMES",
    "stopgrad.interop.tensorflow.recording.passing._OF_GRAPHS": "answers: passing.ANSWERS",
    "stopgrad.interop.tensorflow.recording.passing._of_eager": "the same: passing.ANSWERS",
    "stopgrad.interop.tensorflow.recording.switches._PATCHED": "names of functions",
    "stopgrad.interop.tensorflow.watching.RECORDERS": "of the last 8 watches: no tensors",
    "stopgrad.transforms.gradients.custom_rules._RUNNING": "rules that are running",
    "stopgrad.base.structure._LEAVES": "types of leaves, users' too",
    "stopgrad.interop.torch.internals.NEEDS": "what is used of PyTorch, each once",
    "stopgrad.interop.torch.internals.MISSING": "of these, what there is not",
    "stopgrad.interop.torch.internals.forward_pre_hooks": "PyTorch's own",
    "stopgrad.interop.torch.recording.effects_on_gradients.CALLS": "of PyTorch's functions, each once",
    "stopgrad.interop.torch.recording.autograd_nodes._SORTS": "what follows from kinds of PyTorch's nodes",
    "stopgrad.interop.torch.recording.autograd_nodes._DTYPES": "names of PyTorch's dtypes",
    "stopgrad.interop.torch.recording.places._INTERNAL": "names of files: source.FILES",
    "stopgrad.interop.torch.recording.places._OUTSIDE": "names of files: source.FILES",
    "stopgrad.interop.torch.watching.RECORDERS": "weak: the records of watches that somebody holds",
    "stopgrad.base.types._TYPES": "weak: types that somebody holds",
}

# Those that are as they were when the package was imported.
CONSTANT = {
    "stopgrad.flow.updates._STYLES",
    "stopgrad.interop.jax.checking.function_at_point._WIDE",
    "stopgrad.interop.jax.checking.holding._ENTERED",
    "stopgrad.interop.jax.checking.holding.RULED",
    "stopgrad.interop.onnx.weights.uses._BINARY",
    "stopgrad.interop.onnx.weights.uses._FUSED",
    "stopgrad.interop.onnx.weights.uses._TABLES",
    "stopgrad.interop.onnx.weights.uses._QUANTISES",
    "stopgrad.interop.onnx.weights.uses._UNARY",
    "stopgrad.interop.torch.checking.repeated_calls._CONVERSIONS",
    "stopgrad.interop.torch.checking.repeated_calls._DETACHES",
    "stopgrad.interop.torch.checking.repeated_calls._NARROWING",
    "stopgrad.interop.torch.checking.repeated_calls._WIDE",
    "stopgrad.interop.worlds._OURS",
    "stopgrad.flow.problems.catalogue.KINDS",
    "stopgrad.flow.problems.diagnosis._ORDER",
    "stopgrad.interop.torch.training.measures._INTEGERS",
    "stopgrad.interop.torch.training.findings.EXPLAINED",
    "stopgrad.tools.cli.run.MACHINES",
    "stopgrad.tools.running.script_following.SESSIONS",
    "stopgrad.base.constructs._ARTICLES",
    "stopgrad.base.constructs._BY_TEST",
    "stopgrad.base.constructs._FUNCTIONS",
    "stopgrad.base.constructs._OF_ONE",
    "stopgrad.base.constructs._STATEMENTS",
    "stopgrad.flow.checking.gradient_check._WORDS",
    "stopgrad.flow.magnitudes.causes._SLOPES",
    "stopgrad.flow.magnitudes.magnitude_parts._STYLES",
    "stopgrad.flow.magnitudes.magnitude_parts._VERBS",
    "stopgrad.flow.reports.terminal._BLANKS",
    "stopgrad.graph.kinds.BY_ANNOTATION",
    "stopgrad.graph.kinds.CANONICAL",
    "stopgrad.graph.kinds.INEXACT",
    "stopgrad.graph.kinds.SIZED",
    "stopgrad.interop.onnx.large_arrays._PLAIN",
    "stopgrad.interop.torch.recording.user_backwards._AFTER",
    "stopgrad.train.monitoring.history._SAYS",
    "stopgrad.graph.docstrings._NUMBERS",
    "stopgrad.ops.neural.windows._WORDS",
    "stopgrad.graph.type_rules.DESCRIPTIONS",
    "stopgrad.engines.onnxruntime._INEXACT",
    "stopgrad.engines.onnxruntime.nodes.elementwise._BINARY",
    "stopgrad.engines.onnxruntime.nodes.elementwise._BITWISE",
    "stopgrad.engines.onnxruntime.nodes.elementwise._COMPARING",
    "stopgrad.engines.onnxruntime.nodes.elementwise._LOGICAL",
    "stopgrad.engines.onnxruntime.nodes.elementwise._UNARY",
    "stopgrad.engines.onnxruntime.nodes.elementwise._UNARY_IN_FLOAT32",
    "stopgrad.engines.onnxruntime.nodes.forms.FORMS",
    "stopgrad.engines.onnxruntime.nodes.forms.composites.COMPOSITES",
    "stopgrad.engines.onnxruntime.nodes.forms.control.CONTROL",
    "stopgrad.engines.onnxruntime.nodes.forms.convolutions.CONVOLUTIONS",
    "stopgrad.engines.onnxruntime.nodes.forms.indexing.INDEXING",
    "stopgrad.engines.onnxruntime.nodes.forms.matrices.MATRICES",
    "stopgrad.engines.onnxruntime.nodes.forms.numbers.NUMBERS",
    "stopgrad.engines.onnxruntime.nodes.forms.order.ORDER",
    "stopgrad.engines.onnxruntime.nodes.forms.pools.POOLS",
    "stopgrad.engines.onnxruntime.nodes.forms.products.PRODUCTS",
    "stopgrad.engines.onnxruntime.nodes.forms.refusals.REFUSALS",
    "stopgrad.engines.onnxruntime.nodes.forms.cumulative.RUNNING",
    "stopgrad.engines.onnxruntime.nodes.forms.slices.SLICES",
    "stopgrad.engines.onnxruntime.nodes.kernels.KERNELS",
    "stopgrad.engines.onnxruntime.nodes.kernels._DATA",
    "stopgrad.engines.onnxruntime.nodes.kernels._DTYPES",
    "stopgrad.engines.onnxruntime.nodes.kernels._KERNELS",
    "stopgrad.engines.onnxruntime.nodes.kernels._LETTERS",
    "stopgrad.engines.onnxruntime.nodes.kernels._TOLD_APART",
    "stopgrad.engines.onnxruntime.nodes.kernels._WIDER",
    "stopgrad.engines.onnxruntime.nodes.proto.IR_VERSIONS",
    "stopgrad.engines.onnxruntime.nodes.reducing._SIGNED",
    "stopgrad.engines.onnxruntime.nodes.tidying._FUSED",
    "stopgrad.engines.onnxruntime.nodes.values._COMPARISONS",
    "stopgrad.engines.onnxruntime.nodes.values._OPERATORS",
    "stopgrad.engines.onnxruntime.nodes.node_writing._NEUTRAL",
    "stopgrad.interop.onnx.operators.contrib._MICROSOFT",
    "stopgrad.interop.onnx.operators.blocked.BLOCKED",
    "stopgrad.interop.onnx.operators.blocked._RULES",
    "stopgrad.interop.onnx.operators.quantized_layers._MICROSOFT",
    "stopgrad.interop.onnx.operators.quantized_layers.QUANTIZED_LAYERS",
    "stopgrad.interop.onnx.operators.contrib.FUSED",
    "stopgrad.interop.onnx.operators.contrib.CONTRIB",
    "stopgrad.interop.shared.convolutions.LAYOUTS",
    "stopgrad.tools.cli.train_graph._PATTERNS",
    "stopgrad.interop.onnx.training.budget.fitting._UNITS",
    "stopgrad.interop.onnx.training.training_description.OPTIMIZERS",
    "stopgrad.interop.onnx.training.training_description.SCHEDULES",
    "stopgrad.interop.onnx.training.training_losses.LOSSES",
    "stopgrad.interop.onnx.training.training_losses._PROBABILITIES",
    "stopgrad.interop.onnx.operators.OPERATORS",
    "stopgrad.interop.onnx.operators.classical.CLASSICAL",
    "stopgrad.interop.onnx.operators.classical._RULES",
    "stopgrad.interop.onnx.operators.tree_ensembles.TREE_ENSEMBLES",
    "stopgrad.interop.onnx.operators.tree_ensembles._COMPARED",
    "stopgrad.interop.onnx.operators.trips._ORDER",
    "stopgrad.interop.onnx.training.training_description.PRECISIONS",
    "stopgrad.interop.onnx.weights.exporters._SPOKEN",
    "stopgrad.interop.onnx.weights.sharing._HELD_APART",
    "stopgrad.interop.onnx.weights.uses.NORMS",
    "stopgrad.interop.onnx.weights.uses._CHOOSES",
    "stopgrad.interop.onnx.weights.uses._COMPARES",
    "stopgrad.interop.onnx.weights.uses._COUNTS",
    "stopgrad.interop.onnx.weights.uses._LINEAR",
    "stopgrad.interop.onnx.weights.uses._MOVES",
    "stopgrad.interop.onnx.weights.uses._PLACES",
    "stopgrad.interop.onnx.weights.uses._SOFTMAX",
    "stopgrad.interop.onnx.weights.uses._WHOLE",
    "stopgrad.interop.onnx.weights.weight_verdicts._ARTICLES",
    "stopgrad.interop.onnx.weights.weight_verdicts._RECURRENT",
    "stopgrad.interop.shared.calling._KNOWS",
    "stopgrad.interop.tensorflow.bundle._BYTES",
    "stopgrad.interop.tensorflow.bundle._OVER_A_ROW",
    "stopgrad.interop.tensorflow.evidence._PLACES",
    "stopgrad.interop.tensorflow.folding.FOLDS",
    "stopgrad.interop.tensorflow.messages.TYPE_NAMES",
    "stopgrad.interop.tensorflow.messages._CLASSES",
    "stopgrad.interop.tensorflow.nodes.RESULTS",
    "stopgrad.interop.tensorflow.nodes._LEAST",
    "stopgrad.interop.tensorflow.operators.OPERATORS",
    "stopgrad.interop.tensorflow.operators.activations.ACTIVATIONS",
    "stopgrad.interop.tensorflow.operators.checks.CHECKS",
    "stopgrad.interop.tensorflow.operators.control.CONTROL",
    "stopgrad.interop.tensorflow.operators.convolutions.CONVOLUTIONS",
    "stopgrad.interop.tensorflow.operators.drawing.DRAWING",
    "stopgrad.interop.tensorflow.operators.elementwise.ELEMENTWISE",
    "stopgrad.interop.tensorflow.operators.elementwise._FORMATS",
    "stopgrad.interop.tensorflow.operators.fused.FUSED",
    "stopgrad.interop.tensorflow.operators.fused._LAST",
    "stopgrad.interop.tensorflow.operators.generators.GENERATORS",
    "stopgrad.interop.tensorflow.operators.images.IMAGES",
    "stopgrad.interop.tensorflow.operators.images._KERNELS",
    "stopgrad.interop.tensorflow.operators.indexing.INDEXING",
    "stopgrad.interop.tensorflow.operators.lists.LISTS",
    "stopgrad.interop.tensorflow.operators.losses.LOSSES",
    "stopgrad.interop.tensorflow.operators.moving.MOVING",
    "stopgrad.interop.tensorflow.operators.normalizations.NORMALIZATIONS",
    "stopgrad.interop.tensorflow.operators.normalizations._RESPONSE",
    "stopgrad.interop.tensorflow.operators.normalizations._SIX",
    "stopgrad.interop.tensorflow.operators.pooling.POOLING",
    "stopgrad.interop.tensorflow.operators.products.PRODUCTS",
    "stopgrad.interop.tensorflow.operators.quantized.QUANTIZED",
    "stopgrad.interop.tensorflow.operators.reductions.REDUCTIONS",
    "stopgrad.interop.tensorflow.operators.structural.STRUCTURAL",
    "stopgrad.interop.tensorflow.operators.trips._COMPARISONS",
    "stopgrad.interop.tensorflow.operators.variables.VARIABLES",
    "stopgrad.interop.tensorflow.reading._FIELDS",
    "stopgrad.interop.tensorflow.reading._NUMPY",
    "stopgrad.interop.tensorflow.reading._VALUES",
    "stopgrad.interop.tensorflow.writing.control.CONTROL",
    "stopgrad.interop.tensorflow.writing.function_defs._NAMES",
    "stopgrad.interop.tensorflow.writing.graph_def_nodes.NUMBERS",
    "stopgrad.interop.tensorflow.writing.graph_def_nodes._SIZES",
    "stopgrad.interop.tensorflow.writing.node_rules.CURES",
    "stopgrad.interop.tensorflow.writing.node_rules.OTHERS",
    "stopgrad.interop.tensorflow.writing.node_rules.WRITERS",
    "stopgrad.tools.cli.train_graph._HEADS",
    "stopgrad.tools.cli.train_graph._SWITCHES",
    "stopgrad.interop.onnx.operators.activations.ACTIVATIONS",
    "stopgrad.interop.onnx.operators.attention.ATTENTION",
    "stopgrad.interop.onnx.operators.control.CONTROL",
    "stopgrad.interop.onnx.operators.convolutions.CONVOLUTIONS",
    "stopgrad.interop.onnx.operators.elementwise.ELEMENTWISE",
    "stopgrad.interop.onnx.operators.generators.GENERATORS",
    "stopgrad.interop.onnx.operators.generators._VALUES",
    "stopgrad.interop.onnx.operators.images.IMAGES",
    "stopgrad.interop.onnx.operators.images.MODES",
    "stopgrad.interop.onnx.operators.images.PADDING",
    "stopgrad.interop.onnx.operators.indexing.INDEXING",
    "stopgrad.interop.onnx.operators.indexing._METHODS",
    "stopgrad.interop.onnx.operators.losses.LOSSES",
    "stopgrad.interop.onnx.operators.moving.MOVING",
    "stopgrad.interop.onnx.operators.normalizations.NORMALIZATIONS",
    "stopgrad.interop.onnx.operators.pooling.POOLING",
    "stopgrad.interop.onnx.operators.products.PRODUCTS",
    "stopgrad.interop.onnx.operators.quantized.QUANTIZED",
    "stopgrad.interop.onnx.operators.quantized._MICROSOFT",
    "stopgrad.interop.onnx.training.modes._OPENED",
    "stopgrad.interop.onnx.operators.recurrent.ACTIVATIONS_OF_CELLS",
    "stopgrad.interop.onnx.operators.recurrent.RECURRENT",
    "stopgrad.interop.onnx.operators.reductions.REDUCTIONS",
    "stopgrad.interop.onnx.operators.resizing.NEAREST",
    "stopgrad.interop.onnx.operators.resizing.PLACES",
    "stopgrad.interop.onnx.operators.resizing.RESIZING",
    "stopgrad.interop.onnx.operators.sequences.SEQUENCES",
    "stopgrad.interop.onnx.operators.signals.SIGNALS",
    "stopgrad.interop.onnx.operators.preview_training.PREVIEW_TRAINING",
    "stopgrad.interop.onnx.reading._ATTRIBUTES",
    "stopgrad.interop.onnx.schemas._NAMES",
    "stopgrad.interop.onnx.folding.FOLDS",
    "stopgrad.interop.shared.folding.COMMON",
    "stopgrad.interop.torch.recording.effects_on_gradients.FLAT_EDGES",
    "stopgrad.interop.torch.recording.effects_on_gradients._ACTS",
    "stopgrad.interop.torch.recording.effects_on_gradients._REASONS",
    "stopgrad.interop.torch.recording.recorder._ACTIONS",
    "stopgrad.interop.jax.callable.narrow._NARROW",
    "stopgrad.interop.jax.foreign._TIMES",
    "stopgrad.interop.jax.nans.WORDS",
    "stopgrad.interop.jax.stepping._ENTERED",
    "stopgrad.interop.jax.stepping.MOVING",
    "stopgrad.interop.shared.nan_cures._NARROW",
    "stopgrad.interop.torch.nans.WORDS",
    "stopgrad.interop.torch.nans._KINDS",
    "stopgrad.interop.jax.primitives.draws._MANTISSAS",
    "stopgrad.interop.jax.primitives.draws._WORDS",
    "stopgrad.interop.jax.primitives.elementwise._PRECISIONS",
    "stopgrad.interop.jax.primitives.elementwise._UNSIGNED",
    "stopgrad.interop.jax.steps.CALLS",
    "stopgrad.interop.jax.steps.KEYED",
    "stopgrad.interop.jax.steps.RECOMPUTED",
    "stopgrad.interop.jax.steps.REFUSED",
    "stopgrad.interop.jax.steps.RULES",
    "stopgrad.interop.jax.steps.SILENT",
    "stopgrad.flow.checking.options.EPSILON",
    "stopgrad.flow.checking.options.RTOL",
    "stopgrad.flow.checking.options._PARTS",
    "stopgrad.flow.checking.frozen.COMPLEX",
    "stopgrad.flow.checking.frozen.WIDE",
    "stopgrad.flow.page.marks.LETTERS",
    "stopgrad.train.optimizers.matrix_rules._ADJUSTMENTS",
    "stopgrad.train.optimizers.rules._CHECKS",
    "stopgrad.ops.reductions.segments._MEANS",
    "stopgrad.ops.reductions.segments._NUMBERS",
    "stopgrad.ops.reductions.segments._PRODUCTS",
    "stopgrad.ops.reductions.segments._REALS",
    "stopgrad.ops.reductions.segments._SUMS",
    "stopgrad.base.promotion._KIND",
    "stopgrad.graph.build._NUMBERS",
    "stopgrad.tools.cli.COMMANDS",
    "stopgrad.tools.cli.common._EXTRAS",
    "stopgrad.tools.cli.flow.LEAST",
    "stopgrad.tools.cli.flow.MACHINES",
    "stopgrad.flow.reports.notices._COMMANDS",
    "stopgrad.interop.tensorflow.LIVE",
    "stopgrad.interop.tensorflow.following._SHARED",
    "stopgrad.interop.tensorflow.nans.WORDS",
    "stopgrad.interop.tensorflow.recording.bodies.BRANCHES",
    "stopgrad.interop.tensorflow.recording.graphs._METHODS",
    "stopgrad.interop.tensorflow.recording.graphs._READ",
    "stopgrad.interop.tensorflow.recording.operation_names._FUNCTIONS",
    "stopgrad.interop.worlds.WORLDS",
    "stopgrad.interop.value_worlds._HOMES",
    "stopgrad.interop.value_worlds._BACKENDS",
    "stopgrad.tools.cli.tour.WORKLOADS",
    "stopgrad.tools.serving.examples._READERS",
    "stopgrad.tools.serving.server.HEADERS",
    "stopgrad.tools.serving.site.TYPES",
    "stopgrad.tools.cli.function_world.WORLDS",
    "stopgrad.tools.cli.function_world._STAND_INS",
    "stopgrad.base.dtypes.DTYPES",
    "stopgrad.base.dtypes.BY_NUMPY",
    "stopgrad.base.dtypes._BY_PYTHON",
    "stopgrad.engines.xla.native.convolution.KERNELS",
    "stopgrad.engines.xla.native.paying.PROBES",
    "stopgrad.engines.protocol.Engine.forms",
    "stopgrad.engines.xla.XlaEngine.forms",
    "stopgrad.engines.xla.native.recording._ARITHMETIC",
    "stopgrad.engines.xla.native.recording._COMPARISONS",
    "stopgrad.engines.xla.native.recording._LOGIC",
    "stopgrad.engines.xla.native.recording._REDUCTIONS",
    "stopgrad.engines.xla.native.recording._TESTS",
    "stopgrad.engines.xla.native.rows._FORMS",
    "stopgrad.engines.xla.native.schedule.COSTS",
    "stopgrad.engines.xla.native.schedule._OPCODES",
    "stopgrad.engines.xla.native.schedule._REDUCED",
    "stopgrad.graph.files.CURES",
    "stopgrad.flow.reports.sections.STYLES",
    "stopgrad.graph.files._DTYPES",
    "stopgrad.graph.files._NAMES",
    "stopgrad.flow.nans.cures._WRITTEN",
    "stopgrad.run.function._SYMBOLIC",
    "stopgrad.base.unknown.ON_TENSORS",
    "stopgrad.base.unknown._MIRRORED",
    "stopgrad.base.unknown._SIGNS",
    "stopgrad.base.unknown._UFUNCS",
    "stopgrad.base.hints.HINTS",
    "stopgrad.base.hints.OF_OUTPUTS",
    "stopgrad.base.hints._TABLES",
    "stopgrad.graph.text.grammar.FORMS",
    "stopgrad.graph.text.grammar._ESCAPED",
    "stopgrad.graph.text.grammar._WORDS",
    "stopgrad.graph.op.Op.gradient",
    "stopgrad.graph.op.Op.kinds",
    "stopgrad.graph.op.Op.samples",
    "stopgrad.graph.op.Op.slots",
    "stopgrad.graph.operands._NO_NUMBERS",
    "stopgrad.ops.neural.activations._KINKS",
    "stopgrad.ops.elementwise.compare._BOOLS",
    "stopgrad.ops.elementwise.compare._INTS",
    "stopgrad.ops.linalg.exponential._REACH",
    "stopgrad.ops.fourier.discrete_fourier.DUAL",
    "stopgrad.ops.operators._BINARY",
    "stopgrad.ops.operators._COMPARISONS",
    "stopgrad.ops.operators._OTHERS",
    "stopgrad.ops.neural.pooling._WITH_COTANGENT",
    "stopgrad.ops.neural.resize._KERNELS",
    "stopgrad.ops.shapes.reshape._PLAIN",
    "stopgrad.graph.public._SPACES",
    "stopgrad.rewrite.forms.row_divisions._HANDLERS",
    "stopgrad.base.sizes._RESERVED",
    "stopgrad.run.tuning.BUDGETS",
    "stopgrad.ops.xp.data_types._KINDS",
    "stopgrad.ops.xp.dispatch._ACCUMULATE",
    "stopgrad.ops.xp.dispatch._REDUCE",
    "stopgrad.ops.xp.dispatch._STANDARD",
    "stopgrad.ops.xp.dispatch._UFUNCS",
    "stopgrad.ops.xp.methods._ATTRIBUTES",
    "stopgrad.ops.xp.methods._IN_PLACE",
    "stopgrad.ops.xp.methods._METHODS",
    "stopgrad.ops.xp.methods._VALUES",
    "stopgrad.ops.xp.numpy_form.FORMS",
    "stopgrad.ops.xp.numpy_form._AT_DEFAULT",
    "stopgrad.interop.torch.importing.aten.ABSENT",
    "stopgrad.interop.torch.importing.aten.TRANSLATIONS",
    "stopgrad.interop.torch.importing.aten.control.CONTROL",
    "stopgrad.interop.torch.importing.aten.drawing.DRAWING",
    "stopgrad.interop.torch.importing.aten.elementwise.ELEMENTWISE",
    "stopgrad.interop.torch.importing.aten.elementwise._ELEMENTARY",
    "stopgrad.interop.torch.importing.aten.indexing.INDEXING",
    "stopgrad.interop.torch.importing.aten.normalizations.NORMALIZATIONS",
    "stopgrad.interop.torch.importing.aten.products.PRODUCTS",
    "stopgrad.interop.torch.importing.aten.reductions.REDUCTIONS",
    "stopgrad.interop.torch.importing.aten.shapes.SHAPES",
    "stopgrad.interop.torch.importing.aten.size_arithmetic.SIZES",
    "stopgrad.interop.torch.importing.aten.spectra.SPECTRA",
    "stopgrad.interop.torch.importing.aten.windows.WINDOWS",
}


def modules() -> Iterator[types.ModuleType]:
    """Those of the package, but for the recipes, which are users' code."""
    for found in pkgutil.walk_packages(sg.__path__, "stopgrad."):
        if not found.name.startswith(("stopgrad.tools.recipes", "stopgrad.tools.tour", "stopgrad.__main__")):
            yield importlib.import_module(found.name)


def assigned(module: types.ModuleType) -> set[str]:
    """The names to which a module's own text gives a value or a function."""
    tree = ast.parse(inspect.getsource(module))
    targets = [t for node in tree.body if isinstance(node, ast.Assign) for t in node.targets]
    targets += [node.target for node in tree.body if isinstance(node, ast.AnnAssign)]
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    return functions | {t.id for t in targets if isinstance(t, ast.Name)}


def containers() -> dict[str, list[Any]]:
    """All containers of modules and classes; those of a kind of class, the definitions, under one name."""
    found: dict[str, list[Any]] = {}
    for module in modules():
        for name in assigned(module) - {"__all__"}:
            if isinstance(vars(module).get(name), CONTAINERS):
                found[f"{module.__name__}.{name}"] = [vars(module)[name]]
        for kind in vars(module).values():
            if inspect.isclass(kind) and kind.__module__ == module.__name__ and not _made_by_python(kind):
                owner = sg.graph.op.Op if issubclass(kind, sg.graph.op.Op) else kind
                for name, value in vars(kind).items():
                    if isinstance(value, CONTAINERS) and not name.startswith("__"):
                        found.setdefault(f"{owner.__module__}.{owner.__name__}.{name}", []).append(value)
    return found


def _made_by_python(kind: type) -> bool:
    return issubclass(kind, enum.Enum) or hasattr(kind, "_field_defaults")


def contents(container: Any) -> Any:
    if isinstance(container, dict):
        return [(id(k), id(v)) for k, v in container.items()]
    return sorted(map(id, container)) if isinstance(container, set) else list(map(id, container))


def test_every_container_is_listed() -> None:
    found = set(containers())
    assert {"stopgrad.graph.op.REGISTRY", "stopgrad.graph.op.Op._inferred"} < found
    assert found - set(CHANGES) - CONSTANT == set(), "say what it holds and what bounds it, in this file"
    assert set(CHANGES) | CONSTANT <= found, "these are no longer there"


def test_nothing_else_is_cached() -> None:
    """Caches of functools, and containers as defaults of arguments, which live as long as a function."""
    for module in modules():
        for name, value in vars(module).items():
            if inspect.isfunction(value) and value.__module__ == module.__name__:
                given = [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
                assert not any(isinstance(d, CONTAINERS) for d in given), f"{module.__name__}.{name}"


# ---------------------------------------------------------------------------------------------- a user


class User:
    """Works with the package, and remembers weakly all that he made."""

    def __init__(self, engine: str) -> None:
        self.engine = engine
        self.made: list[weakref.ref[Any]] = []

    def own(self, thing: Any) -> Any:
        self.made.append(weakref.ref(thing))
        return thing

    def work(self) -> None:
        self.train()
        for n in range(3):
            self.call(n)
        self.give_gradients()
        self.transform()

    def train(self) -> None:
        graph = self.own(sg.Graph())
        with graph.as_default():
            start = self.own(np.ones((3, 2), np.float32))
            w = sg.parameter(start, name="w")
            x = sg.placeholder("float32", [None, 3], name="x")
            big = self.own(np.arange(200.0, dtype=np.float32))
            loss = sg.reduce_sum(sg.square(x @ w)) + sg.reduce_mean(sg.constant(big))
            (dw,) = sg.gradients(loss, [w])
            step = sg.assign(w, w - 0.1 * dw)
        with self.own(sg.Session(graph, engine=self.engine)) as session:
            for n in range(1, 4):
                session.run([step, loss], {x: self.own(np.ones((n, 3), np.float32))})
        read = self.own(sg.Graph.from_text(sg.Graph.to_text(_without_arrays())))
        assert len(read)

    def call(self, n: int) -> None:
        array = self.own(np.full(100 + n, 2.0))
        f = self.own(lambda x: sg.grad(lambda y: sg.reduce_sum(sg.exp(y) * array))(x))
        made = self.own(sg.function(f, engine=self.engine))
        made(np.ones(100 + n))

    def give_gradients(self) -> None:
        for n in range(200):
            array = self.own(np.full(50, float(n)))

            def f(x: Any, array: Any = array) -> Any:
                return sg.exp(x), self.own(lambda g: g * array)

            g = self.own(sg.custom_gradient(f))
            if n % 20 == 0:
                sg.grad(lambda x, g=g: sg.reduce_sum(g(x)))(np.ones(50))
            else:
                graph = self.own(sg.Graph())
                with graph.as_default():
                    g(sg.placeholder("float64", [50]))

    def transform(self) -> None:
        array = self.own(np.full((4, 4), 2.0))
        f = self.own(lambda x: sg.reduce_sum(sg.sin(x) @ array))
        sg.hessian(f)(np.ones(4))
        sg.vmap(f)(np.ones((3, 4)))
        sg.jvp(f, (np.ones(4),), (np.ones(4),))
        body = self.own(lambda s, x: (s + sg.reduce_sum(x * array), s))
        sg.grad(lambda x: sg.scan(body, 0.0, x)[0])(np.ones((3, 4)))
        sg.explain(f, np.ones(4))
        with pytest.raises(sg.ShapeError):
            sg.matmul(np.ones((3, 3)), array)


def _without_arrays() -> sg.Graph:
    graph = sg.Graph()
    with graph.as_default():
        sg.exp(sg.placeholder("float32", ["rows", None]))
    return graph


def held(roots: list[Any], depth: int = 12) -> list[Any]:
    """What containers hold, directly and through others; definitions, modules and types are not entered."""
    closed = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, DType)
    seen = {id(root): root for root in roots}
    level = list(roots)
    for _ in range(depth):
        level = [x for x in gc.get_referents(*level) if id(x) not in seen]
        seen.update((id(x), x) for x in level)
        level = [x for x in level if not isinstance(x, closed)]
    return list(seen.values())


@each_engine
def test_what_a_user_made_goes_with_him(engine: str) -> None:
    user = User(engine)
    user.work()
    made = user.made
    assert len(made) > 700
    gc.collect()
    gc.collect()
    alive = [ref() for ref in made if ref() is not None]
    assert alive == []


def test_no_container_holds_an_array_a_graph_or_what_is_built() -> None:
    before = {name: [contents(c) for c in found] for name, found in containers().items() if name in CONSTANT}
    user = User("numpy")
    user.work()
    after = containers()
    assert {name: [contents(c) for c in after[name]] for name in before} == before
    found = held([c for name in CHANGES for c in after[name] if c is not sg.graph.op.REGISTRY])
    assert any(isinstance(x, TensorType) for x in found)  # It looks into them.
    kinds = (np.ndarray, sg.Graph, sg.Operation, sg.Output, sg.Session, sg.Function, Body)
    assert [x for x in found if isinstance(x, kinds)] == []
    ours = [x for x in found if isinstance(x, types.FunctionType) and x.__module__ == __name__]
    assert ours == []


# ---------------------------------------------------------------------------------------------- bounds


INTERNED = (sg.base.types._TYPES, sizes._ELSEWHERE, sizes._DIMS, sizes._SYMBOLS)


def interned() -> int:
    gc.collect()
    for table in INTERNED:
        table.sweep()
    return sum(map(len, INTERNED))


def build_one(n: int) -> None:
    """A graph whose types and sizes no other has."""
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder("float32", [f"rows{n}", None, 5_000 + n])
        y = sg.reduce_sum(sg.reshape(x[1:], [-1, 5_000 + n])[::2] * 2.0, axis=0)
        sg.gradients(y, [x])


def forget() -> None:
    for d in op.REGISTRY.values():
        d._inferred.clear()
    memoized._CALLS.clear()


def remembered() -> int:
    return sum(len(d._inferred) for d in op.REGISTRY.values())


def test_types_and_sizes_go_with_their_graphs() -> None:
    """But for those in remembered inferences and calls, of which there are so many at most."""
    forget()
    before = interned()
    for n in range(1_000):
        build_one(n)
    assert remembered() <= inferred.REMEMBERED
    assert interned() - before < 2 * inferred.REMEMBERED
    forget()
    assert interned() - before < 10


@pytest.mark.nightly
def test_ten_thousand_graphs_leave_memory_as_it_was() -> None:
    counts, used = [], []
    tracemalloc.start()
    for part in range(5):
        for n in range(part * 2_000, (part + 1) * 2_000):
            build_one(n)
        forget()
        counts.append(interned())
        used.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert max(counts) - min(counts) < 10
    # Tables that have grown keep their room: 0.6 MB. What 2,000 graphs would leave is 4 MB.
    assert max(used[1:]) - min(used[1:]) < 1_000_000, used


def test_5000_custom_gradients_leave_nothing_behind() -> None:
    """Of each call a closure over an array of 80 kB: 400 MB, if they stayed."""
    made = []
    tracemalloc.start()
    for n in range(5_000):
        array = np.full(10_000, float(n))

        @sg.custom_gradient
        def f(x: Any, array: Any = array) -> Any:
            return x * 2.0, lambda g, array=array: g * array

        made.append(weakref.ref(array))
        with sg.Graph().as_default():
            f(sg.placeholder("float64", [10_000]))
    del array, f
    gc.collect()
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert not any(ref() is not None for ref in made)
    assert used < 10_000_000


def test_inferences_are_forgotten_in_the_end() -> None:
    graph = sg.Graph()
    with graph.as_default():
        for n in range(inferred.REMEMBERED + 100):
            sg.placeholder("float32", [n])
    assert remembered() <= inferred.REMEMBERED


def test_names_of_files_are_bounded() -> None:
    for n in range(source.FILES + 100):
        exec(compile("sg.exp(x)", f"<cell {n}>", "exec"), {"sg": sg, "x": 1.0})
    assert len(source._KINDS) <= source.FILES
    assert interpreter._asks_for.cache_info().maxsize == 4096


# ------------------------------------------------------------------------------------------- interning


class Thing:
    """Something that can be interned; it may hold another."""

    def __init__(self, inner: Any = None) -> None:
        self.inner = inner


def test_one_object_for_each_key_as_long_as_somebody_holds_it() -> None:
    table: Interned[Thing] = Interned()
    first = table.one("a", Thing)
    assert table.one("a", Thing) is first is table.get("a")
    assert table.one("b", Thing) is not first
    assert table.get("b") is None
    assert table.keep("a", Thing()) is first
    del first
    second = table.one("a", Thing)
    assert table.get("a") is second


def test_keys_of_the_dead_are_forgotten() -> None:
    table: Interned[Thing] = Interned()
    alive = [table.one(("alive", n), Thing) for n in range(1_000)]
    for n in range(100_000):
        table.one(("dead", n), Thing)
        assert len(table) <= 2 * len(alive) + 256
    table.sweep()
    assert len(table) == len(alive)
    assert all(table.get(("alive", n)) is one for n, one in enumerate(alive))


def test_quotients_in_quotients_are_forgotten_at_once() -> None:
    before = interned()
    size: Any = sg.dim("nested")
    for _ in range(500):
        size = (size + 1) // 2
    assert interned() - before > 500
    del size
    assert interned() == before


def test_interning_runs_no_code_when_something_dies() -> None:
    """An interrupt in such code would be swallowed."""
    calls = []

    def watch(frame: types.FrameType, event: str, _: Any) -> None:
        calls.append(frame.f_code.co_filename)

    kind = sg.base.types.tensor_type(sg.float32, (sg.dim("dying") // 3, 2))
    sys.setprofile(watch)
    del kind
    sys.setprofile(None)
    assert [name for name in calls if "weakref" in name or "stopgrad" in name] == []

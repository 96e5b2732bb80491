"""The trainer, whose state stays in the runtime, and whose steps change all of it or nothing."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from stopgrad_trainer.contents import FORMAT, HELD, AnyPath, check_made, contents, dtype_of, fed, show_shape
from stopgrad_trainer.exported import Array, open_plain, with_weights
from stopgrad_trainer.needed import error, is_ours, module, part


class Trainer:
    """Trains a model with the graphs of a training folder, on a stock ONNX Runtime.

    Parameters and the optimiser's state are held twice: a step reads one and writes the other, without a
    copy, and then the two are swapped. So after an error the state is that from before the step.

    Args:
        folder: the folder that :func:`stopgrad.onnx.training` or ``stopgrad train-graph`` has written.
        threads: how many threads an operation may use; by default the runtime decides.
        providers: the runtime's execution providers, the preferred first.

    Attributes:
        manifest: the folder's manifest.
        learning_rate: the default for each step; None if a schedule gives it.

    Raises:
        MissingFileError, FileError, GraphError: it is no training folder, or is damaged.
        EngineError: onnxruntime is not installed, or refuses a graph.
    """

    def __init__(
        self,
        folder: AnyPath,
        *,
        threads: int | None = None,
        providers: tuple[str, ...] = ("CPUExecutionProvider",),
    ) -> None:
        self._runtime = module("onnxruntime", "a Trainer", "onnx")
        self._contents = contents(folder)
        self.manifest: Mapping[str, Any] = self._contents.manifest
        rate = self.manifest.get("learning_rate", {})
        self.learning_rate: float | None = rate.get("default")
        self._threads, self._providers = threads, list(providers)
        self._sessions: dict[str, Any] = {}
        self._lock = threading.RLock()
        self._merged: dict[str, Array] | None = None
        self._hold(self._read(self._contents.state_file))

    # -------------------------------------------------------------------------------------- training

    def step(
        self, batch: Mapping[str, Any] | None = None, /, *, learning_rate: float | None = None, **named: Any
    ) -> float:
        """One step of training.

        Args:
            batch: inputs by name, for names that cannot be keyword arguments.
            learning_rate: of this step; by default :attr:`learning_rate`.
            named: the batch and its labels, by name.

        Returns:
            The loss before the step.

        Raises:
            ArgumentError, DTypeError, ShapeError: the inputs do not fit. The state is unchanged.
            EngineError: the runtime failed. The state is unchanged.
        """
        given = self._given(batch, named)
        wanted = [port for port in self._contents.inputs["train_step"] if port.role not in HELD]
        rate = next((port for port in wanted if port.role == "learning_rate"), None)
        if rate is None and learning_rate is not None:
            raise error(
                "ArgumentError", "step: a schedule gives the learning rate of this training; leave it out"
            )
        if rate is not None:
            given[rate.name] = self.learning_rate if learning_rate is None else learning_rate
        arrays = fed("step", wanted, given)
        with self._lock_outside("step"):
            session = self._session("train_step")
            self._run("train_step", lambda: self._bound_run(session, arrays))
            loss = float(self._loss)
            self._merged = None
            self._now = 1 - self._now  # Last: until here an interrupt leaves the old state.
        return loss

    def _lock_outside(self, what: str) -> threading.RLock:
        """The lock that is held while the state is used; raises where this thread holds it already."""
        if self._lock._is_owned():  # type: ignore[attr-defined] # As threading.Condition asks it.
            raise error(
                "GraphError",
                f"{what}: called inside another call of this Trainer, by a signal handler; there state, "
                "save, export and predict can be used, all else must wait until that call has ended",
            )
        return self._lock

    def _bound_run(self, session: Any, arrays: Mapping[str, Array]) -> None:
        binding = self._binding()
        for name, array in arrays.items():
            binding.bind_cpu_input(name, array)
        session.run_with_iobinding(binding)

    def _binding(self) -> Any:
        """The binding of a step's inputs and outputs to the two copies of the state."""
        if self._bindings[self._now] is None:
            binding = self._session("train_step").io_binding()
            for name, pair in self._held.items():
                binding.bind_ortvalue_input(name, pair[self._now][1])
            for port in self._contents.outputs["train_step"]:
                value = (
                    self._held[port.updates][1 - self._now][1] if port.updates else self._value(self._loss)
                )
                binding.bind_ortvalue_output(port.name, value)
            self._bindings[self._now] = binding
        return self._bindings[self._now]

    # ------------------------------------------------------------------------------------------ asking

    def evaluate(self, batch: Mapping[str, Any] | None = None, /, **named: Any) -> dict[str, Any]:
        """The loss and the model's outputs, by name, in inference; nothing is trained.

        Args:
            batch, named: the batch and its labels, as for :meth:`step`.
        """
        return self._asked("eval", batch, named)

    def gradients(self, batch: Mapping[str, Any] | None = None, /, **named: Any) -> dict[str, Array]:
        """The gradients of the loss before clipping, by the names of the parameters.

        Args:
            batch, named: the batch and its labels, as for :meth:`step`.
        """
        found = self._asked("gradients", batch, named)
        return {port.of: found[port.name] for port in self._contents.outputs["gradients"] if port.of}

    def predict(self, batch: Mapping[str, Any] | None = None, /, **named: Any) -> dict[str, Array]:
        """The model's outputs, by name; needs no labels.

        Args:
            batch, named: the model's inputs, as for :meth:`step`.
        """
        given = self._given(batch, named)
        with self._lock:
            return self._outputs("predict", given, self._weights())

    def _asked(self, graph: str, batch: Mapping[str, Any] | None, named: dict[str, Any]) -> dict[str, Any]:
        given = self._given(batch, named)
        with self._lock:
            found = self._outputs(graph, given, self._arrays())
        for port in self._contents.outputs[graph]:
            if port.role == "loss":
                found[port.name] = float(found[port.name])
        return found

    def _outputs(self, graph: str, given: dict[str, Any], held: Mapping[str, Array]) -> dict[str, Any]:
        inputs = self._contents.inputs[graph]
        arrays = fed(graph, [port for port in inputs if port.role not in HELD], given)
        feeds = arrays | {port.name: held[port.name] for port in inputs if port.role in HELD}
        session = self._session(graph)
        outputs = self._contents.outputs[graph]
        names = [port.name for port in outputs]
        made = self._run(graph, lambda: session.run(names, feeds))
        check_made(self._contents.files[graph], outputs, made)
        return dict(zip(names, made, strict=True))

    # ------------------------------------------------------------------------------------------- state

    @property
    def state(self) -> dict[str, Array]:
        """Copies of the parameters and the optimiser's state, by name."""
        with self._lock:
            return {name: np.array(array) for name, array in self._arrays().items()}

    def save(self, path: AnyPath) -> None:
        """Write the state in the safetensors format. An older file is kept until the new one is complete.

        Raises:
            FileError: the system refuses.
        """
        with self._lock:
            part("graph.files").write_arrays(path, self._arrays(), {"made_for": FORMAT})

    def restore(self, path: AnyPath) -> None:
        """Go on from a state that :meth:`save` has written.

        Raises:
            FileError, GraphError: the file is damaged, or holds the state of another training. The state is
                unchanged.
        """
        arrays = self._read(path)
        with self._lock_outside("restore"):
            self._hold(arrays)

    def save_weights(self, path: AnyPath) -> None:
        """Write the trained weights alone, without the optimiser's state: adapters, where those are trained.

        Args:
            path: of the file, in the safetensors format; an older one is kept until it is complete. In the
                browser, the page of ``stopgrad serve`` gives the same file.

        Raises:
            FileError: the system refuses.
        """
        with self._lock:
            arrays = self._arrays()
            weights = {name: arrays[name] for name in self._weight_names()}
            part("graph.files").write_arrays(path, weights, {"made_for": FORMAT})

    def load_weights(self, path: AnyPath) -> None:
        """Take the weights that :meth:`save_weights` or :meth:`save` has written; the optimiser begins anew.

        Raises:
            FileError, GraphError: the file is damaged, or holds weights of another training. The state is
                unchanged.
        """
        weights = self._read(path, self._weight_names())
        first = self._read(self._contents.state_file)
        with self._lock_outside("load_weights"):
            self._hold(first | weights)

    def _weight_names(self) -> list[str]:
        """Of what is carried from step to step, what the trained model is made of."""
        return [port.name for port in self._contents.inputs["merge"] if port.role in HELD]

    def reset(self) -> None:
        """Go back to the initial state."""
        self.restore(self._contents.state_file)

    def export(self, path: AnyPath) -> None:
        """Write the trained model for inference: the original model with the present weights.

        Args:
            path: of the file, one ONNX model with all its weights in it.

        Raises:
            FileError: the system refuses, or the model is larger than a file of ONNX may be.
        """
        with self._lock:
            weights = self._weights()
        try:
            with open_plain(self._contents.files["predict"]) as stored:
                model = stored.read()
            made = with_weights(model, weights, self._contents.folder)
        except OSError as caught:
            if is_ours(caught):
                raise
            raise error("FileError", f"{self._contents.folder} cannot be read: {caught}") from caught
        with part("graph.files").replacing(path) as file, open(file, "wb", closefd=False) as stream:
            stream.write(made)

    def _read(self, path: AnyPath, only: Collection[str] | None = None) -> dict[str, Array]:
        """The state in a file, or only a part of it, whether or not the file has the rest."""
        state = self._contents.state
        wanted = {name: port for name, port in state.items() if only is None or name in only}
        if not isinstance(path, (str, os.PathLike)):
            raise error("ArgumentError", f"{path!r:.60} is no path of a file")
        try:
            if not stat.S_ISREG(os.stat(path).st_mode):  # On a pipe it would wait.
                raise error("FileError", f"{path} cannot be read: it is no file")
            with safe_open(path, "numpy") as file:
                names = list(file.keys())
                missing = [name for name in wanted if name not in names]
                extra = sorted(name for name in names if name not in state)
                if missing or extra:
                    said = f"it lacks {_some(missing)}" if missing else f"it has {_some(extra)} besides"
                    raise error("FileError", f"{path} is the state of another training: {said}")
                arrays = {name: file.get_tensor(name) for name in wanted}
        except FileNotFoundError:
            raise error("MissingFileError", f"{path} cannot be read: there is no such file") from None
        except (OSError, ValueError, SafetensorError) as caught:
            if is_ours(caught):
                raise
            raise error("FileError", f"{path} cannot be read: {caught}") from caught
        for name, port in wanted.items():
            array = arrays[name]
            if array.dtype != dtype_of(port.dtype) or array.shape != port.shape:
                raise error(
                    "FileError",
                    f"{path} is the state of another training: for {name} it holds "
                    f"{array.dtype}{show_shape(array.shape)}, not {port.dtype}{show_shape(port.shape)}",
                )
        return arrays

    def _hold(self, arrays: Mapping[str, Array]) -> None:
        """Take over a state; the old one is replaced only when the new one is complete."""
        held = {}
        for name, array in arrays.items():
            pair = [np.array(array), np.array(array)]  # Equal, so that it does not matter which is read.
            held[name] = [(one, self._value(one)) for one in pair]
        loss = next(port for port in self._contents.outputs["train_step"] if port.role == "loss")
        self._bindings: list[Any] = [None, None]
        self._loss: Array = np.zeros((), dtype_of(loss.dtype))
        self._merged = None
        self._held, self._now = held, 0

    def _arrays(self) -> dict[str, Array]:
        return {name: pair[self._now][0] for name, pair in self._held.items()}

    def _weights(self) -> dict[str, Array]:
        """The weights of the inference model, by its own names."""
        if self._merged is None:
            arrays = self._arrays()
            outputs = self._contents.outputs["merge"]
            if all(port.of in arrays for port in outputs):
                self._merged = {port.of: arrays[port.of] for port in outputs}
            else:
                found = self._outputs("merge", {}, arrays)
                self._merged = {port.of: found[port.name] for port in outputs}
        return self._merged

    # ----------------------------------------------------------------------------------------- runtime

    def _value(self, array: Array) -> Any:
        """An array as a value of the runtime, in the same memory."""
        kind = self._runtime.OrtValue
        if array.dtype.name == "bfloat16":  # The runtime knows NumPy's own dtypes only.
            return kind.ortvalue_from_numpy_with_onnx_type(array, _BFLOAT16)
        return kind.ortvalue_from_numpy(array)

    def _session(self, graph: str) -> Any:
        """The session of a graph, made when it is first asked for."""
        found = self._sessions.get(graph)
        if found is None:
            options = self._runtime.SessionOptions()
            options.log_severity_level = 3
            options.enable_mem_pattern = False  # It would keep the memory of all activations.
            if self._threads is not None:
                options.intra_op_num_threads = self._threads
            path = self._contents.files.get(graph)
            if path is None:
                raise error("FileError", f"{self._contents.folder} has no graph {graph}")
            found = self._run(
                graph,
                lambda: self._runtime.InferenceSession(str(path), options, providers=self._providers),
            )
            self._sessions[graph] = found
        return found

    def _run(self, graph: str, run: Callable[..., Any]) -> Any:
        try:
            return run()
        except Exception as caught:  # Errors of onnxruntime have no base class of their own.
            if is_ours(caught):
                raise
            raise error("EngineError", f"{self._contents.files[graph]}: onnxruntime: {caught}") from caught

    def _given(self, batch: Mapping[str, Any] | None, named: dict[str, Any]) -> dict[str, Any]:
        if batch is not None and not isinstance(batch, Mapping):
            raise error("ArgumentError", f"a batch is fed by name, or as a dict, not as {batch!r:.60}")
        return {**(batch or {}), **named}

    def __repr__(self) -> str:
        loss, optimizer = self.manifest["loss"]["name"], self.manifest["optimizer"]["name"]
        return f"<Trainer {str(Path(self._contents.folder))!r}: {loss} by {optimizer}>"


_BFLOAT16 = 16


def _some(names: list[str]) -> str:
    return ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")

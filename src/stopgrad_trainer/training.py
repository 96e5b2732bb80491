"""The trainer, whose state stays in the runtime, and whose steps change all of it or nothing."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from stopgrad_trainer.contents import FORMAT, HELD, AnyPath, check_results, contents, fed
from stopgrad_trainer.exported import Array, open_plain, with_weights
from stopgrad_trainer.memory import Doubled, InPlace, memory_of
from stopgrad_trainer.needed import error, is_ours, part
from stopgrad_trainer.runtime import CPU, Runtime
from stopgrad_trainer.states import StateFile


class Trainer:
    """Trains a model with the graphs of a training folder, on a stock ONNX Runtime.

    A step computes all gradients first, and then renews parameters and the optimiser's state in place,
    without a copy. After an error, the state is that from before the step. Where an optimiser does not treat
    each element by itself (Adafactor, Muon, accumulated gradients, a loss scale), and in folders of earlier
    versions, the state is held twice: a step reads one and writes the other, and then the two are swapped.

    Args:
        folder: the folder that :func:`stopgrad.onnx.training` or ``stopgrad train-graph`` has written.
        threads: how many threads an operation may use; by default the runtime decides.
        providers: the runtime's execution providers, the preferred first.
        mapped: whether frozen weights that have a file of their own stay there, mapped into memory. False
            lets the runtime make copies for faster products: a step of few examples may be faster, and takes
            twice the memory.
        compiled: whether what the optimiser does to each element is compiled by numba, which gives the same
            numbers in less than half the time. None does it for large states (2**24 elements and more, where
            the seconds of compiling are won back) if numba is installed and compiles it.

    Attributes:
        manifest: the folder's manifest.
        learning_rate: the default for each step; None if a schedule gives it.

    Raises:
        MissingFileError, FileError, GraphError: it is no training folder, or is damaged.
        EngineError: onnxruntime is not installed, or refuses a graph; ``compiled=True``, and numba is not
            installed, or does not compile what the optimiser does.
    """

    def __init__(
        self,
        folder: AnyPath,
        *,
        threads: int | None = None,
        providers: tuple[str, ...] = (CPU,),
        mapped: bool = True,
        compiled: bool | None = None,
    ) -> None:
        self._compiled = compiled
        self._contents = contents(folder)
        self.manifest: Mapping[str, Any] = self._contents.manifest
        rate = self.manifest.get("learning_rate", {})
        self.learning_rate: float | None = rate.get("default")
        self._runtime = Runtime(self._contents, threads, providers, mapped)
        self._lock = threading.RLock()
        self._memory = self._read(self._contents.state_file)

    # -------------------------------------------------------------------------------------- training

    def step(
        self,
        batch: Mapping[str, Any] | None = None,
        /,
        *,
        learning_rate: float | None = None,
        **named: object,
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
            EngineError: the runtime failed. The state is unchanged; unless it failed while it renewed the
                state in place: then all that asks for the state is an error, until :meth:`restore`.
        """
        values = self._by_name(batch, named)
        ports = [port for port in self._contents.inputs["train_step"] if port.role not in HELD]
        rate = next((port for port in ports if port.role == "learning_rate"), None)
        if rate is None and learning_rate is not None:
            raise error(
                "ArgumentError", "step: a schedule gives the learning rate of this training; leave it out"
            )
        if rate is not None:
            values[rate.name] = self.learning_rate if learning_rate is None else learning_rate
        arrays = fed("step", ports, values)
        with self._lock_outside("step"):
            return self._whole().step(arrays)

    def _lock_outside(self, what: str) -> threading.RLock:
        """The lock that is held while the state is used; raises where this thread holds it already."""
        if self._lock._is_owned():  # type: ignore[attr-defined] # As threading.Condition asks it.
            raise error(
                "GraphError",
                f"{what}: called inside another call of this Trainer, by a signal handler; there state, "
                "save, export and predict can be used, all else must wait until that call has ended",
            )
        return self._lock

    # ------------------------------------------------------------------------------------------ asking

    def evaluate(self, batch: Mapping[str, Any] | None = None, /, **named: object) -> dict[str, Any]:
        """The loss and the model's outputs, by name, in inference; nothing is trained.

        Args:
            batch, named: the batch and its labels, as for :meth:`step`.
        """
        return self._answer("eval", batch, named)

    def gradients(self, batch: Mapping[str, Any] | None = None, /, **named: object) -> dict[str, Array]:
        """The gradients of the loss before clipping, by the names of the parameters.

        Args:
            batch, named: the batch and its labels, as for :meth:`step`.
        """
        results = self._answer("gradients", batch, named)
        return {port.of: results[port.name] for port in self._contents.outputs["gradients"] if port.of}

    def predict(self, batch: Mapping[str, Any] | None = None, /, **named: object) -> dict[str, Array]:
        """The model's outputs, by name; needs no labels.

        Args:
            batch, named: the model's inputs, as for :meth:`step`.
        """
        values = self._by_name(batch, named)
        with self._lock:
            return self._outputs("predict", values, self._weights())

    def _answer(self, graph: str, batch: Mapping[str, Any] | None, named: dict[str, Any]) -> dict[str, Any]:
        values = self._by_name(batch, named)
        with self._lock:
            results = self._outputs(graph, values, self._arrays())
        for port in self._contents.outputs[graph]:
            if port.role == "loss":
                results[port.name] = float(results[port.name])
        return results

    def _outputs(self, graph: str, values: dict[str, Any], carried: Mapping[str, Array]) -> dict[str, Any]:
        inputs = self._contents.inputs[graph]
        arrays = fed(graph, [port for port in inputs if port.role not in HELD], values)
        feeds = arrays | {port.name: carried[port.name] for port in inputs if port.role in HELD}
        session = self._runtime.session(graph)
        outputs = self._contents.outputs[graph]
        names = [port.name for port in outputs]
        results = self._runtime.run(graph, lambda: session.run(names, feeds))
        check_results(self._contents.files[graph], outputs, results)
        return dict(zip(names, results, strict=True))

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
        with self._lock_outside("restore"):
            self._memory = self._read(path)

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
        state, names = self._contents.state, self._weight_names()
        weights, first = StateFile(path, state, names), StateFile(self._contents.state_file, state)

        def fill(arrays: Mapping[str, Array]) -> None:
            first.into(arrays)
            for name in names:
                arrays[name][...] = 0  # Holes of the file stand for zeros.
            weights.into(arrays)

        with self._lock_outside("load_weights"):
            self._memory = memory_of(self._contents, self._runtime, fill, self._compiled)

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
        try:
            with open_plain(self._contents.files["predict"]) as stored:
                model = stored.read()
            with self._lock:
                exported = with_weights(model, self._weights(), self._contents.folder)
        except OSError as caught:
            if is_ours(caught):
                raise
            raise error("FileError", f"{self._contents.folder} cannot be read: {caught}") from caught
        with part("graph.files").replacing(path) as file, open(file, "wb", closefd=False) as stream:
            stream.write(exported)

    def _read(self, path: AnyPath) -> Doubled | InPlace:
        """The state of a file, in memory of its own, which is complete when it takes the old one's place."""
        fill = StateFile(path, self._contents.state).into
        return memory_of(self._contents, self._runtime, fill, self._compiled)

    def _whole(self) -> Doubled | InPlace:
        """The memory of the state.

        Raises:
            GraphError: a step has failed in the middle of renewing it.
        """
        if self._memory.torn:
            raise error(
                "GraphError",
                "a step has failed while it renewed the state, of which a part is old and a part new; go on "
                "from a saved state with restore(), or from the first with reset()",
            )
        return self._memory

    def _arrays(self) -> dict[str, Array]:
        return self._whole().arrays

    def _weights(self) -> dict[str, Array]:
        """The weights of the inference model, by its own names."""
        memory = self._whole()
        arrays, outputs = memory.arrays, self._contents.outputs["merge"]
        if all(port.of in arrays for port in outputs):
            return {port.of: arrays[port.of] for port in outputs}
        if not memory.merged:
            merged = self._outputs("merge", {}, arrays)
            memory.merged.update({port.of: merged[port.name] for port in outputs})
        return memory.merged

    def _by_name(self, batch: Mapping[str, Any] | None, named: dict[str, Any]) -> dict[str, Any]:
        if batch is not None and not isinstance(batch, Mapping):
            raise error("ArgumentError", f"a batch is fed by name, or as a dict, not as {batch!r:.60}")
        return {**(batch or {}), **named}

    def __repr__(self) -> str:
        loss, optimizer = self.manifest["loss"]["name"], self.manifest["optimizer"]["name"]
        return f"<Trainer {str(Path(self._contents.folder))!r}: {loss} by {optimizer}>"

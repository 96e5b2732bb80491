"""The sessions of a training folder's graphs, on a stock ONNX Runtime."""

from __future__ import annotations

import os
import types
from collections.abc import Callable
from typing import Any

from stopgrad_trainer.compiled import Kernel, kernel
from stopgrad_trainer.contents import WEIGHTS, Contents
from stopgrad_trainer.exported import Array
from stopgrad_trainer.needed import error, is_ours, module

CPU = "CPUExecutionProvider"
_BFLOAT16 = 16
"""The number of ``TensorProto.DataType``."""


class Runtime:
    """ONNX Runtime, and its sessions, which are made when they are first asked for.

    Args:
        contents: of the folder.
        threads: how many threads an operation may use; None lets the runtime decide.
        providers: the execution providers, the preferred first.
        mapped: whether frozen weights stay in their file, which is mapped into memory.

    Attributes:
        threads: how many may run at once.
        sessions: those made, by the name of the graph.
        kernels: functions of each element that numba has compiled, by the name of the graph.
    """

    def __init__(
        self, contents: Contents, threads: int | None, providers: tuple[str, ...], mapped: bool = True
    ) -> None:
        self._library = module("onnxruntime", "a Trainer", "onnx")
        self._contents, self._threads, self.providers = contents, threads, list(providers)
        self.threads = threads or _processors()
        self._blocks = (
            {function.graph for function in contents.update.functions} if contents.update else set()
        )
        self._mapped = mapped and (contents.folder / WEIGHTS).exists()
        self.sessions: dict[str, Any] = {}
        self.kernels: dict[str, Kernel] = {}

    def session(self, graph: str) -> Any:
        """The session of a graph."""
        session = self.sessions.get(graph)
        if session is None:
            options = self._library.SessionOptions()
            options.log_severity_level = 3
            options.enable_mem_pattern = False  # It would keep the memory of all activations.
            options.enable_mem_reuse = False  # What is reused later would not be given back in between.
            if graph in self._blocks:  # They are small; several threads go through them.
                options.intra_op_num_threads = 1
            elif self._threads is not None:
                options.intra_op_num_threads = self._threads
            path = self._contents.files.get(graph)
            if path is None:
                raise error("FileError", f"{self._contents.folder} has no graph {graph}")
            settings: dict[str, Any] = {"enable_fallback": 0}  # Else it prints, and tries once more.
            if self._mapped:  # Copies are made of what is packed for products, and of what is transposed.
                options.add_session_config_entry("session.disable_prepacking", "1")
                settings["disabled_optimizers"] = ["ConstantFolding"]
            create = lambda: self._library.InferenceSession(
                str(path), options, providers=self.providers, **settings
            )
            session = self.sessions[graph] = self.run(graph, create)
        return session

    def kernel(self, graph: str) -> Kernel:
        """The function of each element that a graph describes, compiled.

        Raises:
            EngineError: numba is not installed, or does not compile it.
        """
        if graph not in self.kernels:
            ports = self._contents.inputs[graph], self._contents.outputs[graph]
            try:
                self.kernels[graph] = kernel(self._contents.files[graph], *ports)
            except Exception as caught:  # Numba, and what reads the file, have errors of many kinds.
                if is_ours(caught):
                    raise
                raise error("EngineError", f"{self._contents.files[graph]}: numba: {caught}") from caught
        return self.kernels[graph]

    def value(self, array: Array) -> Any:
        """An array as a value of the runtime, in the same memory."""
        kind = self._library.OrtValue
        if array.dtype.name == "bfloat16":  # The runtime knows NumPy's own dtypes only.
            return kind.ortvalue_from_numpy_with_onnx_type(array, _BFLOAT16)
        return kind.ortvalue_from_numpy(array)

    def run(self, graph: str, run: Callable[[], Any]) -> Any:
        """The result of a call of the runtime.

        Raises:
            EngineError: it failed.
        """
        try:
            return run()
        except Exception as caught:  # Errors of onnxruntime have no base class of their own.
            if is_ours(caught):
                raise
            raise error("EngineError", f"{self._contents.files[graph]}: onnxruntime: {caught}") from caught


def _processors() -> int:
    """How many processors this process may use."""
    allowed = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed is not None else os.cpu_count() or 1


def call_in_c(session: Any, binding: Any) -> tuple[Any, ...]:
    """A function and its arguments that run a session, if possible without a line of Python.

    Handlers of signals run between lines of Python. Where there is none, there is no interrupt.
    """
    inner, bound = getattr(session, "_sess", None), getattr(binding, "_iobinding", None)
    run = getattr(inner, "run_with_iobinding", None)
    if bound is None or run is None or isinstance(getattr(run, "__func__", run), types.FunctionType):
        return (session.run_with_iobinding, binding)
    return (run, bound, None)

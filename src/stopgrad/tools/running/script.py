"""Runs a script or module as ``python`` does: as ``__main__``, with its arguments, folder and errors."""

from __future__ import annotations

import atexit
import builtins
import importlib.util
import io
import os
import pkgutil
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import CodeType, ModuleType, TracebackType
from typing import Any, NamedTuple

from stopgrad.base import tracebacks


class NoScriptError(Exception):
    """There is nothing to run. Its text is what Python prints.

    Attributes:
        status: Python's own exit status.
    """

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


class Script(NamedTuple):
    """Something to run.

    Attributes:
        module: the new ``__main__``.
        code: its code; None where :attr:`compile` is still to be called.
        argv: its ``sys.argv``.
        folder: the first of its ``sys.path``.
        compile: makes the code, and may raise a SyntaxError.
    """

    module: ModuleType
    argv: list[str]
    folder: str
    compile: Callable[[], CodeType]


def script_of(path: str, arguments: Sequence[str]) -> Script:
    """The script in a file, or in a folder or archive with a ``__main__.py``.

    Raises:
        NoScriptError: there is none.
    """
    whole = os.path.join(os.getcwd(), path)
    importer = pkgutil.get_importer(whole)
    if importer is not None:
        spec = importer.find_spec("__main__", None)
        loader: Any = None if spec is None else spec.loader
        if spec is None or loader is None:
            raise NoScriptError(f"can't find '__main__' module in {whole!r}", 1)
        return Script(
            _main(spec.origin, spec, loader),
            [path, *arguments],
            whole,
            lambda: loader.get_code("__main__"),
        )
    try:
        with io.open_code(whole) as file:
            source = file.read()
    except OSError as error:
        raise NoScriptError(f"can't open file {whole!r}: [Errno {error.errno}] {error.strerror}", 2) from None
    return Script(
        _main(whole, None, SourceFileLoader("__main__", whole)),
        [path, *arguments],
        os.path.dirname(os.path.realpath(path)),
        lambda: compile(source, whole, "exec", dont_inherit=True),
    )


def _main(file: str | None, spec: ModuleSpec | None, loader: object) -> ModuleType:
    """A new ``__main__``, with all names that Python gives it."""
    module = ModuleType("__main__")
    module.__dict__.update(
        __file__=file,
        __builtins__=builtins,
        __spec__=spec,
        __loader__=loader,
        __package__=None if spec is None else spec.parent,
        __cached__=None if spec is None else spec.cached,
    )
    module.__annotations__ = {}
    return module


def module_of(name: str, arguments: Sequence[str]) -> Script:
    """A module, or a package with a module ``__main__``, as ``python -m`` finds it.

    Raises:
        NoScriptError: there is none.
    """
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            name = f"{name}.__main__"
            spec = importlib.util.find_spec(name)
    except (ImportError, ValueError) as error:
        text = f"Error while finding module specification for {name!r} ({error})"
        raise NoScriptError(text, 1) from None
    loader = None if spec is None else spec.loader
    if spec is None or loader is None or not hasattr(loader, "get_code"):
        raise NoScriptError(f"No module named {name}", 1)
    module = _main(spec.origin, spec, loader)
    return Script(module, [spec.origin or name, *arguments], os.getcwd(), lambda: loader.get_code(name))


def run(script: Script) -> BaseException | None:
    """Run a script; what it raised, with the traceback that plain Python would show, or None."""
    sys.modules["__main__"] = script.module
    sys.argv[:] = script.argv
    if not sys.flags.safe_path:
        sys.path[0] = script.folder
    if sys.excepthook is tracebacks.in_terminal:  # Which only those get who import the library.
        sys.excepthook = sys.__excepthook__
    try:
        code = script.compile()
    except BaseException as error:
        return _without_us(error)
    try:
        exec(code, script.module.__dict__)  # noqa: S102 - this is what it is for
    except BaseException as error:
        return _without_us(error)
    return None


def _without_us(error: BaseException) -> BaseException:
    """An error, and those that caused it, with the tracebacks that they have without us."""
    raised: BaseException | None = error
    seen: set[int] = set()
    while raised is not None and id(raised) not in seen:
        seen.add(id(raised))
        raised.__traceback__ = _traceback_without_us(raised.__traceback__)
        raised = raised.__cause__ or raised.__context__
    return error


def _traceback_without_us(entry: TracebackType | None) -> TracebackType | None:
    """A traceback as it is without us.

    Our own frames are left out, and those by which PyTorch hands a call to us and then makes it again.
    """
    frames = []
    while entry is not None:
        frames.append(entry)
        entry = entry.tb_next
    user_frames: list[TracebackType] = []
    for frame in frames:
        code = frame.tb_frame.f_code
        if code.co_name == _HANDS_OVER and user_frames:
            user_frames.pop()
        elif not code.co_filename.startswith(_OURS) and code.co_name != _HANDS_OVER:
            user_frames.append(frame)
    shortened = None
    for frame in reversed(user_frames):
        shortened = TracebackType(shortened, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return shortened


_HANDS_OVER = "handle_torch_function"
_OURS = os.path.dirname(os.path.dirname(os.path.dirname(__file__))) + os.sep


# -------------------------------------------------------------------------------------------- how it ends


class Ending:
    """Ends the process as Python would have ended it after a script.

    Made before the script runs, so that what it does at exit comes after all that the script wants done then.
    """

    def __init__(self) -> None:
        self._interrupted = False
        atexit.register(self._interrupt)

    def show(self, error: BaseException) -> None:
        """Show an error as Python does, by the hook that the script may have replaced."""
        if isinstance(error, SystemExit):
            return
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
        if hasattr(sys.stdout, "flush"):
            sys.stdout.flush()
        try:
            sys.excepthook(type(error), error, error.__traceback__)
        except SystemExit:
            raise
        except BaseException as failure:
            print("Error in sys.excepthook:", file=sys.stderr)
            traceback.print_exception(failure.with_traceback(_traceback_without_us(failure.__traceback__)))
            print("\nOriginal exception was:", file=sys.stderr)
            traceback.print_exception(error)

    def status(self, error: BaseException | None) -> int:
        """The exit status, after SystemExit's own message was printed."""
        if error is None:
            return 0
        if isinstance(error, SystemExit):
            if error.code is None or isinstance(error.code, int):
                return error.code or 0
            print(error.code, file=sys.stderr)
            return 1
        if isinstance(error, KeyboardInterrupt):
            self._interrupted = True
        return 1

    def _interrupt(self) -> None:
        if self._interrupted:  # Whoever waits for the process sees that a signal ended it.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)

"""The house: one direction of imports, no late ones, a light import, modules of a readable size."""

from __future__ import annotations

import ast
import functools
import importlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from together import together

import stopgrad as sg
from stopgrad.graph import defining
from stopgrad.graph.op import REGISTRY

HOME = Path(sg.__file__).parent
MODULES = {
    ".".join(path.relative_to(HOME.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(HOME.rglob("*.py"))
}

# From the ground up, as the architecture page draws it: a package imports from those below it alone.
PACKAGES = re.findall(
    r"^ *(\w+) --> \w+$", (HOME.parents[1] / "docs/architecture.md").read_text(), re.MULTILINE
)[::-1]
# The package itself stands below what is written with ``import stopgrad as sg``, and its doors above all.
FACE = PACKAGES.index("interop") - 0.5
DOORS = {
    "torch",
    "jax",
    "onnx",
    "tensorflow",
    "xp",
    "optimizers",
    "data",
    "distributed",
    "trainer",
    "pytest_plugin",
}
LEVEL = {
    **{name: float(i) for i, name in enumerate(PACKAGES)},
    "": FACE,
    **dict.fromkeys(DOORS | {"__main__"}, 99.0),
}
HEAVY = (
    *("jax", "orbax", "tensorstore", "grain", "onnx", "onnxruntime", "scipy", "sklearn", "matplotlib"),
    *("torch", "tensorflow", "google"),
)


def part_of(module: str) -> str:
    """The row's entry that a module belongs to."""
    return module.split(".")[1] if "." in module else ""


@functools.cache
def statements(path: Path) -> list[tuple[ast.stmt, bool]]:
    """All statements of a module, however deep, in order, and whether they stand inside a function."""

    def visit(node: ast.AST, late: bool) -> Iterator[tuple[ast.stmt, bool]]:
        if isinstance(node, ast.stmt):
            yield node, late
        late = late or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.stmt, ast.excepthandler, ast.match_case)):
                yield from visit(child, late)

    return list(visit(ast.parse(path.read_text()), False))


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """What a module imports of the package, also for type checkers, and whether inside a function."""
    for node, late in statements(path):
        if isinstance(node, ast.Import):
            yield from ((alias.name, late) for alias in node.names if alias.name.split(".")[0] == "stopgrad")
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            if node.module and node.module.split(".")[0] == "stopgrad":
                for alias in node.names:
                    whole = f"{node.module}.{alias.name}"
                    yield (whole if whole in MODULES else node.module), late


def all_imports() -> dict[str, list[tuple[str, bool]]]:
    return {module: list(imports(path)) for module, path in MODULES.items()}


def test_every_module_stands_in_a_package() -> None:
    unknown = {module for module in MODULES if part_of(module) not in LEVEL}
    assert not unknown, f"these stand in no package: {sorted(unknown)}"


@together("module", [m for m in MODULES if m != "stopgrad"])
def test_a_module_imports_only_from_above(module: str) -> None:
    own = LEVEL[part_of(module)]
    below = [name for name, _ in imports(MODULES[module]) if LEVEL[part_of(name)] > own]
    assert not below, f"{module} imports from below: {below}"


@together("module", MODULES)
def test_nothing_of_the_package_is_imported_inside_a_function(module: str) -> None:
    late = [name for name, is_late in imports(MODULES[module]) if is_late]
    assert not late, f"{module} imports inside a function: {late}"


def test_what_is_imported_whole_says_what_that_is() -> None:
    text = (HOME / "ops/functions.py").read_text()
    for module in re.findall(r"^from (stopgrad\.\S+) import \*$", text, re.MULTILINE):
        assert "__all__" in vars(importlib.import_module(module)), f"{module} has no __all__"


def through_the_door(module: str, path: Path) -> list[str]:
    """What a module imports from elsewhere though :mod:`stopgrad.graph.defining` has it."""
    return [
        f"{module}: {alias.name} of {node.module}"
        for node, _ in statements(path)
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").startswith(("stopgrad.graph.", "stopgrad.base."))
        for alias in node.names
        if alias.name in defining.__all__ and alias.asname is None and node.module != defining.__name__
        if getattr(defining, alias.name) is getattr(importlib.import_module(node.module or ""), alias.name)
    ]


def test_operations_are_defined_with_what_one_door_has(tmp_path: Path) -> None:
    found = [
        line
        for module, path in MODULES.items()
        if module.startswith(("stopgrad.ops.", "stopgrad.transforms.control."))
        for line in through_the_door(module, path)
    ]
    assert not found, "import these from stopgrad.graph.defining:\n" + "\n".join(found)
    one = tmp_path / "one.py"
    one.write_text("from stopgrad.graph.op import REGISTRY, Op\n")
    seen = through_the_door("one", one)
    assert seen == ["one: Op of stopgrad.graph.op"]


def test_modules_do_not_import_in_a_circle() -> None:
    graph = {module: {name for name, _ in found if name != module} for module, found in all_imports().items()}
    # A package's __init__ stands for the whole package to those outside of it, not to its own modules.
    for module, found in graph.items():
        found -= {name for name in found if module.startswith(f"{name}.")} - {"stopgrad"}
    del graph["stopgrad"]
    left = {module: found & set(graph) for module, found in graph.items()}
    while free := [module for module, found in left.items() if not found]:
        for module in free:
            del left[module]
        for found in left.values():
            found -= set(free)
    assert not left, f"these import each other: {left}"


def test_the_layer_test_sees_what_it_should(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(
        "from stopgrad.run.session import Session\nimport numpy\n"
        "def f():\n    from stopgrad.graph import graph\n    import stopgrad.graph.op\n"
    )
    assert list(imports(file)) == [
        ("stopgrad.run.session", False),
        ("stopgrad.graph.graph", True),
        ("stopgrad.graph.op", True),
    ]


# ------------------------------------------------------------------------------------------ light import


def python(text: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", text], check=True, capture_output=True, text=True, cwd=HOME.parent, timeout=120
    ).stdout


def test_importing_the_package_imports_nothing_heavy() -> None:
    heavy = (*HEAVY, "rich")
    found = python(f"import sys, stopgrad; print([m for m in {heavy!r} if m in sys.modules])")
    assert found.strip() == "[]"


LOADED = "print(json.dumps([m for m in sys.modules if m.partition('.')[0] == 'stopgrad']))"


def test_importing_the_package_makes_graphs_and_nothing_that_is_built_in_them() -> None:
    found = json.loads(python(f"import json, sys, stopgrad; {LOADED}"))
    assert {part_of(module) for module in found} <= {"", "base", "graph", "errors"}
    assert len(found) <= 33


def test_an_operation_needs_operations_and_what_is_below_them() -> None:
    found = json.loads(python(f"import json, sys, stopgrad as sg; sg.tanh(1.0); {LOADED}"))
    assert {part_of(module) for module in found} <= {"", "base", "graph", "errors", "ops", "xp"}


def test_the_command_s_help_needs_parsers() -> None:
    text = f"""
import contextlib, io, json, sys
from stopgrad.tools.cli import main
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
    main(["--help"])
heavy = [m for m in (*{HEAVY!r}, "rich") if m in sys.modules]
assert not heavy, heavy
{LOADED}
"""
    assert len(json.loads(python(text))) <= 36


def test_what_is_imported_later_is_what_type_checkers_read() -> None:
    checked = {}
    for node, _ in statements(MODULES["stopgrad"]):
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            for line in node.body:
                assert isinstance(line, ast.ImportFrom), ast.unparse(line)
                assert all(alias.asname == alias.name for alias in line.names if alias.name != "*")
                module = str(line.module).removeprefix("stopgrad").removeprefix(".")
                checked |= {alias.name: module for alias in line.names}
    assert checked.pop("*") == "ops.functions"
    assert checked == sg._MODULE  # type: ignore[attr-defined]


def test_names_are_there_before_they_are_used() -> None:
    text = """
import json, sys, stopgrad as sg
there = [sg.__all__, dir(sg)]
from stopgrad import *
taken = [name for name in dir(sg) if name in globals()]
print(json.dumps([*there, taken, [name for name in dir(sg) if not hasattr(sg, name)]]))
"""
    star, listed, taken, missing = json.loads(python(text))
    assert {"tanh", "grad", "Session", "explain", "float32", "xp", "errors"} <= set(star) <= set(listed)
    assert set(star) <= set(taken)
    assert not missing


THREADS = """
import threading
import stopgrad as sg
names = ["tanh", "grad", "Session", "explain", "xp", "scan", "Mesh", "optimizers"]
start = threading.Barrier(4 * len(names))
found = {name: set() for name in names}
def use(name):
    start.wait()
    found[name].add(id(getattr(sg, name)))
threads = [threading.Thread(target=use, args=(name,)) for name in names for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print([len(one) for one in found.values()])
"""


def test_threads_that_use_a_name_first_at_once_get_the_same() -> None:
    assert python(THREADS).strip() == str([1] * 8)


def test_a_graph_that_is_read_first_has_its_operations_and_methods() -> None:
    text = """
import stopgrad as sg
graph = sg.Graph.from_text("x: float32[n] = Placeholder(dtype=float32, shape=(n,))")
x = graph.operations[0].outputs[0]
(dy,) = graph.add_gradients((x * x).sum(), [x])
print(graph.to_text())
"""
    assert "Mul(" in python(text)


INTERRUPTED = """
import sys, stopgrad as sg
from importlib.abc import MetaPathFinder
class Interrupt(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == sys.argv[1]:
            sys.meta_path.remove(self)
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupt())
try:
    use()
except KeyboardInterrupt:
    print("interrupted")
print(use())
"""


def test_what_was_interrupted_is_imported_again() -> None:
    for module, use in {
        "stopgrad.ops.linalg.norms": "sg.tanh(0.0)",
        "stopgrad.ops.xp.support": "sg.tanh(0.0)",
        "stopgrad.transforms.control.scans": "float(sg.fori_loop(0, 3, lambda i, x: x, 0.0))",
        "stopgrad.engines.xla": "float(sg.function(lambda x: x * x, engine='numpy')(0.0))",
    }.items():
        text = INTERRUPTED.replace("use()", use).replace("sys.argv[1]", repr(module))
        assert python(text).split() == ["interrupted", "0.0"], module


def test_building_differentiating_and_running_on_numpy_imports_nothing_heavy() -> None:
    text = f"""
import sys
import numpy as np
import stopgrad as sg
with sg.Graph().as_default() as graph:
    w = sg.parameter(np.ones((3, 2)))
    x = sg.placeholder(sg.float64, ["n", 3])
    loss = sg.reduce_mean(sg.square(sg.tanh(x @ w)))
    (dw,) = sg.gradients(loss, [w])
    step = sg.assign(w, w - dw)
with sg.Session(graph, engine="numpy") as session:
    session.run([loss, step], {{x: np.ones((4, 3))}})
sg.explain(loss, [w]).to_text()
print([m for m in {HEAVY!r} if m in sys.modules])
"""
    assert python(text).strip() == "[]"


IMPORT_EACH_FIRST = """
import importlib, json, sys, types

def alone(module):
    '''The error of importing a module where nothing else of the package has been: its __init__ neither.'''
    for name in [name for name in sys.modules if name.partition('.')[0] == 'stopgrad']:
        del sys.modules[name]
    bare = sys.modules['stopgrad'] = types.ModuleType('stopgrad')
    bare.__path__ = [sys.argv[1]]
    try:
        importlib.import_module(module)
    except Exception as error:
        return repr(error)
    assert sys.modules['stopgrad'] is bare

print(json.dumps({module: alone(module) for module in sys.argv[2:]}))
"""


def python_with(script: str, *arguments: str) -> str:
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout


def imported_alone(home: Path, modules: list[str]) -> dict[str, str | None]:
    return json.loads(python_with(IMPORT_EACH_FIRST, str(home), *modules))


@pytest.mark.slow
@pytest.mark.nightly
def test_every_module_can_be_imported_first() -> None:
    """What stands above the package itself; the recipes and the command import the package, as users do."""
    above = [module for module in MODULES if LEVEL[part_of(module)] < LEVEL[""]]
    # Whichever module of operations comes first, their package imports all, in its own order.
    above = [module for module in above if not module.startswith("stopgrad.ops.")]
    assert len(above) > 40
    failed = {module: error for module, error in imported_alone(HOME, above).items() if error is not None}
    assert not failed


def test_sessions_and_functions_import_nothing_that_only_meshes_and_checkpoints_need() -> None:
    script = IMPORT_EACH_FIRST + "print(json.dumps([m for m in sys.modules if m.startswith('stopgrad.')]))"
    above = ("stopgrad.scale.", "stopgrad.flow.", "stopgrad.train.")
    late = {"stopgrad.engines.meshes", "stopgrad.engines.xla.on_meshes", "stopgrad.run.session_folders"}
    assert late <= MODULES.keys()
    for module in ("stopgrad.run.session", "stopgrad.run.function"):
        errors, loaded = map(json.loads, python_with(script, str(HOME), module).splitlines())
        assert errors == {module: None}
        assert module in loaded
        assert [one for one in loaded if one.startswith(above)] == ["stopgrad.scale.processes"]
        assert late.isdisjoint(loaded)


def test_a_module_that_needs_another_to_be_imported_first_is_seen(tmp_path: Path) -> None:
    for name, text in {
        "__init__": "from stopgrad import whole, half, leaning",
        "whole": "a = 1",
        "half": "from stopgrad.other import b\na = 1",
        "other": "from stopgrad.half import a\nb = 2",
        "leaning": "import stopgrad\na = stopgrad.whole.a",
    }.items():
        (tmp_path / f"{name}.py").write_text(text)
    found = imported_alone(tmp_path, ["stopgrad.whole", "stopgrad.half", "stopgrad.leaning"])
    assert found["stopgrad.whole"] is None
    assert "circular import" in (found["stopgrad.half"] or "")
    assert "no attribute 'whole'" in (found["stopgrad.leaning"] or "")


# ------------------------------------------------------------------------------------------------- size


@together("module", MODULES)
def test_a_module_is_under_600_lines(module: str) -> None:
    assert len(MODULES[module].read_text().splitlines()) < 600


def test_functions_have_at_most_60_lines() -> None:
    def lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
        """Without the documentation."""
        doc = node.body[0] if ast.get_docstring(node) else None
        return (
            (node.end_lineno or 0) - node.lineno + 1 - ((doc.end_lineno or 0) - doc.lineno + 1 if doc else 0)
        )

    long = [
        f"{path.name}:{node.lineno} {node.name}: {lines(node)}"
        for path in MODULES.values()
        for node, _ in statements(path)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and lines(node) > 60
    ]
    assert not long


# ------------------------------------------------------------------------------------------ public names

# Operations that stand only inside generated gradients or behind another operation's function.
INNER = {name for name in REGISTRY if name.endswith("Grad") or "Backprop" in name} | {
    *("Fft", "Rfft", "Irfft"),  # in the namespace sg.xp.fft, of the array API
    "Adjugate",
    "BetaMoment",
    "ImplicitLogGamma",
    "LogGammaMoment",
    "Ensure",
    "Foreign",
    "ForeignStop",
    "Named",
    "RandomLogGamma",
    "RandomPoisson",
    "ScatterAddAlongAxis",
    "StopGradientTowards",
    "StopGradientWhen",
    "TensorStridedSliceUpdate",
}


@together("name", [name for name in REGISTRY if name not in INNER])
def test_an_operations_function_is_public(name: str) -> None:
    function = REGISTRY[name].function
    assert getattr(sg, function.__name__, None) is function, (
        f"sg.{function.__name__} is not {name}'s function"
    )


@together("name", REGISTRY)
def test_an_operations_class_is_found_by_its_type(name: str) -> None:
    assert getattr(sg.ops, name) is REGISTRY[name]


def test_no_public_name_hides_another_by_accident() -> None:
    seen: dict[str, str] = {}
    for module, path in MODULES.items():
        others = ("stopgrad.ops.xp", "stopgrad.ops.namespaces")
        if part_of(module) != "ops" or module == "stopgrad.ops" or module.startswith(others):
            continue
        for node, _ in statements(path):
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
                for name in ast.literal_eval(node.value):
                    assert name not in seen, f"{name} is exported by {seen[name]} and {module}"
                    seen[name] = module
    assert len(seen) > 100

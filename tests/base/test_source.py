"""Where in the user's file: the very line and the very sub-expression."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from installed import installed

import stopgrad as sg
from stopgrad.base.source import (
    BETWEEN,
    INSTALLED,
    OURS,
    OWN,
    STANDARD,
    Location,
    called,
    capture,
    decode,
    in_library,
    is_internal,
    kind_of,
)


def built(text: str, tmp_path: Path) -> dict[str, Any]:
    """Run *text* as a file of its own, in a graph with a vector x and a matrix m."""
    file = tmp_path / "user.py"
    file.write_text(textwrap.dedent(text))
    graph = sg.Graph()
    with graph.as_default():
        names: dict[str, Any] = {
            "sg": sg,
            "np": np,
            "x": sg.placeholder(sg.float32, [3], name="x"),
            "m": sg.placeholder(sg.float32, [3, 3], name="m"),
            "i": sg.placeholder(sg.int32, [3], name="i"),
            "b": sg.placeholder(sg.bool, [3], name="b"),
        }
        exec(compile(file.read_text(), str(file), "exec"), names)
    return names


def where(y: Any) -> tuple[int, str]:
    location = y.as_output().op.location
    assert Path(location.file).name == "user.py"
    return location.line, location.source


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("y = x * 2.0 + x / (x - 1.0)", "x * 2.0 + x / (x - 1.0)"),
        ("y = sg.exp(x + 1.0)", "sg.exp(x + 1.0)"),
        ("y = 1.0 - x", "1.0 - x"),
        ("y = -x", "-x"),
        ("y = abs(x)", "abs(x)"),
        ("y = ~b", "~b"),
        ("y = x ** 2.0", "x ** 2.0"),
        ("y = m @ m", "m @ m"),
        ("y = i // 2 % 3", "i // 2 % 3"),
        ("y = x < 1.0", "x < 1.0"),
        ("y = x[1:]", "x[1:]"),
        ("y = m.T", "m.T"),
        ("y = np.ones(3, np.float32) * x", "np.ones(3, np.float32) * x"),
        ("y = [sg.sin(v) for v in (x, m)][1]", "sg.sin(v)"),
        ("y = (lambda v: sg.cos(v) + 0.0)(x).op.inputs[0]", "sg.cos(v)"),
        ("y = sg.reduce_sum(sg.square(x))", "sg.reduce_sum(sg.square(x))"),
        ("y = sg.reduce_sum(sg.square(x)).op.inputs[0]", "sg.square(x)"),
        ("y = x; y += 1.0", "y += 1.0"),
        ("y = 'ä' and x * 3.0", "x * 3.0"),
        ("y = sg.ops.Exp.create(sg.Scope(x.graph), x)", "sg.ops.Exp.create(sg.Scope(x.graph), x)"),
        ("y = max([x, x * 4.0], key=lambda v: v.op.id)", "x * 4.0"),
        ("y = sg.stop_gradient({'a': x})['a']", "sg.stop_gradient({'a': x})"),
    ],
)
def test_the_location_is_the_sub_expression_that_built(text: str, source: str, tmp_path: Path) -> None:
    names = built("\n\n" + text + "\n", tmp_path)
    assert where(names["y"]) == (3, source)


def test_an_expression_over_several_lines_has_the_line_of_its_own_part(tmp_path: Path) -> None:
    names = built(
        """
        y = (
            sg.exp(x)
            + sg.log(
                x
            )
        )
        """,
        tmp_path,
    )
    plus = names["y"].op
    assert where(plus.inputs[0]) == (3, "sg.exp(x)")
    assert where(plus.inputs[1])[0] == 4
    assert plus.location.line == 3
    assert plus.location.end_line == 6


def test_a_helpers_line_counts_not_its_callers(tmp_path: Path) -> None:
    names = built(
        """
        def helper(v):
            return v * 5.0

        y = helper(x)
        """,
        tmp_path,
    )
    assert where(names["y"]) == (3, "v * 5.0")
    assert names["y"].op.location.function == "helper"


def test_calls_through_numpy_and_context_managers_have_the_users_line(tmp_path: Path) -> None:
    names = built(
        """
        with sg.no_gradient():
            hidden = sg.exp(x)
        y = hidden * 2.0
        """,
        tmp_path,
    )
    gate = names["y"].op.inputs[0].op
    assert gate.type == "StopGradient"
    assert where(gate)[0] == 2  # the block that hides it, not the line that uses it


def test_a_gradient_operation_has_its_forward_operations_location(tmp_path: Path) -> None:
    names = built(
        """
        inner = sg.tanh(x)
        loss = sg.reduce_sum(inner * x)
        (g,) = sg.gradients(loss, [x])
        (h,) = sg.gradients(sg.reduce_sum(g), [x])
        """,
        tmp_path,
    )
    graph, forward = names["x"].graph, names["loss"].op.id
    made = [op for op in graph.operations if op.id > forward and op.origin is not None]
    assert {op.origin.type for op in made} >= {"Tanh", "Mul", "Sum"}
    for op in made:
        root = op
        while root.origin is not None:
            root = root.origin
        assert op.location.line == root.location.line
    assert all(op.location.line == 2 for op in made if op.origin.type == "Tanh")
    second = [op for op in made if op.origin.origin is not None]
    assert second
    assert all(op.location.line in (2, 3) for op in second)


def test_the_recipes_count_as_the_users_own_text() -> None:
    home = Path(sg.__file__).parent
    assert is_internal(str(home / "graph" / "graph.py"))
    assert is_internal(str(home / "ops" / "gates" / "stopping.py"))
    assert not is_internal(str(home / "tools" / "recipes" / "softmax.py"))
    assert not is_internal(__file__)
    assert is_internal(np.__file__)


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        ("/home/me/train.py", OWN),
        ("train.py", OWN),
        ("<stdin>", OWN),
        ("<ipython-input-3-abc>", OWN),
        (str(Path(sg.__file__).parent / "tools" / "recipes" / "softmax.py"), OWN),
        ("/opt/venv/lib/python3.12/site-packages/einops/_backends.py", INSTALLED),
        ("/usr/lib/python3/dist-packages/six.py", INSTALLED),
        (r"C:\venv\Lib\site-packages\einops\einops.py", INSTALLED),
        (textwrap.__file__, STANDARD),
        ("<frozen importlib._bootstrap>", STANDARD),
        ("<@beartype(f) at 0x7f>", STANDARD),
        (np.__file__, BETWEEN),
        (str(Path(sg.__file__).parent / "graph" / "graph.py"), OURS),
    ],
)
def test_whose_a_file_is(file: str, kind: int) -> None:
    assert kind_of(file) == kind


def test_a_file_of_a_library_is_named_from_the_librarys_name_on() -> None:
    assert (
        in_library("/opt/venv/lib/python3.12/site-packages/einops/layers/torch.py")
        == "einops/layers/torch.py"
    )
    assert in_library("/usr/lib/python3/dist-packages/six.py") == "six.py"
    assert in_library(textwrap.__file__) == "textwrap.py"
    assert in_library(__file__) == ""


def code_of(file: str, name: str = "f") -> Any:
    """The code of a function in a file."""
    made: dict[str, Any] = {}
    exec(compile(f"def {name}(): pass", file, "exec"), made)
    return made[name].__code__


def chain(raw: Any) -> list[tuple[str, bool]]:
    """The files of a place and its callers, each with whether its caller is the cause."""
    at, found = decode(raw), []
    while at is not None:
        found.append((Path(at.file).name, at.asks))
        at = at.caller
    return found


PACKAGES = "/opt/venv/lib/python3.12/site-packages"
MODULES = "/opt/modules.py"


@pytest.mark.parametrize(
    ("outer", "expected"),
    [
        # A helper that the own code calls; one that calls another; a generated wrapper between.
        (["/me/net.py", "/me/train.py"], [("base.py", True), ("net.py", False)]),
        ([f"{PACKAGES}/help/more.py", "<@beartype>", "/me/net.py"], [("base.py", True), ("net.py", False)]),
        ([f"{PACKAGES}/other/use.py", "/me/net.py"], [("base.py", True), ("net.py", False)]),
        # Nobody's own code.
        ([f"{PACKAGES}/help/more.py"], [("base.py", False)]),
        ([], [("base.py", False)]),
        # A whole model; a model within the own one.
        ([MODULES, "/me/train.py"], [("base.py", False), ("train.py", False)]),
        ([MODULES, "/me/net.py", MODULES, "/me/train.py"], [("base.py", True), ("net.py", False)]),
        # A helper of a library's model.
        (
            [f"forward {PACKAGES}/model/net.py", MODULES, "/me/train.py"],
            [("base.py", True), ("net.py", False), ("train.py", False)],
        ),
        (
            [f"{PACKAGES}/model/part.py", f"forward {PACKAGES}/model/net.py", MODULES],
            [("base.py", True), ("part.py", False)],
        ),
        # A wrapper around the forward of a library's model is no model of which it is a helper.
        (
            [f"forward {PACKAGES}/help/net.py", f"{PACKAGES}/other/wrap.py", MODULES, "/me/train.py"],
            [("base.py", False), ("train.py", False)],
        ),
    ],
)
def test_the_line_that_is_the_cause_of_what_a_library_does(
    outer: list[str], expected: list[tuple[str, bool]]
) -> None:
    frames = []
    for one in outer:
        name, _, file = one.rpartition(" ") if one.startswith("forward") else ("f", "", one)
        frames.append((code_of(file, name), 0))
    assert chain(called(code_of(f"{PACKAGES}/help/base.py"), 0, frames, MODULES)) == expected


def test_equal_places_with_callers_are_one_object() -> None:
    library, own = code_of(f"{PACKAGES}/help/base.py"), code_of("/me/net.py")
    first, second = (called(library, 0, [(own, 0)]) for _ in range(2))
    assert first[0] is second[0]
    assert called(library, 0, [(own, 2)])[0] is not first[0]


def test_own_code_has_no_caller() -> None:
    own = code_of("/me/net.py")
    assert called(own, 0, [(code_of("/me/train.py"), 0)]) == (own, 0)


def test_an_operation_that_a_librarys_helper_builds_has_the_line_that_called_it(tmp_path: Path) -> None:
    helper = installed(
        tmp_path, "helper/gates.py", "import stopgrad as sg\ncut = lambda x: sg.stop_gradient(x)\n"
    )
    with sg.Graph().as_default():
        x = sg.placeholder(sg.float32, [3], name="x")
        y = helper.cut(x) * x
        flow = sg.explain(y, [x])
    location = flow[x].cuts[0].location
    assert location is not None
    assert location.file == helper.__file__
    assert Path(location.cause.file) == Path(__file__)
    assert location.cause.source == "helper.cut(x)"
    assert ", in helper/gates.py:2\n" in flow.to_text(width=120)


def test_a_place_that_cannot_be_read_is_still_a_place() -> None:
    place = Location("/nowhere/user.py", 7)
    assert place.source == ""
    assert place.describe() == "/nowhere/user.py:7"


def test_code_without_a_file_has_a_line(tmp_path: Path) -> None:
    graph = sg.Graph()
    names: dict[str, Any] = {"sg": sg}
    with graph.as_default():
        exec("x = sg.placeholder(sg.float32)\n\ny = sg.exp(x)", names)
    location = names["y"].op.location
    assert (location.file, location.line) == ("<string>", 3)
    assert location.describe() == "<string>:3"


def test_capture_is_of_the_instruction() -> None:
    def outer() -> Any:
        return capture()

    raw = outer()
    assert raw is not None
    assert decode(raw).source == "outer()"
    assert decode(raw).function == "test_capture_is_of_the_instruction"


def test_an_error_gives_the_line_once() -> None:
    with sg.Graph().as_default():
        x = sg.placeholder(sg.float32, [3])
        with pytest.raises(sg.ShapeError) as caught:
            sg.reshape(x, [4])
    text = str(caught.value)
    assert text.count("sg.reshape(x, [4])") == 1
    assert text.endswith(": sg.reshape(x, [4])")
    assert "sg.reshape(x, [4])" not in caught.value.message

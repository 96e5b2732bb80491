"""The command, before it asks: files loaded as Python would, functions found in them, and their inputs."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import pytest
from stopgrad.errors import ArgumentError, StopgradError

import stopgrad as sg
from stopgrad.tools import cli
from stopgrad.tools.cli.annotations import shape_option, type_from
from stopgrad.tools.cli.call_arguments import Call, Wanted, call_of
from stopgrad.tools.cli.user_programs import loaded

HEAD = """\
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, TypedDict

import numpy as np

import stopgrad as sg

"""

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a file of the user's into the folder that is worked in."""
    monkeypatch.chdir(tmp_path)

    def write(text: str, name: str = "program.py", head: str = HEAD) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(head + textwrap.dedent(text))
        return path

    return write


def call(
    target: str, *shapes: str, example: str | None = None, argnums: Any = None, seed: int | None = None
) -> Call:
    """What the command would ask of a target."""
    with loaded(target) as program:
        return call_of(program, Wanted([shape_option(text) for text in shapes], example, argnums, seed))


def statuses(target: str, *shapes: str, **options: Any) -> dict[str, str]:
    asked = call(target, *shapes, **options)
    flow = sg.explain(*asked.args, **asked.options)
    return {label: str(flow[label].status) for label in flow.xs}


def refused(target: str, *shapes: str, **options: Any) -> str:
    with pytest.raises(StopgradError) as error:
        call(target, *shapes, **options)
    return error.value.message


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What the command says on standard error where it could not do what it was asked."""
    assert cli.main(arguments) == cli.ERROR
    out, err = capsys.readouterr()
    assert out == ""
    return err


def one_line(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    text = printed(capsys, *arguments)
    assert text.startswith("stopgrad: ")
    assert text.count("\n") == 1
    return text


# ------------------------------------------------------------------------------------- files and names


def test_a_file_runs_as_a_module_of_its_own_name_beside_its_neighbours(write: Write) -> None:
    write("factor = 3.0", "neighbour_of_one.py", head="")
    write(
        """
        import sys
        import neighbour_of_one
        assert __name__ == "one" and sys.modules["one"].__file__ == __file__
        assert sys.argv == ["folder/one.py"]

        def loss(x: "float32[3]"):
            import neighbour_of_one_late
            return x * neighbour_of_one.factor
        """.replace("neighbour_of_one_late", "neighbour_of_one"),
        "folder/one.py",
    )
    (Path("folder") / "neighbour_of_one.py").write_text("factor = 2.0")
    path, argv = list(sys.path), list(sys.argv)
    assert statuses("folder/one.py:loss") == {"x": "flows"}
    assert (sys.path, sys.argv) == (path, argv)
    assert "one" not in sys.modules
    assert sorted(p.name for p in Path("folder").iterdir() if p.suffix == ".py") == [
        "neighbour_of_one.py",
        "one.py",
    ]
    assert not list(Path("folder").glob("__pycache__/one*"))


def test_a_file_called_as_a_module_is_loaded_beside_that(write: Write) -> None:
    json = sys.modules["json"]
    write('def loss(x: "float32[]"): return x', "json.py")
    assert statuses("json.py:loss") == {"x": "flows"}
    assert sys.modules["json"] is json


def test_a_module_is_named_with_dots(write: Write) -> None:
    write("", "a_package_of_ours/__init__.py", head="")
    write("half = 0.5", "a_package_of_ours/numbers.py", head="")
    write(
        'from .numbers import half\ndef loss(x: "float32[2]"): return half * x',
        "a_package_of_ours/losses.py",
        head="",
    )
    assert statuses("a_package_of_ours.losses:loss") == {"x": "flows"}
    del sys.modules["a_package_of_ours"], sys.modules["a_package_of_ours.losses"]
    says = refused("a_package_of_ours/losses.py:loss")
    assert "belongs to a package" in says
    assert "package.module:function" in says


def test_methods_of_instances_outputs_and_compiled_functions_are_found(write: Write) -> None:
    write(
        """
        class Model:
            def __init__(self, factor): self.factor = factor
            def loss(self, x: "float32[3]"): return self.factor * x
            @staticmethod
            def plain(x: "float32[3]"): return sg.stop_gradient(x)

        model = Model(2.0)

        @sg.function
        def compiled(x: "float32[n]"): return sg.exp(x)

        with sg.Graph().as_default():
            w = sg.parameter(np.ones(3), name="w")
            total = sg.reduce_sum(w)
        """
    )
    assert statuses("program.py:model.loss") == {"x": "flows"}
    assert statuses("program.py:Model.plain") == {"x": "stopped"}
    assert statuses("program.py:compiled") == {"x": "flows"}
    assert statuses("program.py:total") == {"w:0": "flows"}
    says = refused("program.py:Model.loss")
    assert "is a method, which needs an instance" in says
    assert "program.py:model.loss" in says


BAD_TARGETS = [
    ("absent.py:loss", "there is no file absent.py"),
    ("progam.py:loss", "there is no file progam.py; there is program.py"),
    ("folder:loss", "folder is a folder; name it as path.py:function"),
    ("no_such_package.losses:loss", "there is no module no_such_package"),
    (":loss", "names no file"),
    ("program.py", "which function? program.py has loss, lost, later, parts; name one: program.py:loss"),
    ("program.py:", "which function? program.py has loss, lost, later, parts"),
    ("program.py:loss2", "program.py has no 'loss2'; did you mean loss?"),
    ("program.py:frobnicate", "program.py has no 'frobnicate'; program.py has loss, lost, later, parts"),
    ("program.py:loss.nothing", "program.py has no 'loss.nothing'"),
    ("program.py:Thing", "is a class, and no function"),
    ("program.py:number", "is a int, and no function"),
    ("program.py:later", "is a coroutine"),
    ("program.py:parts", "is a generator"),
]


@pytest.mark.parametrize(("target", "says"), BAD_TARGETS, ids=[target for target, _ in BAD_TARGETS])
def test_what_is_not_there_is_said_in_a_line(
    target: str, says: str, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    write(
        """
        number = 3
        class Thing: pass
        def loss(x): return x
        def lost(x): return x
        def _own(x): return x
        async def later(x): return x
        def parts(x): yield x
        """
    )
    Path("folder").mkdir()
    assert says in one_line(capsys, "explain", target)


def test_a_file_that_ends_the_program_says_so(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write("import sys\nsys.exit(3)\ndef loss(x): return x")
    says = one_line(capsys, "explain", "program.py:loss", "--shape", "x=3")
    assert "ends the program (exit status 3)" in says
    assert "__main__" in says


def test_a_file_that_is_no_python_is_shown_where(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write("def loss(x) return x", head="")
    says = printed(capsys, "explain", "program.py:loss")
    assert "def loss(x) return x" in says
    assert says.endswith("stopgrad: program.py:1: this is no Python: expected ':'\n")
    Path("program.py").write_bytes(b"x = 1\0\n")
    assert "no Python" in printed(capsys, "explain", "program.py:loss")


def test_what_the_file_raises_is_traced_through_the_files_own_lines(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    write(
        """
        def inner(x):
            try:
                return {}["a key"]
            except KeyError as error:
                raise RuntimeError("no key") from error

        def loss(x: "float32[3]"):
            return sg.cond(True, lambda: inner(x), lambda: x)
        """
    )
    says = printed(capsys, "explain", "program.py:loss")
    files = re.findall(r'File "([^"]+)"', says)
    assert {Path(file).name for file in files} == {"program.py"}
    assert len(files) >= 3
    assert "KeyError: 'a key'" in says
    assert "The above exception was the direct cause" in says
    assert says.endswith("stopgrad: program.py:13: RuntimeError: no key\n")


def test_an_operation_that_refuses_names_the_users_line(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    write('def loss(x: "float32[3]"):\n    return sg.reshape(x, [2, 2])')
    says = printed(capsys, "explain", "program.py:loss")
    assert says.startswith("stopgrad: program.py:9: Reshape: ")
    assert "Traceback" not in says


def test_what_is_wrong_with_the_function_names_its_line(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    write('def loss(x: "float32[3]"):\n    return None')
    says = one_line(capsys, "explain", "program.py:loss")
    assert says.startswith("stopgrad: program.py:8: explain: the function returned no tensor")


def test_a_defect_of_the_command_is_none_of_the_users_nor_a_finding(
    monkeypatch: pytest.MonkeyPatch, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    write('def loss(x: "float32[3]"): return x')

    def broken(*_: Any) -> None:
        raise AssertionError("ours")

    ours = FunctionType(broken.__code__.replace(co_filename=cli.__file__), broken.__globals__)
    monkeypatch.setattr("stopgrad.tools.cli.flow.explained", ours)
    says = printed(capsys, "explain", "program.py:loss")
    assert "AssertionError: ours" in says
    assert says.endswith("stopgrad: this is a defect of stopgrad, please report it\n")


# ------------------------------------------------------------------------------------------- the inputs


def test_texts_of_types() -> None:
    assert repr(type_from(" float64 [ batch, 3 ] ")) == "float64[batch, 3]"
    assert repr(type_from("int64")) == "int64[]"
    assert repr(type_from("[]")) == "float32[]"
    assert repr(shape_option("x=(2, 3)")[1]) == "float32[2, 3]"
    assert repr(shape_option("x=2,:int8")[1]) == "int8[2]"
    assert repr(shape_option("x=bfloat16[n]")[1]) == "bfloat16[n]"
    assert shape_option('params["layers"][0].w=2')[0] == "params.layers.0.w"
    for text in ("Params", "list[int]", "float", "", "float32[3", "array"):
        assert type_from(text) is None, text


BAD_SHAPES = [
    ("x", "write name=sizes"),
    ("=3", "write name=sizes"),
    ("x=3:float23", "'float23' is no element type"),
    ("x=-3", "negative"),
    ("x=a-b", "cannot name a size"),
    ("x=2.5", "cannot name a size"),
    ("q=3", "'q', but program.py:loss has the parameters x, params"),
    ("params.w=3", "'params.w', but there are params.a, params.b"),
]


@pytest.mark.parametrize(("text", "says"), BAD_SHAPES, ids=[text for text, _ in BAD_SHAPES])
def test_a_shape_that_means_nothing_is_refused(
    text: str, says: str, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    write(
        """
        def loss(x, params={"a": np.ones(2), "b": np.ones(2)}): return x
        """
    )
    found = one_line(capsys, "explain", "program.py:loss", "--shape", text)
    assert "--shape" in found
    assert says in found


ANNOTATED = {
    "a text": '"float32[3, 2]"',
    "Annotated": 'Annotated[np.ndarray, "float32[3, 2]"]',
    "Annotated with a type": "Annotated[Any, np.zeros((3, 2), np.float32)]",
    "a type": "Shape",
}


@pytest.mark.parametrize("postponed", [False, True], ids=["", "postponed"])
@pytest.mark.parametrize("annotation", ANNOTATED.values(), ids=ANNOTATED)
def test_annotations_say_shapes(annotation: str, postponed: bool, write: Write) -> None:
    head = "from __future__ import annotations\n" if postponed else ""
    write(
        f"""
        Shape = sg.base.types.tensor_type(sg.float32, (3, 2))
        def loss(x: {annotation}):
            assert x.shape == (3, 2) and x.dtype is sg.float32
            return x
        """,
        head=head + HEAD,
    )
    assert statuses("program.py:loss") == {"x": "flows"}


def test_an_annotation_with_a_shape_and_no_dtype_says_no_shape(write: Write) -> None:
    write(
        """
        class Sized:
            shape = (3, 2)
        def loss(x: Sized()): return x
        """
    )
    assert "says no shape" in refused("program.py:loss")


def test_annotations_of_jaxtyping_say_shapes(write: Write) -> None:
    pytest.importorskip("jaxtyping")
    write(
        """
        from jaxtyping import Array, Float, Float64, Int, Shaped

        def loss(
            x: Float[np.ndarray, "n 3"], w: Float64[Array, "3"], y: Int[Array, "#n"],
            z: Shaped[Array, "c=2 _"], s: Float[Array, ""],
        ):
            return [sg.identity(one) for one in (x, w, y, z, s)]
        def open(x: Float[Array, "*batch 3"]): return x
        def computed(x: Float[Array, "n n+1"]): return x
        """
    )
    values = call("program.py:loss", seed=0).args[1:]
    assert [(x.dtype.name, x.shape) for x in values] == [
        ("float32", (4, 3)),
        ("float64", (3,)),
        ("int64", (4,)),
        ("float32", (2, 5)),
        ("float32", ()),
    ]
    assert "says no shape" in refused("program.py:open")
    assert "says no shape" in refused("program.py:computed")


@pytest.mark.parametrize("postponed", [False, True], ids=["", "postponed"])
def test_structures_are_made_of_their_fields_annotations(postponed: bool, write: Write) -> None:
    head = "from __future__ import annotations\n" if postponed else ""
    write(
        """
        class Layer(NamedTuple):
            w: "float32[3, 2]"
            b: "float32[2]"

        class Batch(TypedDict):
            x: "float32[n, 3]"
            y: "int32[n]"

        @dataclass(frozen=True)
        class Params:
            layer: Layer
            both: tuple["float32[]", "float32[2]"]
            name: str = "a name"
            def __post_init__(self): assert isinstance(self.layer.w, np.ndarray)

        def loss(params: Params, batch: Batch):
            assert params.name == "a name"
            return sg.reduce_sum(batch["x"] @ params.layer.w) * params.both[0]
        """,
        head=head + HEAD,
    )
    assert statuses("program.py:loss") == {
        "params.layer.w": "flows",
        "params.layer.b": "disconnected",
        "params.both.0": "flows",
        "params.both.1": "disconnected",
        "batch.x": "flows",
        "batch.y": "disconnected",
    }


def test_what_comes_first_of_shape_example_annotation_and_default(write: Write) -> None:
    write(
        """
        def loss(a: "float32[1]", b: "float32[1]", c: "float32[1]" = np.ones(4),
                 d=np.ones(5), e=0.5, f: float = 2.0):
            sizes = [x.shape[0] for x in (a, b, c, d)]
            assert sizes == [7, 2, 1, 5], sizes
            return sg.reduce_sum(a) + sg.reduce_sum(b) + sg.reduce_sum(c) + sg.reduce_sum(d) * e

        def loss_example():
            return {"a": np.ones(2), "b": np.ones(2)}
        """
    )
    asked = call("program.py:loss", "a=7", seed=0)
    assert [np.shape(x) for x in asked.args[1:]] == [(7,), (2,), (1,), (5,)]
    assert statuses("program.py:loss", "a=7") == dict.fromkeys("abcd", "flows")
    assert (
        asked.data == "random at seed 0: a float32[7], c float32[1]; b from the example; d from its default"
    )


@pytest.mark.parametrize("name", ["loss_example", "example_loss", "example"])
def test_an_example_is_found_by_its_name(name: str, write: Write) -> None:
    write(f"def loss(x, y): return sg.reduce_sum(x) + y\ndef {name}(): return np.ones(3), 2.0")
    assert statuses("program.py:loss") == {"x": "flows", "y": "flows"}


def test_an_example_may_be_named_and_may_be_of_one_argument(write: Write) -> None:
    write(
        """
        def loss(params): return sg.reduce_sum(params["w"])
        def loss_example(): raise AssertionError("not this one")
        def mine(): return {"w": np.ones(3), "b": np.ones(2)}
        others = ([np.ones(2)],)
        def second(params): return params[0]
        def needs(x): return x
        """
    )
    assert statuses("program.py:loss", example="mine") == {"params.w": "flows", "params.b": "disconnected"}
    assert statuses("program.py:second", example="others") == {"params.0": "flows"}
    assert "has no 'absent'" in refused("program.py:loss", example="absent")


def test_an_example_that_does_not_fit_says_so(write: Write) -> None:
    write("def loss(x, y): return x\ndef example(): return 1.0, 2.0, 3.0")
    says = refused("program.py:loss")
    assert "the example example does not fit program.py:loss(x, y)" in says
    assert "a tuple of the arguments, or a dict of them by name" in says


def test_parts_of_an_argument_are_given_alone_or_in_the_place_of_others(write: Write) -> None:
    write(
        """
        def loss(params, layers):
            assert layers[1]["w"].shape == (2,)
            return sg.reduce_sum(params["w"]) + layers[0]["w"] * params["b"]
        def shaped(params={"w": np.ones(3), "b": np.ones(2)}):
            assert params["w"].shape == (4,) and params["b"].shape == (2,)
            return params["w"]
        """
    )
    shapes = ("params.w=3", "params.b=", "layers.0.w=", "layers.1.w=2")
    assert statuses("program.py:loss", *shapes) == {
        "params.b": "flows",
        "params.w": "flows",
        "layers.0.w": "flows",
        "layers.1.w": "disconnected",
    }
    assert statuses("program.py:shaped", "params.w=4") == {"params.b": "disconnected", "params.w": "flows"}
    for twice in (["params=3", "params.w=3"], ["params.w=3", "params.w=3"], ["params.w=3", "params.w.u=3"]):
        assert "params" in refused("program.py:loss", *twice, "layers=3")


def test_arguments_by_keyword_by_star_and_between_defaults_are_asked_about(write: Write) -> None:
    write(
        """
        def loss(x, rate=0.5, *more, y: "float32[2]", z=np.ones(2), **rest):
            assert rate == 0.5 and len(more) in (0, 2) and set(rest) <= {"u"}
            return sg.reduce_sum(x) * rate + sg.stop_gradient(y) + z + sum(more) + rest.get("u", 0.0)
        def first(a, b="text", c: "float32[2]" = None): return a + c if b == "text" else a
        def example_first(): return {"a": np.ones(2)}
        def all_of_it(): return {"x": np.ones(2), "y": np.ones(2), "u": np.ones(2)}
        """
    )
    assert statuses("program.py:loss", "x=2") == {"x": "flows", "y": "stopped", "z": "flows"}
    asked = {"x": "flows", "more.0": "flows", "more.1": "flows", "y": "stopped", "z": "flows"}
    assert statuses("program.py:loss", "x=2", "more.0=2", "more.1=2") == asked
    found = statuses("program.py:loss", example="all_of_it")
    assert found == {"x": "flows", "y": "stopped", "z": "flows", "rest.u": "flows"}
    assert statuses("program.py:first") == {"a": "flows", "c": "flows"}


def test_argnums_count_the_functions_own_arguments(write: Write) -> None:
    write('def loss(a: "float32[2]", b=0.5, *, c: "float32[2]"): return a * b * c')
    assert statuses("program.py:loss", argnums=[2]) == {"c": "flows"}
    assert statuses("program.py:loss", argnums=[1, 0]) == {"b": "flows", "a": "flows"}
    assert "the arguments of program.py:loss are 0 a, 1 b, 2 c" in refused("program.py:loss", argnums=[3])


def test_an_argument_without_a_source_is_named_with_the_three_cures(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    write("def loss(x: np.ndarray, y: 'float32[2]', z):\n    return x\ndef only(*, k):\n    return k")
    says = one_line(capsys, "explain", "program.py:loss")
    assert says.startswith("stopgrad: program.py:8: loss: nothing says what x, z are")
    assert "its annotation numpy.ndarray says no shape" in says
    assert "--shape x=2,3" in says
    assert 'x: "float32[n, 3]"' in says
    assert "def loss_example(): return (x, y, z)" in says
    assert "def only_example(): return dict(k=...)" in refused("program.py:only")


def test_whole_numbers_and_texts_need_a_value_and_floats_do_not(write: Write) -> None:
    write(
        "def loss(x: float, y: np.float64, z: complex): return x * y\n"
        "def power(x: float, n: int): return x**n"
    )
    assert statuses("program.py:loss") == {"x": "flows", "y": "flows", "z": "disconnected"}
    assert "nothing says what n is" in refused("program.py:power")


# ------------------------------------------------------------------------------------- sizes and data


def test_sizes_stay_open_where_nothing_is_computed(write: Write) -> None:
    write(
        """
        def loss(x: "float32[n, 3]", w: "float32[3, ?]", y: "float32[n]"):
            assert isinstance(x.shape[0], sg.Dim) and x.shape[0] == y.shape[0]
            return sg.reduce_sum(x @ w) + sg.reduce_sum(y)
        """
    )
    assert statuses("program.py:loss") == {"x": "flows", "w": "flows", "y": "flows"}


def test_a_function_that_needs_numbers_says_how_to_give_them(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    write('def loss(x: "float32[n, 3]"):\n    return sum(x[i] for i in range(x.shape[0]))')
    says = one_line(capsys, "explain", "program.py:loss")
    assert says.startswith("stopgrad: program.py:9: ")
    assert says.endswith("or give numbers: --shape x=4,3\n")
    assert statuses("program.py:loss", "x=4,3") == {"x": "flows"}


def test_open_sizes_get_small_different_numbers_and_data_that_the_seed_tells(write: Write) -> None:
    write(
        """
        def loss(x: "float32[n, 3]", w: "float64[3, m]", y: "int64[n]", z: "complex64[?]", on: "bool[]"):
            return sg.reduce_sum(x)
        """
    )
    _, x, w, y, z, on = call("program.py:loss", seed=1).args
    assert [a.shape for a in (x, w, y, z, on)] == [(4, 3), (3, 5), (4,), (6,), ()]
    assert [a.dtype.name for a in (x, w, y, z, on)] == ["float32", "float64", "int64", "complex64", "bool"]
    assert set(np.unique(y)) <= {0, 1}
    assert call("program.py:loss", seed=1).data == (
        "random at seed 1 with n = 4, m = 5, ? = 6: x float32[4, 3], w float64[3, 5], y int64[4], "
        "z complex64[6], on bool[]"
    )
    np.testing.assert_array_equal(x, call("program.py:loss", seed=1).args[1])
    assert not np.array_equal(x, call("program.py:loss", seed=2).args[1])


@pytest.mark.parametrize("seed", [None, 0])
def test_a_size_that_one_argument_tells_is_that_of_the_others(seed: int | None, write: Write) -> None:
    write(
        """
        def loss(x: "float32[n, 3]", y: "float32[n]"):
            return sg.reduce_sum(x, axis=1) * y
        def some(): return (np.ones((9, 3)),)
        """
    )
    assert call("program.py:loss", "x=7,3", seed=seed).args[2].shape == (7,)
    assert call("program.py:loss", example="some", seed=seed).args[2].shape == (9,)


def test_annotations_are_read_where_the_function_is_defined(write: Write) -> None:
    write(
        """
        Rows = sg.base.types.tensor_type(sg.float32, (sg.base.types.dim("n"), 3))
        def loss(x: "Rows", y: "float32[n]"): return sg.reduce_sum(x, axis=1) * y
        """,
        "a_file_of_ours.py",
    )
    write("from a_file_of_ours import loss", head="")
    assert call("program.py:loss", "x=7,3").args[2].shape == (7,)
    del sys.modules["a_file_of_ours"]


# --------------------------------------------------------------------------------------------- graphs

GRAPHS = """
    def build():
        x = sg.placeholder(sg.float32, ["n", 3], name="x")
        y = sg.placeholder(sg.float32, ["n"], name="y")
        w = sg.parameter(np.ones(3, np.float32), name="w")
        unused = sg.parameter(np.ones(3, np.float32), name="unused")
        return sg.reduce_sum(sg.reduce_sum(x * w, axis=1) * y)
    def pair():
        x = sg.placeholder(sg.float32, [], name="x")
        return [sg.exp(x), sg.stop_gradient(x)], {"x": x}
    def own():
        graph = sg.Graph()
        with graph.as_default():
            x = sg.placeholder(sg.float32, [2], name="x")
            return sg.exp(x), [x], {x: np.ones(2)}
    def bare():
        return sg.reduce_sum(sg.placeholder(sg.float32, [2], name="x"))
    def number():
        return 3.0
    def named_feeds():
        x = sg.placeholder(sg.float32, [2], name="x")
        return sg.exp(x), [x], {"x": np.ones(2)}
    def twice():
        x = sg.placeholder(sg.float32, ["n"], name="x")
        y = sg.placeholder(sg.float32, [2 * x.shape[0]], name="y")
        return sg.reduce_sum(x) + sg.reduce_sum(y), [x, y]
"""


def test_a_function_that_builds_a_graph_is_asked_of_its_parameters_or_xs(write: Write) -> None:
    write(GRAPHS)
    assert statuses("program.py:build") == {"w:0": "flows", "unused:0": "disconnected"}
    assert statuses("program.py:pair") == {"x:0": "partly stopped"}
    assert statuses("program.py:own") == {"x:0": "flows"}
    assert "return (loss, xs)" in refused("program.py:bare")
    assert "number returns 3.0" in refused("program.py:number")
    assert "named_feeds returns (" in refused("program.py:named_feeds")
    assert "takes no arrays" in refused("program.py:build", argnums=[0])


def test_placeholders_are_fed_random_data_of_the_sizes_that_are_told(write: Write) -> None:
    write(GRAPHS)

    def fed(*arguments: str, **options: Any) -> dict[str, tuple[int, ...]]:
        feeds = call(*arguments, **options, seed=0).options.get("feed_dict", {})
        return {x.op.name: value.shape for x, value in feeds.items()}

    assert fed("program.py:build") == {"x": (4, 3), "y": (4,)}
    assert fed("program.py:build", "x=6,3") == {"x": (6, 3), "y": (6,)}
    assert fed("program.py:own") == {"x": (2,)}
    assert (
        call("program.py:build", seed=2).data == "random at seed 2 with n = 4: x float32[4, 3], y float32[4]"
    )
    assert statuses("program.py:twice") == {"x:0": "flows", "y:0": "flows"}
    assert "say its sizes with --shape" in refused("program.py:twice", seed=0)
    assert fed("program.py:twice", "x=2", "y=4") == {"x": (2,), "y": (4,)}
    assert "the placeholders x, y" in refused("program.py:build", "z=3")
    assert "no placeholder that is not fed" in refused("program.py:own", "x=2")
    assert "x is float32[6, 4]" in refused("program.py:build", "x=6,4", seed=0)
    with pytest.raises(ArgumentError):
        call("program.py:build", "x=6,3", "y=5", seed=0)

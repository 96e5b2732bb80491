"""Operations refuse what their documentation says, under the number that stands there, and nothing else."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import constraint_cases
import constraint_cases_arrays
import constraint_cases_control
import constraint_cases_linalg
import constraint_cases_more
import pytest
from stopgrad.errors import StopgradError
from together import together

from stopgrad.base.samples import Values
from stopgrad.base.types import TensorType, bool_, complex64, float32, int32, shape_of, tensor_type, uint8
from stopgrad.graph.kinds import Kind
from stopgrad.graph.op import REGISTRY, Op
from stopgrad.graph.operands import type_of

CASES = (
    constraint_cases.CASES
    | constraint_cases_more.CASES
    | constraint_cases_control.CASES
    | constraint_cases_linalg.CASES
    | constraint_cases_arrays.CASES
)

DEFINITIONS = [pytest.param(definition, id=type) for type, definition in REGISTRY.items()]


def sections(definition: type[Op]) -> dict[str, str]:
    """The documentation of an operation by the headings of its sections; its beginning has none."""
    parts = re.split(r"^(\w+):\n", inspect.getdoc(definition) or "", flags=re.MULTILINE)
    return {"": parts[0]} | dict(zip(parts[1::2], parts[2::2], strict=True))


def numbers(text: str) -> list[str]:
    return re.findall(r"\((C\d+)\)", text)


def promised(definition: type[Op]) -> list[str]:
    """The numbers of the constraints that an operation documents."""
    return numbers(sections(definition).get("Constraints", ""))


@together("definition", DEFINITIONS)
def test_constraints_are_listed_once_in_order_in_a_section_of_their_own(definition: type[Op]) -> None:
    listed = promised(definition)
    assert listed == [f"C{i + 1}" for i in range(len(listed))]
    assert numbers(inspect.getdoc(definition) or "") == listed


@together("definition", DEFINITIONS)
def test_each_documented_constraint_has_a_call_that_breaks_it(definition: type[Op]) -> None:
    assert {number for type, number in CASES if type == definition.type} == set(promised(definition))


@together(("type", "number"), [pytest.param(*key, id="-".join(key)) for key in CASES])
def test_a_broken_constraint_is_refused_by_operation_and_number(
    type: str, number: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Public functions bring operands to a dtype that the operation takes; the operation is strict.
    if type in REGISTRY:
        monkeypatch.setattr(REGISTRY[type], "promotes", None)
    for remembered in ("_PLANS", "_CALLS"):  # Other tests may have called it.
        monkeypatch.setattr(f"stopgrad.graph.immediate.{remembered}", {})
    with pytest.raises(StopgradError) as caught:
        CASES[type, number]()
    assert re.match(rf"{type}\b", caught.value.message)
    assert numbers(caught.value.message) == [number]


OTHER_DTYPES = (bool_, uint8, int32, float32, complex64)


def damaged(
    types: list[TensorType], attributes: dict[str, Any], kinds: Mapping[str, Kind]
) -> Iterator[tuple[list[TensorType], dict[str, Any]]]:
    """The operands and attributes of a sample, with one of them changed."""
    for i, type in enumerate(types):
        sizes = [size + 5 if isinstance(size, int) else size for size in type.shape]
        for other in (
            *(tensor_type(dtype, type.shape) for dtype in OTHER_DTYPES),
            tensor_type(type.dtype, (7, *type.shape)),
            tensor_type(type.dtype, (*type.shape, 7)),
            tensor_type(type.dtype, type.shape[1:]),
            tensor_type(type.dtype, type.shape[:-1]),
            tensor_type(type.dtype, tuple(sizes)),
            tensor_type(type.dtype, (0,) * type.ndim),
            tensor_type(type.dtype, ()),
        ):
            yield [*types[:i], other, *types[i + 1 :]], attributes
    for name, value in attributes.items():
        if type_name(value) == "int":
            # A size is not negative, says its kind.
            for other_value in (0, 9) if kinds[name] is Kind.SIZE else (-9, -1, 0, 9):
                yield types, attributes | {name: other_value}


def type_name(value: Any) -> str:
    return type(value).__name__


@together("definition", DEFINITIONS)
def test_whatever_is_refused_is_documented(definition: type[Op]) -> None:
    refused: set[str] = set()
    unnumbered = []
    for sample in definition.samples:
        types = [
            tensor_type(o.dtype, shape_of(o.shape)) if isinstance(o, Values) else type_of(o)
            for o in sample.operands
        ]
        for inputs, attributes in damaged(types, dict(sample.attributes), definition.kinds):
            try:
                definition.infer(*inputs, **attributes)
            except StopgradError as error:
                found = numbers(error.message)
                refused.update(found)
                if not found:
                    unnumbered.append(error.message)
    assert refused <= set(promised(definition))
    assert not unnumbered


@pytest.mark.parametrize("module", sorted({d.__module__ for d in REGISTRY.values()}))
def test_every_number_in_an_error_of_a_module_is_documented_there(module: str) -> None:
    documented = {number for d in REGISTRY.values() if d.__module__ == module for number in promised(d)}
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    raised = {
        number
        for node in ast.walk(tree)
        if isinstance(node, ast.Raise)
        for part in ast.walk(node)
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
        for number in numbers(part.value)
    }
    assert raised <= documented

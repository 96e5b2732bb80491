"""How large functions become where each call is replaced by the body."""

import pytest

from stopgrad.base.errors import FileError
from stopgrad.interop.shared.inlining import DEEPEST, Inlined


def test_a_call_counts_all_that_its_function_calls():
    calls = {"f": (3, ["g", "g", "h"]), "g": (2, ["h"]), "h": (5, [])}
    asked = []

    def look(name):
        asked.append(name)
        return calls[name]

    inlined = Inlined(look, "model")
    assert inlined.size("f") == 3 + 2 * (2 + 5) + 5
    assert inlined.size("g") == 7
    assert sorted(asked) == ["f", "g", "h"]


@pytest.mark.parametrize("circle", [["f"], ["f", "g"], ["f", "g", "h"]])
def test_a_function_that_calls_itself_is_refused_by_name(circle):
    following = dict(zip(circle, circle[1:] + circle[:1], strict=True))
    inlined = Inlined(lambda name: (1, [following[name]]), "model.onnx")
    with pytest.raises(FileError, match=r"model\.onnx: .*one calls itself: f\n"):
        inlined.size("f")


def test_calls_may_be_nested_so_deep_and_no_deeper():
    def depth(count):
        return Inlined(lambda i: (1, [i + 1] if i + 1 < count else []), "model").size(0)

    assert depth(DEEPEST) == DEEPEST
    with pytest.raises(FileError, match="deep"):
        depth(DEEPEST + 1)

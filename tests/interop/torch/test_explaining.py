"""Errors of PyTorch's under a watch: each keeps its type and text, and gets a note with cause and lines."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch.utils.checkpoint import checkpoint  # noqa: E402

import stopgrad.torch as sgt  # noqa: E402
from stopgrad.flow.problems.notes import problem_of  # noqa: E402
from stopgrad.interop.torch import internals  # noqa: E402

nn = torch.nn


class _Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, y: Any) -> Any:
        return x * y

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad[:1], grad


class _TooFew(_Wrong):
    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad


class _Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x**2

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * 2 * ctx.saved_tensors[0]


def leaf(*sizes: int) -> Any:
    return torch.ones(*sizes, requires_grad=True)


def in_place_into_result() -> None:
    gate = torch.sigmoid(leaf(3))  # computed
    gate += 1  # written
    gate.sum().backward()  # second


def in_place_through_a_view() -> None:
    hidden = torch.tanh(leaf(4, 2))  # computed
    row = hidden[0]
    row.mul_(2.0)  # written
    hidden.sum().backward()  # second


def in_place_by_an_optimizer() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    loss = net(torch.ones(3, 2)).sum()  # needed
    net(torch.ones(3, 2)).sum().backward()
    optimizer.step()  # written
    loss.backward()  # second


def in_place_into_what_a_function_of_the_users_saved() -> None:
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * 3 * ctx.saved_tensors[0] ** 2

    x = leaf(3) * 2  # computed
    y = Cube.apply(x)  # needed
    x.add_(1.0)  # written
    y.sum().backward()  # second


def second_of_the_same_loss() -> None:
    loss = (leaf(3) ** 2).sum()  # made
    loss.backward()  # first
    loss.backward()  # second


def second_through_a_common_trunk() -> None:
    trunk = leaf(3).exp()  # made
    one, two = trunk.sum(), (trunk**2).sum()
    one.backward()  # first
    two.backward()  # second


def second_by_grad() -> None:
    x = leaf(3)
    y = (x**3).sum()  # made
    torch.autograd.grad(y, x)  # first
    torch.autograd.grad(y, x)  # second


def no_graph_after_detach() -> None:
    net = nn.Linear(2, 1)
    out = net(torch.ones(1, 2)).detach()  # cut
    out.sum().backward()  # second


def no_graph_in_no_grad() -> None:
    net = nn.Linear(2, 1)
    with torch.no_grad():  # cut
        out = net(torch.ones(1, 2))
    out.sum().backward()  # second


def optimizer_of_a_result() -> None:
    w = leaf(3).double()  # made
    torch.optim.SGD([w], lr=0.1)  # called


def optimizer_of_nothing() -> None:
    torch.optim.SGD(nn.ReLU().parameters(), lr=0.1)  # called


def leaf_written() -> None:
    w = leaf(3)
    w -= 0.1  # written


def view_of_a_leaf_written() -> None:
    w = leaf(3)
    w[:2].zero_()  # written


def one_of_several_views_written() -> None:
    a, _ = (leaf(4) * 1).chunk(2)  # made
    a.add_(1.0)  # written


def inference_tensor_saved() -> None:
    with torch.inference_mode():
        x = torch.ones(3) * 2  # made
    (leaf(3) * x).sum().backward()  # called


def no_scalar() -> None:
    y = leaf(3) * 2  # made
    y.backward()  # second


def complex_loss() -> None:
    y = (torch.ones(3, dtype=torch.complex64, requires_grad=True) * 2).sum()  # made
    y.backward()  # second


def integer_leaf() -> None:
    torch.ones(3, dtype=torch.int64).requires_grad_()  # called


def result_frozen() -> None:
    y = leaf(3) * 2  # made
    y.requires_grad_(False)  # called


def numpy_of_what_requires() -> None:
    y = leaf(3) * 2  # made
    y.numpy()  # cut


def deepcopy_of_a_result() -> None:
    y = leaf(3) * 2  # made
    copy.deepcopy(y)  # called


def hook_without_gradient() -> None:
    x = torch.ones(3)
    x.register_hook(print)  # called


def other_gradient_given() -> None:
    y = leaf(3) * 2
    y.backward(torch.ones(2))  # second


def out_argument() -> None:
    torch.add(leaf(3), 1.0, out=torch.empty(3))  # cut


def requires_in_a_transform() -> None:
    def f(x: Any) -> Any:
        x.requires_grad_()  # called
        return x.sum()

    torch.func.grad(f)(torch.ones(3))


def write_in_a_transform() -> None:
    seen = torch.zeros(3)

    def f(x: Any) -> Any:
        seen.add_(x)  # written
        return x.sum()

    torch.func.grad(f)(torch.ones(3))


def checkpoint_of_something_else() -> None:
    calls: list[int] = []

    def f(x: Any) -> Any:
        calls.append(1)
        return x.exp().sin() if len(calls) == 1 else x.exp()

    checkpoint(f, leaf(3), use_reentrant=False).sum().backward()  # second


def gradient_of_another_shape() -> None:
    y = _Wrong.apply(leaf(3), leaf(3))  # called
    y.sum().backward()  # second


def too_few_gradients() -> None:
    y = _TooFew.apply(leaf(3), leaf(3))  # called
    y.sum().backward()  # second


def unused_input() -> None:
    x, other = leaf(3), leaf(3)
    torch.autograd.grad((x * 2).sum(), other)  # second


def detached_input() -> None:
    x = leaf(3)
    y = (x.detach() * leaf(3)).sum()  # cut
    torch.autograd.grad(y, x)  # second


def once_differentiable_twice() -> None:
    x = leaf(3)
    y = _Once.apply(x).exp().sum()  # called
    (grad,) = torch.autograd.grad(y, x, create_graph=True)
    grad.sum().backward()  # second


KINDS: dict[Callable[[], None], str] = {
    in_place_into_result: "modified-in-place",
    in_place_through_a_view: "modified-in-place",
    in_place_by_an_optimizer: "modified-in-place",
    in_place_into_what_a_function_of_the_users_saved: "modified-in-place",
    second_of_the_same_loss: "second-backward",
    second_through_a_common_trunk: "second-backward",
    second_by_grad: "second-backward",
    no_graph_after_detach: "no-graph",
    no_graph_in_no_grad: "no-graph",
    optimizer_of_a_result: "non-leaf",
    optimizer_of_nothing: "no-parameters",
    leaf_written: "leaf-written",
    view_of_a_leaf_written: "leaf-written",
    one_of_several_views_written: "view-written",
    inference_tensor_saved: "inference-tensor",
    no_scalar: "not-scalar",
    complex_loss: "not-real",
    integer_leaf: "not-real",
    result_frozen: "non-leaf",
    numpy_of_what_requires: "leaves-graph",
    deepcopy_of_a_result: "leaves-graph",
    hook_without_gradient: "hook-refused",
    other_gradient_given: "grad-refused",
    out_argument: "no-derivative",
    requires_in_a_transform: "transformed-requires",
    write_in_a_transform: "transformed-write",
    checkpoint_of_something_else: "checkpoint-differs",
    gradient_of_another_shape: "wrong-gradient",
    too_few_gradients: "wrong-gradient",
    unused_input: "unused-input",
    detached_input: "unused-input",
    once_differentiable_twice: "not-twice",
}


def raised_by(program: Callable[[], None]) -> BaseException:
    try:
        program()
    except Exception as error:
        return error
    raise AssertionError("it raises nothing")


def marks(program: Callable[[], None]) -> dict[int, str]:
    """The lines of a program that its explanation must name, by their numbers, with their roles."""
    code = program.__code__
    with open(code.co_filename) as file:
        lines = file.read().splitlines()
    found = {}
    for i in range(code.co_firstlineno, len(lines)):
        if lines[i] and not lines[i][0].isspace():
            break
        mark = re.search(r"  # (\w+)$", lines[i])
        if mark is not None:
            found[i + 1] = mark[1]
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", KINDS, ids=lambda program: program.__name__)
def test_names_the_cause_and_its_lines(program: Callable[[], None]) -> None:
    if KINDS[program] == "modified-in-place" and internals.MISSING:
        pytest.skip("this release of PyTorch does not show what is saved")
    plain = raised_by(program)
    with sgt.watch():
        error = raised_by(program)
    assert (type(error), str(error)) == (type(plain), str(plain))
    problem = problem_of(error)
    assert problem is not None
    assert problem.kind == KINDS[program]
    told = {(site.location.own.line, site.role) for site in problem.sites}
    assert {(line, role) for line, role in marks(program).items()} <= told
    assert problem.cure
    (note,) = error.__notes__
    assert note.startswith(f"stopgrad: {problem.kind}: ")
    assert problem_of(plain) is None


def test_errors_of_others_get_no_note() -> None:
    def wrong_shapes() -> None:
        torch.ones(2) + torch.ones(3)

    def of_the_user() -> None:
        raise ValueError("Trying to backward through the graph a second time")

    with sgt.watch():
        for program in (wrong_shapes, of_the_user):
            assert not hasattr(raised_by(program), "__notes__")


@pytest.mark.skipif(bool(internals.MISSING), reason="this release of PyTorch does not show what is saved")
def test_the_name_of_the_value_is_told() -> None:
    with sgt.watch():
        problem = problem_of(raised_by(in_place_into_result))
    assert problem is not None
    assert problem.names == ["gate"]
    assert "gate" in problem.message
    assert "gate = gate + 1" in problem.cure


def test_without_a_watch_nothing_is_added() -> None:
    with sgt.watch():
        pass
    assert not hasattr(raised_by(second_of_the_same_loss), "__notes__")
    with pytest.raises(ValueError, match="empty parameter list") as raised:
        torch.optim.SGD([], lr=0.1)
    assert not hasattr(raised.value, "__notes__")

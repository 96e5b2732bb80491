"""Each way in which PyTorch code cuts a gradient, and the line that a watch names for it."""

from __future__ import annotations

import contextlib
import copy
import inspect
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
sgt = pytest.importorskip("stopgrad.torch")
nn, functional = torch.nn, torch.nn.functional
checkpoint = pytest.importorskip("torch.utils.checkpoint").checkpoint
decorator_place = pytest.importorskip("stopgrad.interop.torch.recording.places").decorator_place

SOURCE = inspect.getsource(inspect.getmodule(lambda: None)).splitlines()  # type: ignore[arg-type]


def leaf(*sizes: int) -> Any:
    return torch.randn(*(sizes or (4,)), requires_grad=True)


def lines(of: Callable[..., Any], mark: str = "# cut") -> set[int]:
    """The lines of a function that carry a mark."""
    text, first = inspect.getsourcelines(of)
    return {first + k for k, line in enumerate(text) if line.rstrip().endswith(mark)}


FROZEN = torch.randn(4)
CASES: list[tuple[Callable[[], Any], str, str]] = []


def case(status: str, reason: str) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """A function that makes a loss and ``w``, whose gradient is cut on the marked lines, and why."""

    def add(f: Callable[[], Any]) -> Callable[[], Any]:
        CASES.append((f, status, reason))
        return f

    return add


@case("stopped", "detach")
def detach() -> Any:
    w = leaf()
    y = w * 2
    z = y.detach()  # cut
    return z.sum(), w


@case("stopped", "detach_")
def detach_in_place() -> Any:
    w = leaf()
    y = w * 2
    y.detach_()  # cut
    return y.sum(), w


@case("partly stopped", "detach")
def detach_of_one_path() -> Any:
    w = leaf()
    return (w * w.detach()).sum(), w  # cut


@case("stopped", ".data")
def data() -> Any:
    w = leaf()
    y = (w * 2).data  # cut
    return (y + 1).sum(), w


@case("stopped", "torch.tensor makes a copy without history")
def tensor_of_a_tensor() -> Any:
    w = leaf()
    with pytest.warns(UserWarning, match="copy construct"):
        y = torch.tensor(w * 2)  # cut
    return y.sum(), w


@case("stopped", "torch.tensor makes a copy without history")
def tensor_of_tensors() -> Any:
    w = leaf()
    parts = [w[0] * 2, w[1] * 3]
    with warnings.catch_warnings(action="ignore"):  # PyTorch warns of it once in a process.
        y = torch.tensor(parts)  # cut
    return y.sum(), w


@case("stopped", "new_tensor makes a copy without history")
def new_tensor() -> Any:
    w = leaf()
    with pytest.warns(UserWarning, match="copy construct"):
        y = torch.zeros(1).new_tensor(w * 2)  # cut
    return y.sum(), w


@case("stopped", "nn.Parameter makes a new leaf")
def parameter_of_a_tensor() -> Any:
    w = leaf()
    p = nn.Parameter(w * 2)  # cut
    return (p * 3).sum(), w


@case("stopped", "copy.deepcopy")
def deep_copy() -> Any:
    w = leaf()
    p = copy.deepcopy(w)  # cut
    return (p * 3).sum(), w


@case("stopped", "torch.no_grad()")
def no_grad() -> Any:
    w = leaf()
    with torch.no_grad():  # cut
        y = w * 2
        z = y.exp()
    return z.sum(), w


@case("stopped", "torch.no_grad()")
def no_grad_in_no_grad() -> Any:
    w = leaf()
    with torch.no_grad():  # cut
        with torch.no_grad():
            y = w * 2
        z = y.exp()
    return z.sum(), w


@case("stopped", "torch.no_grad()")
def no_grad_entered_twice() -> Any:
    """Another manager may have the identity of one that is gone; here, it is the same."""
    w = leaf()
    manager = torch.no_grad()
    with manager:
        pass
    with torch.no_grad():  # cut
        with manager:
            pass
        y = w * 2
    return y.sum(), w


@torch.no_grad()  # helper
def encode(w: Any) -> Any:
    return w * 2


@case("stopped", "torch.no_grad()")
def no_grad_decorator() -> Any:
    w = leaf()
    return encode(w).sum(), w


@torch.inference_mode()  # inferring
def infer(w: Any) -> Any:
    return w * 2


@case("stopped", "torch.inference_mode()")
def inference_mode_decorator() -> Any:
    w = leaf()
    return infer(w).clone().sum(), w


@case("stopped", "torch.inference_mode()")
def inference_mode() -> Any:
    w = leaf()
    with torch.inference_mode():  # cut
        y = w * 2
        y += 1
    return y.clone().sum(), w


@case("stopped", "torch.set_grad_enabled(False)")
def set_grad_enabled() -> Any:
    w = leaf()
    torch.set_grad_enabled(False)  # cut
    y = w * 2
    torch.set_grad_enabled(True)
    return y.sum(), w


@case("stopped", "torch.set_grad_enabled(False)")
def set_grad_enabled_block() -> Any:
    w = leaf()
    with torch.set_grad_enabled(False):  # cut
        y = w * 2
    return y.sum(), w


@case("stopped", "torch.no_grad()")
def enabled_inside_of_no_grad() -> Any:
    w, v = leaf(), leaf()
    with torch.no_grad():  # cut
        y = w * 2
        with torch.enable_grad():
            z = y * v
    return z.sum(), w


@case("stopped", "torch.no_grad()")
def view_in_no_grad() -> Any:
    w = leaf()
    with torch.no_grad():  # cut
        y = w[1:]
    return (y * 2).sum(), w


@case("not differentiable", "int64 carries no gradient")
def argmax() -> Any:
    w = leaf()
    y = w.argmax()  # cut
    return (y * torch.ones(3, requires_grad=True)).sum(), w


@case("not differentiable", "int64 carries no gradient")
def cast_to_int() -> Any:
    w = leaf()
    y = w.long()  # cut
    return (y.float() * leaf()).sum(), w


@case("not differentiable", "bool carries no gradient")
def comparison() -> Any:
    w = leaf()
    y = w > 0  # cut
    return (y.float() * leaf()).sum(), w


@case("not differentiable", "its gradient is zero everywhere")
def rounding() -> Any:
    w = leaf()
    y = torch.round(w * 3)  # cut
    return y.sum(), w


@case("not differentiable", "its gradient is zero everywhere")
def floor_division() -> Any:
    w = leaf()
    y = torch.div(w * 3, 2, rounding_mode="floor")  # cut
    return y.sum(), w


@case("not differentiable", "overwritten in place")
def zeroed() -> Any:
    w, v = leaf(), leaf()
    y = w * 2
    y.zero_()  # cut
    return (y + v).sum(), w


@case("not differentiable", "overwritten in place")
def copied_over() -> Any:
    w, v = leaf(), leaf()
    y = w * 2
    y.copy_(v)  # cut
    return y.sum(), w


@case("stopped", "left for Python by .item(), came back at {}")
def item() -> Any:
    w, v = leaf(), leaf()
    metric = (w * 2).sum().item()  # cut
    return (v * metric).sum(), w  # back


@case("stopped", "left for Python by .item(), came back at {}")
def item_in_a_new_tensor() -> Any:
    w, v = leaf(), leaf()
    metric = (w * 2).sum().item()  # cut
    target = torch.tensor([metric, 1.0])  # back
    return (v[:2] * target).sum(), w


@case("stopped", "left for Python by .tolist(), came back at {}")
def as_list() -> Any:
    w, v = leaf(), leaf()
    values = (w * 2).tolist()  # cut
    return (v * values[1]).sum(), w  # back


@case("stopped", "left for Python by float(...), came back at {}")
def as_float() -> Any:
    w, v = leaf(), leaf()
    total = (w * 2).square().sum()
    with torch.no_grad():
        number = float(total)  # cut
    return (v * number).sum(), w  # back


@case("stopped", "left for Python by .numpy(), came back at {}")
def as_array() -> Any:
    w, v = leaf(), leaf()
    y = w.detach() * 2
    array = y.numpy()  # cut
    return (v * torch.from_numpy(array)).sum(), w  # back


@case("stopped", "requires_grad is False")
def frozen() -> Any:
    w, v = leaf(), leaf()
    w.requires_grad_(False)  # cut
    return (w * v).sum(), w


@case("stopped", "requires_grad is False")
def frozen_by_assignment() -> Any:
    w, v = leaf(), leaf()
    w.requires_grad = False  # cut
    return (w * v).sum(), w


@case("stopped", "requires_grad is False")
def frozen_from_the_start() -> Any:
    w = torch.randn(4)  # cut
    return (w * leaf()).sum(), w


@case("stopped", "requires_grad is False")
def frozen_before() -> Any:
    return (FROZEN * leaf()).sum(), FROZEN  # cut


@case("stopped", "torch.no_grad()")
def written_into_a_buffer() -> Any:
    w, buffer = leaf(), torch.zeros(8)
    with torch.no_grad():  # cut
        buffer[2:6] = w * 2
    return (buffer * leaf(8)).sum(), w


@case("stopped", ".data")
def shared_memory() -> Any:
    w, v = leaf(), leaf()
    v.data = (w * 2).data  # cut
    return (v * 3).sum(), w


@case("stopped", "torch.autograd.grad without create_graph=True")
def grad_without_graph() -> Any:
    w, x = leaf(), leaf()
    (g,) = torch.autograd.grad((w * x * x).sum(), x)  # cut
    return g.square().sum(), w


class Nothing(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, y: Any) -> Any:
        return x * y

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return None, g


@case("not differentiable", "Nothing.backward returns None for it")
def function_that_gives_none() -> Any:
    w, v = leaf(), leaf()
    y = Nothing.apply(w * 2, v)  # cut
    return y.sum(), w


class Uses(torch.autograd.Function):
    hidden: Any = None

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * Uses.hidden

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g


@case("stopped", "inside Uses.forward")
def function_that_uses_what_it_was_not_given() -> Any:
    w, v = leaf(), leaf()
    Uses.hidden = w * 2
    y = Uses.apply(v)  # cut
    return y.sum(), w


@case("stopped", "checkpoint(use_reentrant=True) of inputs that require no gradient")
def reentrant_checkpoint_of_data() -> Any:
    w, v = leaf(), leaf()
    with pytest.warns(UserWarning, match="None of the inputs"):
        y = checkpoint(lambda x: x * w, torch.ones(4), use_reentrant=True)  # cut
    return (y * v).sum(), w


@case("disconnected", "")
def shape_only() -> Any:
    w, v = leaf(), leaf()
    return (torch.zeros_like(w) + w.new_ones(4) + v).sum(), w


@case("disconnected", "")
def never_used() -> Any:
    w, v = leaf(), leaf()
    _ = w * 2
    return v.sum(), w


@pytest.mark.parametrize(("make", "status", "reason"), CASES, ids=[f.__name__ for f, *_ in CASES])
def test_names_the_line(make: Callable[[], Any], status: str, reason: str) -> None:
    torch.manual_seed(0)
    with sgt.watch() as seen:
        loss, w = make()
    flow = seen.explain(loss, {"w": w})
    assert flow["w"].status == status, str(flow)
    came_back = lines(make, "# back")
    expected = lines(make) or lines(encode, "# helper") | lines(infer, "# inferring")
    cuts = flow["w"].cuts
    assert {cut.location.line for cut in cuts} <= expected, str(flow)
    assert bool(cuts) == (status != "disconnected")
    for cut in cuts[:1]:
        where = f"tests/interop/torch/test_watch.py:{min(came_back)}" if came_back else ""
        assert cut.reason == reason.format(where)
        assert cut.location.file == __file__
    loss.sum().backward() if loss.requires_grad else None
    arrives = w.grad is not None and bool((w.grad != 0).any())
    assert flow["w"].arrives == arrives


def test_below_all_frames_stands_no_decorator() -> None:
    assert decorator_place(None) is None


def test_what_was_written_into_a_leaf_is_in_it_after_a_further_write() -> None:
    target, source, gone = leaf(), leaf(), leaf()
    with sgt.watch() as seen:
        with torch.no_grad():
            target.copy_(gone)
            target.copy_(source)
            target.mul_(0.9)
        loss = target.sum()
    flow = seen.explain(loss, {"target": target, "source": source, "gone": gone})
    assert [flow[key].status for key in flow] == ["flows", "stopped", "disconnected"]


def test_a_leaf_frozen_after_a_function_took_it_receives_its_gradient() -> None:
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2

    w = leaf()
    with sgt.watch() as seen:
        y = Twice.apply(w)
        w.requires_grad_(False)
        z = torch.tanh(w) * y
        w.requires_grad_(True)
        loss = y.sum()
    del z
    assert seen.explain(loss, w)["x"].status == "flows"
    loss.backward()
    assert w.grad is not None


def of_a_number() -> Any:
    scale, w = leaf(1), leaf()
    with sgt.watch() as seen:
        factor = 0.5 * scale.item()  # left
        loss = (w * factor).sum()
        loss.item()
    return seen, loss, scale, w


def test_what_python_computes_of_a_number_is_told_to_have_left() -> None:
    seen, loss, scale, w = of_a_number()
    flow = seen.explain(loss, {"scale": scale, "w": w, "unused": leaf()})
    assert [flow[key].status for key in flow] == ["disconnected", "flows", "disconnected"]
    (left,) = flow.noted
    assert (left.kind, left.keys) == ("left", ("scale",))
    assert left.location is not None
    assert {left.location.line} == lines(of_a_number, "# left")
    assert "scale left for Python by .item()" in flow.to_text()


@pytest.mark.parametrize("name", ["view_as", "expand_as", "reshape_as", "type_as", "to"])
def test_a_tensor_that_only_gives_its_shape_or_dtype_is_on_no_path(name: str) -> None:
    x, like = torch.ones(2, 3, requires_grad=True), torch.ones(2, 3, dtype=torch.float64, requires_grad=True)
    with sgt.watch() as seen:
        loss = getattr(x * 1.0, name)(like * 2.0).sum()
    flow = seen.explain(loss, {"x": x, "like": like})
    assert {key: flow[key].status.name for key in flow} == {"x": "FLOWS", "like": "DISCONNECTED"}


class OwnNames(torch.nn.Module):
    """Its parameters under other names, by a method without ``remove_duplicate``, as in torchrl."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 1)

    def named_parameters(self, prefix: str = "", recurse: bool = True) -> Iterator[Any]:  # type: ignore[override]
        for name, parameter in super().named_parameters(prefix, recurse):
            yield f"own.{name}", parameter

    def forward(self, x: Any) -> Any:
        return self.linear(x).sum()


def test_a_module_may_name_its_parameters_itself() -> None:
    model = OwnNames()
    with sgt.watch() as seen:
        loss = model(torch.ones(2, 3))
    for flow in (seen.explain(loss, model), seen.explain(loss), sgt.explain(model, torch.ones(2, 3))):
        assert list(flow) == ["own.linear.weight", "own.linear.bias"]


def test_nested_tensors_can_be_watched() -> None:
    model = nn.Linear(3, 2)
    parts = [torch.ones(2, 3), torch.ones(4, 3)]
    with sgt.watch() as seen:
        loss = model(torch.nested.nested_tensor(parts, layout=torch.jagged)).values().sum()
    assert {flow.status.name for flow in seen.explain(loss, model).values()} == {"FLOWS"}


def test_what_fails_in_a_watch_is_told_and_the_program_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = pytest.importorskip("stopgrad.interop.torch.recording.recorder")
    monkeypatch.undo()  # Here a failure is told, not raised (conftest.py).
    x = leaf(3)

    def broken(tensor: Any) -> Any:
        raise KeyError("no sizes")

    with sgt.watch() as seen:
        y = x * 2.0
        monkeypatch.setattr(recorder, "sizes_of", broken)
        z = y.exp()  # lost
        monkeypatch.undo()
        loss = (z + y).sum()
    loss.backward()
    assert x.grad is not None
    flow = seen.explain(loss, {"x": x})
    assert flow["x"].status == "flows"
    (line,) = lines(test_what_fails_in_a_watch_is_told_and_the_program_goes_on, "# lost")
    assert f"test_watch.py:{line} was not recorded (KeyError: 'no sizes')" in flow.to_text(width=400)


def hooked() -> tuple[Any, Any, dict[str, Any]]:
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    net[2].bias.register_hook(lambda g: g * 0)  # leaf
    net[1].register_full_backward_hook(lambda *_: None)
    with sgt.watch() as seen:
        h = net(torch.ones(5, 3))  # module
        cut = (h * 2).detach()
        h.register_hook(lambda g: g * 0)  # tensor
        lost = net[0].weight * 2
        lost.register_hook(lambda g: g)  # On no open path.
        loss = (h + cut).sum() + lost.detach().sum()
    return seen, loss, {"net": net, "data": torch.ones(5)}


def test_hooks_on_open_paths_are_told() -> None:
    seen, loss, asked = hooked()
    told = [one for one in seen.explain(loss, asked).noted if one.kind == "hook"]
    at = {mark: min(lines(hooked, f"# {mark}")) for mark in ("leaf", "module", "tensor")}
    first, last = ("net.0.weight", "net.0.bias"), ("net.2.weight", "net.2.bias")
    assert {one.location.line: one.keys for one in told} == {
        at["leaf"]: ("net.2.bias",),
        at["module"]: first,
        at["tensor"]: first + last,
    }
    assert "a hook may change the gradient of net.2.bias, even to zero" in " ".join(
        seen.explain(loss, asked).to_text().split()
    )


@pytest.mark.parametrize("first", ["copy", "parameter"])
def test_a_copy_detached_before_the_watch_is_known_by_its_memory(first: str) -> None:
    w = leaf()
    copy = w.detach()  # As a loss keeps it for its targets.
    with sgt.watch() as seen:
        if first == "copy":
            target = copy * 2  # line
            loss = (w * 3 - target).square().sum()
        else:
            loss = (w * 3 - copy * 2).square().sum()
    flow = seen.explain(loss, {"w": w})
    assert flow["w"].status == "partly stopped"
    assert [cut.reason for cut in flow["w"].cuts] == ["shares memory, not history"]
    assert flow["w"].cuts[0].location.file == __file__


class Pair:
    """Two tensors in one, that is no tensor itself; PyTorch's functions act on both."""

    def __init__(self, *parts: Any) -> None:
        self.parts = parts

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not torch.stack:
            return NotImplemented
        return Pair(*[torch.stack(list(each)) for each in zip(*[one.parts for one in args[0]], strict=True)])


def test_what_a_container_of_tensors_does_in_place_of_pytorch_is_seen() -> None:
    w, x = torch.ones(2, requires_grad=True), torch.ones(2)
    with sgt.watch() as seen:
        frozen = Pair(w.detach(), x)
        both = torch.stack([frozen, frozen])
        loss = (both.parts[0] * w).sum()
    flow = seen.explain(loss, {"w": w})
    assert flow["w"].status == "partly stopped", str(flow)
    assert [cut.reason for cut in flow["w"].cuts] == ["detach"]


def test_a_function_that_a_container_does_not_know_fails_as_without_a_watch() -> None:
    pair, told = Pair(torch.ones(2)), []
    for around in (contextlib.nullcontext(), sgt.watch()):
        with around, pytest.raises(TypeError) as error:
            torch.exp(pair)
        told.append(str(error.value).partition("\n")[0])
    assert told[0] == told[1]

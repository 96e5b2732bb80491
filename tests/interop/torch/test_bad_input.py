"""A watch of PyTorch, used wrongly or in odd places: an error that says what to do, or a right answer."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("stopgrad.torch")

import torch
from torch import nn

import stopgrad as sg
import stopgrad.torch as sgt

SOURCE = Path(sg.__file__).parents[1]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(3, 4), nn.Linear(4, 1)

    def forward(self, x: Any) -> Any:
        return self.head(torch.tanh(self.body(x)))


class Setting:
    """A model, its watched loss, a loss made before the watch began and one made after it ended."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model, self.x = Net(), torch.randn(5, 3)
        self.before = self.loss()
        with sgt.watch() as self.seen:
            self.watched = self.loss()
            self.detached = self.model.head(self.model.body(self.x).detach()).sum()
        self.after = self.loss()

    def loss(self) -> Any:
        return self.model(self.x).square().mean()


# ----------------------------------------------------------------------------------------------- refused


@dataclass(frozen=True)
class Refused:
    """Something that must fail.

    Attributes:
        does: the mistake.
        says: what the message must hold: what is wrong, and what to do.
    """

    does: Callable[[Setting], Any]
    says: tuple[str, ...]


UNSEEN = ("did not see how this loss was made", "with sgt.watch()")

REFUSED = {
    "a loss made before the watch began": Refused(lambda s: s.seen.explain(s.before, s.model), UNSEEN),
    "a loss made after the watch ended": Refused(lambda s: s.seen.explain(s.after, s.model), UNSEEN),
    "a watch that was never entered": Refused(lambda s: sgt.watch().explain(s.watched, s.model), UNSEEN),
    "a loss that left for Python": Refused(
        lambda s: s.seen.explain(s.watched.item(), s.model), ("float", "not its .item()")
    ),
    "no loss": Refused(lambda s: s.seen.explain(None, s.model), ("is a tensor", "NoneType")),
    "an empty structure of losses": Refused(lambda s: s.seen.explain([], s.model), ("no loss",)),
    "the model in place of the loss": Refused(
        lambda s: s.seen.explain(s.model, s.watched), ("is a tensor", "Net")
    ),
    "a NumPy array in place of the loss": Refused(
        lambda s: s.seen.explain(s.watched.detach().numpy(), s.model), ("is a tensor", "ndarray")
    ),
    "the name of a parameter as xs": Refused(
        lambda s: s.seen.explain(s.watched, "body.weight"), ("xs are a module", "body.weight")
    ),
    "a number as xs": Refused(lambda s: s.seen.explain(s.watched, 3), ("xs are a module", "int 3")),
    "a NumPy array as xs": Refused(
        lambda s: s.seen.explain(s.watched, np.zeros(3)), ("xs are a module", "ndarray")
    ),
    "a function as xs": Refused(lambda s: s.seen.explain(s.watched, s.loss), ("xs are a module", "method")),
    "a number among xs": Refused(lambda s: s.seen.explain(s.watched, [s.model, 3]), ("int 3",)),
    "a pattern that matches no key": Refused(
        lambda s: s.seen.explain(s.watched, s.model, only="bodi.*"), ("bodi.*", "body.weight")
    ),
    "a pattern that is none": Refused(
        lambda s: s.seen.explain(s.watched, s.model, only=3), ("only", "'head.*'", "3")
    ),
    "an assertion of a number": Refused(lambda s: sgt.assert_blocked(0.5, s.model), ("float 0.5",)),
    "an assertion about nothing": Refused(lambda s: sgt.assert_flows(s.watched, []), ("no tensors in xs",)),
    "an assertion about a module without parameters": Refused(
        lambda s: sgt.assert_flows(s.watched, nn.ReLU()), ("no tensors in xs",)
    ),
    "an assertion by a line where nothing is": Refused(
        lambda s: sgt.assert_blocked(s.detached, s.model.body, by="nowhere.py:3"), ("nowhere.py:3",)
    ),
    "a function that is none": Refused(lambda s: sgt.explain(s.watched, s.x), ("function", "seen.explain")),
    "a function whose result is no tensor": Refused(
        lambda s: sgt.explain(lambda x: None, s.x, model=s.model), ("NoneType", "no tensor")
    ),
    "a model that is none": Refused(lambda s: sgt.explain(s.loss, model=3), ("module", "int 3")),
    "a function of nothing that requires a gradient": Refused(
        lambda s: sgt.explain(lambda x: x.sum(), s.x), ("model=",)
    ),
    "a watch entered once more inside": Refused(lambda s: inside_itself(), ("sgt.watch()",)),
}


def inside_itself() -> None:
    watch = sgt.watch()
    with watch, watch:
        pass


@pytest.mark.parametrize("name", REFUSED)
def test_a_mistake_is_told_and_changes_nothing(name: str) -> None:
    case, setting = REFUSED[name], Setting()
    known = state()
    with pytest.raises(sg.StopgradError) as caught:
        case.does(setting)
    message = str(caught.value)
    for words in case.says:
        assert words in message, message
    assert Path(__file__).name in message, message
    assert not isinstance(caught.value, sg.InternalError)
    assert state() == known
    assert setting.seen.explain(setting.watched, setting.model)["body.weight"].status == "flows"


# -------------------------------------------------------------------------------- what PyTorch is left as


def state() -> dict[str, Any]:
    """What a watch may change of PyTorch."""
    places = (torch, torch.Tensor, torch.autograd, torch.nn.Module, torch.nn.functional, torch._C)
    places += (torch._C.TensorBase, torch.utils.checkpoint, torch.autograd.Function, torch.compiler)
    places += (
        torch.autograd.function,
        torch.autograd.grad_mode,
        torch.overrides,
        torch.utils._python_dispatch,
    )
    found: dict[str, Any] = {
        f"{place.__name__}.{name}": id(value)
        for place in places
        for name, value in vars(place).items()
        if callable(value)
    }
    found["function modes"] = torch._C._len_torch_function_stack()
    found["dispatch modes"] = torch._C._len_torch_dispatch_stack()
    found["grad"] = torch.is_grad_enabled()
    found["inference"] = torch.is_inference_mode_enabled()
    found["anomaly"] = torch.is_anomaly_enabled()
    found["saved tensors' hooks"] = torch._C._autograd._top_saved_tensors_default_hooks(False)
    found["stance"] = torch._dynamo.eval_frame._stance.stance if "torch._dynamo" in sys.modules else "default"
    found["trace"] = sys.gettrace(), sys.getprofile(), threading.gettrace(), threading.getprofile()
    return found


def raises_at_once(model: Any, x: Any) -> None:
    raise ValueError("theirs")


def raises_in_a_region(model: Any, x: Any) -> None:
    with torch.no_grad():
        model(x)
        raise ValueError("theirs")


def raises_in_inference(model: Any, x: Any) -> None:
    with torch.inference_mode():
        model(x)
        raise ValueError("theirs")


def raises_in_a_hook(model: Any, x: Any) -> None:
    handle = model.body.register_forward_hook(lambda *_: raises_at_once(model, x))
    try:
        model(x)
    finally:
        handle.remove()


def raises_in_backward(model: Any, x: Any) -> None:
    y = model(x)
    y.register_hook(lambda _: raises_at_once(model, x))
    y.sum().backward()


def raises_in_a_checkpoint(model: Any, x: Any) -> None:
    torch.utils.checkpoint.checkpoint(raises_at_once, model, x, use_reentrant=True)


def raises_in_nested_watches(model: Any, x: Any) -> None:
    with sgt.watch(), sgt.watch():
        raise ValueError("theirs")


class Raising(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        raise ValueError("theirs")


def raises_in_a_function(model: Any, x: Any) -> None:
    Raising.apply(model(x))


@pytest.mark.parametrize(
    "step",
    [
        raises_at_once,
        raises_in_a_region,
        raises_in_inference,
        raises_in_a_hook,
        raises_in_backward,
        raises_in_a_checkpoint,
        raises_in_nested_watches,
        raises_in_a_function,
    ],
)
def test_an_error_in_a_watch_is_handed_on_and_leaves_pytorch_as_it_was(step: Callable[..., None]) -> None:
    model, x = Net(), torch.randn(2, 3, requires_grad=True)
    torch.utils.checkpoint.checkpoint(model, x, use_reentrant=True).sum().backward()
    known = state()  # What PyTorch itself sets up at first use is no change of ours.
    with pytest.raises(ValueError, match=r"^theirs$"), sgt.watch():
        step(model, x)
    assert state() == known
    with sgt.watch() as seen:  # The next one works.
        loss = model(x).sum()
    assert seen.explain(loss, model)["head.bias"].status == "flows"


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_regions_and_modes_of_the_user_are_as_before_after_a_watch() -> None:
    for region in (torch.no_grad, torch.inference_mode, torch.enable_grad, torch.autograd.detect_anomaly):
        with region():
            known = state()
            with sgt.watch():
                Net()(torch.randn(2, 3))
                torch.set_grad_enabled(torch.is_grad_enabled())
            assert state() == known


# ------------------------------------------------------------------------------------------- odd but right


def test_a_loss_that_requires_no_gradient_is_explained() -> None:
    model, x = Net(), torch.randn(2, 3)
    with sgt.watch() as seen, torch.no_grad():
        loss = model(x).sum()
    flow = seen.explain(loss, model)
    assert {reach.status for reach in flow.values()} == {"stopped"}
    (cut,) = flow["body.weight"].cuts
    assert "no_grad" in cut.reason
    assert cut.location.file == __file__


def test_a_tensor_that_requires_no_gradient_is_asked_about() -> None:
    model, x = Net(), torch.randn(2, 3)
    with sgt.watch() as seen:
        loss = model(x).sum()
    (reach,) = seen.explain(loss, x).values()
    assert reach.status == "stopped"
    assert "requires_grad" in reach.cuts[0].reason


def test_a_loss_that_no_watch_saw_is_followed_while_an_earlier_watch_is_kept() -> None:
    model, x = Net(), torch.randn(2, 3)
    with sgt.watch() as seen:
        watched = model(x).sum()
    loss = model(x).square().sum()
    sgt.assert_flows(loss, model)
    with pytest.raises(sg.FlowError, match="No watch saw how this loss was made"):
        sgt.assert_blocked(loss, model)
    with pytest.raises(sg.FlowError) as failure:
        sgt.assert_blocked(watched, model)
    assert "No watch saw" not in str(failure.value)
    assert seen.explain(watched, model)["body.weight"].arrives


def test_parameters_of_another_model_are_disconnected() -> None:
    setting = Setting()
    flow = setting.seen.explain(setting.watched, Net())
    assert {reach.status for reach in flow.values()} == {"disconnected"}


def test_nested_watches_both_see() -> None:
    model, x = Net(), torch.randn(2, 3)
    with sgt.watch() as outer:
        hidden = torch.tanh(model.body(x))
        with sgt.watch() as inner:
            loss = model.head(hidden).sum()
    assert {reach.status for reach in outer.explain(loss, model).values()} == {"flows"}
    found = inner.explain(loss, model)
    assert {key for key in found if found[key].arrives} >= {"head.weight", "head.bias"}


def test_one_watch_after_the_other() -> None:
    setting = Setting()
    with sgt.watch() as later:
        loss = setting.loss()
    assert later.explain(loss, setting.model)["head.bias"].status == "flows"
    assert setting.seen.explain(setting.watched, setting.model)["head.bias"].status == "flows"
    with pytest.raises(sg.StopgradError, match=r"did not see"):
        later.explain(setting.watched, setting.model)


def test_a_watch_that_is_entered_again_goes_on() -> None:
    setting = Setting()
    with setting.seen:
        again = setting.loss()
    for loss in (setting.watched, again):
        assert setting.seen.explain(loss, setting.model)["body.weight"].status == "flows"


def test_a_report_on_nothing_says_so() -> None:
    setting = Setting()
    for xs in ([], {}, nn.ReLU()):
        assert "nothing was asked about" in str(setting.seen.explain(setting.watched, xs))


def test_a_report_while_the_watch_goes_on_is_no_part_of_the_record() -> None:
    model, x = Net(), torch.randn(2, 3)
    with sgt.watch() as seen:
        first = seen.explain(model(x).sum(), model)
        second = seen.explain(model(x).sum().detach(), model)
    assert first["body.weight"].status == "flows"
    assert second["body.weight"].status == "stopped"


def test_data_of_a_loader() -> None:
    model = Net()
    data = torch.utils.data.TensorDataset(torch.randn(4, 3), torch.randn(4, 1))
    with sgt.watch() as seen:
        for x, y in torch.utils.data.DataLoader(data, batch_size=2, shuffle=True, num_workers=0):
            loss = (model(x) - y).square().mean()
    assert {reach.status for reach in seen.explain(loss, model).values()} == {"flows"}


def in_a_process(text: str) -> str:
    """What a program of its own prints."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", text]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def in_a_thread(work: Callable[[], Any]) -> Any:
    """What another thread makes."""
    made: list[Any] = []
    thread = threading.Thread(target=lambda: made.append(work()))
    thread.start()
    thread.join()
    return made[0]


def test_data_made_by_another_thread() -> None:
    model = Net()
    with sgt.watch() as seen:
        x = in_a_thread(lambda: torch.randn(6, 3)[1:] * 2.0)
        loss = model(x).sum()
    assert {reach.status for reach in seen.explain(loss, model).values()} == {"flows"}


def test_other_threads_are_not_slowed_and_not_mixed_in() -> None:
    """A thread that trains a model of its own beside a watch is not recorded, and gets its gradients."""
    model, other, x = Net(), Net(), torch.randn(2, 3)

    def train() -> Any:
        loss = other(x).sum()
        loss.backward()
        return loss

    with sgt.watch() as seen:
        theirs = in_a_thread(train)
        loss = model(x).sum()
    assert all(parameter.grad is not None for parameter in other.parameters())
    assert {reach.status for reach in seen.explain(loss, model).values()} == {"flows"}
    assert not seen.backward_calls
    with pytest.raises(sg.StopgradError, match="did not see"):
        seen.explain(theirs, other)


def test_what_another_thread_computed_is_known_from_autograd() -> None:
    """Its lines were not recorded; the report may not say that the body is not used."""
    model, x = Net(), torch.randn(2, 3)
    with sgt.watch() as seen:
        hidden = in_a_thread(lambda: model.body(x))
        loss = model.head(hidden).sum()
    assert {reach.status for reach in seen.explain(loss, model).values()} == {"flows"}
    with sgt.watch() as seen:
        loss = model.head(in_a_thread(lambda: model.body(x).detach())).sum()
    found = seen.explain(loss, model)
    assert {key for key in found if found[key].arrives} == {"head.weight", "head.bias"}


def test_a_watch_of_another_thread() -> None:
    """Each thread has its own; a report may be asked for in any."""
    setting = Setting()

    def watched() -> Any:
        with sgt.watch() as seen:
            loss = setting.loss()
        return seen, loss

    seen, loss = in_a_thread(watched)
    assert seen.explain(loss, setting.model)["body.bias"].status == "flows"
    found = in_a_thread(lambda: setting.seen.explain(setting.watched, setting.model))
    assert found["body.bias"].status == "flows"


def test_watches_of_threads_that_overlap_leave_pytorch_as_it_was() -> None:
    model, x = Net(), torch.randn(2, 3)
    torch.compile(model.body, backend="eager")(x)
    known = state()
    first, second = threading.Event(), threading.Event()

    def other() -> None:
        with sgt.watch():
            second.set()
            first.wait(60)
            model(x)

    thread = threading.Thread(target=other)
    with sgt.watch():
        thread.start()
        second.wait(60)
    first.set()
    thread.join()
    assert state() == known


def test_compiled_modules_run_without_a_warning() -> None:
    model, x = Net(), torch.randn(2, 3)
    compiled = torch.compile(model, backend="eager")
    for run in (compiled, lambda x: torch.compile(model, backend="eager")(x)):
        with sgt.watch() as seen:
            loss = run(x).sum()
        assert {reach.status for reach in seen.explain(loss, model).values()} == {"flows"}
        assert any(key.endswith("body.bias") for key in seen.explain(loss))  # It is known what ran.


@pytest.mark.slow
def test_code_that_is_compiled_inside_of_the_watch() -> None:
    """In a process in which nothing was compiled before."""
    text = """
import torch, stopgrad.torch as sgt
m, h, x = torch.nn.Linear(3, 3), torch.nn.Linear(3, 1), torch.randn(2, 3)
original = torch.compile
with sgt.watch() as seen:
    loss = torch.compile(lambda x: h(m(x).relu().detach()), backend="eager")(x).sum()
assert torch.compile.__wrapped__ is original and torch._dynamo.eval_frame._stance.stance == "default"
print([reach.status for reach in seen.explain(loss, {"m": m, "h": h}).values()])
"""
    assert in_a_process(text) == "['stopped', 'stopped', 'flows', 'flows']\n"


def test_a_device_that_is_not_there_is_pytorchs_error() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    known = state()
    with pytest.raises((RuntimeError, AssertionError), match=r"(?i)cuda|nvidia"), sgt.watch():
        torch.zeros(3, device="cuda")
    assert state() == known


def test_tensors_without_values_are_watched() -> None:
    with torch.device("meta"):
        model, x = Net(), torch.randn(2, 3)
    with sgt.watch() as seen:
        loss = model(x).detach().sum() + model.body(x).sum()
    flow = seen.explain(loss, model)
    assert flow["body.bias"].status == "partly stopped"
    assert flow["head.bias"].status == "stopped"


def test_code_that_hides_its_inside() -> None:
    """A traced module runs outside Python: the same holds of it."""
    model, x = Net(), torch.randn(2, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # That tracing is to go one day.
        traced = torch.jit.trace(model, x)
    with sgt.watch() as seen:
        loss = traced(x).sum()
    flow = seen.explain(loss, model)
    loss.backward()
    for key, parameter in model.named_parameters():
        assert flow[key].arrives == (parameter.grad is not None), (key, flow)


# ------------------------------------------------------------------------------------------------ memory


class Kept:
    """Something that a weak reference can be made to."""


class Holding(torch.autograd.Function):
    """An operation whose node in autograd's graph holds an object."""

    @staticmethod
    def forward(ctx: Any, x: Any, kept: Kept) -> Any:
        ctx.kept = kept
        return x * 2.0

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * 2.0, None


def dead(reference: Any) -> bool:
    gc.collect()
    return reference() is None


def test_a_watch_and_what_it_recorded_are_let_go() -> None:
    setting = Setting()
    flow = setting.seen.explain(setting.watched, setting.model)
    watch, model = weakref.ref(setting.seen), weakref.ref(setting.model)
    del setting
    str(flow)
    del flow
    assert dead(watch)
    assert dead(model)


def test_a_watch_keeps_no_values_and_no_graph_of_autograd() -> None:
    kept = Kept()
    model, x = Net(), torch.randn(2, 3)
    with sgt.watch() as seen:
        hidden = Holding.apply(model.body(x), kept)
        loss = model.head(hidden).sum()
        total = loss.item()
    values = weakref.ref(hidden.untyped_storage())
    held, result = weakref.ref(kept), weakref.ref(loss)
    assert total == total
    flow = seen.explain(loss, model)
    del hidden, kept, loss
    assert dead(held)
    assert dead(result)
    assert dead(values)
    assert flow["body.bias"].status == "flows"


def test_a_model_may_die_before_its_watch() -> None:
    with sgt.watch() as seen:
        model = Net()
        loss = model(torch.randn(2, 3)).sum()
    gone = weakref.ref(model)
    del model, loss
    assert dead(gone)
    assert isinstance(seen, sgt.Watch)


@pytest.mark.slow
def test_many_watched_steps_need_no_more_memory_than_one() -> None:
    """What PyTorch's modes and tables hold does not grow from watch to watch."""
    model, x = Net(), torch.randn(2, 3)

    def step() -> None:
        with sgt.watch() as seen:
            loss = model(x).sum()
            loss.backward()
        seen.explain(loss, model)

    for _ in range(3):
        step()
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(20):
        step()
    gc.collect()
    assert len(gc.get_objects()) - before < 400


# ----------------------------------------------------------------------------------------------- imports


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("stopgrad", ("torch", "jax")),
        ("stopgrad.tools.cli", ("torch", "jax")),
        ("stopgrad.pytest_plugin", ("torch", "jax")),
        ("stopgrad.torch", ("jax", "flax", "torchvision", "torch._dynamo")),
        ("stopgrad.jax", ("torch", "flax", "haiku")),
    ],
)
def test_what_an_import_does_not_bring(module: str, absent: tuple[str, ...]) -> None:
    text = f"import sys, {module}; print([name for name in {absent!r} if name in sys.modules])"
    assert in_a_process(text) == "[]\n"


@pytest.mark.parametrize("module", ["torch", "jax"])
def test_a_framework_that_is_not_installed_is_named(module: str) -> None:
    text = f"""
import sys
sys.modules[{module!r}] = None
try:
    import stopgrad.{module}
except ImportError as error:
    print(error)
"""
    assert f"pip install 'stopgrad[{module}]'" in in_a_process(text)


@pytest.fixture(autouse=True)
def _no_leak() -> Iterator[None]:
    yield
    assert torch._C._len_torch_function_stack() == 0
    assert torch._C._len_torch_dispatch_stack() == 0


def test_help_is_named_as_it_is_found() -> None:
    with pytest.raises(sg.ArgumentError, match=r"help\(stopgrad\.torch\.watch\) says what it takes"):
        sgt.watch(3)


def test_a_gradient_towards_a_module_names_what_to_pass() -> None:
    module = torch.nn.Linear(3, 2)
    model = sgt.load(module, torch.ones(4, 3))
    for wrong, says in (
        (module, "stopgrad.torch.load"),
        (module.parameters, "load"),
        (model, r"its values\(\)"),
    ):
        with pytest.raises(sg.DTypeError, match=says):
            sg.grad(lambda p: 1.0)(wrong)
    slopes = sg.grad(lambda p: sg.reduce_sum(model.apply(p, np.ones((4, 3), np.float32))))(model.values())
    np.testing.assert_array_equal(slopes["bias"], [4.0, 4.0])

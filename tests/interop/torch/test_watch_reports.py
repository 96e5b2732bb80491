"""A reader's view of a report on PyTorch code: what is frozen in a line, the own line first, few numbers."""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from installed import installed

from stopgrad.flow.page.page_data import page_data

torch = pytest.importorskip("torch")
sgt = pytest.importorskip("stopgrad.torch")
nn, functional = torch.nn, torch.nn.functional

HERE = Path(__file__)


def line(of: Callable[..., Any], mark: str) -> str:
    """``file:line``, for the line of a function that carries a mark."""
    text, first = inspect.getsourcelines(of)
    (number,) = [first + i for i, one in enumerate(text) if one.rstrip().endswith(f"# {mark}")]
    return f"{HERE.name}:{number}"


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    """This file has a name without folders."""
    monkeypatch.chdir(HERE.parent)


def told(flow: Any, width: int = 100) -> str:
    text: str = flow.to_text(width=width)
    return text


def sections(flow: Any) -> list[str]:
    return told(flow, 120).split("\n\n")


def blocks(count: int = 4) -> Any:
    return nn.Sequential(*[nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Tanh()) for _ in range(count)])


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = blocks(), nn.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        h = self.body(x)
        return self.head(h)


# -------------------------------------------------------------------------------------------- what is frozen


def test_a_frozen_network_takes_one_line() -> None:
    policy = Net()
    reference = copy.deepcopy(policy).requires_grad_(False)
    x = torch.randn(3, 4)
    with sgt.watch() as seen:
        with torch.no_grad():
            goal = reference(x)
        loss = (policy(x) - goal).square().mean()
    flow = seen.explain(loss, {"policy": policy, "ref_model": reference})
    assert told(flow).splitlines() == [
        "Gradients reach 18 of 36 tensors; 18 frozen.",
        "",
        "ref_model (18 tensors): frozen, requires_grad is False",
        "flows: policy (18 tensors)",
    ]


def test_frozen_layers_are_named_by_their_modules() -> None:
    net = Net()
    for name, parameter in net.named_parameters():
        parameter.requires_grad_(name.startswith(("body.3", "head")))
    with sgt.watch() as seen:
        loss = net(torch.randn(3, 4)).sum()
    assert told(seen.explain(loss, net), 80).splitlines()[2:] == [
        "body.0-2 (12 tensors): frozen, requires_grad is False",
        "flows: body.3 (4 tensors), head (2 tensors)",
    ]


def test_the_line_that_froze_is_told_if_it_was_seen() -> None:
    generator, critic = nn.Linear(2, 4), Net()

    def step() -> Any:
        critic.requires_grad_(False)  # froze
        loss = critic(generator(torch.randn(3, 2))).mean()
        critic.requires_grad_(True)
        return loss

    flow = sgt.explain(step, model={"generator": generator, "critic": critic})
    assert (
        f"critic (18 tensors): frozen at {line(step, 'froze')}, requires_grad is False" in sections(flow)[-1]
    )
    assert flow["critic.head.weight"].status == "stopped"


def test_a_layer_that_is_made_frozen_is_frozen_at_its_line() -> None:
    table = torch.randn(5, 4)

    def step() -> Any:
        words = nn.Embedding.from_pretrained(table)  # made
        return words(torch.arange(3)).sum() + words.weight.sum(), words

    with sgt.watch() as seen:
        loss, words = step()
    assert f"weight: frozen at {line(step, 'made')}, requires_grad is False" in told(
        seen.explain(loss, words)
    )


def test_what_else_cuts_the_way_to_frozen_layers_is_told_in_the_same_line() -> None:
    teacher = Net().requires_grad_(False)
    net = Net()

    def step(x: Any) -> Any:
        return (net(x) - teacher(x).detach()).square().mean()  # cut

    flow = sgt.explain(step, torch.randn(3, 4), model={"net": net, "teacher": teacher})
    assert sections(flow)[1].splitlines() == [
        f"teacher (18 tensors): frozen, requires_grad is False; also cut at {line(step, 'cut')} (detach)",
        "flows: net (18 tensors)",
    ]


def test_a_tensor_that_is_frozen_only_later_in_the_loss_is_partly_stopped() -> None:
    w = torch.ones(3, requires_grad=True)
    with sgt.watch() as seen:
        first = (w * 2.0).sum()
        w.requires_grad_(False)
        loss = first + (w * 3.0).sum()
        w.requires_grad_(True)
    flow = seen.explain(loss, {"w": w})
    assert flow["w"].status == "partly stopped"
    assert "requires_grad is False" in told(flow)
    assert "frozen" not in told(flow)


def test_labels_are_not_called_frozen() -> None:
    net, labels = nn.Linear(4, 3), torch.tensor([0, 2])
    with sgt.watch() as seen:
        loss = functional.cross_entropy(net(torch.randn(2, 4)), labels)
    assert "frozen" not in told(seen.explain(loss, {"net": net, "labels": labels}))


@pytest.mark.parametrize("frozen", [True, False])
def test_a_stop_that_only_keeps_frozen_layers_apart_is_not_idle(frozen: bool) -> None:
    teacher, net = Net().requires_grad_(not frozen), Net()
    x = torch.randn(3, 4)
    with sgt.watch() as seen:
        with torch.no_grad():
            goal = teacher(x)
        loss = (net(x) - goal.detach()).square().mean()
    flow = seen.explain(loss, {"net": net, "teacher": teacher})
    # For a teacher that could be trained, one of the two stops does nothing.
    assert ("idle" in told(flow)) is not frozen
    assert flow.to_dict()["summary"]["idle"] == (not frozen)
    assert len(flow.idle) == (not frozen)


def test_a_stop_of_both_frozen_and_other_layers_may_be_idle() -> None:
    body, head = nn.Linear(4, 4).requires_grad_(False), nn.Linear(4, 4)
    with sgt.watch() as seen:
        with torch.no_grad():
            h = head(body(torch.randn(3, 4)))
        loss = (h.detach() * torch.ones(4, requires_grad=True)).sum()
    flow = seen.explain(loss, {"body": body, "head": head})
    assert [one.kind for one in flow.findings] == ["stopped", "stopped", "idle"]


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("how", ["lerp_", "mul_ add_", "data"])
def test_an_update_of_frozen_layers_is_not_idle(frozen: bool, how: str) -> None:
    net = nn.Linear(4, 2)
    average = copy.deepcopy(net).requires_grad_(not frozen)
    x = torch.randn(3, 4)
    with sgt.watch() as seen:
        for _ in range(2):
            for old, new in zip(average.parameters(), net.parameters(), strict=True):
                with torch.no_grad():
                    if how == "lerp_":
                        old.lerp_(new, 0.1)
                    elif how == "mul_ add_":
                        old.mul_(0.9).add_(new, alpha=0.1)
                    else:
                        old.data = old.data * 0.9 + new.detach() * 0.1
        loss = (net(x) - average(x).detach()).square().mean()
    flow = seen.explain(loss, {"net": net, "average": average})
    assert {one.kind for one in flow.findings} == ({"stopped"} if frozen else {"stopped", "idle"})


def test_an_alias_that_nobody_wrote_is_no_idle_stop() -> None:
    first, second = torch.randint(0, 5, (2, 2, 3))  # Views of one memory.
    net = nn.Embedding(5, 4)
    with sgt.watch() as seen:
        loss = (net(first) - net(second)).sum()
    assert "idle" not in told(seen.explain(loss, net))


# -------------------------------------------------------------------------------------------- the own line


@pytest.fixture
def helper(tmp_path: Path) -> Any:
    """A library of functions that cut."""
    return installed(
        tmp_path,
        "helper/base.py",
        """
        import torch

        def detached(x):
            return _cut(x)

        def _cut(x):
            return x.detach()

        def positive(x):
            return x > 0

        def apart(x):
            with torch.no_grad():
                return x * 2.0

        @torch.no_grad()
        def decorated(x):
            return x * 2.0

        def number(x):
            return x.item()

        def freeze(module):
            for p in module.parameters():
                p.requires_grad_(False)

        def several(x):
            return _cut(x) + x.data + (x > 0)

        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = torch.nn.Linear(4, 4)

            def forward(self, x):
                return self.inner(x).detach() * x

        def plain_model(w, x):
            return (w.detach() * x).sum()
        """,
    )


def number_in(module: Any, text: str) -> int:
    """The number of the line of a module that holds a text."""
    lines = Path(module.__file__).read_text().splitlines()
    (found,) = [i for i, one in enumerate(lines, 1) if text in one]
    return found


@pytest.mark.parametrize(
    ("function", "reason", "text"),
    [
        ("detached", "detach", "return x.detach()"),
        ("apart", "torch.no_grad()", "    with torch.no_grad():"),
        ("decorated", "torch.no_grad()", "@torch.no_grad()"),
    ],
)
def test_the_line_that_called_a_helper_comes_first(
    helper: Any, function: str, reason: str, text: str
) -> None:
    w = torch.ones(4, requires_grad=True)
    call = getattr(helper, function)

    def step() -> Any:
        h = call(w * 2.0)  # called
        return (h * w).sum()

    flow = sgt.explain(step, model={"w": w})
    at = f"helper/base.py:{number_in(helper, text)}"
    own = line(step, "called")
    assert f"  {own}  {reason}, in {at}\n" in told(flow)
    (cut,) = flow["w"].cuts
    assert cut.location.file == helper.__file__
    assert f"{Path(cut.location.cause.file).name}:{cut.location.cause.line}" == own
    at_call = cut.location
    assert at_call.cause is at_call.caller is at_call.own


def test_a_number_that_left_in_a_helper_left_at_the_own_line(helper: Any) -> None:
    w = torch.full((), 2.5, requires_grad=True)

    def step() -> Any:
        n = helper.number(w)  # left
        return torch.ones(3, requires_grad=True).sum() * n  # back

    flow = sgt.explain(step, model={"w": w})
    at = number_in(helper, "x.item()")
    shown = " ".join(told(flow).split())
    assert f"{line(step, 'left')} left for Python by .item(), came back at" in shown
    assert f"in helper/base.py:{at}" in shown


def test_one_line_that_calls_several_helpers_is_one_entry(helper: Any) -> None:
    w = torch.ones(4, requires_grad=True)

    def step() -> Any:
        return (helper.several(w * 2.0) * w).sum()  # called

    flow = sgt.explain(step, model={"w": w})
    shown = told(flow)
    first, second = number_in(helper, "return x.detach()"), number_in(helper, "+ x.data +")
    assert f"  {line(step, 'called')}  detach and .data, in helper/base.py:{first} and :{second}\n" in shown
    assert shown.count("helper.several") == 2  # Once with its source, once for the comparison.
    assert {cut.location.line for cut in flow["w"].cuts} == {first, second}  # The data have each line.


def test_a_line_that_cuts_in_helpers_is_told_whole_where_it_is_told_first(helper: Any) -> None:
    a, b = torch.ones(4, requires_grad=True), torch.ones(4, requires_grad=True)

    def step() -> Any:
        h = helper.detached(a) * helper.apart(b)  # called
        return (h * b).sum()

    shown = told(sgt.explain(step, model={"a": a, "b": b}))
    first, second = number_in(helper, "return x.detach()"), number_in(helper, "    with torch.no_grad():")
    own = line(step, "called")
    assert (
        f"stopped: a\n  {own}  detach and torch.no_grad(), in helper/base.py:{first} and :{second}\n" in shown
    )
    assert f"partly stopped: b\n  1 of 2 paths is cut\n  cut at {own}, shown above" in shown


def test_a_helper_called_at_two_lines_is_two_cuts(helper: Any) -> None:
    a, b = torch.ones(4, requires_grad=True), torch.ones(4, requires_grad=True)

    def step() -> Any:
        h = helper.detached(a)  # first
        k = helper.detached(b)  # second
        return (h + k + a).sum()

    flow = sgt.explain(step, model={"a": a, "b": b})
    assert f"{line(step, 'second')}  detach" in told(flow[["b"]])
    assert line(step, "first") not in told(flow[["b"]])
    lines = [(cut["location"]["line"], cut["location"]["caller"]["line"]) for cut in flow.to_dict()["cuts"]]
    assert len({caller for _, caller in lines}) == 2
    assert len({at for at, _ in lines}) == 1


def test_a_librarys_model_is_named_by_its_own_line(helper: Any) -> None:
    model = helper.Model()

    def step(x: Any) -> Any:
        return model(x).sum() * 2.0  # called

    flow = sgt.explain(step, torch.randn(3, 4), model=model)
    at = number_in(helper, "self.inner(x).detach()")
    assert f"  helper/base.py:{at}  detach\n" in told(flow)
    assert line(step, "called") not in told(flow)
    (cut,) = flow["inner.weight"].cuts
    found = cut.location
    assert found.cause is found
    assert f"{Path(found.own.file).name}:{found.own.line}" == line(step, "called")


def test_a_librarys_layer_in_ones_own_model_is_named_by_the_own_line(helper: Any) -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = helper.Model()

        def forward(self, x: Any) -> Any:
            return self.layer(x) * x  # called

    own = Own()
    with sgt.watch() as seen:
        loss = own(torch.randn(3, 4)).sum()
    at = number_in(helper, "self.inner(x).detach()")
    assert f"  {line(Own.forward, 'called')}  detach, in helper/base.py:{at}\n" in told(
        seen.explain(loss, own)
    )


def test_a_librarys_model_is_named_before_the_helper_of_another(helper: Any, tmp_path: Path) -> None:
    models = installed(
        tmp_path,
        "models/net.py",
        """
        import torch

        class Net(torch.nn.Module):
            def __init__(self, helper):
                super().__init__()
                self.inner, self.helper = torch.nn.Linear(4, 4), helper

            def forward(self, x):
                return self.helper.detached(self.inner(x)) * x
        """,
    )
    net = models.Net(helper)
    with sgt.watch() as seen:
        loss = net(torch.randn(3, 4)).sum()
    flow = seen.explain(loss, net)
    cut = flow["inner.weight"].cuts[0].location
    assert [Path(at.file).name for at in (cut, cut.cause, cut.own)] == ["base.py", "net.py", HERE.name]
    model, inner = number_in(models, "self.helper.detached"), number_in(helper, "return x.detach()")
    assert f"  models/net.py:{model}  detach, in helper/base.py:{inner}\n" in told(flow)


def test_a_librarys_function_that_is_asked_about_itself_is_the_cause(helper: Any) -> None:
    flow = sgt.explain(helper.plain_model, torch.ones(3, requires_grad=True), torch.ones(3))
    at = number_in(helper, "(w.detach() * x)")
    assert f"  helper/base.py:{at}  detach\n" in told(flow)


def test_own_code_alone_has_no_callers() -> None:
    w = torch.ones(3, requires_grad=True)
    with sgt.watch() as seen:
        loss = (w.detach() * w).sum()
    (cut,) = seen.explain(loss, {"w": w}).to_dict()["cuts"]
    assert cut["location"]["caller"] is None


def test_notices_are_at_the_own_line(helper: Any) -> None:
    w = torch.ones(4, requires_grad=True)

    def step() -> Any:
        return helper.detached(w).sum() + torch.ones(2, requires_grad=True).sum()  # called

    flow = sgt.explain(step, model={"w": w})
    own = int(line(step, "called").split(":")[1])
    (result,) = json.loads(flow.to_sarif())["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"].endswith(HERE.name)
    assert place["region"]["startLine"] == own
    assert f"{HERE.name},line={own}," in flow.to_github()
    at = number_in(helper, "return x.detach()")
    assert result["message"]["text"] == f"stopped: w, in helper/base.py:{at}"
    assert "site-packages" not in flow.to_github()


def test_a_frozen_network_is_one_note() -> None:
    net, frozen = Net(), Net().requires_grad_(False)
    with sgt.watch() as seen:
        loss = (net(torch.randn(3, 4)) - frozen(torch.randn(3, 4))).sum()
    flow = seen.explain(loss, {"net": net, "frozen_net": frozen})
    (note,) = flow.to_github().splitlines()
    assert note.startswith("::notice ")
    assert note.endswith("::frozen, requires_grad is False: frozen_net (18 tensors)")


def test_an_assertion_knows_a_cut_by_the_line_that_called_the_helper(helper: Any) -> None:
    w, v = torch.ones(4, requires_grad=True), torch.ones(4, requires_grad=True)

    def step() -> Any:
        h = helper.detached(w)  # called
        return (h * v).sum()

    with sgt.watch():
        loss = step()
    sgt.assert_blocked(loss, {"w": w}, by=line(step, "called"))
    sgt.assert_blocked(loss, {"w": w}, by=f"helper/base.py:{number_in(helper, 'return x.detach()')}")


def test_a_layer_frozen_by_a_helper_is_frozen_at_the_own_line(helper: Any) -> None:
    net = Net()

    def step() -> Any:
        helper.freeze(net)  # froze
        with torch.no_grad():
            net.head.weight.data.mul_(2.0)
        return net(torch.randn(3, 4)).sum() + torch.ones(2, requires_grad=True).sum()

    flow = sgt.explain(step, model=net)
    assert f"body (16 tensors), head (2 tensors): frozen at {line(step, 'froze')}, " in told(flow)


def test_idle_stops_of_a_librarys_model_are_one_line(tmp_path: Path) -> None:
    models = installed(
        tmp_path,
        "models/idle.py",
        """
        import torch

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner, self.head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

            def forward(self, x):
                h = self.inner(x).detach()
                h = h.detach()
                return self.head(h.detach())
        """,
    )
    net = models.Net()
    flow = sgt.explain(net, torch.randn(3, 4))
    first = number_in(models, "self.inner(x).detach()")
    where = f"models/idle.py:{first} and :{first + 1} (every path to it is cut before)"
    assert sections(flow)[-1] == f"idle: 2 stops that do nothing, at {where}"


# ------------------------------------------------------------------------------------------ what comes last


def test_comparisons_indices_and_masks_are_one_line_after_what_was_written_to_cut() -> None:
    net = nn.Linear(4, 4)

    def step(x: Any) -> Any:
        h = net(x)
        mask = h > 0  # first
        top = h.argmax(-1)
        low = h < -1
        h = torch.where(mask & low.logical_not(), h, h * 0.5)
        h = h * (h != 0) * (h <= 5)
        return (h * top[:, None] + h.detach()).sum()  # cut

    flow = sgt.explain(step, torch.randn(3, 4), model=net)
    lines = sections(flow)[1].splitlines()
    assert lines[0] == "partly stopped: weight, bias"
    assert lines[2] == f"  {line(step, 'cut')}  detach"
    first = int(line(step, "first").split(":")[1])
    assert lines[-1] == (
        f"  no derivative: 5 comparisons, indices and masks, at {HERE.name}:{first}, :{first + 1}, "
        f":{first + 2} and :{first + 4}"
    )
    assert told(flow).count("no derivative") == 1


def test_tensors_that_differ_by_comparisons_alone_are_one_group() -> None:
    a, b, c = (torch.randn(3, requires_grad=True) for _ in range(3))

    def step() -> Any:
        h = a * (a > 0) + b * (b > 1)
        return (h + c * (c > 2) * (c < 9)).sum()

    flow = sgt.explain(step, model={"a": a, "b": b, "c": c})
    assert [story.labels for story in flow.stories] == [("a", "b", "c")]
    assert "no derivative: 4 comparisons, indices and masks, at" in told(flow)


def test_a_comparison_alone_keeps_its_source() -> None:
    a = torch.randn(3, requires_grad=True)

    def step() -> Any:
        return (a * (a > 0)).sum()  # here

    assert f"no derivative: {line(step, 'here')}  a > 0: bool carries no gradient" in told(
        sgt.explain(step, model={"a": a}), width=120
    )


def test_huge_numbers_of_paths_are_words() -> None:
    w = torch.ones((), requires_grad=True)
    with sgt.watch() as seen:
        h = w
        for _ in range(60):
            h = h * 0.5 + h.sin()
        loss = h.detach() * torch.ones((), requires_grad=True)
        partly = h.detach() + h
    assert "  all paths are cut\n" in told(seen.explain(loss, {"w": w}))
    assert "  half of the paths are cut\n" in told(seen.explain(partly, {"w": w}))
    assert seen.explain(partly, {"w": w})["w"].paths == 2**61


def test_hooks_of_one_kind_are_one_line(tmp_path: Path) -> None:
    hooks = installed(
        tmp_path,
        "hooks/of.py",
        """
        def hooked(x):
            x.register_hook(lambda g: g)
            x.register_hook(lambda g: g * 2)
            return x
        """,
    )
    w = torch.ones(3, requires_grad=True)

    def step() -> Any:
        return hooks.hooked(w * 2.0).sum()  # called

    flow = sgt.explain(step, model={"w": w})
    shown = told(flow, 140)
    assert shown.count("hook:") == 1
    assert f"hook: {line(step, 'called')}  a hook may change the gradient of w, even to zero, in" in shown
    assert "hooks/of.py:2 and :3" in shown


def test_data_keep_their_fields_and_say_what_is_frozen() -> None:
    net, frozen = nn.Linear(2, 2), nn.Linear(2, 2).requires_grad_(False)
    with sgt.watch() as seen:
        loss = frozen(net(torch.randn(3, 2))).sum()
    data = seen.explain(loss, {"net": net, "frozen": frozen}).to_dict()
    assert data["summary"]["statuses"]["stopped"] == data["summary"]["frozen"] == 2
    assert {x["key"]: (x["status"], x["frozen"]) for x in data["xs"]} == {
        "net.weight": ("flows", False),
        "net.bias": ("flows", False),
        "frozen.weight": ("stopped", True),
        "frozen.bias": ("stopped", True),
    }
    (finding,) = data["findings"]
    assert (finding["kind"], finding["frozen"]) == ("stopped", True)


# ---------------------------------------------------------------------------------------------- on a page


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.o = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        weights = torch.softmax(self.q(x) @ x.T, -1)
        return self.o(weights @ x)


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(4), Attention()

    def forward(self, x: Any) -> Any:
        return x + self.attention(self.norm(x))


class Stack(nn.Module):
    def __init__(self, count: int) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.blocks = nn.ModuleList(Residual() for _ in range(count))

    def forward(self, x: Any) -> Any:
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return x.detach() + x


def test_the_groups_of_a_page_are_the_calls_of_modules() -> None:
    net, x = Stack(3), torch.ones(5, 4)
    with sgt.watch() as seen:
        for _ in range(2):  # The last of two steps.
            loss = net(x).sum()
    data = page_data(seen.explain(loss, net))
    groups, columns = data["groups"], data["operations"]
    inside: dict[int, list[str]] = {}
    for label, parent in zip(groups["label"], groups["parent"], strict=True):
        inside.setdefault(parent, []).append(label)
    assert inside[-1] == ["Stack.forward"]
    assert inside[0] == ["Residual.forward"] * 3
    assert [inside[n] for n, label in enumerate(groups["label"]) if label == "Residual.forward"] == [
        ["Attention.forward"]
    ] * 3
    at = {tensor["label"]: groups["label"][columns["group"][tensor["op"]]] for tensor in data["tensors"]}
    assert at["first.weight"] == "Stack.forward"
    assert at["blocks.1.norm.weight"] == "Residual.forward"
    assert at["blocks.1.attention.o.bias"] == "Attention.forward"

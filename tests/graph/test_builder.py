"""Who builds: threads, generators and tasks never see each other's scopes, blocks, failures and gradients."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import sys
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from types import FrameType
from typing import Any

import numpy as np
import pytest

import stopgrad as sg
from stopgrad.graph.builder import current
from stopgrad.graph.verify import verify


@pytest.fixture
def graph() -> Iterator[sg.Graph]:
    graph = sg.Graph()
    with graph.as_default():
        yield graph


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads take turns as often as Python lets them."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def together(*works: Callable[[], None]) -> None:
    """Run each work in a thread of its own, all beginning at once; raise the first error of any."""
    barrier = threading.Barrier(len(works))
    errors: list[BaseException] = []

    def run(work: Callable[[], None]) -> None:
        try:
            barrier.wait()
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@contextlib.contextmanager
def failed_build(graph: sg.Graph) -> Iterator[None]:
    """A build that fails at its end."""
    with contextlib.suppress(RuntimeError), graph.atomic():
        yield
        raise RuntimeError


def name_here(graph: sg.Graph) -> str:
    """The name that an operation gets which is built here and now."""
    with graph.as_default():
        return sg.placeholder(sg.float32, name="here").op.name


def scopes_here(graph: sg.Graph) -> str:
    return name_here(graph).rpartition("/")[0]


def flows_from_here(x: sg.Output) -> bool:
    """Whether a gradient passes what is built here and now: not from inside a no_gradient block."""
    built = sg.exp(x)
    done: list[bool] = []
    # Asked in a context of its own, which is outside of any block.
    contextvars.Context().run(lambda: done.append(sg.gradients(built * 2.0, [x])[0] is not None))
    return done[0]


# ------------------------------------------------------------------------------------------ threads


def test_scopes_of_four_threads_in_one_graph_label_their_own_operations(restless: None) -> None:
    graph = sg.Graph()
    built: list[list[sg.Operation]] = [[] for _ in range(4)]

    def work(i: int) -> None:
        with graph.as_default(), sg.name_scope(f"t{i}"):
            x = sg.placeholder(sg.float32, [3], name="x")
            for k in range(100):
                with sg.name_scope("step"):
                    built[i] += [sg.exp(x).op for _ in range(19)]
                    built[i].append(sg.exp(x, name=f"named{k}").op)

    together(*[lambda i=i: work(i) for i in range(4)])
    assert sum(map(len, built)) == 8000
    wrong = [op.name for i, ops in enumerate(built) for op in ops if not op.name.startswith(f"t{i}/step")]
    assert wrong == []
    assert len({op.name for op in graph.operations}) == len(graph)
    verify(graph)


def test_operations_of_several_threads_are_found_by_their_names(restless: None) -> None:
    graph = sg.Graph()

    def work(i: int) -> None:
        with graph.as_default():
            x = sg.placeholder(sg.float32, name=f"x{i}")
            for _ in range(500):
                sg.exp(x, name="y")

    together(*[lambda i=i: work(i) for i in range(4)])
    assert [op for op in graph.operations if graph.operation(op.name) is not op] == []
    assert len({op.name for op in graph.operations}) == len(graph) == 2004


def test_scopes_of_two_threads_in_two_graphs_stay_apart(restless: None) -> None:
    graphs = [sg.Graph(), sg.Graph()]

    def work(i: int) -> None:
        with graphs[i].as_default(), sg.name_scope(f"g{i}"):
            x = sg.placeholder(sg.float32, name="x")
            for _ in range(500):
                sg.exp(x)

    together(lambda: work(0), lambda: work(1))
    for i, graph in enumerate(graphs):
        assert len(graph) == 501
        assert all(op.name.startswith(f"g{i}/") for op in graph.operations)


def test_a_failing_build_removes_no_operation_of_another_thread(restless: None) -> None:
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float32, [3], name="x")
        wrong = sg.placeholder(sg.float32, [4], name="wrong")
    kept: list[list[sg.Operation]] = [[], []]
    failures: list[int] = []

    def build(i: int) -> None:
        y = x
        for k in range(700):
            y = sg.exp(y, name=f"t{i}k{k}") * float(k % 7)
            kept[i] += [y.op.inputs[0].op, y.op]

    def fail() -> None:
        for k in range(250):
            try:
                sg.softmax_cross_entropy_with_logits(wrong, x * float(k % 7))
            except sg.ShapeError:
                failures.append(k)
            with contextlib.suppress(RuntimeError), graph.as_default(), graph.atomic(), sg.name_scope("lost"):
                sg.exp(x, name="lost") * 3.0
                raise RuntimeError

    together(lambda: build(0), lambda: build(1), fail, fail)
    assert len(failures) == 500
    there = set(graph.operations)
    assert [op for ops in kept for op in ops if op not in there] == []
    assert [op.name for ops in kept for op in ops if graph.operation(op.name) is not op] == []
    assert len({op.name for op in graph.operations}) == len(graph)
    verify(graph)


def test_a_number_is_not_shared_with_a_thread_whose_build_may_fail() -> None:
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float32, name="x")
    found: list[sg.Output] = []

    def use() -> None:
        found.append(sg.graph.build.as_output(3.5, graph))

    with failed_build(graph):
        _ = x * 3.5
        together(use)
    assert found[0].op in graph.operations
    sg.add(found[0], found[0])
    verify(graph)


def test_the_end_of_a_block_is_not_shared_with_a_thread_whose_build_may_fail() -> None:
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float32, name="x")
    with sg.no_gradient():
        y = sg.exp(x)
    found: list[sg.Output] = []
    with failed_build(graph):
        sg.sin(y)
        together(lambda: found.append(sg.graph.build.visible(y)))
    assert found[0].op in graph.operations


def test_a_build_taken_back_reserves_no_scope_that_stood_unclaimed(graph: sg.Graph) -> None:
    """vmap puts operations below a prefix that nobody has claimed; a later claim must not stay."""

    def second() -> list[str]:
        sg.gradients(sg.sin(x), x)
        return [op.name for op in graph.operations]

    x = sg.placeholder(sg.float32, [3], name="x")
    sg.vmap(sg.grad(lambda a: a * a))(x)
    length = len(graph)
    assert any(op.name.startswith("gradients/") for op in graph.operations)
    first = second()
    graph.truncate(length)
    assert second() == first


def test_names_taken_by_another_thread_outlive_a_failed_build() -> None:
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float32, name="x")
    kept: list[sg.Operation] = []

    def other() -> None:
        with graph.as_default(), sg.name_scope("layer"):
            kept.append(sg.exp(x, name="kept").op)

    with failed_build(graph):
        sg.exp(x, name="lost")
        together(other)
    assert kept[0].name == "layer/kept"
    assert graph.operation("layer/kept") is kept[0]
    with graph.as_default(), sg.name_scope("layer"):
        assert sg.exp(x, name="kept").op.name == "layer_1/kept"


def test_a_scope_that_another_thread_has_begun_outlives_a_failed_build() -> None:
    graph = sg.Graph()
    scopes: list[sg.Scope] = []

    def other() -> None:
        with graph.as_default():
            scopes.append(sg.name_scope("layer"))

    with failed_build(graph):
        together(other)
        with graph.as_default():
            sg.placeholder(sg.float32)
    with graph.as_default():
        scopes.append(sg.name_scope("layer"))
    assert [scope.prefix for scope in scopes] == ["layer/", "layer_1/"]


def test_operations_of_a_user_never_become_gradient_operations(restless: None) -> None:
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float32, [3], name="x")
        y = x
        for _ in range(60):
            y = sg.sin(y)
    built: list[sg.Operation] = []
    pulled: list[sg.Output] = []
    done = threading.Event()

    def differentiate() -> None:
        while len(pulled) < 15 or len(built) <= 3:
            pulled.append(sg.gradients(y, [x])[0])
        done.set()

    def use() -> None:
        while not done.is_set():
            built.extend(z.op for z in (sg.exp(x), x * 1.5, sg.cos(x)))

    together(differentiate, use)
    assert [op for op in built if op.origin is not None or "gradients" in op.name] == []
    assert [x.op for op in built for x in op.inputs if x.op.origin is not None] == []
    assert {len(graph.subgraph_to([g])) for g in pulled} == {len(graph.subgraph_to([pulled[0]]))}
    verify(graph)


def test_a_block_in_one_thread_hides_nothing_of_another(graph: sg.Graph) -> None:
    x = sg.placeholder(sg.float32, name="x")
    entered, built = threading.Event(), threading.Event()
    flows: list[bool] = []

    def hide() -> None:
        with sg.no_gradient():
            entered.set()
            built.wait()

    def use() -> None:
        entered.wait()
        flows.append(sg.gradients(sg.exp(x), [x])[0] is not None)
        built.set()

    together(hide, use)
    assert flows == [True]


def test_what_many_threads_hide_stays_hidden_while_builds_fail(restless: None) -> None:
    graph = sg.Graph()
    with graph.as_default():
        x = sg.placeholder(sg.float32, [3], name="x")
    hidden: list[sg.Output] = []

    def hide() -> None:
        for _ in range(300):
            with sg.no_gradient():
                hidden.append(sg.exp(x))

    def fail() -> None:
        for _ in range(300):
            with contextlib.suppress(RuntimeError), graph.atomic(), sg.no_gradient():
                sg.exp(x)
                raise RuntimeError

    together(hide, hide, fail)
    assert len(hidden) == 600
    assert [g for y in hidden for g in sg.gradients(y * 2.0, [x]) if g is not None] == []


def test_two_threads_ask_for_a_custom_gradient_at_once(restless: None) -> None:
    calls: list[int] = []

    def f(x: Any) -> Any:
        c = sg.exp(x)

        def pull(g: Any) -> Any:
            calls.append(1)
            time.sleep(0.01)  # time for the others to ask, too
            return g * c

        return sg.sin(x), pull

    for _ in range(5):
        graph = sg.Graph()
        with graph.as_default():
            x = sg.placeholder(sg.float32, name="x")
            y = sg.custom_gradient(f)(x)
        calls.clear()
        together(*[lambda x=x, y=y: sg.gradients(y, [x])] * 4)
        assert len(calls) == 1
        assert len(y.op.inputs) == 3
        verify(graph)


def test_threads_build_while_a_gradient_function_runs(graph: sg.Graph) -> None:
    x = sg.placeholder(sg.float32, name="x")
    built: list[sg.Output] = []

    def pull(g: Any) -> Any:
        thread = threading.Thread(target=lambda: built.append(sg.exp(x, name="other")))
        thread.start()
        thread.join(10)
        return g * 2.0

    y = sg.custom_gradient(lambda a: (a * 2.0, pull))(x)
    assert sg.gradients(y, [x])[0] is not None
    assert [z.op.name for z in built] == ["other"]
    assert graph.operation("other") is built[0].op
    verify(graph)


# --------------------------------------------------------------------------------------- generators


def scoped(graph: sg.Graph, name: str) -> Iterator[str]:
    with sg.name_scope(name):
        while True:
            yield scopes_here(graph)


def test_whoever_runs_while_a_generator_is_suspended_sees_no_scope_of_it(graph: sg.Graph) -> None:
    layer = scoped(graph, "inner")
    assert next(layer) == "inner"
    assert scopes_here(graph) == ""
    assert next(layer) == "inner"
    with sg.name_scope("outer"):
        assert scopes_here(graph) == "outer"
        assert next(layer) == "inner"
    layer.close()
    assert scopes_here(graph) == ""


def test_interleaved_generators_see_their_own_scopes(graph: sg.Graph) -> None:
    a, b = scoped(graph, "a"), scoped(graph, "b")
    assert [next(a), next(b), next(a), next(b)] == ["a", "b", "a", "b"]
    a.close()  # the first one first: out of order
    assert [scopes_here(graph), next(b), scopes_here(graph)] == ["", "b", ""]
    b.close()
    assert scopes_here(graph) == ""


def test_generators_that_walk_a_tree_nest_their_scopes(graph: sg.Graph) -> None:
    def walk(depth: int) -> Iterator[str]:
        with sg.name_scope(f"level{depth}"):
            yield scopes_here(graph)
            if depth < 2:
                yield from walk(depth + 1)

    assert list(zip(walk(0), walk(1), strict=False)) == [
        ("level0", "level1"),
        ("level0/level1", "level1/level2"),
    ]
    assert scopes_here(graph) == ""


def test_functions_are_called_at_once_while_a_generator_is_suspended_in_a_graph() -> None:
    def user(graph: sg.Graph) -> Iterator[None]:
        with sg.Scope(graph):
            yield

    graph = sg.Graph()
    running = user(graph)
    next(running)
    assert sg.grad(lambda a: a * a)(3.0) == 6.0
    assert sg.function(lambda a: a * 2.0)(np.float32(3.0)) == 6.0
    assert len(graph) == 0


def test_one_scope_entered_by_two_generators_holds_for_both(graph: sg.Graph) -> None:
    scope = sg.name_scope("shared")

    def user() -> Iterator[str]:
        with scope:
            while True:
                yield scopes_here(graph)

    a, b = user(), user()
    assert [next(a), next(b)] == ["shared", "shared"]
    a.close()
    assert [next(b), scopes_here(graph)] == ["shared", ""]
    b.close()
    with scope:
        assert scopes_here(graph) == "shared"
    assert scopes_here(graph) == ""


def test_one_no_gradient_block_entered_by_two_generators_holds_for_both(graph: sg.Graph) -> None:
    x = sg.placeholder(sg.float32, name="x")
    block = sg.no_gradient()

    def user() -> Iterator[bool]:
        with block:
            while True:
                yield flows_from_here(x)

    a, b = user(), user()
    assert [next(a), next(b), flows_from_here(x)] == [False, False, True]
    a.close()
    assert [next(b), flows_from_here(x)] == [False, True]


def test_a_scope_object_holds_only_while_its_generator_runs(graph: sg.Graph) -> None:
    other = sg.Graph()

    def user() -> Iterator[sg.Graph]:
        with sg.Scope(other):
            while True:
                yield sg.placeholder(sg.float32).graph

    running = user()
    assert next(running) is other
    assert sg.placeholder(sg.float32).graph is graph
    assert next(running) is other


def test_a_no_gradient_block_holds_only_while_its_generator_runs(graph: sg.Graph) -> None:
    x = sg.placeholder(sg.float32, name="x")

    def hidden() -> Iterator[bool]:
        with sg.no_gradient():
            while True:
                yield flows_from_here(x)

    running = hidden()
    assert next(running) is False
    assert flows_from_here(x)
    with sg.no_gradient():
        assert not flows_from_here(x)
        running.close()
        assert not flows_from_here(x)
    assert flows_from_here(x)


@pytest.mark.parametrize("end", ["closed", "forgotten", "closed elsewhere", "in a cycle"])
def test_no_scope_or_block_outlives_its_generator(end: str, graph: sg.Graph) -> None:
    x = sg.placeholder(sg.float32, name="x")

    def user() -> Iterator[None]:
        with sg.name_scope("lost"), sg.no_gradient():
            yield

    running: Any = user()
    next(running)
    with sg.name_scope("kept"):
        if end == "closed":
            running.close()
        elif end == "closed elsewhere":
            together(running.close)
        elif end == "in a cycle":
            running = [running]
            running.append(running)
        del running
        gc.collect()
        assert scopes_here(graph) == "kept"
    assert scopes_here(graph) == ""
    assert flows_from_here(x)


def test_a_finished_generator_is_not_kept_alive(graph: sg.Graph) -> None:
    class Big:
        pass

    def user() -> Iterator[weakref.ref[Big]]:
        big = Big()
        with sg.name_scope("lost"):
            yield weakref.ref(big)

    running = user()
    found = next(running)
    name_here(graph)
    del running
    gc.collect()
    assert found() is None


def test_no_frame_is_kept_by_a_block_beside_a_suspended_generator(graph: sg.Graph) -> None:
    class Kept:
        pass

    def build() -> weakref.ref[Kept]:
        kept = Kept()
        with sg.name_scope("inner"):
            sg.constant(1.0)
        return weakref.ref(kept)

    def generate() -> Iterator[None]:
        with sg.name_scope("outer"):
            yield

    suspended = generate()
    next(suspended)
    gc.disable()
    try:
        assert build()() is None
    finally:
        gc.enable()
    suspended.close()


def test_names_are_free_again_at_once_while_a_generator_is_suspended(graph: sg.Graph) -> None:
    def generate() -> Iterator[None]:
        with sg.name_scope("outer"):
            yield

    def fail() -> None:
        with sg.name_scope("lost"), sg.no_gradient():
            sg.constant(1.0)
        raise RuntimeError

    suspended = generate()
    next(suspended)
    gc.disable()
    try:
        with pytest.raises(RuntimeError), graph.atomic():
            fail()
        with sg.name_scope("lost"):
            assert name_here(graph) == "lost/here"
    finally:
        gc.enable()
    suspended.close()


def test_gradients_are_marked_while_a_generator_is_suspended(graph: sg.Graph) -> None:
    x = sg.placeholder(sg.float32, name="x")
    layer = scoped(graph, "suspended")
    next(layer)
    before = len(graph)
    (dx,) = sg.gradients(sg.sin(sg.exp(x)), [x])
    made = graph.subgraph_to([dx])[before:]
    later = [op for op in graph.operations[before:] if op.name.startswith("gradients/")]
    assert dx.op in later
    assert {op.origin.type for op in later if op.origin is not None} == {"Sin", "Exp"}
    assert [op for op in later if op.origin is None] == []
    assert [op for op in made if "suspended" in op.name] == []


@contextlib.contextmanager
def layer(name: str) -> Iterator[None]:
    with sg.name_scope(name):
        yield


@contextlib.contextmanager
def nested_layer(name: str) -> Iterator[None]:
    with layer(name), layer("inner"):
        yield


class Layer:
    """A context manager that holds a scope."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        self.scope = sg.name_scope(self.name)
        self.scope.__enter__()

    def __exit__(self, *error: Any) -> None:
        self.scope.__exit__(*error)


@contextlib.contextmanager
def stacked(name: str) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        stack.enter_context(sg.name_scope(name))
        yield


MANAGERS = [layer, nested_layer, Layer, stacked]


@pytest.mark.parametrize("manager", MANAGERS)
def test_a_context_manager_around_a_scope_holds_for_the_users_block(manager: Any, graph: sg.Graph) -> None:
    with manager("a"):
        assert scopes_here(graph).startswith("a")
        with sg.name_scope("b"):
            assert scopes_here(graph).endswith("/b")
    assert scopes_here(graph) == ""


@pytest.mark.parametrize("manager", MANAGERS)
def test_a_context_manager_around_a_scope_holds_while_the_users_generator_runs(
    manager: Any, graph: sg.Graph
) -> None:
    def user(name: str) -> Iterator[str]:
        with manager(name):
            while True:
                yield scopes_here(graph)

    a, b = user("a"), user("b")
    assert [next(a)[0], next(b)[0], scopes_here(graph), next(a)[0]] == ["a", "b", "", "a"]
    a.close()
    assert [next(b)[0], scopes_here(graph)] == ["b", ""]


def test_an_exit_stack_holds_its_scopes_for_the_users_block(graph: sg.Graph) -> None:
    x = sg.placeholder(sg.float32, name="x")
    with contextlib.ExitStack() as stack:
        stack.enter_context(sg.name_scope("a"))
        stack.enter_context(layer("b"))
        stack.enter_context(sg.no_gradient())
        assert scopes_here(graph) == "a/b"
        assert not flows_from_here(x)
    assert scopes_here(graph) == ""
    assert flows_from_here(x)


def test_a_decorator_made_of_a_scope_holds_in_the_function(graph: sg.Graph) -> None:
    @layer("f")
    def f() -> str:
        return scopes_here(graph)

    assert f() == "f"
    assert scopes_here(graph) == ""


def test_a_no_gradient_block_decorates_a_function(graph: sg.Graph) -> None:
    x = sg.placeholder(sg.float32, name="x")

    @sg.no_gradient()
    def f(depth: int) -> bool:
        return flows_from_here(x) or (depth > 0 and f(depth - 1)) or flows_from_here(x)

    assert [f(0), f(2), flows_from_here(x)] == [False, False, True]


def test_a_default_graph_of_a_generator_holds_for_whoever_runs_next() -> None:
    """As a pytest fixture needs it; scopes and blocks hold only while the generator runs."""

    def fixture() -> Iterator[sg.Graph]:
        with sg.Graph().as_default() as graph, sg.name_scope("setup"):
            yield graph

    running = fixture()
    graph = next(running)
    x = sg.placeholder(sg.float32, name="x")
    assert x.graph is graph
    assert x.op.name == "x"
    running.close()
    with pytest.raises(sg.GraphError, match="needs a graph"):
        sg.placeholder(sg.float32)


def test_default_graphs_closed_out_of_order_leave_nothing() -> None:
    graphs = [sg.Graph(), sg.Graph()]
    blocks = [graph.as_default() for graph in graphs]
    for block in blocks:
        block.__enter__()
    blocks[0].__exit__(None, None, None)
    assert sg.placeholder(sg.float32).graph is graphs[1]
    blocks[1].__exit__(None, None, None)
    with pytest.raises(sg.GraphError, match="needs a graph"):
        sg.placeholder(sg.float32)


def test_nested_default_graphs_keep_their_own_prefixes() -> None:
    one, two = sg.Graph(), sg.Graph()
    with one.as_default(), sg.name_scope("a"):
        x = sg.placeholder(sg.float32, name="x")
        with two.as_default():
            assert sg.placeholder(sg.float32, name="y").op.name == "y"
            with sg.name_scope("b"):
                assert sg.placeholder(sg.float32, name="y").op.name == "b/y"
                assert sg.exp(x, name="z").op.name == "a/z"  # its operand says where it belongs
                with one.as_default():
                    assert sg.placeholder(sg.float32, name="w").op.name == "a/w"
                    with sg.name_scope("c"):
                        assert sg.exp(x, name="z").op.name == "a/c/z"
        assert sg.exp(x, name="u").op.name == "a/u"


# --------------------------------------------------------------------------------------------- tasks


def test_tasks_that_take_turns_see_their_own_scopes(graph: sg.Graph) -> None:
    x = sg.placeholder(sg.float32, name="x")
    seen: dict[str, list[str]] = {"a": [], "b": [], "c": []}
    flows: dict[str, list[bool]] = {"a": [], "b": [], "c": []}

    async def task(name: str) -> None:
        with sg.name_scope(name):
            for _ in range(3):
                await asyncio.sleep(0)
                seen[name].append(scopes_here(graph))
                with sg.no_gradient() if name == "a" else contextlib.nullcontext():
                    await asyncio.sleep(0)
                    flows[name].append(flows_from_here(x))

    async def main() -> str:
        with sg.name_scope("main"):
            await asyncio.gather(*[task(name) for name in seen])
            return scopes_here(graph)

    assert asyncio.run(main()) == "main"
    assert [{text.rpartition("/")[2] for text in texts} for texts in seen.values()] == [{"a"}, {"b"}, {"c"}]
    assert flows == {"a": [False] * 3, "b": [True] * 3, "c": [True] * 3}
    assert scopes_here(graph) == ""


def test_a_coroutine_that_is_awaited_builds_in_the_scope_around_it(graph: sg.Graph) -> None:
    async def inner() -> str:
        await asyncio.sleep(0)
        with sg.name_scope("inner"):
            await asyncio.sleep(0)
            return scopes_here(graph)

    async def main() -> str:
        with sg.name_scope("main"):
            return await inner()

    assert asyncio.run(main()) == "main/inner"


def test_an_asynchronous_context_manager_holds_for_the_users_block(graph: sg.Graph) -> None:
    @contextlib.asynccontextmanager
    async def connection() -> AsyncIterator[None]:
        with sg.name_scope("connection"):
            await asyncio.sleep(0)
            yield

    async def main() -> list[str]:
        async with connection():
            await asyncio.sleep(0)
            inside = scopes_here(graph)
        return [inside, scopes_here(graph)]

    assert asyncio.run(main()) == ["connection", ""]


def test_an_asynchronous_generator_keeps_its_scope_to_itself(graph: sg.Graph) -> None:
    async def steps() -> AsyncIterator[str]:
        with sg.name_scope("steps"):
            for _ in range(2):
                yield scopes_here(graph)

    async def main() -> list[str]:
        seen = []
        async for inside in steps():
            seen += [inside, scopes_here(graph)]
        return seen

    assert asyncio.run(main()) == ["steps", "", "steps", ""]


# -------------------------------------------------------------------------------------------- bodies


def traced(f: Callable[..., Any], *captures: sg.Output, outer: sg.Graph | None = None) -> Any:
    """The body of a function without parameters, and what it captures."""
    with sg.graph.build.tracing("a test", outer) as trace:
        made = f(*captures)
        body = sg.graph.build.close(trace, [], [made])
        return body, list(trace.captures)


def test_what_a_body_uses_from_outside_becomes_its_parameter(graph: sg.Graph) -> None:
    x = sg.placeholder(sg.float32, [3], name="x")
    before = len(graph)
    body, captured = traced(lambda: sg.exp(x) * x, outer=graph)
    assert captured == [x]
    assert [p.type for p in body.inputs] == [x.type]
    assert len(graph) == before
    assert [op.type for op in body.operations()] == ["Exp", "Mul"]
    verify(body.graph)


def test_bodies_inside_bodies_capture_from_each_graph_around_them(graph: sg.Graph) -> None:
    x = sg.placeholder(sg.float32, name="x")
    found: dict[str, Any] = {}

    def outer() -> Any:
        y = sg.exp(x)

        def inner() -> Any:
            return sg.sin(x) + y + x

        found["inner"], found["captures"] = traced(inner, outer=y.graph)
        assert found["captures"] == [x, y]
        return y

    body, captured = traced(outer, outer=graph)
    assert captured == [x]
    assert len(found["inner"].inputs) == 2
    assert [op.type for op in body.operations()] == ["Exp"]
    verify(found["inner"].graph)


def test_an_operand_of_an_unrelated_graph_is_refused_in_a_body(graph: sg.Graph) -> None:
    x = sg.placeholder(sg.float32, name="x")
    with sg.Graph().as_default() as other:
        z = sg.placeholder(sg.float32, name="z")
    for mixed in (lambda: x + z, lambda: z + x, lambda: sg.exp(x) * sg.exp(z), lambda: sg.exp(z)):
        with pytest.raises(sg.GraphError, match="does not enclose it"):
            traced(mixed, outer=graph)
    with pytest.raises(sg.GraphError, match="does not enclose it"):
        traced(lambda: z, outer=graph)
    assert [op.name for op in graph.operations] == ["x"]
    assert scopes_here(graph) == ""
    assert [op.type for op in other.operations if op.type not in ("Placeholder", "Exp")] == []


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, sg.ShapeError])
def test_an_error_while_a_body_is_traced_leaves_nothing_behind(error: Any, graph: sg.Graph) -> None:
    x = sg.placeholder(sg.float32, name="x")

    def fails() -> Any:
        with sg.name_scope("inside"), sg.no_gradient():
            sg.exp(x, name="lost")
            raise error("stop")

    with pytest.raises(error):
        traced(fails, outer=graph)
    assert sg.exp(x, name="after").op.name == "after"
    assert sg.placeholder(sg.float32).graph is graph
    assert flows_from_here(x)
    assert "lost" not in graph.to_text()


def test_a_generator_advanced_in_a_body_keeps_its_scope_to_itself(graph: sg.Graph) -> None:
    x = sg.placeholder(sg.float32, name="x")

    def names() -> Iterator[str]:
        with sg.name_scope("generator"):
            while True:
                yield sg.exp(x).op.name

    running = names()
    assert next(running) == "generator/Exp"

    def inside() -> Any:
        assert sg.exp(x).op.name == "Exp"
        assert next(running) == "Exp_1"  # in the body, which has names of its own
        with sg.name_scope("body"):
            assert next(running) == "body/Exp"
            return sg.exp(x)

    body, _ = traced(inside, outer=graph)
    assert body.results[0].op.name == "body/Exp_1"
    assert scopes_here(graph) == ""


def test_what_is_interrupted_leaves_no_operation(graph: sg.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    x = sg.placeholder(sg.float32, [3], name="x")
    y = sg.exp(sg.sin(x))
    definition = y.op.inputs[0].op.definition

    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(definition, "rules", (interrupted,))
    before = graph.to_text()
    with pytest.raises(KeyboardInterrupt):
        sg.gradients(y, [x])
    assert graph.to_text() == before
    assert gc.isenabled()
    assert sg.cos(x).op.origin is None

    def f(z: Any) -> Any:
        sg.exp(z)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sg.grad(f)(x)
    with pytest.raises(KeyboardInterrupt):
        sg.custom_gradient(f)(x)
    assert len(graph) == before.count("\n") + 1


def test_an_interrupted_call_leaves_no_operation(graph: sg.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    x = sg.placeholder(sg.float32, [3], name="x")
    definition = sg.reshape(x, [1, 3]).op.definition
    before = graph.to_text()

    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(definition, "infer", interrupted)
    monkeypatch.setattr(definition, "_inferred", {})
    with pytest.raises(KeyboardInterrupt):
        sg.unstack(x)  # slices, and their reshapes
    assert graph.to_text() == before


def test_values_computed_at_once_are_of_no_graph_that_a_generator_holds() -> None:
    """The scope of a suspended generator is no default graph for others."""

    def user(graph: sg.Graph) -> Iterator[None]:
        with sg.Scope(graph):
            yield

    graph = sg.Graph()
    running = user(graph)
    next(running)
    assert isinstance(sg.exp(np.float32(0.0)), np.ndarray)
    assert len(graph) == 0


def test_frames_that_are_kept_hold_no_block() -> None:
    """Profilers keep frames, and so does a traceback, with the frames that called them."""
    kept = []

    def keep(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            kept.append(frame)

    with sg.Graph().as_default():
        before = current().prefix
        sys.setprofile(keep)
        try:
            with sg.name_scope("layer"):
                sg.constant(1.0)
            with sg.no_gradient():
                sg.constant(1.0)
        finally:
            sys.setprofile(None)
        assert kept
        assert current().prefix == before
        assert current().region is None

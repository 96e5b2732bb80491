"""Watches of modules whose parameters PyTorch keeps in parts: ``fully_shard`` and ``DTensor``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
sgt = pytest.importorskip("stopgrad.torch")
distributed = pytest.importorskip("torch.distributed")
if not distributed.is_available():
    pytest.skip("PyTorch without processes", allow_module_level=True)
meshes = pytest.importorskip("torch.distributed.device_mesh")
fsdp = pytest.importorskip("torch.distributed.fsdp")
tensors = pytest.importorskip("torch.distributed.tensor")
nn = torch.nn
pytestmark = pytest.mark.slow


@pytest.fixture
def mesh() -> Iterator[Any]:
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        yield meshes.init_device_mesh("cpu", (1,))
    finally:
        distributed.destroy_process_group()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last, self.cut = nn.Linear(3, 4), nn.Linear(4, 2), nn.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        h = torch.tanh(self.first(x))
        return self.last(h) + self.cut(h).detach()


STATUS = {"first": "partly stopped", "last": "flows", "cut": "stopped"}


def sharded(mesh: Any) -> tuple[Any, Any]:
    net = Net()
    fsdp.fully_shard(net.first, mesh=mesh)
    fsdp.fully_shard(net, mesh=mesh)
    return net, torch.ones(5, 3)


def tensors_of_a_mesh(mesh: Any) -> tuple[Any, Any]:
    x = tensors.distribute_tensor(torch.ones(5, 3), mesh, [tensors.Replicate()])
    return tensors.distribute_module(Net(), mesh), x


@pytest.mark.parametrize("make", [sharded, tensors_of_a_mesh])
def test_what_is_said_is_what_arrives(make: Any, mesh: Any) -> None:
    net, x = make(mesh)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(2):
        with sgt.watch() as seen:
            loss = net(x).square().mean()
            before = seen.explain(loss, net)
            loss.backward()
        after = seen.explain(loss, net)
        assert {key: one.norm for key, one in after.magnitudes.items()} == {
            name: pytest.approx(float(p.grad.to_local().norm()), rel=1e-5)
            for name, p in net.named_parameters()
            if p.grad is not None
        }
        for flow in (before, after, seen.backward_calls[0].explain(net)):
            assert {key: flow[key].status for key in flow} == {
                f"{name}.{part}": status for name, status in STATUS.items() for part in ("weight", "bias")
            }
            assert not flow.noted
        assert {name for name, p in net.named_parameters() if p.grad is not None} == {
            key for key in before if before[key].arrives
        }
        assert [x.arrives for x in seen.explain(loss, optimizer).values()] == [True] * 4 + [False] * 2
        optimizer.step()
        optimizer.zero_grad()
    sgt.assert_flows(net(x).sum(), net.last)


@pytest.mark.parametrize("taken", ["to_local", "full_tensor"])
@pytest.mark.parametrize("placement", ["Shard", "Replicate"])
def test_parameters_that_are_taken_out_of_a_mesh(taken: str, placement: str, mesh: Any) -> None:
    place = tensors.Shard(0) if placement == "Shard" else tensors.Replicate()
    xs = {
        name: nn.Parameter(tensors.distribute_tensor(torch.ones(3), mesh, [place]))
        for name in ("whole", "partly", "stopped")
    }
    with sgt.watch() as seen:
        whole, partly, stopped = [getattr(x, taken)() for x in xs.values()]
        loss = (whole * partly.detach() + partly.sin() + stopped.detach()).sum()
    flow = seen.explain(loss, xs)
    loss.backward()
    assert {name: flow[name].status for name in xs} == {
        "whole": "flows",
        "partly": "partly stopped",
        "stopped": "stopped",
    }
    assert [x.grad is not None for x in xs.values()] == [True, True, False]
    assert not flow.noted

"""Runs a watch without one of the undocumented things of PyTorch that it uses, for each of them in turn.

    python tests/helpers/without_internals.py

Prints a line of JSON for each: what is missing, the statuses and lines that a report still gives, and what it
says that it does not know. Each runs in a fork that imports ``stopgrad.torch`` anew.
"""

from __future__ import annotations

import importlib
import json
import os
import sys

import torch

import stopgrad  # noqa: F401 - all but stopgrad.torch is imported once.
from stopgrad.base import namespaces
from stopgrad.interop.torch import internals


def found_without(path: str) -> dict[str, object]:
    """What a report says without what stands at a path."""
    for name in [
        name for name in sys.modules if name.startswith("stopgrad.interop.torch") or name == "stopgrad.torch"
    ]:
        del sys.modules[name]
    attribute_at = namespaces.attribute_at

    def lacking(asked: str) -> object:
        if asked == path:
            raise AttributeError(asked)
        return attribute_at(asked)

    namespaces.attribute_at = lacking
    sgt = importlib.import_module("stopgrad.torch")
    net, head = torch.nn.Linear(2, 2), torch.nn.Linear(2, 1)
    with sgt.watch() as seen:
        hidden = torch.tanh(net(torch.ones(3, 2))).detach()
        loss = head(hidden).square().mean()
        loss.backward()
    flow = seen.explain(loss, {"net": net, "head": head})
    cuts = sorted({cut.location.source for key in flow for cut in flow[key].cuts})
    told = [finding.message for finding in flow.findings if finding.kind == "not followed"]
    norm = flow["head.weight"].magnitude
    return {
        "missing": path,
        "statuses": {key: flow[key].status for key in flow},
        "cuts": cuts,
        "told": told,
        "norm": None if norm is None else norm.norm,
        "grad": float(torch.linalg.vector_norm(head.weight.grad)),
    }


def main() -> None:
    for path in ["", *internals.NEEDS]:
        child = os.fork()
        if not child:
            try:
                print(json.dumps(found_without(path)), flush=True)
            except BaseException as error:
                print(json.dumps({"missing": path, "error": f"{type(error).__name__}: {error}"}), flush=True)
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()

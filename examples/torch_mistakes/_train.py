"""Trains a program of this folder for a few steps: ``stopgrad run examples/torch_mistakes/<name>.py``.

With the argument ``cured`` it trains the cured program.
"""

import inspect
import sys

import torch
from torch import nn


def train(programs, example, steps=4):
    """Take a few steps of SGD on the loss of ``broken``, or of the program that the command line names."""
    program = programs[sys.argv[1] if len(sys.argv) > 1 else "broken"]
    args = example()
    named = dict(zip(inspect.signature(program).parameters, args, strict=True))
    learning = {name.partition(".")[0] for name in programs.get("LEARNS", ())} & named.keys()
    trained = [named[name] for name in learning] or args
    for name, arg in named.items():
        if learning and name not in learning and isinstance(arg, nn.Module):
            arg.requires_grad_(False)  # It only helps.
    optimizer = None
    for _ in range(steps):
        made = program(*args)
        loss, asked = made if isinstance(made, tuple) else (made, trained)
        if optimizer is None:
            optimizer = asked if isinstance(asked, torch.optim.Optimizer) else optimizer_of(asked)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def optimizer_of(things):
    """An optimizer of all that requires a gradient in modules, tensors, and dicts and lists of these."""
    return torch.optim.SGD([x for x in tensors_in(things) if x.requires_grad and x.is_leaf], lr=0.01)


def tensors_in(things):
    if isinstance(things, torch.Tensor):
        yield things
    elif isinstance(things, nn.Module):
        yield from things.parameters()
    elif isinstance(things, (dict, list, tuple)):
        for thing in things.values() if isinstance(things, dict) else things:
            yield from tensors_in(thing)

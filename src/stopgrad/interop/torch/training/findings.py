"""Findings from the facts of a training: each states what the framework did, and nothing beyond it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import torch

from stopgrad.flow.flow_report import Flow
from stopgrad.flow.magnitudes.troubles import ZERO
from stopgrad.flow.problems.cutting import cutting
from stopgrad.flow.problems.problem import Problem, Site
from stopgrad.flow.words import some
from stopgrad.graph.op import Status
from stopgrad.interop.torch.explaining.context import sites
from stopgrad.interop.torch.explaining.misuse import hidden_parts
from stopgrad.interop.torch.recording.recorder import Recorder
from stopgrad.interop.torch.training.audit import Audit
from stopgrad.interop.torch.training.facts import Optimizer, Parameter
from stopgrad.interop.torch.training.training_facts import Facts

SEVERAL = 2
"""The fewest steps in which the same must have happened for it to be told."""
MANY = 3
"""The same of what may be so at the beginning of a training that is well."""
NOISE = 0.75
"""A gradient is noise if it is to the largest one as this power of the dtype's rounding is to 1."""
UNUSED = (Status.DISCONNECTED,)
COPIES = ("copy.deepcopy", "nn.Parameter makes a new leaf", "a new leaf")
"""Why values are others from then on, though made from these."""


def problems_of(audit: Audit, recorders: Sequence[Recorder], cause: Sequence[Problem] = ()) -> list[Problem]:
    """All findings of a training that the cause of the error which ended it does not explain."""
    problems = [*audit.problems, *audit.losses.problems()]
    facts = Facts(audit, recorders)
    for verdict in VERDICTS:
        problems += verdict(facts)
    kinds = {problem.kind for problem in (*problems, *cause)}
    return [problem for problem in problems if not EXPLAINED.get(problem.kind, frozenset()) & kinds]


EXPLAINED = {
    "held-unused": frozenset(["ddp-unused"]),
    "zero-gradient": frozenset(["empty-loss"]),
    "never-stepped": frozenset(["not-held"]),
}
"""The kinds that say nothing new beside others."""


# ------------------------------------------------------------------------------ gradients that do not arrive


def no_gradient(facts: Facts) -> Iterator[Problem]:
    """Parameters that are stepped, and that no backward pass has reached."""
    silent = [p for p in facts.trained() if p.required and not p.arrived and not p.given]
    silent = [p for p in silent if not (p.tensor is not None and p.tensor.grad is not None)]
    for optimizer, held in facts.by_optimizer(silent):
        flow = facts.flow(facts.pass_of(held[0]), held)
        if flow is None:
            continue
        cut = [p for p in held if p.name in flow and not _is_unused(flow, p.name)]
        groups: dict[tuple[Site, ...], list[Parameter]] = {}
        for p in cut:
            groups.setdefault(tuple(cutting(flow, [p.name])), []).append(p)
        for places, parameters in groups.items():
            yield _no_gradient(parameters, places)
        unused = [p for p in held if p not in cut]
        if unused:
            yield _unused(facts, optimizer, unused)


def _is_unused(flow: Flow, name: str) -> bool:
    """Whether no loss uses a parameter; one that was only copied from it is another."""
    copied = all(cut.reason in COPIES for cut in flow[name].cuts) and bool(flow[name].cuts)
    return flow[name].status in UNUSED or copied


def _no_gradient(held: Sequence[Parameter], places: Sequence[Site]) -> Problem:
    call = held[0].call
    all_places = [
        *places,
        *([] if places or call is None else sites("first", "differentiated here", call.place)),
    ]
    return Problem(
        "no-gradient",
        f"{_some(held)} {_receive(held)} no gradient",
        all_places,
        _names(held),
        {"passes": held[0].passes, "arrived": 0},
        "take the cut out, or, if it is meant, leave these parameters out of the optimizer"
        if places
        else "let the loss depend on them by operations that have derivatives",
    )


def _unused(facts: Facts, optimizer: Optimizer, held: Sequence[Parameter]) -> Problem:
    places = []
    called = False
    for p in held:
        owner = None if p.owner is None else p.owner()
        module = None if owner is None else facts.audit.modules.get(id(owner))
        if module is not None:
            called = True
            places += sites("called", "called here, and the result plays no part in the loss", module.place)
    places = list(dict.fromkeys(places))[:4]
    places += sites("made", f"{optimizer.title} is made here", optimizer.made_at)
    why = "was called, but its result is dropped" if called else "no module that was called holds them"
    return Problem(
        "held-unused",
        f"{optimizer.title} holds {_some(held)}, and no loss uses {_it(held)}: {why}",
        places,
        _names(held),
        {"passes": held[0].passes, "arrived": 0},
        "use the result in the loss, or leave them out of the optimizer; where a layer was replaced, make "
        "the optimizer afterwards",
    )


def zero_gradient(facts: Facts) -> Iterator[Problem]:
    """Parameters whose gradient is exactly zero, from the beginning or since a step."""
    held = [p for p in facts.trained() if p.dead >= MANY and not facts.cancels(p)]
    alive = {key for p in facts.trained() if not p.dead for key in p.holders}
    held = [p for p in held if p.zeros == p.arrived or p.holders & alive]
    for _, dead in facts.by_optimizer(held):
        flow = facts.flow(dead[0].reached_by, dead)
        places: list[Site] = []
        for trouble in () if flow is None else flow.troubles:
            if trouble.kind == ZERO:
                places += [
                    Site("cut", f"{cause}: zero from here", location.own)
                    for cause in trouble.causes
                    if (location := cause.location) is not None
                ]
        call = dead[0].reached_by
        places = list(dict.fromkeys(places)) or ([] if flow is None else cutting(flow, _names(dead)))
        places = places or ([] if call is None else sites("first", "differentiated here", call.place))
        yield Problem(
            "zero-gradient",
            f"the gradient of {_some(dead)} is exactly zero, {_since(dead[0])}",
            places,
            _names(dead),
            {"passes": dead[0].arrived, "zero": dead[0].zeros},
            FLAT if any("zero everywhere" in site.told for site in places) else DEAD,
            dead[0].dead_from,
        )


def _since(p: Parameter) -> str:
    return f"in all of {p.arrived} passes" if p.zeros == p.arrived else f"since step {p.dead_from}"


def constant_loss(facts: Facts) -> Iterator[Problem]:
    """A loss that is the same number at each recorded step, though weights move."""
    if not any(facts.has_moved_far(p) for p in facts.trained()):
        return
    for place, (number, count) in facts.audit.losses.numbers.items():
        if count >= MANY and math.isfinite(number) and number != 0:
            yield Problem(
                "constant-loss",
                f"the loss is {number:.6g} in each of {count} recorded passes, though the weights move",
                sites("first", "differentiated here", place),
                [],
                {"loss": number, "passes": count},
                "let it be computed anew in each step, with the weights that are trained; a surrogate whose "
                "gradient alone counts is the same number by design",
            )


# -------------------------------------------------------------------------------- who holds what


DEAD = (
    "what is dead stays so: keep biases of ordinary size, normalise inputs, take another activation "
    "(leaky_relu, gelu), or leave out a clamp between weights and loss"
)
FLAT = "pass the gradient on by a straight-through estimator: x + (torch.round(x) - x).detach()"


def not_held(facts: Facts) -> Iterator[Problem]:
    """Parameters that receive gradients and that no optimizer holds, although there is one."""
    if not facts.stepping:
        return
    loose = [
        p
        for p in facts.parameters
        if p.is_parameter and p.required and not p.holders and p.arrived >= SEVERAL and p.zeros < p.arrived
    ]
    by_hand = {facts.root_of(p) for p in loose if facts.has_changed(p)}  # Such as copies of others.
    loose = [p for p in loose if facts.root_of(p) not in by_hand and not facts.has_changed(p)]
    if not loose:
        return
    hidden = [
        (name, kind)
        for title, root in facts.audit.roots().items()
        for name, kind in hidden_parts(title or type(root).__name__, root)
    ]
    places: list[Site] = []
    for p in loose:
        places += facts.made_at(p)
    places = list({(site.location.file, site.location.line): site for site in places}.values())[:3]
    for optimizer in facts.stepping.values():
        places += sites("made", f"{optimizer.title} is made here, without {_it(loose)}", optimizer.made_at)
    cure = "make the optimizer after the model is complete, of all of model.parameters(); what is not to be "
    cure += "trained gets requires_grad_(False)"
    if hidden:
        cure = f"{hidden[0][0]} is a {hidden[0][1]} of Python, in which PyTorch finds no parameters: use "
        cure += "nn.ModuleList, nn.ModuleDict or nn.ParameterList"
    yield Problem(
        "not-held",
        f"{_some(loose)} {_receive(loose)} gradients, but no optimizer holds {_it(loose)}",
        list(dict.fromkeys(places))[:5],
        _names(loose),
        {"passes": loose[0].passes, "arrived": loose[0].arrived},
        cure,
    )


def held_twice(facts: Facts) -> Iterator[Problem]:
    """Parameters that two optimizers step by the same gradient."""
    twice = [p for p in facts.parameters if p.used_twice >= SEVERAL]
    if twice:
        optimizers = [facts.stepping[key] for key in facts.stepping if key in twice[0].holders]
        places = [x for o in optimizers for x in sites("made", f"{o.title} is made here", o.made_at)]
        places += [x for o in optimizers for x in sites("step", f"{o.title} steps here", o.stepped)]
        yield Problem(
            "held-twice",
            f"{_some(twice)} {'is' if len(twice) == 1 else 'are'} stepped by {len(optimizers)} optimizers",
            places,
            _names(twice),
            {"optimizers": [o.title for o in optimizers]},
            "give each parameter to one optimizer",
        )


# ------------------------------------------------------------------------------ what does not move


def does_not_move(facts: Facts) -> Iterator[Problem]:
    """Parameters that receive a gradient and are stepped, but keep their values: why."""
    still = [p for p in facts.trained() if p.arrived > p.zeros and p.steps >= SEVERAL]
    still = [p for p in still if not p.moved or p.put_back or p.loses_gradients]
    for optimizer, held in facts.by_optimizer(still):
        yield from _does_not_move(
            facts,
            optimizer,
            [p for p in held if p.put_back or p.loses_gradients or not facts.has_changed(p)],
        )


def _does_not_move(facts: Facts, optimizer: Optimizer, held: Sequence[Parameter]) -> Iterator[Problem]:
    largest = max([p.stepped_by for p in facts.trained() if optimizer.holds(p)], default=0.0)

    def noise(p: Parameter) -> float:
        """What rounding leaves where a gradient cancels, as that of a bias before a normalisation."""
        return largest * torch.finfo(p.dtype).eps ** NOISE

    forms: tuple[tuple[Callable[[Parameter], bool], Callable[..., Problem]], ...] = (
        (lambda p: p.cleared == p.steps, _zeroed),
        (lambda p: p.clipped == p.steps, _clipped),
        (lambda p: p.put_back == p.followed > 0, _put_back),
        (lambda p: optimizer.idle_steps == optimizer.steps, _no_rate),
        (lambda p: p.still == p.steps and optimizer.rate > 0 and p.stepped_by > noise(p), _rounded),
    )
    remaining = list(held)
    for applies, problem_for in forms:
        matching = [p for p in remaining if applies(p)]
        remaining = [p for p in remaining if p not in matching]
        if matching:
            yield problem_for(optimizer, matching)


def _zeroed(optimizer: Optimizer, held: Sequence[Parameter]) -> Problem:
    p = held[0]
    places = [] if p.reached_by is None else sites("first", "gradients arrive here", p.reached_by.place)
    places += sites("cleared", "they are cleared here", p.cleared_at)
    places += sites("step", f"{optimizer.title} steps here, with nothing", optimizer.stepped)
    return Problem(
        "zeroed-before-step",
        f"the gradients of {_some(held)} are cleared between backward and step: nothing is trained",
        places,
        _names(held),
        {"steps": p.steps, "cleared": p.cleared, "moved": p.moved},
        "clear before backward, or after the step: zero_grad(), backward(), step()",
    )


def _clipped(optimizer: Optimizer, held: Sequence[Parameter]) -> Problem:
    p = held[0]
    places = [] if p.reached_by is None else sites("first", "gradients arrive here", p.reached_by.place)
    places += sites("written", "they become zero here", p.cleared_at)
    places += sites("step", f"{optimizer.title} steps here, with nothing", optimizer.stepped)
    return Problem(
        "clipped-away",
        f"the gradients of {_some(held)} are multiplied to zero between backward and step",
        places,
        _names(held),
        {"steps": p.steps, "norm that arrived": p.norm, "norm at the step": 0.0},
        "clip to a positive norm, such as clip_grad_norm_(model.parameters(), max_norm=1.0)",
    )


def _put_back(optimizer: Optimizer, held: Sequence[Parameter]) -> Problem:
    places = sites("step", f"{optimizer.title} steps here", optimizer.stepped)
    places += sites("written", "other values are written over the new ones here", held[0].written_at)
    return Problem(
        "overwritten",
        f"{_some(held)} {'is' if len(held) == 1 else 'are'} moved by each step and overwritten after it",
        places,
        _names(held),
        {"steps": held[0].steps, "put back": held[0].put_back},
        "load or copy weights once, before the loop; after an evaluation with averaged weights, swap back",
    )


def _no_rate(optimizer: Optimizer, held: Sequence[Parameter]) -> Problem:
    places = sites("made", f"{optimizer.title} is made here", optimizer.made_at)
    places += sites("step", "and steps here, with a learning rate of 0", optimizer.stepped)
    return Problem(
        "no-learning-rate",
        f"the learning rate of {optimizer.title} is 0 in all of {optimizer.steps} recorded steps",
        places,
        _names(held),
        {"lr": 0.0, "steps": optimizer.steps, "moved": 0},
        f"set it, or look at what the scheduler makes of it: {optimizer.rate_at}",
    )


def _rounded(optimizer: Optimizer, held: Sequence[Parameter]) -> Problem:
    p = held[0]
    dtype = str(p.dtype).removeprefix("torch.")
    places = sites("step", f"{optimizer.title} steps here, and changes no element", optimizer.stepped)
    return Problem(
        "lost-in-rounding",
        f"the updates of {_some(held)} are lost in rounding: added to {dtype} weights they change no element",
        places,
        _names(held),
        {"dtype": dtype, "lr": optimizer.rate, "gradient norm": p.norm, "steps": p.steps},
        "keep the weights in float32 and compute in bfloat16 under torch.autocast, or raise lr",
    )


def never_stepped(facts: Facts) -> Iterator[Problem]:
    """Optimizers that never step, though gradients arrive at what they hold and are thrown away."""
    for key, optimizer in facts.audit.optimizers.items():
        if optimizer.steps or optimizer.all_steps:
            continue
        held = [p for p in facts.parameters if key in p.holders and not p.holders & facts.stepping.keys()]
        held = [p for p in held if p.arrived >= SEVERAL and p.dropped and not facts.has_changed(p)]
        if not held:
            continue
        places = sites("made", f"{optimizer.title} is made here", optimizer.made_at)
        call = held[0].reached_by
        places += [] if call is None else sites("first", "gradients arrive here", call.place)
        broken = any(p.last_norm_is_broken for p in held)
        yield Problem(
            "never-stepped",
            f"{optimizer.title} never steps: gradients arrive at {_some(held)} and are thrown away",
            places,
            _names(held),
            {"passes": held[0].passes, "steps": 0},
            "a GradScaler skips steps whose gradients are infinite or NaN: look for what makes them so"
            if broken
            else "call optimizer.step() after backward()",
        )


# ------------------------------------------------------------------------------- what moves wrongly


def never_cleared(facts: Facts) -> Iterator[Problem]:
    """Gradients that are added to those of all steps before."""
    held = [p for p in facts.trained() if p.used >= SEVERAL and p.kept == p.used and p.norm > 0]
    for optimizer, few in facts.by_optimizer(held):
        call = few[0].reached_by
        places = sites("step", f"{optimizer.title} steps here", optimizer.stepped)
        places += (
            [] if call is None else sites("first", "and here the next gradient is added to it", call.place)
        )
        yield Problem(
            "never-cleared",
            f"the gradients of {_some(few)} are never cleared: each step uses the sum of all before",
            places,
            _names(few),
            {"steps": few[0].steps, "kept": few[0].kept},
            "optimizer.zero_grad() before each backward(); for accumulation, after each step",
        )


def moves_frozen(facts: Facts) -> Iterator[Problem]:
    """Parameters that require no gradient and that an optimizer changes all the same."""
    held = [p for p in facts.parameters if p.frozen_moves]
    for optimizer, few in facts.by_optimizer(held):
        places = sites("made", f"{optimizer.title} is made here, with {_it(few)}", optimizer.made_at)
        places += sites("step", f"{optimizer.title} steps here, and changes {_it(few)}", optimizer.stepped)
        yield Problem(
            "moves-frozen",
            f"{_some(few)} {'is' if len(few) == 1 else 'are'} frozen (requires_grad is False), but "
            f"{optimizer.title} moves {_it(few)}: an old gradient, momentum or weight decay",
            places,
            _names(few),
            {"steps": few[0].steps, "moved": few[0].frozen_moves},
            "leave them out of the optimizer, or set their grad to None when freezing: p.grad = None",
        )


def frozen_statistics(facts: Facts) -> Iterator[Problem]:
    """Running statistics that move in a part whose parameters are frozen."""
    if not any(p.moved for p in facts.parameters):
        return
    places: list[Site] = []
    names = []
    for module in facts.audit.modules.values():
        part = module.ref()
        own = [] if part is None else list(part.parameters(recurse=False))
        moves = module.moving and not module.follows  # A teacher's own weights follow the student's.
        if part is not None and moves and own and not any(p.requires_grad for p in own):
            names.append(facts.name_of_module(part) or type(part).__name__)
            places += sites("called", "called here, in training mode", module.place)
    if names:
        yield Problem(
            "frozen-statistics",
            f"{some(names, 3)}: the parameters are frozen, but the running statistics move",
            list(dict.fromkeys(places))[:3],
            names,
            {},
            "call eval() on the frozen part after each model.train()",
        )


def shared_storage(facts: Facts) -> Iterator[Problem]:
    """A module beside another of its class that holds the very parameters which are trained."""
    tops = [
        (name, root, facts.audit.modules[id(root)])
        for name, root in facts.audit.roots().items()
        if next(root.parameters(), None) is not None
    ]
    trained = {id(p.tensor) for p in facts.trained() if p.moved}
    for name, target, target_facts in tops:
        for other, source, source_facts in tops:
            own, theirs = list(target.parameters()), {id(p) for p in source.parameters()}
            if (
                type(source) is not type(target)
                or source is target
                or target_facts.with_gradients > source_facts.with_gradients
            ):
                continue
            if all(id(p) in theirs and id(p) in trained for p in own):
                yield Problem(
                    "shared-storage",
                    f"{name} holds the very parameters of {other}: each step of the optimizer moves both",
                    sites("called", f"{name} is called here", target_facts.place),
                    [name, other],
                    {"parameters": len(own)},
                    f"copy.deepcopy({other}) makes its own; copy.copy and assignment do not",
                )
                return


# ------------------------------------------------------------------------------------------- words


def _names(held: Sequence[Parameter]) -> list[str]:
    return [p.name for p in held]


def _some(held: Sequence[Parameter]) -> str:
    return some(_names(held), 3)


def _it(held: Sequence[Parameter]) -> str:
    return "it" if len(held) == 1 else "them"


def _receive(held: Sequence[Parameter]) -> str:
    return "receives" if len(held) == 1 else "receive"


VERDICTS: tuple[Callable[[Facts], Iterator[Problem]], ...] = (
    no_gradient,
    not_held,
    does_not_move,
    never_stepped,
    zero_gradient,
    constant_loss,
    never_cleared,
    held_twice,
    moves_frozen,
    shared_storage,
    frozen_statistics,
)
"""All that is asked of the facts."""

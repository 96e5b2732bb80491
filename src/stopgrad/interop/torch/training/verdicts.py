"""Findings from the facts of a training: each states what the framework did, and nothing beyond it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

import torch

from stopgrad.flow.flow import Flow
from stopgrad.flow.magnitudes.troubles import ZERO
from stopgrad.flow.problems.cutting import cutting
from stopgrad.flow.problems.problem import Problem, Site
from stopgrad.flow.words import some
from stopgrad.graph.op import Status
from stopgrad.interop.torch.explaining.context import sites
from stopgrad.interop.torch.explaining.misuse import hidden_parts
from stopgrad.interop.torch.recording.record import Backward
from stopgrad.interop.torch.recording.recorder import Recorder
from stopgrad.interop.torch.training.audit import Audit
from stopgrad.interop.torch.training.certain import flow_of
from stopgrad.interop.torch.training.facts import Optimizer, Parameter
from stopgrad.interop.torch.training.measures import fingerprints, is_far

Tensor = torch.Tensor
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
    facts = _Facts(audit, recorders)
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


class _Facts:
    """The facts, and who recorded what."""

    audit: Audit
    parameters: list[Parameter]
    stepping: dict[int, Optimizer]

    def __init__(self, audit: Audit, recorders: Sequence[Recorder]) -> None:
        self.audit, self._recorders = audit, recorders
        self.parameters = [one for one in audit.parameters.values() if one.tensor is not None]
        self.stepping = {key: one for key, one in audit.optimizers.items() if one.steps}

    def trained(self) -> list[Parameter]:
        """The parameters that an optimizer holds which stepped after a backward pass."""
        return [
            one for one in self.parameters if one.steps and one.passes and one.holders & self.stepping.keys()
        ]

    def by_optimizer(self, some: Iterable[Parameter]) -> Iterator[tuple[Optimizer, list[Parameter]]]:
        """Parameters with the optimizer that holds them."""
        groups: dict[int, list[Parameter]] = {}
        for one in some:
            key = next((key for key in self.stepping if key in one.holders), None)
            if key is not None:
                groups.setdefault(key, []).append(one)
        for key, members in groups.items():
            yield self.stepping[key], members

    def flow(self, call: Backward | None, some: Sequence[Parameter]) -> Flow | None:
        """The report on a backward pass and some parameters; None if it is not known any more."""
        if call is None:
            return None
        for one in self.parameters:
            if one.reached_by is call or one.call is call:
                recorder = one.reached_in if one.reached_by is call else one.call_in
                return flow_of(recorder, call, tensors_of(some))
        return None

    def pass_of(self, one: Parameter) -> Backward | None:
        """The backward pass that should have reached it: one that reached others of its optimizer."""
        for other in self.parameters:
            if other.holders & one.holders and other.reached_by is not None:
                return other.reached_by
        return one.call

    def made_at(self, one: Parameter) -> list[Site]:
        """The line that made a parameter, if that was recorded."""
        tensor = one.tensor
        for recorder in self._recorders:
            noted = None if tensor is None else recorder.memory.held(tensor)
            if noted is not None and noted.root is not None and noted.root.event.place is not None:
                return sites("made", "made here", noted.root.event.place)
        return []

    def has_moved_far(self, one: Parameter) -> bool:
        """Whether a parameter has moved by more than rounding would hide in a loss."""
        return is_far(one.start, one.samples[1])

    def name_of_module(self, part: torch.nn.Module) -> str:
        """The path of a module in the one that was called."""
        for title, root in self.audit.roots().items():
            for path, one in root.named_modules():
                if one is part:
                    return ".".join(filter(None, [title, path]))
        return ""

    def root_of(self, one: Parameter) -> str:
        """The module that holds a parameter and is part of no other, by name."""
        return next(
            (
                title
                for title, root in self.audit.roots().items()
                if any(tensor is one.tensor for tensor in root.parameters())
            ),
            one.name,
        )

    def cancels(self, one: Parameter) -> bool:
        """Whether a gradient is zero as a sum only: that of a bias beside a weight whose gradient is not."""
        owner = None if one.owner is None else one.owner()
        if owner is None or getattr(owner, "bias", None) is not one.tensor:
            return False
        beside = [self.audit.parameters.get(id(tensor)) for tensor in owner.parameters()]
        return any(other is not None and other.arrived > 0 and not other.dead for other in beside)

    def has_changed(self, one: Parameter) -> bool:
        """Whether a parameter's values are others than at the beginning."""
        tensor = one.tensor
        if tensor is None or one.first is None:
            return one.moved > 0
        return fingerprints([tensor])[0] != one.first


def tensors_of(some: Iterable[Parameter]) -> dict[str, Tensor]:
    """Parameters by name."""
    return {one.name: tensor for one in some if (tensor := one.tensor) is not None}


# ------------------------------------------------------------------------------ gradients that do not arrive


def no_gradient(facts: _Facts) -> Iterator[Problem]:
    """Parameters that are stepped, and that no backward pass has reached."""
    silent = [one for one in facts.trained() if one.required and not one.arrived and not one.given]
    silent = [one for one in silent if not (one.tensor is not None and one.tensor.grad is not None)]
    for optimizer, held in facts.by_optimizer(silent):
        flow = facts.flow(facts.pass_of(held[0]), held)
        if flow is None:
            continue
        cut = [one for one in held if one.name in flow and not _is_unused(flow, one.name)]
        groups: dict[tuple[Site, ...], list[Parameter]] = {}
        for one in cut:
            groups.setdefault(tuple(cutting(flow, [one.name])), []).append(one)
        for places, parameters in groups.items():
            yield _no_gradient(parameters, places)
        unused = [one for one in held if one not in cut]
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


def _unused(facts: _Facts, optimizer: Optimizer, held: Sequence[Parameter]) -> Problem:
    places = []
    called = False
    for one in held:
        owner = None if one.owner is None else one.owner()
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


def zero_gradient(facts: _Facts) -> Iterator[Problem]:
    """Parameters whose gradient is exactly zero, from the beginning or since a step."""
    held = [one for one in facts.trained() if one.dead >= MANY and not facts.cancels(one)]
    alive = {key for one in facts.trained() if not one.dead for key in one.holders}
    held = [one for one in held if one.zeros == one.arrived or one.holders & alive]
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


def _since(one: Parameter) -> str:
    return f"in all of {one.arrived} passes" if one.zeros == one.arrived else f"since step {one.dead_from}"


def constant_loss(facts: _Facts) -> Iterator[Problem]:
    """A loss that is the same number at each recorded step, though weights move."""
    if not any(facts.has_moved_far(one) for one in facts.trained()):
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


def not_held(facts: _Facts) -> Iterator[Problem]:
    """Parameters that receive gradients and that no optimizer holds, although there is one."""
    if not facts.stepping:
        return
    loose = [
        one
        for one in facts.parameters
        if one.is_parameter
        and one.required
        and not one.holders
        and one.arrived >= SEVERAL
        and one.zeros < one.arrived
    ]
    by_hand = {facts.root_of(one) for one in loose if facts.has_changed(one)}  # Such as copies of others.
    loose = [one for one in loose if facts.root_of(one) not in by_hand and not facts.has_changed(one)]
    if not loose:
        return
    hidden = [
        (name, kind)
        for title, root in facts.audit.roots().items()
        for name, kind in hidden_parts(title or type(root).__name__, root)
    ]
    places: list[Site] = []
    for one in loose:
        places += facts.made_at(one)
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


def held_twice(facts: _Facts) -> Iterator[Problem]:
    """Parameters that two optimizers step by the same gradient."""
    twice = [one for one in facts.parameters if one.used_twice >= SEVERAL]
    if twice:
        optimizers = [facts.stepping[key] for key in facts.stepping if key in twice[0].holders]
        places = [x for one in optimizers for x in sites("made", f"{one.title} is made here", one.made_at)]
        places += [x for one in optimizers for x in sites("step", f"{one.title} steps here", one.stepped)]
        yield Problem(
            "held-twice",
            f"{_some(twice)} {'is' if len(twice) == 1 else 'are'} stepped by {len(optimizers)} optimizers",
            places,
            _names(twice),
            {"optimizers": [one.title for one in optimizers]},
            "give each parameter to one optimizer",
        )


# ------------------------------------------------------------------------------ what does not move


def does_not_move(facts: _Facts) -> Iterator[Problem]:
    """Parameters that receive a gradient and are stepped, but keep their values: why."""
    still = [one for one in facts.trained() if one.arrived > one.zeros and one.steps >= SEVERAL]
    still = [one for one in still if not one.moved or one.put_back or one.loses_gradients]
    for optimizer, held in facts.by_optimizer(still):
        yield from _does_not_move(
            facts,
            optimizer,
            [one for one in held if one.put_back or one.loses_gradients or not facts.has_changed(one)],
        )


def _does_not_move(facts: _Facts, optimizer: Optimizer, held: Sequence[Parameter]) -> Iterator[Problem]:
    largest = max([one.stepped_by for one in facts.trained() if optimizer.holds(one)], default=0.0)

    def noise(one: Parameter) -> float:
        """What rounding leaves where a gradient cancels, as that of a bias before a normalisation."""
        return largest * torch.finfo(one.dtype).eps ** NOISE

    forms: tuple[tuple[Callable[[Parameter], bool], Callable[..., Problem]], ...] = (
        (lambda one: one.cleared == one.steps, _zeroed),
        (lambda one: one.clipped == one.steps, _clipped),
        (lambda one: one.put_back == one.followed > 0, _put_back),
        (lambda one: optimizer.idle_steps == optimizer.steps, _no_rate),
        (lambda one: one.still == one.steps and optimizer.rate > 0 and one.stepped_by > noise(one), _rounded),
    )
    remaining = list(held)
    for applies, problem_for in forms:
        some = [one for one in remaining if applies(one)]
        remaining = [one for one in remaining if one not in some]
        if some:
            yield problem_for(optimizer, some)


def _zeroed(optimizer: Optimizer, held: Sequence[Parameter]) -> Problem:
    one = held[0]
    places = [] if one.reached_by is None else sites("first", "gradients arrive here", one.reached_by.place)
    places += sites("cleared", "they are cleared here", one.cleared_at)
    places += sites("step", f"{optimizer.title} steps here, with nothing", optimizer.stepped)
    return Problem(
        "zeroed-before-step",
        f"the gradients of {_some(held)} are cleared between backward and step: nothing is trained",
        places,
        _names(held),
        {"steps": one.steps, "cleared": one.cleared, "moved": one.moved},
        "clear before backward, or after the step: zero_grad(), backward(), step()",
    )


def _clipped(optimizer: Optimizer, held: Sequence[Parameter]) -> Problem:
    one = held[0]
    places = [] if one.reached_by is None else sites("first", "gradients arrive here", one.reached_by.place)
    places += sites("written", "they become zero here", one.cleared_at)
    places += sites("step", f"{optimizer.title} steps here, with nothing", optimizer.stepped)
    return Problem(
        "clipped-away",
        f"the gradients of {_some(held)} are multiplied to zero between backward and step",
        places,
        _names(held),
        {"steps": one.steps, "norm that arrived": one.norm, "norm at the step": 0.0},
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
    one = held[0]
    dtype = str(one.dtype).removeprefix("torch.")
    places = sites("step", f"{optimizer.title} steps here, and changes no element", optimizer.stepped)
    return Problem(
        "lost-in-rounding",
        f"the updates of {_some(held)} are lost in rounding: added to {dtype} weights they change no element",
        places,
        _names(held),
        {"dtype": dtype, "lr": optimizer.rate, "gradient norm": one.norm, "steps": one.steps},
        "keep the weights in float32 and compute in bfloat16 under torch.autocast, or raise lr",
    )


def never_stepped(facts: _Facts) -> Iterator[Problem]:
    """Optimizers that never step, though gradients arrive at what they hold and are thrown away."""
    for key, optimizer in facts.audit.optimizers.items():
        if optimizer.steps or optimizer.all_steps:
            continue
        held = [
            one for one in facts.parameters if key in one.holders and not one.holders & facts.stepping.keys()
        ]
        held = [one for one in held if one.arrived >= SEVERAL and one.dropped and not facts.has_changed(one)]
        if not held:
            continue
        places = sites("made", f"{optimizer.title} is made here", optimizer.made_at)
        call = held[0].reached_by
        places += [] if call is None else sites("first", "gradients arrive here", call.place)
        broken = any(one.last_norm_is_broken for one in held)
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


def never_cleared(facts: _Facts) -> Iterator[Problem]:
    """Gradients that are added to those of all steps before."""
    held = [one for one in facts.trained() if one.used >= SEVERAL and one.kept == one.used and one.norm > 0]
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


def moves_frozen(facts: _Facts) -> Iterator[Problem]:
    """Parameters that require no gradient and that an optimizer changes all the same."""
    held = [one for one in facts.parameters if one.frozen_moves]
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


def frozen_statistics(facts: _Facts) -> Iterator[Problem]:
    """Running statistics that move in a part whose parameters are frozen."""
    if not any(one.moved for one in facts.parameters):
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


def shared_storage(facts: _Facts) -> Iterator[Problem]:
    """A module beside another of its class that holds the very parameters which are trained."""
    tops = [
        (name, root, facts.audit.modules[id(root)])
        for name, root in facts.audit.roots().items()
        if next(root.parameters(), None) is not None
    ]
    trained = {id(one.tensor) for one in facts.trained() if one.moved}
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
    return [one.name for one in held]


def _some(held: Sequence[Parameter]) -> str:
    return some(_names(held), 3)


def _it(held: Sequence[Parameter]) -> str:
    return "it" if len(held) == 1 else "them"


def _receive(held: Sequence[Parameter]) -> str:
    return "receives" if len(held) == 1 else "receive"


VERDICTS: tuple[Callable[[_Facts], Iterator[Problem]], ...] = (
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

"""The statements without functions, with their source in each library and what they do to gradients."""

from __future__ import annotations

from programs.language import Form


def form(
    kinds: str,
    ways: str,
    ours: str = "",
    torch: str = "",
    jax: str = "",
    *,
    twin: str = "",
    opened: str = "",
    opened_jax: str = "",
    named: int = 0,
    weight: float = 1.0,
    parts: str = "",
) -> Form:
    """A form from its kinds (``"fb->f"``) and ways (of results, divided by ``;``, and operands).

    The *twin* is a form's meaning in PyTorch, for programs of other libraries, where that is not *torch*.
    """
    takes, makes = kinds.split("->")
    text = {"ours": ours, "torch": torch, "twin": twin or torch, "jax": jax}
    open_text = {"torch": opened, "twin": opened, "jax": opened_jax or opened}
    return Form(
        takes,
        makes,
        tuple([tuple(part.split()) for part in ways.split(";")]),
        {library: one for library, one in text.items() if one},
        {library: one for library, one in open_text.items() if one},
        named,
        weight,
        tuple(parts.split()),
    )


SMOOTH = {
    "tanh": form("f->f", "o", "sg.tanh({0})", "torch.tanh({0})", "jnp.tanh({0})"),
    "sin": form("f->f", "o", "sg.sin({0})", "torch.sin({0})", "jnp.sin({0})"),
    "scaled": form("f->f", "o", "{0} * 0.7 + 0.1", "{0} * 0.7 + 0.1", "{0} * 0.7 + 0.1"),
    "add": form("ff->f", "o o", "{0} + {1}", "{0} + {1}", "{0} + {1}"),
    "minus": form("ff->f", "o o", "{0} - {1} * 0.6", "{0} - {1} * 0.6", "{0} - {1} * 0.6"),
    "times": form(
        "ff->f",
        "o o",
        "sg.sin({0}) * {1}",
        "torch.sin({0}) * {1}",
        "jnp.sin({0}) * {1}",
    ),
    "blend": form(
        "fff->f",
        "o o o",
        "sg.sigmoid({0}) * {1} + {2}",
        "torch.sigmoid({0}) * {1} + {2}",
        "jax.nn.sigmoid({0}) * {1} + {2}",
    ),
    "summed": form(
        "ff->f",
        "o o",
        "sg.reduce_mean({0}) + {1}",
        "{0}.mean() + {1}",
        "jnp.mean({0}) + {1}",
    ),
    "turned": form("f->f", "o", "sg.reverse({0}, 0)", "torch.flip({0}, (0,))", "jnp.flip({0})"),
    "halves": form(
        "ff->ff",
        "o o;o o",
        "sg.split(sg.concat([{0}, {1}], 0), 2)",
        "(torch.cat([{0}, {1}])[:3].clone(), torch.cat([{0}, {1}])[3:].clone())",
        "jnp.split(jnp.concatenate([{0}, {1}]), 2)",
    ),
}

WHOLE = {
    "floor": form(
        "f->f",
        "x",
        "sg.floor({0} * 3.0)",
        "torch.floor({0} * 3.0)",
        "jnp.floor({0} * 3.0)",
        twin="torch.floor({0} * 3.0).detach()",
        opened="torch.tanh({0})",
        opened_jax="jnp.tanh({0})",
    ),
    "round": form(
        "f->f",
        "x",
        "sg.round({0} * 3.0)",
        "torch.round({0} * 3.0)",
        "jnp.round({0} * 3.0)",
        twin="torch.round({0} * 3.0).detach()",
        opened="torch.tanh({0})",
        opened_jax="jnp.tanh({0})",
    ),
    "to_integers": form(
        "f->i",
        "x",
        "sg.cast({0} * 3.0, sg.int32)",
        "({0} * 3.0).long()",
        "({0} * 3.0).astype(jnp.int32)",
    ),
    "to_numbers": form(
        "i->f",
        "o",
        "sg.cast({0}, sg.float64) * 0.3",
        "{0}.double() * 0.3",
        "{0}.astype(jnp.float32) * 0.3",
    ),
    "above": form("ff->b", "x x", "{0} > {1}", "{0} > {1}", "{0} > {1}"),
    "less": form("ii->b", "o o", "{0} < {1}", "{0} < {1}", "{0} < {1}"),
    "not": form("b->b", "o", "sg.logical_not({0})", "torch.logical_not({0})", "jnp.logical_not({0})"),
    "counted": form(
        "bii->i",
        "o o o",
        "sg.where({0}, {1}, {2} + 1)",
        "torch.where({0}, {1}, {2} + 1)",
        "jnp.where({0}, {1}, {2} + 1)",
    ),
    "where": form(
        "bff->f",
        "o o o",
        "sg.where({0}, {1}, {2})",
        "torch.where({0}, {1}, {2})",
        "jnp.where({0}, {1}, {2})",
    ),
    "bounded": form(
        "fff->f",
        "x x o",
        "sg.where({0} > {1}, {2}, {2} * 0.5)",
        "torch.where({0} > {1}, {2}, {2} * 0.5)",
        "jnp.where({0} > {1}, {2}, {2} * 0.5)",
    ),
    "gathered": form(
        "fi->f",
        "o o",
        "sg.gather({0}, sg.maximum(sg.minimum({1}, 2), 0))",
        "{0}[{1}.clamp(0, 2)]",
        "{0}[jnp.clip({1}, 0, 2)]",
    ),
    "position": form(
        "fi->i",
        "x o",
        "sg.cast(sg.argmax({0}), sg.int32) + {1}",
        "torch.argmax({0}) + {1}",
        "jnp.argmax({0}) + {1}",
    ),
    "times_position": form(
        "ff->f",
        "o x",
        "{0} * sg.cast(sg.argmax({1}) + 1, sg.float64)",
        "{0} * (torch.argmax({1}) + 1)",
        "{0} * (jnp.argmax({1}) + 1)",
    ),
    "times_own_position": form(
        "f->f",
        "o|x",
        "{0} * sg.cast(sg.argmax({0}) + 1, sg.float64)",
        "{0} * (torch.argmax({0}) + 1)",
        "{0} * (jnp.argmax({0}) + 1)",
    ),
    "largest": form(
        "f->fi",
        "o;x",
        "sg.top_k({0}, 3)",
        "torch.topk({0}, 3)",
        "lax.top_k({0}, 3)",
    ),
    "sorted": form("f->f", "o", "sg.sort({0})", "torch.sort({0}).values", "jnp.sort({0})"),
    "order": form("f->i", "x", "sg.argsort({0})", "torch.argsort({0})", "jnp.argsort({0})"),
}
"""Integers and booleans: made of numbers, of each other, and used; and what has no derivative."""

STOPS = {
    "stop": form(
        "f->f",
        "s",
        "sg.stop_gradient({0})",
        "{0}.detach()",
        "lax.stop_gradient({0})",
        opened="{0} * 1.0",
        weight=4.0,
    ),
    "stop_twice": form(
        "f->f",
        "ss",
        "sg.stop_gradient(sg.tanh(sg.stop_gradient({0})))",
        "torch.tanh({0}.detach()).detach()",
        "lax.stop_gradient(jnp.tanh(lax.stop_gradient({0})))",
        opened="torch.tanh({0})",
        opened_jax="jnp.tanh({0})",
    ),
    "stop_behind_floor": form(
        "f->f",
        "xs",
        "sg.floor(sg.stop_gradient({0}) * 3.0)",
        "torch.floor({0}.detach() * 3.0)",
        "jnp.floor(lax.stop_gradient({0}) * 3.0)",
    ),
    "stop_one": form(
        "ff->f",
        "o|s s",
        "sg.stop_gradient({0} * {1}) + {0}",
        "({0} * {1}).detach() + {0}",
        "lax.stop_gradient({0} * {1}) + {0}",
        opened="{0} * {1} + {0}",
    ),
    "stop_both": form(
        "ff->ff",
        "s .;. s",
        "sg.stop_gradient([{0}, {1}])",
        "({0}.clone().detach(), {1}.clone().detach())",
        "lax.stop_gradient(({0}, {1}))",
        opened="({0} * 1.0, {1} * 1.0)",
    ),
}

GATES = {
    "towards": form(
        "f->f",
        "g",
        "sg.stop_gradient({0}, wrt=[{names}])",
        twin="towards({0}, [{names}])",
        opened="{0} * 1.0",
        named=2,
        weight=4.0,
    ),
    "when": form(
        "fb->f",
        "w .",
        "sg.stop_gradient({0}, when=sg.reduce_any({1}))",
        twin="when({0}, {1})",
        opened="{0} * 1.0",
        weight=2.0,
    ),
    "when_towards": form(
        "fb->f",
        "v .",
        "sg.stop_gradient({0}, when=sg.reduce_any({1}), wrt=[{names}])",
        twin="when_towards({0}, {1}, [{names}])",
        opened="{0} * 1.0",
        named=1,
    ),
    "through": form(
        "ff->f",
        "s o",
        "sg.straight_through({0}, {1})",
        twin="{0}.detach() + ({1} - {1}.detach())",
        opened="{0} + ({1} - {1}.detach())",
        weight=2.0,
    ),
    "prevent": form(
        "f->f", "u", "sg.prevent_gradient({0}, 'not here')", twin="{0}.detach()", opened="{0} * 1.0"
    ),
    "zero": form("f->f", "o", "sg.zero_gradient({0})", twin="scale({0}, 0.0)"),
    "scale": form("f->f", "o", "sg.scale_gradient({0}, 2.5)", twin="scale({0}, 2.5)"),
    "scale_by": form(
        "ff->f",
        "o x",
        "sg.scale_gradient({0}, sg.reduce_mean({1}))",
        twin="scale({0}, {1}.mean())",
    ),
    "reverse": form("f->f", "o", "sg.reverse_gradient({0})", twin="scale({0}, -1.0)"),
    "clip": form("f->f", "o", "sg.clip_gradient({0}, -0.3, 0.4)", twin="clip({0}, -0.3, 0.4)"),
    "clip_norm": form("f->f", "o", "sg.clip_gradient_norm({0}, 0.5)", twin="clip_norm({0}, 0.5)"),
    "probe": form("f->f", "o", "sg.probe({0}, 'probed')", twin="{0} * 1.0"),
    "slope": form(
        "ff->f",
        "o o",
        "sg.grad(lambda t: sg.reduce_sum(sg.tanh(t) * {1}))({0})",
        twin="(1.0 - torch.tanh({0}) ** 2) * {1}",
    ),
    "slope_with_stop": form(
        "ff->f",
        "o s",
        "sg.grad(lambda t: sg.reduce_sum(sg.tanh(t) * sg.stop_gradient({1})))({0})",
        twin="(1.0 - torch.tanh({0}) ** 2) * {1}.detach()",
        opened="(1.0 - torch.tanh({0}) ** 2) * {1}",
    ),
}
"""The gates that only this library has."""

OURS = {**SMOOTH, **WHOLE, **STOPS, **GATES}

OF_JAX = {
    "through_floor": form(
        "f->f",
        "o|s|sx",
        jax="{0} + lax.stop_gradient(jnp.floor({0}) - {0})",
        twin="{0} + (torch.floor({0}) - {0}).detach()",
        weight=2.0,
    ),
    "slope_in_jax": form(
        "ff->f",
        "o o",
        jax="jax.grad(lambda t: jnp.sum(jnp.tanh(t) * {1}))({0})",
        twin="(1.0 - torch.tanh({0}) ** 2) * {1}",
    ),
    "slope_with_stop_in_jax": form(
        "ff->f",
        "o s",
        jax="jax.grad(lambda t: jnp.sum(jnp.tanh(t) * lax.stop_gradient({1})))({0})",
        twin="(1.0 - torch.tanh({0}) ** 2) * {1}.detach()",
        opened="(1.0 - torch.tanh({0}) ** 2) * {1}",
        opened_jax="jax.grad(lambda t: jnp.sum(jnp.tanh(t) * {1}))({0})",
    ),
    "relu": form(
        "f->f", "o", jax="jax.nn.gelu({0})", twin="torch.nn.functional.gelu({0}, approximate='tanh')"
    ),
    "softmax": form("f->f", "o", jax="jax.nn.softmax({0})", twin="torch.softmax({0}, 0)"),
    "scattered": form(
        "ffi->f",
        "o o o",
        jax="{0}.at[jnp.clip({2}, 0, 2)].add({1})",
        twin="{0}.index_add(0, {2}.clamp(0, 2), {1})",
    ),
    "set_at": form(
        "fi->f",
        "o o",
        jax="{0}.at[jnp.clip({1}[0], 0, 2)].set(0.3)",
        twin="{0} * ((torch.arange(3) - {1}[0].clamp(0, 2)) ** 2).clamp(0, 1)",
    ),
    "ranked": form(
        "ff->f",
        "x o",
        jax="{1}[jnp.argsort({0})]",
        twin="{1}[torch.argsort({0})]",
    ),
    "one_hot": form(
        "ff->f",
        "x o",
        jax="jax.nn.one_hot(jnp.argmax({0}), 3) * {1}",
        twin="torch.nn.functional.one_hot(torch.argmax({0}), 3) * {1}",
    ),
}

JAX = {name: one for name, one in {**SMOOTH, **WHOLE, **STOPS, **OF_JAX}.items() if "jax" in one.text}

OF_TORCH = {
    "copied": form("f->f", "o", torch="{0}.clone()"),
    "soft": form("f->f", "o", torch="torch.softmax({0}, 0)"),
    "crossed": form("ff->f", "o o", torch="torch.outer({0}, {1}).sum(0) * 0.3"),
    "stacked": form("ff->f", "o o", torch="torch.stack([{0}, {1}]).sum(0)"),
    "picked": form("fi->f", "o o", torch="torch.index_select({0}, 0, {1}.clamp(0, 2))"),
    "scattered_in": form("ffi->f", "o o o", torch="{0}.scatter_add(0, {2}.clamp(0, 2), {1})"),
    "filled": form("fb->f", "o o", torch="{0}.masked_fill({1}, 0.3)"),
    "chosen": form("ff->f", "o x", torch="torch.where({1} > 0.1, {0}, 0.5 * {0})"),
    "placed": form("ff->f", "o x", torch="{0}[{1}.argsort()]"),
    "signed": form("f->f", "x", torch="torch.sign({0})"),
    "dropped": form("f->f", "o", torch="functional.dropout({0}, 0.3) + 0.01 * {0}"),
    "normed": form("f->f", "o", torch="functional.layer_norm({0}, (3,))"),
    "parted": form("f->ff", "o;o", torch="({0}.clone(), torch.stack([{0}, {0} * 2.0])[1].clone())"),
    "linear": form("f->f", "o", torch="net({0})", parts="net.weight net.bias", weight=2.0),
    "tied": form("f->f", "o", torch="tied({0})", parts="net.weight"),
    "nested": form(
        "f->f", "o", torch="nested({0})", parts="nested.inner.weight nested.inner.bias nested.scale"
    ),
    "applied": form("f->f", "o", torch="functional.linear({0}, net.weight)", parts="net.weight"),
    "looked_up": form("fi->f", "o o", torch="{0} + table({1}.clamp(0, 2))[0]", parts="table.weight"),
    "by_call": form(
        "ff->f",
        "o o",
        torch="torch.func.functional_call(net, dict(bias={1}), ({0},))",
        parts="net.weight",
    ),
    "data": form("f->f", "s", torch="{0}.data", opened="{0} * 1.0"),
    "held": form("f->f", "s", torch="{0}.clone().detach()", opened="{0}.clone()"),
    "leaf": form("f->f", "s", torch="{0}.detach().clone().requires_grad_()", opened="{0}.clone()"),
    "parameter": form("f->f", "o", torch="torch.nn.Parameter({0}.clone())", opened="{0}.clone()"),
    "item": form("ff->f", "o l", torch="{0} * {1}.sum().item()", opened="{0} * {1}.sum()"),
    "listed": form("f->f", "l", torch="torch.tensor({0}.tolist(), dtype=torch.float64)", opened="{0} * 1.0"),
    "numpy": form("f->f", "ls", torch="torch.as_tensor({0}.detach().numpy()).clone()"),
    "own_scale": form("ff->f", "o o", torch="Scale.apply({0}, {1})"),
    "own_forget": form("ff->f", "o x", torch="Forget.apply({0}, {1})"),
    "own_nothing": form("f->f", "x", torch="Nothing.apply({0})"),
    "own_halves": form("f->ff", "o;s", torch="Halves.apply({0})"),
    "slope_in_torch": form(
        "ff->f", "o o", torch="torch.func.grad(lambda t: (torch.tanh(t) * {1}).sum())({0})"
    ),
    "mapped": form("f->f", "o", torch="torch.func.vmap(torch.tanh)({0})"),
    "pushed": form("ff->f", "o o", torch="torch.func.jvp(torch.sin, ({0},), ({1},))[1]"),
}

TORCH = {name: one for name, one in {**SMOOTH, **WHOLE, **STOPS, **OF_TORCH}.items() if "torch" in one.text}

WRITES = {
    "scale": ("{0}.mul_(0.9)", "", "o"),
    "add": ("{0}.add_({1})", "f", "o o"),
    "times": ("{0}.mul_({1})", "f", "o o"),
    "tanh": ("{0}.tanh_()", "", "o"),
    "part": ("{0}[:1] += {1}[:1]", "f", "o o"),
    "set": ("{0}[0] = {1}[0]", "f", "o o"),
    "fill_part": ("{0}[1:].mul_(0.5)", "", "o"),
    "mask": ("{0}[{1}] = 0.3", "b", "o o"),
    "zero": ("{0}.zero_()", "", "x"),
    "fill": ("{0}.fill_(0.3)", "", "x"),
    "copy": ("{0}.copy_({1})", "f", "x o"),
}
"""What is written into a tensor: its text, what else it takes, and the ways to what the tensor was."""

"""The gallery of mistakes in JAX.

``python tests/helpers/jax_mistakes.py`` writes docs/jax-mistakes.md anew.
"""

from __future__ import annotations

from mistakes import Gallery

import stopgrad.jax as sgj

HEAD = """# Mistakes in JAX, and what the reports say of them

{count} small programs in plain JAX, each with a mistake that people reported, what `stopgrad.jax` says of it,
and the cure. They are the files of {files}; `tests/interop/jax/test_mistakes.py` runs each and checks that
the line marked `# <- here` is the one that is named, that nothing is said against the cured program, and
that a gradient is said to arrive where `jax.grad` gives one. The page is written from them by
`python tests/helpers/jax_mistakes.py`. The same for our own graphs: [mistakes.md](mistakes.md).
"""

JAX = Gallery(
    name="jax_mistakes",
    head=HEAD,
    explain=lambda program, args: sgj.explain(program, *args),
    block=lambda program, args, held: sgj.assert_blocked(program, *args, to=list(held)),
    explained="sgj.explain(broken, *example())",
    blocked="sgj.assert_blocked(broken, *example(), to={held})",
    symptoms=("none", "inert", "leak", "large", "nan", "error", "idle"),
)

if __name__ == "__main__":
    JAX.write()

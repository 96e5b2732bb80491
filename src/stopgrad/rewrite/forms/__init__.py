"""Forms: rewrites of a prepared graph that change how, not what, is computed.

Each is a rule as in :mod:`stopgrad.rewrite.engine`; its docstring says what it recognises, what it puts
there, the numerical effect, when it is not applied, and the figure that justifies it. They run after gates
are erased, and never under ``strict=True``. Figures: two cores of Zen 4, float32, JAX 0.10.2, glibc's
allocator kept from giving pages back.
"""

from __future__ import annotations

from stopgrad.rewrite.forms import contractions, labels, products, rows

FORMS = (*products.FORMS, *contractions.FORMS, *labels.FORMS, *rows.FORMS)

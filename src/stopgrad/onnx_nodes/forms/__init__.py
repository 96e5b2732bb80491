"""Forms of operations whose definition for any array namespace is not the best for ONNX, or needs more.

From a definition to a function like its ``lower``: of the namespace, the operands, and by name the
attributes; and of ``types`` and ``run``, where it asks for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from stopgrad.onnx_nodes.forms.composites import COMPOSITES
from stopgrad.op import Op, Unsupported

FORMS: Mapping[type[Op], Callable[..., Any] | Unsupported] = {**COMPOSITES}

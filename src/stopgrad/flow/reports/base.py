"""Reports as JSON."""

from __future__ import annotations

import json
from math import isfinite
from typing import Any


class Documented:
    """A report that is to be had as dicts and lists, and as a text in JSON."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """The report as dicts, lists, strings, numbers and None."""
        raise NotImplementedError

    def to_json(self, indent: int | None = None) -> str:
        """The same as a text in JSON, ``indent`` spaces deep if given.

        Numbers that are not finite, for which JSON has no word, are the texts ``"nan"``, ``"inf"`` and
        ``"-inf"``.

        Examples:
            >>> import json
            >>> flow = sg.explain(lambda a, b: a * sg.stop_gradient(b), 1.0, 2.0)
            >>> [(x["key"], x["status"], x["paths"]) for x in json.loads(flow.to_json())["xs"]]
            [('a', 'flows', 1), ('b', 'stopped', 1)]
        """
        return json.dumps(_finite(self.to_dict()), indent=indent, ensure_ascii=False, allow_nan=False)


def _finite(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _finite(value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [_finite(value) for value in tree]
    return str(tree) if isinstance(tree, float) and not isfinite(tree) else tree

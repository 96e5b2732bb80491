"""PyTorch code as people have it: which line cuts the gradient of a loss.

:func:`watch` watches eager code and :func:`explain` a single call of a function; :func:`assert_flows` and
:func:`assert_blocked` are for tests. Nothing of the code that is watched has to be changed for it.
"""

from stopgrad.torch.asking import assert_blocked, assert_flows, explain
from stopgrad.torch.watching import BackwardCall, Watch, watch

__all__ = ["BackwardCall", "Watch", "assert_blocked", "assert_flows", "explain", "watch"]

"""The process's memory between calls."""

from __future__ import annotations

import platform
import resource

import numpy as np
import pytest

import stopgrad as sg


def _page_faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="memory is kept with glibc only")
def test_memory_of_intermediate_values_is_kept_where_all_together_take_more_than_a_thread_can_keep() -> None:
    layers, rows, width = 20, 65536, 16  # The gradient needs the result of each layer: 80 MiB in all.

    def loss(w: sg.Output, x: sg.Output) -> sg.Output:
        for _ in range(layers):
            x = sg.tanh(x @ w)
        return sg.reduce_mean(x)

    step = sg.function(sg.grad(loss), engine="xla")
    w, x = np.eye(width, dtype=np.float32), np.ones((rows, width), np.float32)
    faults = []
    for _ in range(20):  # Each of XLA's threads has memory of its own, which grows at first.
        before = _page_faults()
        step(w, x)
        faults.append(_page_faults() - before)
    assert min(faults) < layers * rows * width * 4 // resource.getpagesize() // 10

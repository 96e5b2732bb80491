"""``%%stopgrad`` in a cell: the cell runs as without it, and what is wrong in its training is told."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("IPython")

CELLS = '''
from IPython.testing.globalipapp import start_ipython
shell = start_ipython()
shell.run_line_magic("load_ext", "stopgrad")
shell.run_cell("""
import torch
from torch import nn
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
opt = torch.optim.SGD(net.parameters(), lr=.1)
net[2] = nn.Linear(8, 5)
""")
shell.run_cell("""%%stopgrad --every 10
x, y = torch.randn(16, 4), torch.randint(0, 5, (16,))
for step in range(5):
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad(); loss.backward(); opt.step()
""")
shell.run_cell("""%%stopgrad
loss = net(x).sum()
loss.backward()
loss.backward()
""")
shell.run_cell("""%%stopgrad
seen = loss.item()
""")
print("seen" in shell.user_ns)
result = shell.run_cell("%%stopgrad --every 0\\npass")
print(result.error_in_exec)
'''


@pytest.mark.slow
def test_a_cell_is_followed() -> None:
    ran = subprocess.run([sys.executable, "-c", CELLS], capture_output=True, text=True, timeout=120)
    out = ran.stdout
    assert "not-held: net.2.weight, net.2.bias receive gradients" in out, out + ran.stderr
    assert "second-backward: the same loss is differentiated a second time" in out
    assert "stopgrad: nothing found (no step was seen)" in out
    assert "True" in out
    assert "takes --every N and --steps N, both at least 1" in out

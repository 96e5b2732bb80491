# The weights are clipped after the optimizer's step.
# finds: nothing
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
hidden, out = nn.Linear(5, 20), nn.Linear(20, 1)
optimizer = torch.optim.SGD([*hidden.parameters(), *out.parameters()], lr=0.1)

def clip_weights(layer, limit=0.15):
    with torch.no_grad():
        w = layer.weight.view(-1)
        w.copy_(w.clamp(-limit, limit))

for step in range(5):
    x = torch.randn(32, 5)
    y = x[:, :1] * 2
    pred = out(torch.relu(hidden(x)))
    loss = F.mse_loss(pred, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    clip_weights(out)

# A ranking loss on all pairs: [n, 1] minus [n] is meant to be [n, n].
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(5, 10), nn.Tanh(), nn.Linear(10, 1, bias=False))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for _ in range(5):
    x = torch.randn(12, 5)
    relevance = x[:, 0]
    score = model(x)
    diff = score - score.squeeze(1)
    wanted = torch.sign(relevance[:, None] - relevance[None, :])
    loss = torch.relu(1 - wanted * diff)[wanted != 0].mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

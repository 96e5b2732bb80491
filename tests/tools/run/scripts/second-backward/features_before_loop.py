# The features are computed once before the loop, so the second step goes backward through a freed graph.
# finds: second-backward
import torch
from torch import nn

torch.manual_seed(0)
encoder = nn.Sequential(nn.Linear(6, 12), nn.Tanh())
decoder = nn.Linear(12, 6)
params = list(encoder.parameters()) + list(decoder.parameters())
optimizer = torch.optim.Adam(params, lr=0.01)
x = torch.randn(20, 6)
features = encoder(x)  # <computed>
for epoch in range(5):
    loss = ((decoder(features) - x) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()  # <second>
    optimizer.step()
    print(f"epoch {epoch}: {loss.item():.4f}")

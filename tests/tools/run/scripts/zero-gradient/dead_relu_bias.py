# The bias of the first layer starts at -100, so every ReLU is dead and the layer's gradients are all zero.
# finds: zero-gradient
import torch
from torch import nn

torch.manual_seed(0)

def init_weights(m):
    if isinstance(m, nn.Linear):
        nn.init.xavier_uniform_(m.weight)
        nn.init.constant_(m.bias, -100.0)

model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))
model.apply(init_weights)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(5):
    x = torch.randn(32, 6)
    loss = nn.functional.mse_loss(model(x), x[:, :1])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(epoch, loss.item())

# train_step already called backward on the loss; calling it again in the loop raises.
# finds: second-backward
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 10), nn.GELU(), nn.Linear(10, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

def train_step(x, y):
    loss = nn.functional.mse_loss(model(x), y)  # <computed>
    loss.backward()  # <first>
    return loss

for i in range(5):
    optimizer.zero_grad()
    loss = train_step(torch.randn(6, 3), torch.randn(6, 1))
    loss.backward()  # <second>
    optimizer.step()

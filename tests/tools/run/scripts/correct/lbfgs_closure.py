# LBFGS calls a closure that clears, computes and goes backward several times in a step.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(3, 1)
x = torch.randn(40, 3)
y = x @ torch.tensor([[1.0], [2.0], [-1.0]]) + 0.5
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4)

def closure():
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    return loss

for i in range(4):
    print(i, optimizer.step(closure).item())

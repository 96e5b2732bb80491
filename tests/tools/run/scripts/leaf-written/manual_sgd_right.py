# The update stands under no_grad.
# finds: nothing
import torch

torch.manual_seed(0)
x = torch.randn(30, 2)
y = x @ torch.tensor([2.0, -3.4]) + 4.2
w = torch.zeros(2, requires_grad=True)
lr = 0.1
for epoch in range(5):
    loss = ((x @ w + 4.2 - y) ** 2).mean()
    loss.backward()
    with torch.no_grad():
        w -= lr * w.grad
    w.grad.zero_()
    print(epoch, loss.item())

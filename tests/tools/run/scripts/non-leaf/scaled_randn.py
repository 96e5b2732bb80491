# randn(..., requires_grad=True) * 0.1 is a result, not a leaf: w.grad is None and the update raises.
# finds: non-leaf
import torch

torch.manual_seed(0)
w = torch.randn(4, 1, requires_grad=True) * 0.1  # <made>
b = torch.zeros(1, requires_grad=True)
x = torch.randn(50, 4)
y = x @ torch.tensor([[1.0], [-1.0], [2.0], [0.5]]) + 3
lr = 0.1
for epoch in range(5):
    loss = (x @ w + b - y).pow(2).mean()
    loss.backward()
    with torch.no_grad():
        w -= lr * w.grad  # <read>
        b -= lr * b.grad
        w.grad.zero_()
        b.grad.zero_()
    print(epoch, loss.item())

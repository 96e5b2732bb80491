# requires_grad is set after the scaling, so w is a leaf.
# finds: nothing
import torch

torch.manual_seed(0)
w = (torch.randn(4, 1) * 0.1).requires_grad_()
b = torch.zeros(1, requires_grad=True)
x = torch.randn(50, 4)
y = x @ torch.tensor([[1.0], [-1.0], [2.0], [0.5]]) + 3
lr = 0.1
for epoch in range(5):
    loss = (x @ w + b - y).pow(2).mean()
    loss.backward()
    with torch.no_grad():
        w -= lr * w.grad
        b -= lr * b.grad
        w.grad.zero_()
        b.grad.zero_()
    print(epoch, loss.item())

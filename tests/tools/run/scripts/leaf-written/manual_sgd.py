# w -= lr * w.grad outside no_grad: a leaf Variable that requires grad is being used in an in-place operation.
# finds: leaf-written
import torch

torch.manual_seed(0)
x = torch.randn(30, 2)
y = x @ torch.tensor([2.0, -3.4]) + 4.2
w = torch.zeros(2, requires_grad=True)  # <made>
lr = 0.1
for epoch in range(5):
    loss = ((x @ w + 4.2 - y) ** 2).mean()
    loss.backward()
    w -= lr * w.grad  # <written>
    w.grad.zero_()
    print(epoch, loss.item())

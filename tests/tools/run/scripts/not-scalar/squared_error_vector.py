# The squared errors are not summed, so backward is called on a tensor of 10 elements and raises.
# finds: not-scalar
import torch


class LinearRegression:
    def __init__(self, n):
        self.w = torch.zeros(n, requires_grad=True)

    def fit(self, x, y, lr=0.1, epochs=5):
        for _ in range(epochs):
            loss = (x @ self.w - y) ** 2  # <computed>
            loss.backward()
            self.w.data -= lr * self.w.grad
            self.w.grad = None
        return self

torch.manual_seed(0)
x = torch.randn(10, 3)
print(LinearRegression(3).fit(x, x.sum(1)).w)

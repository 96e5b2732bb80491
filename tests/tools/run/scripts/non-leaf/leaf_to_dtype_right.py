# The tensor is made in the wanted dtype.
# finds: nothing
import torch


def main():
    torch.manual_seed(0)
    theta = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    x = torch.randn(30, 3, dtype=torch.float64)
    y = (x[:, 0] > 0).double()
    for i in range(5):
        prob = torch.sigmoid(x @ theta)
        loss = torch.nn.functional.binary_cross_entropy(prob, y)
        loss.backward()
        print(i, loss.item(), theta.grad.norm().item())
        theta.data -= 0.5 * theta.grad
        theta.grad = None

if __name__ == "__main__":
    main()

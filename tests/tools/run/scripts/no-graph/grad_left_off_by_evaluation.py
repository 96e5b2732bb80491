# evaluate() switches gradients off and never on again: the second epoch's backward raises.
# finds: no-graph
import torch
from torch import nn


def evaluate(model, x, y):
    model.eval()
    torch.set_grad_enabled(False)  # <cut>
    return (model(x).argmax(1) == y).float().mean().item()
def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 10), nn.ReLU(), nn.Linear(10, 2))
    opt = torch.optim.Adam(model.parameters())
    x, y = torch.randn(40, 5), torch.randint(0, 2, (40,))
    for epoch in range(3):
        model.train()
        for i in range(0, 40, 20):
            loss = nn.functional.cross_entropy(model(x[i:i + 20]), y[i:i + 20])
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(epoch, evaluate(model, x, y))
main()

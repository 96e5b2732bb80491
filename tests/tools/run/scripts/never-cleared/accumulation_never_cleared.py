# Gradients are accumulated over four batches, but after the step nobody clears them.
# finds: never-cleared
import torch
from torch import nn


def main(accumulate=4):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 10), nn.GELU(), nn.Linear(10, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for i in range(1, 17):
        x, y = torch.randn(2, 5), torch.randint(0, 2, (2,))
        loss = nn.functional.cross_entropy(model(x), y) / accumulate
        loss.backward()
        if i % accumulate == 0:
            optimizer.step()  # <step>

main()

# The parameters of each domain stand in a dict, which nn.Module does not register: they are never updated.
# finds: not-held
import torch
from torch import nn


class DomainScale(nn.Module):
    def __init__(self, domains):
        super().__init__()
        self.fc = nn.Linear(5, 5)
        self.scale = {d: nn.Parameter(torch.ones(5)) for d in domains}  # <made>

    def forward(self, x, domain):
        return self.fc(x) * self.scale[domain]
if __name__ == "__main__":
    torch.manual_seed(0)
    net = DomainScale(["news", "web"])
    opt = torch.optim.SGD(net.parameters(), lr=0.05)
    for i in range(6):
        x = torch.randn(8, 5)
        loss = (net(x, ["news", "web"][i % 2]) - x).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()

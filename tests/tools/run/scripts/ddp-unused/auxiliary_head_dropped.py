# The auxiliary head is called, but its result is in no loss: DDP raises in the second step.
# finds: ddp-unused
import tempfile, torch
from torch import nn
import torch.distributed as dist

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head, self.aux = nn.Linear(4, 8), nn.Linear(8, 1), nn.Linear(8, 2)
    def forward(self, x):
        h = self.body(x).relu()
        extra = self.aux(h)  # <called>
        return self.head(h)
dist.init_process_group("gloo", init_method=f"file://{tempfile.mktemp()}", rank=0, world_size=1)
net = nn.parallel.DistributedDataParallel(Net())
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    loss = net(torch.randn(3, 4)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
dist.destroy_process_group()

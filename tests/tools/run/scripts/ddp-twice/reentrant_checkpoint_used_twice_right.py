# Checkpoints without reentry bring each gradient once.
# finds: nothing
import tempfile, torch
from torch import nn
import torch.distributed as dist
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.start, self.block = nn.Linear(4, 4), nn.Linear(4, 4)
    def forward(self, x):
        x = self.start(x)
        for _ in range(2):
            x = checkpoint(self.block, x, use_reentrant=False)
        return x
dist.init_process_group("gloo", init_method=f"file://{tempfile.mktemp()}", rank=0, world_size=1)
net = nn.parallel.DistributedDataParallel(Net())
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    loss = net(torch.randn(3, 4)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
dist.destroy_process_group()

# Complex parameters and a Fourier transform.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)
w = nn.Parameter(torch.randn(3, 3, dtype=torch.cfloat))
m = nn.Linear(3, 1, dtype=torch.cfloat)
opt = torch.optim.Adam([w, *m.parameters()], 0.01)
for _ in range(4):
    x = torch.randn(8, 3, dtype=torch.cfloat)
    opt.zero_grad()
    (torch.fft.ifft(torch.fft.fft(x) @ w) @ m.weight.T).abs().pow(2).mean().add(m.bias.abs().sum()).backward()
    opt.step()

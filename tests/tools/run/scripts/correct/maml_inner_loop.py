# MAML: one inner step with create_graph, then the outer loss goes through it.
# finds: nothing
import torch
from torch import nn
from torch.func import functional_call

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1, 10), nn.Tanh(), nn.Linear(10, 1))
meta_opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for _ in range(4):
    meta_opt.zero_grad()
    for _ in range(2):
        amp = torch.rand(1) * 4
        xs, xq = torch.randn(5, 1), torch.randn(5, 1)
        params = dict(model.named_parameters())
        inner = nn.functional.mse_loss(functional_call(model, params, (xs,)), amp * xs.sin())
        grads = torch.autograd.grad(inner, list(params.values()), create_graph=True)
        fast = {k: p - 0.01 * g for (k, p), g in zip(params.items(), grads)}
        outer = nn.functional.mse_loss(functional_call(model, fast, (xq,)), amp * xq.sin())
        outer.backward()
    meta_opt.step()

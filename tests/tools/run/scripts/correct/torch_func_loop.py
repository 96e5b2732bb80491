# A training loop by torch.func with parameters in a dict and no optimizer.
# finds: nothing
import torch
from torch import nn
from torch.func import functional_call, grad_and_value

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
params = {name: p.detach() for name, p in net.named_parameters()}
x = torch.randn(30, 3)
y = x.prod(1, keepdim=True)

def loss_fn(params, x, y):
    return nn.functional.mse_loss(functional_call(net, params, (x,)), y)

for step in range(5):
    grads, loss = grad_and_value(loss_fn)(params, x, y)
    params = {k: params[k] - 0.1 * grads[k] for k in params}
    print(step, loss.item())

# Each time step writes its state into one buffer whose earlier rows backward needs: RuntimeError.
# finds: modified-in-place
import torch
from torch import nn

torch.manual_seed(0)

class SimpleRNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp, self.rec = nn.Linear(3, 8), nn.Linear(8, 8, bias=False)
    def forward(self, x):
        states = torch.zeros(len(x) + 1, x.shape[1], 8)
        for t in range(len(x)):
            h = torch.tanh(self.inp(x[t]) + self.rec(states[t]))  # <needed>
            states[t + 1] = h  # <written>
        return states[1:]
rnn = SimpleRNN()
opt = torch.optim.SGD(rnn.parameters(), lr=0.1)
for _ in range(4):
    loss = rnn(torch.randn(5, 2, 3)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()

# Truncated backpropagation through time: the hidden state is detached between the chunks.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)
rnn, head = nn.LSTM(2, 8), nn.Linear(8, 2)
optimizer = torch.optim.Adam([*rnn.parameters(), *head.parameters()], lr=1e-2)
series = torch.sin(torch.arange(42.0)).view(21, 1, 2)
state = None
for t in range(0, 20, 5):
    if state is not None:
        state = tuple(s.detach() for s in state)
    out, state = rnn(series[t:t + 5], state)
    loss = nn.functional.mse_loss(head(out), series[t + 1:t + 6])
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(rnn.parameters(), 1.0)
    optimizer.step()

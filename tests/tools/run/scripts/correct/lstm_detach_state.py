# A language model with a detached state and steps by hand, without an optimizer.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)
emb, lstm, dec = nn.Embedding(10, 8), nn.LSTM(8, 8, 2, dropout=0.2), nn.Linear(8, 10)
params = [*emb.parameters(), *lstm.parameters(), *dec.parameters()]


def repackage(h):
    return h.detach() if isinstance(h, torch.Tensor) else tuple(repackage(v) for v in h)


hidden = (torch.zeros(2, 4, 8), torch.zeros(2, 4, 8))
lr = 20
data = torch.randint(0, 10, (21, 4))
for i in range(0, 20, 4):
    for p in params:
        p.grad = None
    hidden = repackage(hidden)
    out, hidden = lstm(emb(data[i : i + 4]), hidden)
    loss = nn.functional.nll_loss(dec(out).view(-1, 10).log_softmax(1), data[i + 1 : i + 5].reshape(-1))
    loss.backward()
    torch.nn.utils.clip_grad_norm_(params, 0.25)
    for p in params:
        p.data.add_(p.grad, alpha=-lr)

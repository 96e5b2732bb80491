# The prompt mask covers the whole sequence, so all labels are -100 and the cross entropy is nan.
# finds: empty-loss
import torch
from torch import nn

torch.manual_seed(0)
vocab, prompt_len = 20, 8
lm = nn.Sequential(nn.Embedding(vocab, 8), nn.Linear(8, vocab))
optimizer = torch.optim.AdamW(lm.parameters(), lr=1e-3)
for _ in range(4):
    input_ids = torch.randint(0, vocab, (4, 8))
    labels = input_ids.clone()
    labels[:, :prompt_len] = -100
    logits = lm(input_ids)
    loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())  # <computed>
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())

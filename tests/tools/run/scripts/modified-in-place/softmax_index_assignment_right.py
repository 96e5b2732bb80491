# The probabilities are cloned before the padding class is set to 0.
# finds: nothing
import torch
import torch.nn.functional as F

torch.manual_seed(0)
clf = torch.nn.Linear(10, 5)
optimizer = torch.optim.Adam(clf.parameters(), lr=0.01)
inputs = torch.randn(16, 10)
labels = torch.randint(1, 5, (16,))  # class 0 is padding

for step in range(5):
    probs = F.softmax(clf(inputs), dim=1)
    probs = probs.clone()
    probs[:, 0] = 0
    picked = probs[torch.arange(16), labels] / probs.sum(1)
    loss = -torch.log(picked).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

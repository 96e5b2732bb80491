# The sum of the two losses goes backward once.
# finds: nothing
import torch
from torch import nn

torch.manual_seed(0)
trunk = nn.Sequential(nn.Linear(8, 16), nn.Sigmoid())
age_head, sex_head = nn.Linear(16, 1), nn.Linear(16, 2)
modules = nn.ModuleList([trunk, age_head, sex_head])
optimizer = torch.optim.Adam(modules.parameters(), lr=1e-3)
x, age, sex = torch.randn(12, 8), torch.rand(12, 1), torch.randint(0, 2, (12,))
for _ in range(4):
    h = trunk(x)
    loss_age = nn.functional.l1_loss(age_head(h), age)
    loss_sex = nn.functional.cross_entropy(sex_head(h), sex)
    optimizer.zero_grad()
    (loss_age + loss_sex).backward()
    optimizer.step()

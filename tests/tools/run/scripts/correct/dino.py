# DINO: a frozen scale of weight norm, a rate of 0 at first, gradients taken away in the first epoch.
# finds: nothing
import torch, copy
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)
student = nn.Sequential(
    nn.Linear(6, 16), nn.GELU(), nn.utils.parametrizations.weight_norm(nn.Linear(16, 8, bias=False))
)
student[2].parametrizations.weight.original0.data.fill_(1)
student[2].parametrizations.weight.original0.requires_grad = False
teacher = copy.deepcopy(student)
for p in teacher.parameters():
    p.requires_grad = False
center = torch.zeros(1, 8)
opt = torch.optim.AdamW([p for p in student.parameters() if p.requires_grad], lr=0)
lrs = [0.0, 1e-3, 2e-3, 2e-3, 1e-3]
for it in range(5):
    for g in opt.param_groups:
        g["lr"] = lrs[it]
    crops = [torch.randn(8, 6) for _ in range(4)]
    t = teacher(torch.cat(crops[:2])).chunk(2)
    s = student(torch.cat(crops)).chunk(4)
    tp = [((x - center) / 0.04).softmax(-1).detach() for x in t]
    loss = (
        sum(
            -(q * F.log_softmax(v / 0.1, -1)).sum(-1).mean()
            for i, q in enumerate(tp)
            for j, v in enumerate(s)
            if i != j
        )
        / 6
    )
    center = center * 0.9 + torch.cat(t).mean(0, keepdim=True) * 0.1
    opt.zero_grad()
    loss.backward()
    if it < 1:
        student[2].parametrizations.weight.original1.grad = None
    opt.step()
    with torch.no_grad():
        for q, k in zip(student.parameters(), teacher.parameters()):
            k.data.mul_(0.99).add_(0.01 * q.detach().data)

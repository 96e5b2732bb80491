# The sample weights come from a function under @torch.inference_mode() and the loss saves them: RuntimeError.
# finds: inference-tensor
import torch
from torch import nn


@torch.inference_mode()
def sample_weights(teacher, x):
    return teacher(x).softmax(-1).max(-1).values  # <made>

def main():
    torch.manual_seed(0)
    teacher, student = nn.Linear(4, 3), nn.Linear(4, 3)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    for _ in range(4):
        x, y = torch.randn(8, 4), torch.randint(0, 3, (8,))
        weights = sample_weights(teacher, x)
        losses = nn.functional.cross_entropy(student(x), y, reduction="none")
        loss = (weights * losses).mean()  # <needed>
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

main()

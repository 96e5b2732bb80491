"""How long the head's training takes: by onnxruntime, or the same in PyTorch.

    python measure.py out
    python measure.py out torch

Both use one thread; a step is the fastest of 20 times 50.
"""

import importlib
import resource
import sys
import time
from pathlib import Path

BEGAN = time.perf_counter()
BATCH = 64


def by_onnxruntime(folder, images, labels):
    trainer = importlib.import_module("stopgrad.trainer").Trainer(folder / "training", threads=1)
    return lambda: trainer.step(image=images, labels=labels)


def by_pytorch(folder, images, labels):
    torch = importlib.import_module("torch")
    torch.set_num_threads(1)
    nn = torch.nn
    layers = [nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    layers += [nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    backbone, head = nn.Sequential(*layers).requires_grad_(False), nn.Linear(128, 10)
    optimizer = torch.optim.AdamW(head.parameters(), lr=0.01)
    x, y = torch.from_numpy(images), torch.from_numpy(labels)

    def step():
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(head(backbone(x)), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def main(folder, make):
    digits = importlib.import_module("safetensors.numpy").load_file(folder / "digits.safetensors")
    step = make(folder, digits["train/images"][:BATCH].copy(), digits["train/labels"][:BATCH].copy())
    step()
    first, fastest = time.perf_counter() - BEGAN, float("inf")
    for _ in range(20):
        start = time.perf_counter()
        for _ in range(50):
            step()
        fastest = min(fastest, (time.perf_counter() - start) / 50)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"first step after {first:.2f} s; a step {1000 * fastest:.2f} ms; {peak:.0f} MB at most")


if __name__ == "__main__":
    main(Path(sys.argv[1]), by_pytorch if "torch" in sys.argv[2:] else by_onnxruntime)

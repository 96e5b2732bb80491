"""What is shipped: an image model that knows half the digits, and graphs that train its head on all of them.

A small convolutional network learns 0, 1, 2, 3 and 4, and is exported. Of the exported model the graphs are
made by which it learns the others where it is used: its head is trained, its backbone is frozen.

    python prepare.py out

    out/model.onnx             the model as it was exported
    out/training/              train_step.onnx, predict.onnx, ..., state.safetensors, manifest.json
    out/digits.safetensors     scikit-learn's digits: 1437 to train with, 360 held out

The graphs by the command line:

    stopgrad train-graph out/model.onnx --loss cross-entropy --optimizer adamw --freeze 'backbone/*' \\
        --learning-rate 0.01 -o out/training
"""

import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from sklearn.datasets import load_digits

import stopgrad as sg
import stopgrad.onnx as sgo

HELD_OUT = 360
KNOWN = 5


def digits():
    """Images [count, 1, 8, 8] from 0 to 1 and labels, always in the same order: to train with, held out."""
    found = load_digits()
    order = np.random.default_rng(0).permutation(len(found.target))
    images, labels = found.images[order, None].astype(np.float32) / 16, found.target[order].astype(np.int64)
    return (images[HELD_OUT:], labels[HELD_OUT:]), (images[:HELD_OUT], labels[:HELD_OUT])


def network(rng):
    """Two convolutions, each with a pool, and a dense layer: the images, the logits."""

    def weights(name, shape, fan_in):
        return sg.parameter((rng.normal(size=shape) * np.sqrt(2 / fan_in)).astype(np.float32), name=name)

    def zeros(name, shape):
        return sg.parameter(np.zeros(shape, np.float32), name=name)

    image = h = sg.placeholder(sg.float32, ["batch", 1, 8, 8], name="image")
    for i, (inputs, outputs) in enumerate([(1, 16), (16, 32)]):
        w = weights(f"backbone/conv{i}/w", (3, 3, inputs, outputs), 9 * inputs)
        b = zeros(f"backbone/conv{i}/b", (outputs, 1, 1))
        h = sg.max_pool2d(sg.relu(sg.conv2d(h, w, 1, "SAME", "NCHW") + b), 2, 2, "VALID", "NCHW")
    features = sg.reshape(h, [-1, 128])
    return image, features @ weights("head/w", (128, 10), 128) + zeros("head/b", (10,))


def pretrain(path, steps=400):
    """The network after some steps on the smaller digits, as a model file."""
    rng = np.random.default_rng(0)
    (images, labels), _ = digits()
    known = np.flatnonzero(labels < KNOWN)
    with sg.Graph().as_default() as graph:
        image, logits = network(rng)
        label = sg.placeholder(sg.int64, ["batch"], name="label")
        loss = sg.reduce_mean(sg.sparse_softmax_cross_entropy_with_logits(labels=label, logits=logits))
        parameters = [op.as_output() for op in graph.operations if op.type == "Parameter"]
        update = sg.optimizers.sgd(loss, parameters, 0.1)
    with sg.Session(graph) as session:
        for _ in range(steps):
            batch = rng.choice(known, 64)
            session.run([loss, update.run], {image: images[batch], label: labels[batch]})
        sgo.save(path, {"logits": logits}, inputs={"image": image}, values=session)


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    pretrain(folder / "model.onnx")
    sgo.training(
        folder / "model.onnx",
        loss="cross-entropy",
        optimizer="adamw",
        freeze=["backbone/*"],
        learning_rate=0.01,
        folder=folder / "training",
    )
    train, held_out = digits()
    arrays = {"train/images": train[0], "train/labels": train[1]}
    arrays |= {"held_out/images": held_out[0], "held_out/labels": held_out[1]}
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    save_file(arrays, folder / "digits.safetensors")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "out"))

# SPDX-License-Identifier: Apache-2.0
"""The dump of a PyTorch training, in the form that recps precision reads.

usage: torch_dump.py OUT STEPS SCRIPT [ARGUMENT...]

Runs a training script of a DLRM (modules emb, bot, top; nn.Linear, nn.ReLU,
BCEWithLogitsLoss) with hooks around its modules, and ends it after STEPS steps.
OUT/dump/{time}/0/torch/0/{step}/ has each layer's forward and backward, the
dots' and the loss', as they are before the optimizers' step."""
import pathlib
import runpy
import sys
import time

import numpy as np
import torch

OUT, STEPS = pathlib.Path(sys.argv[1]), int(sys.argv[2])
FOLDER = OUT / "dump" / time.strftime("%Y%m%d%H%M%S") / "0/torch/0"
seen = {}  # of the step that runs: module: (input, output, more inputs)
steps = 0
root = None


def keep_gradient(tensor):
    if tensor.requires_grad and not tensor.is_leaf:
        tensor.retain_grad()


def after_forward(module, inputs, output):
    global root
    if not output.requires_grad:
        return  # an evaluation
    keep_gradient(output)
    keep_gradient(inputs[0])
    seen[module] = (inputs[0], output, inputs[1:])
    if hasattr(module, "emb"):
        root = module


def array(tensor):
    return None if tensor is None else tensor.detach().numpy()


class Folder:
    """A step's files, in the order of their operators."""

    def __init__(self, step):
        self.path = FOLDER / str(step)
        self.path.mkdir(parents=True)
        self.task = 0
        self.clock = time.time_ns() // 1000

    def add(self, type, name, inputs, outputs):
        for way, arrays in (("input", inputs), ("output", outputs)):
            for i, value in enumerate(arrays):
                self.clock += 1
                if value is not None:
                    np.save(self.path / f"{type}.{name.replace('.', '_')}."
                            f"{self.task}.0.{self.clock}.{way}.{i}.npy", value)
        self.task += 1


def layers_of(name):
    """(name, linear, what its activation gave) of a Sequential."""
    modules = list(getattr(root, name))
    for i, module in enumerate(modules):
        if isinstance(module, torch.nn.Linear):
            last = i + 1 == len(modules)
            yield f"{name}.{i}", module, module if last else modules[i + 1]


def forward(folder, name):
    for layer, linear, end in layers_of(name):
        folder.add("Linear", layer, [array(seen[linear][0]),
                                     array(linear.weight), array(linear.bias)],
                   [array(seen[end][1])])


def backward(folder, name):
    for layer, linear, end in reversed(list(layers_of(name))):
        x = seen[linear][0]
        folder.add("LinearBackward", layer,
                   [array(seen[end][1].grad), array(x), array(linear.weight)],
                   [array(linear.bias.grad), array(linear.weight.grad),
                    array(x.grad) if x.requires_grad else None])


def write(folder):
    loss, (logits, value, (labels,)) = next(
        (m, s) for m, s in seen.items()
        if isinstance(m, torch.nn.BCEWithLogitsLoss))
    rows, bottom = seen[root.emb][1], seen[root.bot[-1]][1]
    vectors = torch.cat([bottom[:, None], rows], 1)
    top_input = seen[root.top[0]][0]
    forward(folder, "bot")
    folder.add("Embedding", "emb", [], [array(rows)])
    folder.add("Dots", "interaction", [array(vectors)], [array(top_input)])
    forward(folder, "top")
    folder.add(type(loss).__name__, "loss", [array(logits), array(labels)],
               [array(value), array(logits.grad)])
    backward(folder, "top")
    folder.add("DotsBackward", "interaction",
               [array(vectors), array(top_input.grad)],
               [array(torch.cat([bottom.grad[:, None], rows.grad], 1))])
    backward(folder, "bot")
    folder.add("EmbeddingBackward", "emb", [array(rows.grad)], [])


def before_step():
    """Of the first optimizer: gradients are there, weights as they were."""
    global steps
    if not seen:
        return
    write(Folder(steps))
    seen.clear()
    steps += 1
    if steps == STEPS:
        sys.exit(0)


def watched(step):
    def both(*arguments, **words):
        before_step()
        return step(*arguments, **words)
    return both


torch.nn.modules.module.register_module_forward_hook(after_forward)
for kind in (torch.optim.Adagrad, torch.optim.Adam, torch.optim.SGD):
    kind.step = watched(kind.step)
sys.argv = sys.argv[3:]
runpy.run_path(sys.argv[0], run_name="__main__")

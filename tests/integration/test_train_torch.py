# SPDX-License-Identifier: Apache-2.0
"""recps-train against PyTorch, from the same start weights."""
import json
import subprocess
import sys

import numpy
import pytest

import programs
import trainer

pytestmark = trainer.needs_programs
torch = pytest.importorskip("torch")

ROWS, TRAIN_ROWS, BATCH, EPOCHS, DIM, FIELDS = 1500, 1200, 64, 2, 16, 26


def features(made):
    """Rows of trainer.criteo_file as docs/DATA.md says they are read."""
    labels = torch.tensor([float(row[0]) for row in made])
    dense = torch.tensor(
        [[numpy.log(max(v or 0, -2) + 3) for v in row[1]] for row in made],
        dtype=torch.float32)
    pairs = [[(i, -1 if v is None else v * 2654435761 % 2**32)
              for i, v in enumerate(row[2])] for row in made]
    number = {}
    ids = torch.tensor([[number.setdefault(p, len(number)) for p in row]
                        for row in pairs])
    return labels, dense, ids, number


class Reference:
    """The model by plain tensor products; weights by PyTorch's own law."""

    def __init__(self, keys):
        torch.manual_seed(5)
        pairs = (FIELDS + 1) * FIELDS // 2
        self.layers = {"bot.0": torch.nn.Linear(13, 64),
                       "bot.2": torch.nn.Linear(64, DIM),
                       "top.0": torch.nn.Linear(DIM + pairs, 64),
                       "top.2": torch.nn.Linear(64, 1)}
        self.emb = torch.nn.Parameter(torch.empty(keys, DIM))
        torch.nn.init.uniform_(self.emb, -0.05, 0.05)

    def logits(self, dense, ids, table=None):
        table = self.emb if table is None else table
        layer, relu = self.layers, torch.relu
        b = relu(layer["bot.2"](relu(layer["bot.0"](dense))))
        vectors = torch.cat([b.unsqueeze(1), table[ids]], dim=1)
        dots = vectors @ vectors.transpose(1, 2)
        low = [dots[:, i, j] for i in range(FIELDS + 1) for j in range(i)]
        z = torch.stack(low, dim=1)
        return layer["top.2"](relu(layer["top.0"](
            torch.cat([b, z], dim=1)))).squeeze(1)

    def save(self, folder, number):
        folder.mkdir()
        numpy.save(folder / "emb.weight.npy", self.emb.detach().numpy())
        for name, layer in self.layers.items():
            for part, value in layer.named_parameters():
                numpy.save(folder / f"{name}.{part}.npy",
                           value.detach().numpy())
        (folder / "keys.tsv").write_text("".join(
            f"{row}\t{field}\t{token}\n"
            for (field, token), row in number.items()))

    def train(self, labels, dense, ids):
        weights = [p for layer in self.layers.values()
                   for p in layer.parameters()]
        adagrad = torch.optim.Adagrad([self.emb], lr=0.02,
                                      initial_accumulator_value=0.1)
        adam = torch.optim.Adam(weights, lr=0.001)
        loss_of = torch.nn.BCEWithLogitsLoss()
        losses = []
        for _ in range(EPOCHS):
            for at in range(0, TRAIN_ROWS - BATCH + 1, BATCH):
                part = slice(at, at + BATCH)
                loss = loss_of(self.logits(dense[part], ids[part]),
                               labels[part])
                adagrad.zero_grad()
                adam.zero_grad()
                loss.backward()
                adagrad.step()
                adam.step()
                losses.append(loss.item())
        return losses

    def evaluate(self, labels, dense, ids):
        seen = torch.zeros(len(self.emb), 1)
        seen[ids[:TRAIN_ROWS].reshape(-1)] = 1
        with torch.no_grad():
            scores = torch.sigmoid(self.logits(
                dense[TRAIN_ROWS:], ids[TRAIN_ROWS:],
                self.emb * seen)).numpy()
        return scores, auc(scores, labels[TRAIN_ROWS:].numpy())


def auc(scores, labels):
    """Every pair of a positive and a negative row, ties one half."""
    good, bad = scores[labels == 1], scores[labels == 0]
    wins = (good[:, None] > bad).sum() + 0.5 * (good[:, None] == bad).sum()
    return wins / (len(good) * len(bad))


@pytest.mark.parametrize("workers", [1, 2])
def test_losses_and_auc_are_pytorchs(tmp_path, workers):
    data, start = tmp_path / "data.tsv", tmp_path / "start"
    made = trainer.criteo_file(data, ROWS, tokens=300)
    labels, dense, ids, number = features(made)
    reference = Reference(len(number))
    reference.save(start, number)
    losses = reference.train(labels, dense, ids)
    scores, want = reference.evaluate(labels, dense, ids)

    flags = ["--data", f"criteo:{data}", "--train-rows", TRAIN_ROWS]
    log, folder, out = (tmp_path / n for n in ("log.json", "ck", "p.txt"))
    said = trainer.launch(
        *flags, "--epochs", EPOCHS, "--batch-size", BATCH // workers,
        "--init-from", start, "--json-log", log, workers=workers,
        options=["--checkpoint-dir", folder]).stdout
    got, done = trainer.log_of(log)
    assert len(got) == len(losses)
    for step, loss in enumerate(losses, 1):
        assert abs(got[step] - loss) < 1e-5
    assert abs(done["auc"] - want) < 1e-3
    seen = len(set(ids[:TRAIN_ROWS].reshape(-1).tolist()))
    assert f"{seen} keys assigned, {len(number) - seen} left out" in said
    assert seen < len(number)

    trainer.train(*flags, "--predict", out, "--checkpoint-dir", folder)
    own = numpy.array([float(line) for line in out.read_text().splitlines()])
    assert numpy.abs(own - scores).max() < 1e-4


def reference_run(kind, path, tmp_path, epochs):
    script = trainer.SHARED / "reference/dlrm_torch.py"
    if not script.is_file():
        pytest.skip(f"{script} is not here")
    pytest.importorskip("sklearn")
    start, log = tmp_path / "start", tmp_path / "torch.json"
    subprocess.run([sys.executable, script, kind, path, "--epochs",
                    str(epochs), "--init-out", start, "--json-log", log],
                   check=True, env=programs.environment(OMP_NUM_THREADS="1"),
                   stdout=subprocess.DEVNULL)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    return start, {x["step"]: x["loss"] for x in lines[:-1]}, lines[-1]


def test_real_criteo_losses_and_auc_are_the_references(tmp_path):
    path = trainer.data("criteo.tsv")
    start, want, end = reference_run("criteo", path, tmp_path, 3)
    log = tmp_path / "log.json"
    trainer.launch("--data", f"criteo:{path}", "--train-rows", 7000,
                   "--epochs", 3, "--batch-size", 128, "--mode", "sync",
                   "--init-from", start, "--json-log", log)
    got, done = trainer.log_of(log)
    assert sorted(got) == sorted(want)
    for step, loss in want.items():
        assert abs(got[step] - loss) < 1e-4
    assert abs(done["auc"] - end["auc"]) < 1e-3
    assert abs(done["log_loss"] - end["log_loss"]) < 1e-3

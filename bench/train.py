#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""recps-train against PyTorch: the same DLRM, the same rows, the same start
weights, in one run, taking turns (bench/README.md)."""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
FIELDS, DENSE, DIM, HIDDEN = 26, 13, 16, 64
TRAIN_ROWS, TEST_ROWS = 7000, 1000
LOSS_SLACK = 1e-3  # of a step, between two programs in float32


def say(words):
    print(words, file=sys.stderr, flush=True)


def fail(words, code=1):
    say(f"bench/train.py: {words}")
    sys.exit(code)


# --- the rows ---------------------------------------------------------------


def write_rows(path, keys, seed=1):
    """A file in Criteo's form: tokens by a Zipf law, of `keys` a field."""
    import numpy
    draw = numpy.random.default_rng(seed)
    rows = TRAIN_ROWS + TEST_ROWS
    odds = 1.0 / numpy.arange(1, keys + 1)
    tokens = draw.choice(keys, (rows, FIELDS), p=odds / odds.sum())
    counts = draw.integers(-2, 200, (rows, DENSE))
    weight = draw.normal(size=(FIELDS, keys))
    logits = weight[numpy.arange(FIELDS), tokens].sum(1) / 4 - 1
    labels = draw.random(rows) < 1 / (1 + numpy.exp(-logits))
    with open(path, "w", encoding="ascii") as file:
        for label, dense, row in zip(labels, counts, tokens):
            file.write("\t".join(
                [str(int(label))] + [str(v) for v in dense] +
                [f"{int(t) * 2654435761 % 2**32:08x}" for t in row]) + "\n")


def read_rows(path):
    """Labels, dense features and (field, token) of each row, as
    docs/DATA.md says they are read."""
    import numpy
    labels, dense, pairs = [], [], []
    for line in open(path, encoding="ascii"):
        columns = line.rstrip("\n").split("\t")
        labels.append(float(columns[0]))
        dense.append([numpy.log(max(float(v or 0), -2) + 3)
                      for v in columns[1:14]])
        pairs.append([(f, int(v, 16) if v else -1)
                      for f, v in enumerate(columns[14:])])
    return (numpy.array(labels, numpy.float32),
            numpy.array(dense, numpy.float32), pairs)


# --- PyTorch ----------------------------------------------------------------


def torch_model(rows):
    import torch

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = torch.nn.Embedding(rows, DIM, sparse=True)
            torch.nn.init.uniform_(self.emb.weight, -0.05, 0.05)
            linear, relu = torch.nn.Linear, torch.nn.ReLU
            self.bot = torch.nn.Sequential(
                linear(DENSE, HIDDEN), relu(), linear(HIDDEN, DIM), relu())
            pairs = (FIELDS + 1) * FIELDS // 2
            self.top = torch.nn.Sequential(
                linear(DIM + pairs, HIDDEN), relu(), linear(HIDDEN, 1))
            self.low = torch.tril_indices(FIELDS + 1, FIELDS + 1, -1)

        def forward(self, dense, ids):
            b = self.bot(dense)
            t = torch.cat([b.unsqueeze(1), self.emb(ids)], 1)
            dots = torch.bmm(t, t.transpose(1, 2))
            z = dots[:, self.low[0], self.low[1]]
            return self.top(torch.cat([b, z], 1)).squeeze(1)

    return Model()


def save_start(model, number, folder):
    import numpy
    folder.mkdir()
    for name, value in model.named_parameters():
        numpy.save(folder / f"{name}.npy", value.detach().numpy())
    (folder / "keys.tsv").write_text("".join(
        f"{row}\t{field}\t{token}\n"
        for (field, token), row in number.items()), "ascii")


def run_torch(args):
    """The child: trains, prints the samples/s of each epoch."""
    import torch
    torch.set_num_threads(args.as_torch)
    torch.manual_seed(1)
    labels, dense, pairs = read_rows(args.data)
    number = {}
    ids = torch.tensor([[number.setdefault(p, len(number)) for p in row]
                        for row in pairs])
    labels, dense = torch.from_numpy(labels), torch.from_numpy(dense)
    model = torch_model(len(number))
    if args.init_out:
        save_start(model, number, pathlib.Path(args.init_out))
    sparse = torch.optim.Adagrad(model.emb.parameters(), lr=0.02,
                                 initial_accumulator_value=0.1)
    adam = torch.optim.Adam([value for name, value in model.named_parameters()
                             if not name.startswith("emb")], lr=0.001)
    loss_of = torch.nn.BCEWithLogitsLoss()
    losses = []
    for _ in range(args.epochs):
        begin = time.perf_counter()
        for at in range(0, TRAIN_ROWS - args.batch + 1, args.batch):
            part = slice(at, at + args.batch)
            loss = loss_of(model(dense[part], ids[part]), labels[part])
            sparse.zero_grad()
            adam.zero_grad()
            loss.backward()
            sparse.step()
            adam.step()
            losses.append(loss.item())
        rows = TRAIN_ROWS // args.batch * args.batch
        print(f"{rows / (time.perf_counter() - begin):.1f} samples/s")
    if args.json_log:
        pathlib.Path(args.json_log).write_text("".join(
            json.dumps({"step": i + 1, "loss": loss}) + "\n"
            for i, loss in enumerate(losses)), "ascii")


# --- one side, one turn -----------------------------------------------------


def output_of(command, env):
    done = subprocess.run([str(word) for word in command], env=env,
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        fail(f"{command[0]}: exit code {done.returncode}\n"
             f"{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def losses_of(path):
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return {line["step"]: line["loss"] for line in lines if "step" in line}


class Sides:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.start, self.stages = None, None

    def torch(self, batch, threads):
        """Samples/s: the median of the epochs, the first one left out."""
        args = self.args
        flags = ["--epochs", args.epochs, "--batch", batch]
        env = dict(os.environ, OMP_NUM_THREADS=str(threads))
        log = self.folder / f"torch-{batch}.log"
        first = self.start is None
        if first or not log.exists():
            flags += ["--json-log", log]
        if first:
            self.start = self.folder / "start"
            flags += ["--init-out", self.start]
        if args.script:
            command = [args.script, "criteo", args.data, "--threads", threads]
        else:
            command = [__file__, "--data", args.data, "--as-torch", threads]
        out = output_of([sys.executable, *command, *flags], env)
        rates = [float(rate) for rate in
                 re.findall(r"([0-9.]+) samples/s", out)]
        if len(rates) != args.epochs:
            fail(f"{command[0]} printed no samples/s of each epoch:\n{out}")
        return statistics.median(rates[1:])

    def recps(self, batch):
        args = self.args
        log = self.folder / "recps.log"
        build = pathlib.Path(args.build)
        command = [build / "client/cli/recps", "launch", "--ps", 1,
                   "--workers", 1, "--", build / "client/worker/recps-train",
                   "--data", f"criteo:{args.data}", "--train-rows", TRAIN_ROWS,
                   "--epochs", args.epochs, "--batch-size", batch,
                   "--init-from", self.start, "--json-log", log,
                   *args.train_flags.split()]
        env = {k: v for k, v in os.environ.items()
               if not k.startswith(("TF_CONFIG", "RECPS_"))}
        env["RECPS_ADMIN"] = "off"
        out = output_of(command, env)
        self.check(batch, losses_of(log))
        stages = re.search(r"pipeline depth .*", out)
        self.stages = stages.group(0) if stages else None
        done = json.loads(log.read_text().splitlines()[-1])
        return done["samples_per_second"]

    def check(self, batch, losses):
        """Both programs must train the same model on the same rows."""
        want = losses_of(self.folder / f"torch-{batch}.log")
        if losses.keys() != want.keys():
            fail(f"batch {batch}: recps-train made {len(losses)} steps, "
                 f"PyTorch {len(want)}")
        step = max(want, key=lambda step: abs(losses[step] - want[step]))
        if not abs(losses[step] - want[step]) <= LOSS_SLACK:
            fail(f"batch {batch}: the loss of step {step} is {losses[step]}, "
                 f"PyTorch's is {want[step]}")


def measure(sides, batch, args):
    """Rounds of one turn each, the first of them not counted."""
    turns = [("recps", None)] + [("torch", n) for n in args.threads]
    rates = {turn: [] for turn in turns}
    sides.torch(batch, args.threads[0])  # start weights and losses to check
    sides.recps(batch)
    for number in range(args.rounds):
        for turn in turns[number % len(turns):] + turns[:number % len(turns)]:
            rates[turn].append(sides.recps(batch) if turn[0] == "recps"
                               else sides.torch(batch, turn[1]))
    ours = rates[turns[0]]
    result = {"batch": batch, "rounds": args.rounds, "stages": sides.stages,
              "recps_samples_per_second": statistics.median(ours)}
    for threads in args.threads:
        theirs = rates["torch", threads]
        result[f"torch_{threads}_samples_per_second"] = \
            statistics.median(theirs)
        result[f"over_torch_{threads}"] = statistics.median(
            a / b for a, b in zip(ours, theirs))
    return result


def show(result, args):
    ours = result["recps_samples_per_second"]
    print(f"batch {result['batch']}: recps-train {ours:.0f} samples/s")
    for threads in args.threads:
        rate = result[f"torch_{threads}_samples_per_second"]
        print(f"  PyTorch, {threads} thread{'s' if threads > 1 else ''}: "
              f"{rate:.0f} samples/s, ours are "
              f"{result[f'over_torch_{threads}']:.2f} times as many")
    if result["stages"]:
        print(f"  {result['stages']}")


def numbers(text):
    try:
        found = [int(word) for word in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 1:
        raise argparse.ArgumentTypeError(
            f"\"{text}\": write numbers from 1 on with commas between")
    return found


def floors(text):
    try:
        pairs = [word.split("=") for word in text.split(",")]
        return {int(threads): float(ratio) for threads, ratio in pairs}
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"\"{text}\": write THREADS=RATIO,...") from None


class Parser(argparse.ArgumentParser):
    def error(self, message):
        fail(message, 64)


def arguments():
    parser = Parser(description=__doc__)
    add = parser.add_argument
    add("--data", help="a Criteo file of more than 7000 rows; without it "
                       "rows are made up")
    add("--keys", type=int, default=2000, help="tokens of a made-up field")
    add("--batch", type=numbers, default=[128, 1024],
        help="rows a step (128,1024)")
    add("--threads", type=numbers, default=[1, 2],
        help="PyTorch's threads (1,2)")
    add("--rounds", type=int, default=5, help="turns of each (%(default)s)")
    add("--epochs", type=int, default=4, help="of a turn (%(default)s)")
    add("--script", default=os.environ.get("RECPS_TORCH_SCRIPT"),
        help="run this script as PyTorch's side (RECPS_TORCH_SCRIPT)")
    add("--build", default=ROOT / "build/release", help="%(default)s")
    add("--train-flags", default="", help="more flags for recps-train")
    add("--floor", type=floors, default={},
        help="THREADS=RATIO,...: exit code 1 below it")
    add("--json", action="store_true", help="a line of JSON a batch size")
    # of the child
    add("--as-torch", type=int, help=argparse.SUPPRESS)
    add("--init-out", help=argparse.SUPPRESS)
    add("--json-log", help=argparse.SUPPRESS)
    return parser.parse_args()


def compare(args, folder):
    if not args.data:
        args.data = folder / "rows.tsv"
        write_rows(args.data, args.keys)
    sides = Sides(args, folder)
    below = []
    for batch in args.batch:
        result = measure(sides, batch, args)
        if args.json:
            print(json.dumps(result))
        else:
            show(result, args)
        below += [f"batch {batch}: {result[f'over_torch_{n}']:.2f} times "
                  f"PyTorch's rate on {n} threads, below {ratio}"
                  for n, ratio in args.floor.items()
                  if n in args.threads and result[f"over_torch_{n}"] < ratio]
    if below:
        fail("; ".join(below))


def main():
    args = arguments()
    if max(args.batch) > TRAIN_ROWS or args.epochs < 2 or args.rounds < 1:
        fail(f"--batch is at most {TRAIN_ROWS}, --epochs 2 at least (the "
             "first does not count), --rounds 1", 64)
    try:
        import torch  # noqa: F401
    except ImportError:
        fail(f"{sys.executable} has no PyTorch to compare with "
             "(python3-torch)", 69)
    if args.as_torch:
        args.batch = args.batch[0]
        run_torch(args)
        return
    with tempfile.TemporaryDirectory(prefix="recps-bench-") as folder:
        compare(args, pathlib.Path(folder))


if __name__ == "__main__":
    main()

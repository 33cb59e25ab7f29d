#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""recps-train, or PyTorch with recps.torch, against PyTorch: the same DLRM, the
same rows, the same start weights, in one run, taking turns (bench/README.md)."""
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
# Of a step's loss, between two programs in float32; where only the tables are
# others, between two sums.
LOSS_SLACK = {"recps-train": 1e-3, "recps.torch": 1e-4}
AUC_SLACK = 1e-3


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


def torch_model(emb):
    """The DLRM over a module that looks rows up."""
    import torch

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = emb
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


def dense_optimizer(model):
    import torch
    return torch.optim.Adam(
        [value for name, value in model.named_parameters()
         if not name.startswith("emb")], lr=0.001)


def train_epochs(model, optimizers, data, args, settle=lambda: None):
    """Prints the samples/s of each epoch; the losses of the steps.

    settle waits for what an epoch has left on its way.
    """
    import torch
    labels, dense, ids = data
    loss_of = torch.nn.BCEWithLogitsLoss()
    losses = []
    for _ in range(args.epochs):
        begin = time.perf_counter()
        for at in range(0, TRAIN_ROWS - args.batch + 1, args.batch):
            part = slice(at, at + args.batch)
            loss = loss_of(model(dense[part], ids[part]), labels[part])
            for each in optimizers:
                each.zero_grad()
            loss.backward()
            for each in optimizers:
                each.step()
            losses.append(loss.item())
        settle()
        rows = TRAIN_ROWS // args.batch * args.batch
        print(f"{rows / (time.perf_counter() - begin):.1f} samples/s",
              flush=True)
    return losses


def auc_of(labels, scores):
    """Of a pair of a click and none, how often the click scores higher."""
    import numpy
    _, at, count = numpy.unique(scores, return_inverse=True,
                                return_counts=True)
    rank = (numpy.cumsum(count) - (count - 1) / 2)[at]  # ties share theirs
    clicks = labels > 0.5
    n = clicks.sum()
    return float((rank[clicks].sum() - n * (n + 1) / 2)
                 / (n * (len(labels) - n)))


def log_run(path, losses, model, data):
    """A line a step, and the AUC of the rows that were not trained."""
    import torch
    labels, dense, ids = (part[TRAIN_ROWS:] for part in data)
    with torch.no_grad():
        auc = auc_of(labels.numpy(), model(dense, ids).numpy())
    lines = [{"step": i + 1, "loss": loss} for i, loss in enumerate(losses)]
    lines.append({"event": "done", "auc": auc})
    pathlib.Path(path).write_text(
        "".join(json.dumps(line) + "\n" for line in lines), "ascii")


def run_torch(args):
    """The child: trains, prints the samples/s of each epoch."""
    import torch
    torch.set_num_threads(args.as_torch)
    torch.manual_seed(1)
    labels, dense, pairs = read_rows(args.data)
    number = {}
    ids = torch.tensor([[number.setdefault(p, len(number)) for p in row]
                        for row in pairs])
    data = torch.from_numpy(labels), torch.from_numpy(dense), ids
    emb = torch.nn.Embedding(len(number), DIM, sparse=True)
    torch.nn.init.uniform_(emb.weight, -0.05, 0.05)
    model = torch_model(emb)
    if args.init_out:
        save_start(model, number, pathlib.Path(args.init_out))
    sparse = torch.optim.Adagrad(emb.parameters(), lr=0.02,
                                 initial_accumulator_value=0.1)
    losses = train_epochs(model, [sparse, dense_optimizer(model)], data, args)
    if args.json_log:
        unseen = torch.ones(len(number), dtype=torch.bool)
        unseen[ids[:TRAIN_ROWS].reshape(-1)] = False
        with torch.no_grad():  # a key that was never trained is zeros
            emb.weight[unseen] = 0
        log_run(args.json_log, losses, model, data)


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


def done_of(path):
    """The last line of a log."""
    return json.loads(path.read_text().splitlines()[-1])


def rate_of(out, epochs, program):
    """The median of the epochs, the first one left out."""
    rates = [float(rate) for rate in
             re.findall(r"([0-9.]+) samples/s", out)]
    if len(rates) != epochs:
        fail(f"{program} printed no samples/s of each epoch:\n{out}")
    return statistics.median(rates[1:])


class Sides:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.start, self.stages, self.figures = None, None, {}

    def torch(self, batch, threads):
        """Samples/s."""
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
        return rate_of(out, args.epochs, command[0])

    def launch(self, servers, command, env=()):
        """What the only worker of a job says."""
        clean = {k: v for k, v in os.environ.items()
                 if not k.startswith(("TF_CONFIG", "RECPS_"))}
        return output_of(
            [pathlib.Path(self.args.build) / "client/cli/recps", "launch",
             "--ps", servers, "--workers", 1, "--", *command],
            {**clean, "RECPS_ADMIN": "off", **dict(env)})

    def recps(self, batch):
        if self.args.ours == "recps.torch":
            return self.recps_torch(batch)
        args = self.args
        log = self.folder / "recps.log"
        out = self.launch(1, [
            pathlib.Path(args.build) / "client/worker/recps-train",
            "--data", f"criteo:{args.data}", "--train-rows", TRAIN_ROWS,
            "--epochs", args.epochs, "--batch-size", batch, "--init-from",
            self.start, "--json-log", log, *args.train_flags.split()])
        self.check(batch, log)
        stages = re.search(r"pipeline depth .*", out)
        self.stages = stages.group(0) if stages else None
        return done_of(log)["samples_per_second"]

    def recps_torch(self, batch):
        """PyTorch on one thread, its rows in two servers."""
        args = self.args
        log = self.folder / "recps.log"
        library = pathlib.Path(args.build) / "client/librecps.so"
        child = pathlib.Path(__file__).with_name("train_tables.py")
        out = self.launch(2, [
            sys.executable, child, "--data", args.data, "--start", self.start,
            "--epochs", args.epochs, "--batch", batch, "--json-log", log],
            {"RPS_LIBRARY": str(library.resolve()), "OMP_NUM_THREADS": "1"})
        self.check(batch, log)
        ours, theirs = (done_of(each)["auc"] for each in (
            log, self.folder / f"torch-{batch}.log"))
        if abs(ours - theirs) > AUC_SLACK:
            fail(f"batch {batch}: the AUC is {ours}, PyTorch's is {theirs}")
        self.figures.update(auc=ours, torch_auc=theirs)
        return rate_of(out, args.epochs, child)

    def check(self, batch, log):
        """Both programs must train the same model on the same rows."""
        losses = losses_of(log)
        want = losses_of(self.folder / f"torch-{batch}.log")
        if losses.keys() != want.keys():
            fail(f"batch {batch}: {self.args.ours} made {len(losses)} steps, "
                 f"PyTorch {len(want)}")
        step = max(want, key=lambda step: abs(losses[step] - want[step]))
        apart = abs(losses[step] - want[step])
        if not apart <= LOSS_SLACK[self.args.ours]:
            fail(f"batch {batch}: the loss of step {step} is {losses[step]}, "
                 f"PyTorch's is {want[step]}")
        self.figures["loss_apart_max"] = apart


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
    result = {"batch": batch, "ours": args.ours, "rounds": args.rounds,
              "stages": sides.stages, **sides.figures,
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
    print(f"batch {result['batch']}: {args.ours} {ours:.0f} samples/s")
    for threads in args.threads:
        rate = result[f"torch_{threads}_samples_per_second"]
        print(f"  PyTorch, {threads} thread{'s' if threads > 1 else ''}: "
              f"{rate:.0f} samples/s, ours are "
              f"{result[f'over_torch_{threads}']:.2f} times as many")
    if result["stages"]:
        print(f"  {result['stages']}")
    if "auc" in result:
        print(f"  losses at most {result['loss_apart_max']:.1e} apart, AUC "
              f"{result['auc']:.4f}, PyTorch's {result['torch_auc']:.4f}")


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
    add("--ours", choices=list(LOSS_SLACK), default="recps-train",
        help="what is measured: recps-train, or PyTorch on one thread whose "
             "rows are in two servers (%(default)s)")
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

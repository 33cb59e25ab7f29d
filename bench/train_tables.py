#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The child of train.py that is measured with --ours recps.torch: PyTorch's
model, with recps.torch in place of nn.Embedding, rows and weights as there."""
import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]
                       / "client/python"))

import numpy
import torch

import recps
import recps.torch
import train


def key_of(field, token):
    """One key for a token of a field; -1 is a missing one."""
    return field << 33 | (token + 1)


def rows_of_start(folder):
    """Key and row of every token, as PyTorch's side began."""
    lines = (folder / "keys.tsv").read_text("ascii").splitlines()
    places = numpy.array([line.split("\t") for line in lines], numpy.int64)
    rows = numpy.load(folder / "emb.weight.npy")
    return key_of(places[:, 1], places[:, 2]), rows[places[:, 0]]


def load_dense(model, folder):
    with torch.no_grad():
        for name, value in model.named_parameters():
            value.copy_(torch.from_numpy(numpy.load(folder / f"{name}.npy")))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--data", required=True)
    add("--start", required=True, type=pathlib.Path)
    add("--epochs", required=True, type=int)
    add("--batch", required=True, type=int)
    add("--json-log", required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    labels, dense, pairs = train.read_rows(args.data)
    ids = torch.tensor([[key_of(*pair) for pair in row] for row in pairs])
    data = torch.from_numpy(labels), torch.from_numpy(dense), ids
    client = recps.connect()
    emb = recps.torch.EmbeddingTable(
        "emb", train.DIM, client=client,
        optimizer=recps.Adagrad(0.02, initial_accumulator=0.1))
    keys, rows = rows_of_start(args.start)
    seen = numpy.isin(keys, ids[:train.TRAIN_ROWS].numpy())
    emb.assign(torch.from_numpy(keys[seen]), torch.from_numpy(rows[seen]))
    model = train.torch_model(emb)
    load_dense(model, args.start)
    losses = train.train_epochs(
        model, [train.dense_optimizer(model)], data, args, emb.wait)
    emb.eval()  # a key that was never trained is zeros
    train.log_run(args.json_log, losses, model, data)
    client.shutdown_servers()


if __name__ == "__main__":
    main()

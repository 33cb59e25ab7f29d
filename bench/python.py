#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A lookup of 4096 x 26 ids from NumPy against the same loop in C, on one
library, the same ids, taking turns (bench/README.md)."""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
BATCH, FIELDS, DIM = 4096, 26, 16
N = BATCH * FIELDS
REPEATS = 2  # lookups of a turn: short ones meet the same neighbours

C_LOOP = r"""
#include <recps/client.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
static double
now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
int
main(int argc, char **argv)
{
    const size_t n = (size_t)atol(argv[1]);
    const long dim = atol(argv[2]), batches = atol(argv[3]);
    uint64_t *keys = malloc(n * 8 * (size_t)batches);
    float *rows = calloc(n * (size_t)dim, 4);
    rps_client_options options;
    rps_client *client;
    rps_table_spec spec;
    rps_embedding_table *table;
    char line[64];
    long at = 0;
    FILE *file = fopen(argv[4], "rb");
    if (fread(keys, n * 8, (size_t)batches, file) != (size_t)batches) {
        return 1;
    }
    rps_client_options_init(&options);
    options.transport = (enum rps_transport)atoi(argv[5]);
    rps_table_spec_init(&spec, "bench", (uint32_t)dim, RPS_OPTIMIZER_SGD);
    if (rps_client_open(&client, &options) != RPS_OK ||
            rps_get_embedding_table(client, &spec, &table) != RPS_OK) {
        fprintf(stderr, "%s\n", rps_client_error(NULL));
        return 1;
    }
    while (fgets(line, sizeof(line), stdin) != NULL) {
        const long count = atol(line);
        double begin;
        if (count == 0) { /* rows of all keys, once */
            for (long b = 0; b < batches; b++) {
                if (rps_push_gradients(table, 0, n, keys + (size_t)b * n, rows,
                            0.0f) != RPS_OK) {
                    return 1;
                }
            }
        }
        begin = now();
        for (long i = 0; i < count; i++, at = (at + 1) % batches) {
            if (rps_embedding_lookup(table, n, keys + (size_t)at * n, rows) !=
                    RPS_OK) {
                fprintf(stderr, "%s\n", rps_client_error(NULL));
                return 1;
            }
        }
        printf("%.9f\n", count > 0 ? (now() - begin) / (double)count : 0.0);
        (void)fflush(stdout);
    }
    return 0;
}
"""


def fail(words):
    print(f"bench/python.py: {words}", file=sys.stderr)
    sys.exit(1)


class Loop:
    """The C program: a line in, so many lookups; its seconds out."""

    def __init__(self, library, folder, ids_file, batches, transport):
        source, program = folder / "loop.c", folder / "loop"
        source.write_text(C_LOOP)
        subprocess.run(["cc", "-O2", f"-I{ROOT}/include", "-o", program,
                        source, library, f"-Wl,-rpath,{library.parent}"],
                       check=True)
        self.process = subprocess.Popen(
            [program, str(N), str(DIM), str(batches), ids_file,
             str(transport)], text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE)

    def turn(self, count):
        self.process.stdin.write(f"{count}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            fail("the C loop ended")
        return float(line)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Python:
    """The same through the package."""

    def __init__(self, recps, ids, transport):
        import numpy
        self.client = recps.connect(transport=transport)
        self.table = self.client.get_embedding_table(
            "bench", DIM, optimizer="sgd")
        self.ids, self.at = ids.reshape(-1, BATCH, FIELDS), 0
        self.out = numpy.zeros((BATCH, FIELDS, DIM), numpy.float32)

    def fill(self):
        for ids in self.ids:
            self.table.push(ids, self.out, lr=0.0)

    def turn(self, count):
        begin = time.perf_counter()
        for _ in range(count):
            rows = self.table.lookup(self.ids[self.at], out=self.out)
            self.at = (self.at + 1) % len(self.ids)
        seconds = (time.perf_counter() - begin) / count
        self.same_address = rows.ctypes.data == self.out.ctypes.data
        if not self.same_address:
            fail("the result was copied")
        return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", type=pathlib.Path, default=(
        ROOT / "build/release/client/librecps.so"))
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=51)
    parser.add_argument("--transport", default="auto",
                        help="with TF_CONFIG: auto, tcp, unix, shm")
    parser.add_argument("--ceiling", type=float, default=0,
                        help="exit 1 where Python takes more times C's time")
    parser.add_argument("--json", action="store_true",
                        help="a line of JSON")
    args = parser.parse_args()
    if not args.library.exists():
        fail(f"{args.library} is not built (./run build)")
    os.environ["RPS_LIBRARY"] = str(args.library.resolve())
    sys.path.insert(0, str(ROOT / "client/python"))
    import numpy
    import recps
    draw = numpy.random.default_rng(1)
    batches = 8
    ids = draw.integers(0, args.keys, batches * N)
    number = ("auto", "tcp", "unix", "shm", "local").index(args.transport)
    with tempfile.TemporaryDirectory(prefix="recps-bench-") as name:
        folder = pathlib.Path(name)
        ids.tofile(folder / "ids")
        loop = Loop(args.library.resolve(), folder, folder / "ids", batches,
                    number)
        python = Python(recps, ids, args.transport)
        loop.turn(0)
        python.fill()
        loop.turn(2), python.turn(2)
        pairs = []
        for turn in range(args.rounds):
            sides = [loop.turn, python.turn]
            times = {side: side(REPEATS)
                     for side in (sides if turn % 2 else sides[::-1])}
            pairs.append((times[loop.turn], times[python.turn]))
        loop.close()
    ratio = statistics.median(p / c for c, p in pairs)
    c_ms, p_ms = (1e3 * statistics.median(side) for side in zip(*pairs))
    transport = python.client.transport()
    if args.json:
        print(json.dumps({
            "ids": [BATCH, FIELDS], "dim": DIM, "transport": transport,
            "c_ms": c_ms, "python_ms": p_ms, "ratio": ratio,
            "rounds": args.rounds, "same_address": python.same_address}))
    else:
        print(f"{BATCH} x {FIELDS} ids of dim {DIM}, {transport}: "
              f"C {c_ms:.3f} ms, Python {p_ms:.3f} ms, ratio {ratio:.3f} "
              f"(median of {args.rounds} pairs)")
    return 1 if args.ceiling and ratio > args.ceiling else 0


if __name__ == "__main__":
    sys.exit(main())

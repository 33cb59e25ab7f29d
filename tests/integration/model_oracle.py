# SPDX-License-Identifier: Apache-2.0
"""DLRM with several tables, by the book: forward, backward and optimizers in
double with NumPy, from the documents alone (docs/TRAINING.md, docs/TABLE.md).
"""
import numpy

from optimizer_models import Model
from test_first_values import draws, uniform

ROW = 1024  # elements in a dense table's row


def start_weights(seed, name, shape, bound):
    """A dense variable's start values, uniform in ±bound."""
    size = int(numpy.prod(shape))
    bound = numpy.float32(bound)
    rows = numpy.arange((size + ROW - 1) // ROW, dtype=numpy.uint64)
    drawn = draws(seed, name, rows, ROW).reshape(-1)[:size]
    return uniform(-bound, bound, drawn).astype(float).reshape(shape)


class Variable:
    """A dense variable as a table of rows of 1024."""

    def __init__(self, name, shape, bound, dense, seed):
        self.name, self.shape = name, shape
        self.size = int(numpy.prod(shape))
        self.keys = numpy.arange((self.size + ROW - 1) // ROW)
        spec = {**dense, "name": name, "dimension": ROW}
        self.model = Model(spec, self.keys, self.rows(
            start_weights(seed, name, shape, bound)))

    def rows(self, value):
        padded = numpy.zeros(len(self.keys) * ROW, numpy.float32)
        padded[:self.size] = value.reshape(-1)
        return padded.reshape(-1, ROW)

    def value(self):
        return self.model.w.value.reshape(-1)[:self.size].reshape(self.shape)

    def push(self, gradient, rate, step):
        self.model.push([(self.keys, self.rows(gradient))], rate, step)


class Table:
    """A sparse table; `bags` lists the fields of each of its bags."""

    def __init__(self, spec, bags, pooling, keys, seed):
        self.spec, self.bags, self.pooling = spec, bags, pooling
        low, high = spec["initializer_low"], spec["initializer_high"]
        rows = uniform(low, high, draws(
            seed, spec["name"], keys, spec["dimension"]))
        self.model = Model(spec, keys, rows)

    def divisor(self, count):
        return {"sum": 1.0, "mean": count,
                "sqrtn": numpy.sqrt(count)}[self.pooling]

    def take(self, batch):
        """The batch's bags, a list of keys each, row by row."""
        return [[key for field in bag for key in row[field]]
                for row in batch for bag in self.bags]

    def pool(self, bags):
        width = self.spec["dimension"]
        out = numpy.zeros((len(bags), width))
        for i, keys in enumerate(bags):
            for key in keys:
                out[i] += self.model.w.value[self.model.at[key]]
            if keys:
                out[i] /= self.divisor(len(keys))
        return out

    def push(self, bags, gradients, step):
        keys, rows = [], [numpy.zeros((0, self.spec["dimension"]))]
        for bag, gradient in zip(bags, gradients):
            keys += bag
            rows += [gradient[None] / self.divisor(len(bag)) for _ in bag]
        self.model.push([(keys, numpy.concatenate(rows))],
                        self.spec["learning_rate"], step)


class Dlrm:
    """Data without dense features: b is the bottom MLP of nothing."""

    def __init__(self, tables, bottom, top, dense, seed):
        self.tables, self.dense, self.seed = tables, dense, seed
        self.width = bottom[-1]
        self.variables = {}
        vectors = 1 + sum(len(table.bags) for table in tables)
        self.low = [(i, j) for i in range(vectors) for j in range(i)]
        self.bottom = self.layers("bot", 0, bottom)
        self.top = self.layers("top", self.width + len(self.low), top)
        for table in tables:
            dim = table.spec["dimension"]
            if dim != self.width:
                self.add(f"proj.{table.spec['name']}.weight",
                         (self.width, dim), (6 / (self.width + dim)) ** 0.5)

    def add(self, name, shape, bound):
        self.variables[name] = Variable(
            name, shape, bound, self.dense, self.seed)

    def layers(self, prefix, width, widths):
        names = []
        for i, out in enumerate(widths):
            name = f"{prefix}.{2 * i}"
            bound = (width or 1) ** -0.5  # a constant is one input
            if width:
                self.add(f"{name}.weight", (out, width), bound)
            self.add(f"{name}.bias", (out,), bound)
            names.append(name)
            width = out
        return names

    def value(self, name):
        return self.variables[name].value()

    def mlp(self, x, names, relu_last):
        """All layers' inputs, then the output."""
        inputs = [x]
        for i, name in enumerate(names):
            y = numpy.tile(self.value(f"{name}.bias"), (len(x), 1))
            if f"{name}.weight" in self.variables:
                y += x @ self.value(f"{name}.weight").T
            x = numpy.maximum(y, 0) if relu_last or i + 1 < len(names) else y
            inputs.append(x)
        return inputs

    def mlp_back(self, inputs, names, relu_last, dy, slopes):
        for i in reversed(range(len(names))):
            name = names[i]
            if relu_last or i + 1 < len(names):
                dy = dy * (inputs[i + 1] > 0)
            slopes[f"{name}.bias"] = dy.sum(0)
            if f"{name}.weight" in self.variables:
                slopes[f"{name}.weight"] = dy.T @ inputs[i]
                dy = dy @ self.value(f"{name}.weight")
        return dy

    def step(self, batch, labels, step):
        """One step of training; returns the loss before it."""
        rows = len(batch)
        bottom = self.mlp(numpy.zeros((rows, 0)), self.bottom, True)
        parts, taken = [bottom[-1][:, None]], []
        for table in self.tables:
            bags = table.take(batch)
            pooled = table.pool(bags)
            name = f"proj.{table.spec['name']}.weight"
            taken.append((table, bags, pooled, name))
            if name in self.variables:
                pooled = pooled @ self.value(name).T
            parts.append(pooled.reshape(rows, -1, self.width))
        t = numpy.concatenate(parts, 1)
        dots = t @ t.transpose(0, 2, 1)
        z = numpy.stack([dots[:, i, j] for i, j in self.low], 1)
        top = self.mlp(numpy.concatenate([bottom[-1], z], 1), self.top, False)
        logits = top[-1][:, 0]
        loss = numpy.mean(numpy.logaddexp(0, logits) - labels * logits)

        slopes = {}
        dy = ((1 / (1 + numpy.exp(-logits)) - labels) / rows)[:, None]
        dx = self.mlp_back(top, self.top, False, dy, slopes)
        dt = numpy.zeros_like(t)
        for n, (i, j) in enumerate(self.low):
            dz = dx[:, self.width + n, None]
            dt[:, i] += dz * t[:, j]
            dt[:, j] += dz * t[:, i]
        self.mlp_back(bottom, self.bottom, True,
                      dx[:, :self.width] + dt[:, 0], slopes)
        at = 1
        for table, bags, pooled, name in taken:
            count = len(table.bags)
            dp = dt[:, at:at + count].reshape(-1, self.width)
            at += count
            if name in self.variables:
                slopes[name] = dp.T @ pooled
                dp = dp @ self.value(name)
            table.push(bags, dp, step)
        for name, slope in slopes.items():
            self.variables[name].push(
                slope, self.dense["learning_rate"], step)
        return loss

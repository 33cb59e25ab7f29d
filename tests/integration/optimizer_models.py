# SPDX-License-Identifier: Apache-2.0
"""Optimizers as the literature gives them, in double, with error bounds.

A Near is a number as exact arithmetic (double) has it, and a bound on how far
the same formula in float32 may be from it: each float32 operation adds half
an ulp of its result, u = 2^-24 of its size, and hands on the errors of its
operands (N. Higham: Accuracy and Stability of Numerical Algorithms, chapter
3, running error analysis). So a test's tolerance is not a guess: it follows
from the operations that led to that very number. SLACK = 2 leaves room for
another order of the same operations.

Sources: TensorFlow's ResourceApplyMomentum, ResourceApplyAdagrad,
ResourceApplyFtrl(V2) and ResourceApplyRMSProp; Kingma and Ba, Adam (2014);
Loshchilov and Hutter, Decoupled weight decay regularization (2017); FBGEMM's
exact row-wise Adagrad; McMahan and others, Ad click prediction (2013).
"""
import numpy

U = 2.0 ** -24
TINY = 2.0 ** -149
SLACK = 2.0


class Near:
    def __init__(self, value, bound=0.0):
        self.value = numpy.asarray(value, float)
        self.bound = numpy.broadcast_to(
            numpy.asarray(bound, float), self.value.shape)

    @staticmethod
    def of(x):
        return x if isinstance(x, Near) else Near(x)

    @staticmethod
    def rounded(x):
        """A constant that was worked out in double, then rounded once."""
        return Near(x, numpy.abs(x) * U)

    @staticmethod
    def _rounds(value, bound):
        return Near(value, bound + U * (numpy.abs(value) + bound) + TINY)

    def __add__(self, other):
        other = Near.of(other)
        return self._rounds(self.value + other.value,
                            self.bound + other.bound)

    def __sub__(self, other):
        other = Near.of(other)
        return self._rounds(self.value - other.value,
                            self.bound + other.bound)

    def __mul__(self, other):
        other = Near.of(other)
        return self._rounds(
            self.value * other.value,
            numpy.abs(self.value) * other.bound
            + numpy.abs(other.value) * self.bound + self.bound * other.bound)

    def __truediv__(self, other):
        other = Near.of(other)
        value = self.value / other.value
        room = numpy.abs(other.value) - other.bound
        assert numpy.all(room > 0), "a divisor that may be 0"
        return self._rounds(
            value, (self.bound + numpy.abs(value) * other.bound) / room)

    __radd__ = __add__
    __rmul__ = __mul__

    def sqrt(self):
        root = numpy.sqrt(self.value)
        least = numpy.sqrt(numpy.maximum(self.value - self.bound, 0.0))
        most = numpy.sqrt(self.value + self.bound)
        return self._rounds(root, numpy.maximum(root - least, most - root))

    def where(self, mask, other):
        other = Near.of(other)
        return Near(numpy.where(mask, self.value, other.value),
                    numpy.where(mask, self.bound, other.bound))

    def __getitem__(self, at):
        return Near(self.value[at], self.bound[at])

    def put(self, at, other):
        value, bound = self.value.copy(), self.bound.copy()
        value[at], bound[at] = other.value, other.bound
        self.value, self.bound = value, bound


def power(x, p):
    """x^p, x >= 0, of one rounding beyond the error of x."""
    value = x.value ** p
    with numpy.errstate(divide="ignore"):
        low = numpy.maximum(x.value - x.bound, 0.0) ** p
    high = (x.value + x.bound) ** p
    bound = numpy.maximum(numpy.abs(value - low), numpy.abs(high - value))
    # a power that is not a root may err by some ulp more
    return Near(value, bound + 4 * U * numpy.abs(value) + TINY)


class Hyper:
    """A spec's numbers as the float32 that they are."""

    def __init__(self, spec):
        defaults = {"initial_accumulator": 0.1, "beta1": 0.9, "beta2": 0.999,
                    "epsilon": 1e-8, "weight_decay": 0.0, "momentum": 0.0,
                    "nesterov": 0, "rho": 0.9, "l1": 0.0, "l2": 0.0,
                    "l2_shrinkage": 0.0, "learning_rate_power": -0.5,
                    "clip_value": 0.0, "clip_norm": 0.0}
        if spec["optimizer"] == "rmsprop":
            defaults.update(epsilon=1e-10, initial_accumulator=0.0)
        for name, value in defaults.items():
            setattr(self, name, float(numpy.float32(spec.get(name, value))))


def decayed(g, w, hyper):
    return g + w * hyper.weight_decay if hyper.weight_decay else g


# Each takes and gives (w, slots); t is this step, last each row's last one.


def sgd(w, slots, g, hyper, lr, t, last):
    return w - decayed(g, w, hyper) * lr, []


def momentum(w, slots, g, hyper, lr, t, last):
    g = decayed(g, w, hyper)
    buffer = slots[0] * hyper.momentum + g
    step = g + buffer * hyper.momentum if hyper.nesterov else buffer
    return w - step * lr, [buffer]


def adagrad(w, slots, g, hyper, lr, t, last):
    g = decayed(g, w, hyper)
    a = slots[0] + g * g
    return w - g * lr / a.sqrt(), [a]


def rowwise_adagrad(w, slots, g, hyper, lr, t, last):
    g = decayed(g, w, hyper)
    dim = g.value.shape[1]
    square = (g * g)
    total = square[:, :1]
    for j in range(1, dim):
        total = total + square[:, j:j + 1]
    a = slots[0] + total / float(dim)
    return w - g * (Near.of(lr) / (a.sqrt() + hyper.epsilon)), [a]


def moments(slots, g, hyper):
    rest1, rest2 = (Near.rounded(1.0 - b) for b in (hyper.beta1, hyper.beta2))
    return (slots[0] * hyper.beta1 + g * rest1,
            slots[1] * hyper.beta2 + g * g * rest2)


def adam_move(m, v, hyper, lr, t):
    """lr m^ / (sqrt(v^) + epsilon), m^ and v^ corrected for their start."""
    c1 = Near.rounded(lr / (1.0 - hyper.beta1 ** t))
    c2 = Near.rounded(1.0 / numpy.sqrt(1.0 - hyper.beta2 ** t))
    return m * c1 / (v.sqrt() * c2 + hyper.epsilon)


def adam(w, slots, g, hyper, lr, t, last):
    m, v = moments(slots, decayed(g, w, hyper), hyper)
    return w - adam_move(m, v, hyper, lr, t), [m, v]


def adamw(w, slots, g, hyper, lr, t, last):
    m, v = moments(slots, g, hyper)
    w = w - w * Near.rounded(lr * hyper.weight_decay)
    return w - adam_move(m, v, hyper, lr, t), [m, v]


TAIL_ERROR = 0.0031  # docs/TABLE.md, Catching up: of what the tail moves


def catch_up(w, slots, hyper, lr, t, last):
    """The steps last + 1 .. t - 1 of dense Adam, in which there was no
    gradient, one by one. The table has them in one go: what it may be off by
    for that is TAIL_ERROR of the movement, and what epsilon changes."""
    m, v = slots
    gaps = numpy.where(last > 0, t - 1 - last, 0)
    exact, tail, decay = (numpy.zeros(w.value.shape) for _ in range(3))
    decay += 1.0
    keep = 1.0 - lr * hyper.weight_decay
    with numpy.errstate(divide="ignore", invalid="ignore"):
        for i in range(1, gaps.max(initial=0) + 1):
            now = (gaps >= i)[:, None]
            at = (last + i)[:, None]
            b1, b2 = hyper.beta1 ** i, hyper.beta2 ** i
            c1 = 1.0 - hyper.beta1 ** at
            c2 = 1.0 - hyper.beta2 ** at
            step = lr * (b1 * m.value / c1) / (
                numpy.sqrt(b2 * v.value / c2) + hyper.epsilon)
            share = lr * numpy.sqrt(c2) / c1 * b1 / numpy.sqrt(b2)
            exact = numpy.where(now, keep * exact + step, exact)
            tail = numpy.where(now, keep * tail + share, tail)
            decay = numpy.where(now, keep * decay, decay)
    epsilon = hyper.epsilon * numpy.sqrt(1.0 - hyper.beta2 ** t)
    if t > 1:
        move = m * Near.rounded(tail) / (v.sqrt() + Near.rounded(epsilon))
        move = Near(exact, move.bound + TAIL_ERROR * numpy.abs(exact)
                    + numpy.abs(move.value - exact))
        w = w * Near.rounded(decay) - move
    gaps = gaps[:, None]
    return w, [m * Near.rounded(hyper.beta1 ** gaps),
               v * Near.rounded(hyper.beta2 ** gaps)]


def adam_catchup(w, slots, g, hyper, lr, t, last):
    w, slots = catch_up(w, slots, hyper, lr, t, last)
    return adam(w, slots, g, hyper, lr, t, last)


def adamw_catchup(w, slots, g, hyper, lr, t, last):
    w, slots = catch_up(w, slots, hyper, lr, t, last)
    return adamw(w, slots, g, hyper, lr, t, last)


def ftrl(w, slots, g, hyper, lr, t, last):
    n, z = slots
    p = -hyper.learning_rate_power
    used = g + w * (2.0 * hyper.l2_shrinkage) if hyper.l2_shrinkage else g
    grown = n + g * g
    sigma = (power(grown, p) - power(n, p)) / lr
    z = z + used - sigma * w
    sign = numpy.sign(z.value)
    shrunk = Near(sign * hyper.l1) - z
    moved = shrunk / (power(grown, p) / lr + 2.0 * hyper.l2)
    # near the threshold either branch may be taken; they meet there
    zero = Near(0.0 * z.value, numpy.where(
        numpy.abs(z.value) > hyper.l1 - 2 * z.bound, moved.bound, 0.0))
    return moved.where(numpy.abs(z.value) > hyper.l1, zero), [grown, z]


def rmsprop(w, slots, g, hyper, lr, t, last):
    g = decayed(g, w, hyper)
    rest = Near.rounded(1.0 - hyper.rho)
    ms = slots[0] * hyper.rho + g * g * rest
    step = g * lr / (ms + hyper.epsilon).sqrt()
    buffer = slots[1] * hyper.momentum + step
    return w - buffer, [ms, buffer]


STEPS = {"sgd": sgd, "momentum": momentum, "adagrad": adagrad,
         "rowwise_adagrad": rowwise_adagrad, "adam": adam, "adamw": adamw,
         "ftrl": ftrl, "rmsprop": rmsprop,
         "adam_catchup": adam_catchup, "adamw_catchup": adamw_catchup}


def slot_widths(spec):
    """Widths of the slot arrays, in the row's order."""
    dim = spec["dimension"]
    return {"sgd": [], "momentum": [dim], "adagrad": [dim],
            "rowwise_adagrad": [1], "adam": [dim, dim], "adamw": [dim, dim],
            "adam_catchup": [dim, dim], "adamw_catchup": [dim, dim],
            "ftrl": [dim, dim], "rmsprop": [dim, dim]}[spec["optimizer"]]


def fresh_slots(spec, rows):
    first = Hyper(spec).initial_accumulator
    starts = {"adagrad": [first], "rowwise_adagrad": [first],
              "ftrl": [first, 0.0], "rmsprop": [first, 0.0]}
    widths = slot_widths(spec)
    start = starts.get(spec["optimizer"], [0.0] * len(widths))
    return [Near(numpy.full((rows, width), first))
            for width, first in zip(widths, start)]


class Model:
    """A table of known keys: the gradient law and an optimizer, in double."""

    def __init__(self, spec, keys, rows):
        self.spec, self.hyper = spec, Hyper(spec)
        self.keys = numpy.asarray(keys, numpy.uint64)
        self.at = {int(key): i for i, key in enumerate(keys)}
        self.w = Near(rows)
        self.slots = fresh_slots(spec, len(keys))
        self.touched = numpy.zeros(len(keys), bool)
        self.last = numpy.zeros(len(keys), int)
        self.refused = 0

    def _sums(self, parts):
        """Sums in the order of arrival: of each key its first gradient, then
        its second, and so on."""
        shape = self.w.value.shape
        rows = [self.at[int(key)] for keys, *_ in parts for key in keys]
        g = numpy.concatenate([numpy.zeros((0, shape[1]), numpy.float32)] + [
            numpy.asarray(part[1], numpy.float32) for part in parts])
        counts = numpy.isfinite(g).all(1)
        self.refused += int((~counts).sum())
        rows, g = numpy.array(rows, int)[counts], g[counts].astype(float)
        seen = numpy.zeros(shape[0], int)
        turn = numpy.zeros(len(rows), int)
        for i, row in enumerate(rows):
            turn[i] = seen[row]
            seen[row] += 1
        sums = Near(numpy.zeros(shape))
        for n in range(seen.max(initial=0)):
            now = turn == n
            at = rows[now]
            sums.put(at, sums[at] + Near(g[now]) if n else Near(g[now]))
        return sums, seen > 0

    def _clipped(self, g):
        limit = self.hyper.clip_value
        if limit > 0:
            g = Near(numpy.clip(g.value, -limit, limit), g.bound)
        limit = self.hyper.clip_norm
        if limit > 0:
            # the norm is taken in double: only the errors of g count
            norm = numpy.sqrt((g.value ** 2).sum(1, keepdims=True))
            off = numpy.sqrt((g.bound ** 2).sum(1, keepdims=True))
            safe = numpy.maximum(norm, TINY)
            factor = numpy.minimum(1.0, limit / safe)
            scaled = g * Near(factor, factor * (U + off / safe))
            g = scaled.where(norm > limit - 2 * off, g)
        return g

    def push(self, parts, lr, t, scale=1.0):
        sums, seen = self._sums(parts)
        rows = numpy.flatnonzero(seen)
        g = sums[rows]
        if scale != 1.0:
            g = g * float(numpy.float32(scale))
        g = self._clipped(g)
        step = STEPS[self.spec["optimizer"]]
        w, slots = step(self.w[rows], [slot[rows] for slot in self.slots], g,
                        self.hyper, float(numpy.float32(lr)), t,
                        self.last[rows])
        self.w.put(rows, w)
        for old, new in zip(self.slots, slots):
            old.put(rows, new)
        self.touched[rows] = True
        self.last[rows] = t

    def assert_close(self, dump):
        """Every row that was pushed is there, and within its bound."""
        order = numpy.argsort(self.keys[self.touched])
        assert (dump.keys == self.keys[self.touched][order]).all()
        near(dump.rows, self.w, self.touched, order, "rows")
        at = 0
        for i, slot in enumerate(self.slots):
            width = slot.value.shape[1]
            near(dump.slots[:, at:at + width], slot, self.touched, order,
                 f"slot {i}")
            at += width


def near(got, want, mask, order, what):
    value, bound = want.value[mask][order], want.bound[mask][order]
    assert numpy.isfinite(got).all()
    off = numpy.abs(got - value) - SLACK * bound
    worst = numpy.unravel_index(numpy.argmax(off), off.shape)
    assert off[worst] <= 0, (
        f"{what}: {got[worst]!r} is not within {SLACK * bound[worst]:.3g} of "
        f"{value[worst]!r}")

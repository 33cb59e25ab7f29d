# SPDX-License-Identifier: Apache-2.0
"""A model of the device's operators, trained, against PyTorch in double.

Each step's loss and the weights after the last one; what differs is the
device's float32 alone, so high precision, which rounds once where the other
form rounds each sum, must be the nearer one.
"""
import os
from ctypes import pointer

import numpy
import pytest

import npu

torch = pytest.importorskip("torch")

SGD, ADAM, ADAMW = range(3)
ROWS, IN, HIDDEN, STEPS = 100, 7, 12, 60
RATE = 0.02


@pytest.fixture
def device(monkeypatch):
    if not npu.LIBRARY.is_file():
        pytest.skip(f"{npu.LIBRARY} is not built")
    if b"__asan_init" in npu.LIBRARY.read_bytes() or \
            b"__tsan_init" in npu.LIBRARY.read_bytes():
        pytest.skip("a sanitizer's library needs its runtime in the program")
    monkeypatch.setenv("RPS_NPU_HOST", f"test-{os.getpid()}")
    opened = npu.Npu()
    yield opened
    opened.close()


class Data:
    def __init__(self):
        random = numpy.random.default_rng(5)
        self.x = random.normal(size=(ROWS, IN)).astype(numpy.float32)
        self.labels = (self.x[:, :1] * self.x[:, 1:2] > 0).astype(
            numpy.float32)
        self.start = [
            random.normal(0, 0.4, (HIDDEN, IN)), random.normal(0, 0.1, HIDDEN),
            random.normal(0, 0.4, (1, HIDDEN)), random.normal(0, 0.1, 1)]
        self.start = [w.astype(numpy.float32) for w in self.start]


def train_torch(data, kind, decay):
    parameters = [torch.nn.Parameter(torch.tensor(w).double())
                  for w in data.start]
    make = {SGD: torch.optim.SGD, ADAM: torch.optim.Adam,
            ADAMW: torch.optim.AdamW}[kind]
    optimizer = make(parameters, lr=RATE, weight_decay=decay)
    x, labels = torch.tensor(data.x).double(), torch.tensor(data.labels)
    losses = []
    for step in range(STEPS):
        optimizer.param_groups[0]["lr"] = RATE / (1 + step)
        hidden = torch.nn.functional.gelu(
            x @ parameters[0].T + parameters[1], approximate="tanh")
        logits = hidden @ parameters[2].T + parameters[3]
        loss = torch.nn.functional.binary_cross_entropy_with_logits(
            logits, labels.double())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return numpy.array(losses), [p.detach().numpy() for p in parameters]


class DeviceModel:
    def __init__(self, device, data, kind, decay):
        self.device = device
        tensor, zeros = device.tensor, numpy.zeros
        self.w = [tensor(w) for w in data.start]
        self.dw = [tensor(zeros(w.shape)) for w in data.start]
        self.m = [tensor(zeros(w.shape)) for w in data.start]
        self.v = [tensor(zeros(w.shape)) for w in data.start]
        self.x, self.labels = tensor(data.x), tensor(data.labels)
        self.z, self.hidden, self.dhidden = (
            tensor(zeros((ROWS, HIDDEN))) for _ in range(3))
        self.logits, self.dlogits = (
            tensor(zeros((ROWS, 1))) for _ in range(2))
        self.scale = tensor([1 / ROWS, 1 / ROWS], npu.F64)
        self.loss, self.step, self.rate = (
            tensor([0.0], npu.F64) for _ in range(3))
        self.optimizer = npu.Optimizer()
        device.library.rps_npu_optimizer_init(pointer(self.optimizer), kind)
        self.optimizer.weight_decay = decay
        self.optimizer.learning_rate = pointer(self.rate)
        self.optimizer.step = pointer(self.step)

    def forward_and_back(self):
        call, p = self.device.operator, pointer
        call("linear_forward", p(npu.Linear(
            x=p(self.x), weight=p(self.w[0]), bias=p(self.w[1]),
            activation=2, z=p(self.z), y=p(self.hidden))))
        call("linear_forward", p(npu.Linear(
            x=p(self.hidden), weight=p(self.w[2]), bias=p(self.w[3]),
            y=p(self.logits))))
        call("bce_with_logits", p(npu.Bce(
            logits=p(self.logits), labels=p(self.labels),
            scale=p(self.scale), loss=p(self.loss),
            dlogits=p(self.dlogits))))
        call("linear_backward", p(npu.LinearGradient(
            x=p(self.hidden), weight=p(self.w[2]), dy=p(self.dlogits),
            dx=p(self.dhidden), dweight=p(self.dw[2]), dbias=p(self.dw[3]))))
        call("linear_backward", p(npu.LinearGradient(
            x=p(self.x), activation=2, kept=p(self.z), dy=p(self.dhidden),
            dweight=p(self.dw[0]), dbias=p(self.dw[1]))))

    def train(self):
        losses = []
        for step in range(STEPS):
            self.device.write(self.rate, [RATE / (1 + step)])
            self.forward_and_back()
            self.device.operator("count", pointer(self.step), None)
            for w, dw, m, v in zip(self.w, self.dw, self.m, self.v):
                self.device.operator(
                    "optimizer_step", pointer(self.optimizer), pointer(w),
                    pointer(dw), pointer(m), pointer(v))
            losses.append(self.device.read(self.loss)[0])
        return numpy.array(losses), [self.device.read(w) for w in self.w]


@pytest.mark.parametrize("kind, decay", [
    (SGD, 0.0), (SGD, 0.1), (ADAM, 0.0), (ADAM, 0.1), (ADAMW, 0.1)])
def test_training_is_pytorchs(device, kind, decay):
    data = Data()
    want_losses, want = train_torch(data, kind, decay)
    off = {}
    for implmode in 0, 1:
        device.ops.options.implmode = implmode
        losses, weights = DeviceModel(device, data, kind, decay).train()
        numpy.testing.assert_allclose(losses, want_losses, rtol=0, atol=1e-6)
        for got, w in zip(weights, want):
            numpy.testing.assert_allclose(got, w, rtol=0, atol=1e-5)
        off[implmode] = numpy.abs(losses - want_losses)[0]
    # before any step: the forward alone
    assert off[1] < 2e-8
    assert off[0] < 2e-7

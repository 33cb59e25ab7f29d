# SPDX-License-Identifier: Apache-2.0
"""recps.torch against nn.Embedding and nn.EmbeddingBag, by PyTorch itself."""
import copy
import json
import re
import signal
import subprocess
import sys
import threading
import time
import warnings

import pytest

import package
import programs

recps = package.load()
torch = pytest.importorskip("torch")
import numpy  # noqa: E402
import recps.torch  # noqa: E402

DIM, KEYS, FIELDS, DENSE = 8, 300, 6, 4
counter = iter(range(10**6))


@pytest.fixture(scope="module")
def servers():
    with package.two_servers() as task:
        yield task


@pytest.fixture(params=["embedded", "two servers"])
def client(request):
    if request.param == "embedded":
        made = recps.connect("embedded")
    else:
        made = recps.connect(request.getfixturevalue("servers"),
                             connect_timeout=20)
    with made:
        yield made


def table(client, kind=recps.torch.EmbeddingTable, dim=DIM, **more):
    more.setdefault("optimizer", recps.Adagrad(0.1, initial_accumulator=0.1))
    return kind(f"t{next(counter)}", dim, client=client, **more)


class Model(torch.nn.Module):
    """DLRM in small: dots of the fields' vectors and of a dense one."""

    def __init__(self, emb):
        super().__init__()
        torch.manual_seed(3)
        self.emb = emb
        self.bot = torch.nn.Sequential(
            torch.nn.Linear(DENSE, 16), torch.nn.ReLU(),
            torch.nn.Linear(16, DIM), torch.nn.ReLU())
        pairs = (FIELDS + 1) * FIELDS // 2
        self.top = torch.nn.Sequential(
            torch.nn.Linear(DIM + pairs, 16), torch.nn.ReLU(),
            torch.nn.Linear(16, 1))
        self.low = torch.tril_indices(FIELDS + 1, FIELDS + 1, -1)

    def forward(self, dense, ids):
        b = self.bot(dense)
        t = torch.cat([b.unsqueeze(1), self.emb(ids)], 1)
        dots = torch.bmm(t, t.transpose(1, 2))
        return self.top(torch.cat(
            [b, dots[:, self.low[0], self.low[1]]], 1)).squeeze(1)


def batches(steps=60, size=64, seed=4):
    draw = numpy.random.default_rng(seed)
    taste = draw.normal(size=KEYS)
    for _ in range(steps):
        ids = numpy.minimum(draw.zipf(1.3, (size, FIELDS)), KEYS) - 1
        dense = draw.normal(size=(size, DENSE)).astype("f4")
        labels = taste[ids].sum(1) + dense[:, 0] > 0
        yield (torch.from_numpy(dense), torch.from_numpy(ids),
               torch.from_numpy(labels.astype("f4")))


def losses_of(model, sparse, data):
    dense = torch.optim.Adam([p for n, p in model.named_parameters()
                              if not n.startswith("emb")], lr=0.003)
    loss_of, losses = torch.nn.BCEWithLogitsLoss(), []
    for features, ids, labels in data:
        loss = loss_of(model(features, ids), labels)
        for each in (dense, sparse):
            if each is not None:
                each.zero_grad()
        loss.backward()
        for each in (dense, sparse):
            if each is not None:
                each.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("push", ["backward", "step"])
def test_a_model_trains_as_with_nn_embedding(client, push):
    reference = torch.nn.Embedding(KEYS, DIM, sparse=True)
    torch.nn.init.uniform_(reference.weight, -0.05, 0.05)
    mine = table(client, push=push)
    mine.assign(torch.arange(KEYS), reference.weight)
    theirs, ours = Model(reference), Model(mine)
    wanted = losses_of(theirs, torch.optim.Adagrad(
        reference.parameters(), lr=0.1, initial_accumulator_value=0.1),
        batches())

    class Pusher:
        """As an optimizer in the loop."""

        def zero_grad(self):
            mine.zero_grad()

        def step(self):
            recps.torch.push_gradients([ours])

    found = losses_of(ours, Pusher() if push == "step" else None, batches())
    numpy.testing.assert_allclose(found, wanted, atol=1e-4)
    assert wanted[-1] < wanted[0]
    ours.eval(), theirs.eval()
    with torch.no_grad():
        for features, ids, _ in batches(2, seed=9):
            torch.testing.assert_close(ours(features, ids),
                                       theirs(features, ids),
                                       atol=1e-3, rtol=1e-3)


def test_two_lookups_of_a_step_are_summed(client):
    mine = table(client, push="step", optimizer=recps.SGD(1.0),
                 initializer="zeros")
    (mine(torch.tensor([1, 2])).sum() + 2 * mine(torch.tensor([[2]])).sum()
     ).backward()
    assert (mine(torch.tensor([1, 2])) == 0).all()
    recps.torch.push_gradients([mine])
    assert mine.table.lookup([1, 2]).tolist() == [[-1.0] * DIM, [-3.0] * DIM]
    mine(torch.tensor([1])).sum().backward()
    mine.zero_grad()
    recps.torch.push_gradients([mine])
    assert mine.table.lookup(1).tolist() == [-1.0] * DIM


@pytest.mark.parametrize("mode", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("push", ["backward", "step"])
def test_bags_are_those_of_nn_embedding_bag(client, mode, push):
    reference = torch.nn.EmbeddingBag(
        KEYS, DIM, mode="sum" if mode == "sqrtn" else mode)
    mine = table(client, recps.torch.EmbeddingBagTable, mode=mode, push=push,
                 optimizer=recps.SGD(0.5))
    mine.assign(torch.arange(KEYS), reference.weight)
    sgd = torch.optim.SGD(reference.parameters(), lr=0.5)
    ids = torch.tensor([5, 3, 5, 9, 11])
    offsets = torch.tensor([0, 2, 2, 3])
    roots = torch.tensor([2.0, 1, 1, 2]).sqrt()[:, None]
    for given in ((ids, offsets), (torch.tensor([[1, 2], [2, 3]]), None)):
        theirs = reference(*given)
        if mode == "sqrtn":
            theirs = theirs / (roots if given[1] is not None
                               else torch.tensor(2.0).sqrt())
        ours = mine(*given)
        torch.testing.assert_close(ours, theirs)
        weight = torch.randn_like(theirs)
        sgd.zero_grad()
        (theirs * weight).sum().backward()
        (ours * weight).sum().backward()
        sgd.step()
        recps.torch.push_gradients([mine])
        torch.testing.assert_close(mine.table.lookup(numpy.arange(KEYS)),
                                   reference.weight.detach().numpy())
    last = table(client, recps.torch.EmbeddingBagTable,
                 include_last_offset=True)
    assert last(ids, torch.tensor([0, 5])).shape == (1, DIM)


def test_a_lookup_goes_out_behind_the_push_and_sees_it(recpsd):
    with recps.connect(package.cluster_of(recpsd),
                       connect_timeout=20) as client:
        mine = table(client, optimizer=recps.SGD(1.0), initializer="zeros")
        rows, found = mine(torch.tensor([5])), []
        programs.stop(recpsd.process)
        try:
            before = client.traffic().requests
            rows.sum().backward()
            # no answer to the push, and the lookup is on its way, too
            looking = threading.Thread(
                target=lambda: found.append(mine(torch.tensor([5, 6]))))
            looking.start()
            end = time.monotonic() + 20
            while (client.traffic().requests < before + 2
                   and time.monotonic() < end):
                time.sleep(0.01)
            assert client.traffic().requests == before + 2
        finally:
            recpsd.process.send_signal(signal.SIGCONT)
        looking.join(20)
        assert found[0].tolist() == [[-1.0] * DIM, [0.0] * DIM]


@pytest.mark.parametrize("transport", [
    "tcp", pytest.param("shm", marks=pytest.mark.long)])
def test_request_timeout_ends_a_step_on_a_server_that_stops(recpsd, transport):
    with recps.connect(package.cluster_of(recpsd), connect_timeout=20,
                       request_timeout=1, transport=transport,
                       unix_dir=programs.unix_folder()) as client:
        mine = table(client, optimizer=recps.SGD(1.0), initializer="zeros")
        rows = mine(torch.tensor([5]))
        programs.stop(recpsd.process)
        try:
            with pytest.raises(recps.TimedOutError):
                mine(torch.tensor([5]))
            rows.sum().backward()
            with pytest.raises(recps.TimedOutError):
                mine.wait()
        finally:
            recpsd.process.send_signal(signal.SIGCONT)
        # the push had been sent
        assert mine(torch.tensor([5])).tolist() == [[-1.0] * DIM]


def test_what_became_of_a_push_is_told_by_the_next_lookup():
    with programs.Recpsd() as server:
        with recps.connect(package.cluster_of(server), connect_timeout=10,
                           reconnect_timeout=0.2) as client:
            mine = table(client)
            rows = mine(torch.tensor([1]))
            server.process.kill()
            server.process.wait()
            rows.sum().backward()
            with pytest.raises(recps.UnreachableError, match="127.0.0.1"):
                mine(torch.tensor([1]))
            assert not mine._open and not client._borrowed


def test_ids_that_change_before_backward_are_refused(client):
    """As nn.Embedding does; else other rows would be trained."""
    for module, given in ((table(client), (torch.tensor([1, 2]),)),
                          (table(client, recps.torch.EmbeddingBagTable,
                                 include_last_offset=True),
                           (torch.tensor([1, 2]), torch.tensor([0, 2])))):
        rows = module(*given)
        given[-1].add_(1)
        with pytest.raises(RuntimeError, match="inplace operation"):
            rows.sum().backward()
        module.wait()
        assert len(module.table) == 0


def test_a_second_backward_pushes_again_only_where_the_graph_was_kept(client):
    mine = table(client, optimizer=recps.SGD(1.0), initializer="zeros")
    loss = mine(torch.tensor([1])).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()
    mine.wait()
    assert mine.table.lookup(1).tolist() == [-2.0] * DIM


def test_what_is_kept_for_a_step_is_the_batchs_own(client):
    mine = table(client, push="step", optimizer=recps.SGD(1.0),
                 initializer="zeros")
    bag = table(client, recps.torch.EmbeddingBagTable, push="step",
                mode="sum", include_last_offset=True,
                optimizer=recps.SGD(1.0), initializer="zeros")
    ids, offsets = torch.tensor([1, 2]), torch.tensor([0, 1, 2])
    (mine(ids).sum() + (bag(ids, offsets) * torch.tensor([[1.0], [2.0]])
                        ).sum()).backward()
    ids.add_(10)  # the next batch, into the same buffers
    offsets.copy_(torch.tensor([0, 2, 2]))
    recps.torch.push_gradients([mine, bag])
    assert mine.table.lookup([1, 2, 11, 12])[:, 0].tolist() == [-1, -1, 0, 0]
    assert bag.table.lookup([1, 2, 11, 12])[:, 0].tolist() == [-1, -2, 0, 0]


def test_modules_of_one_table_are_one_push(client):
    """nn.Embedding in two places of a model has one gradient, too."""
    first = table(client, push="step", optimizer=recps.SGD(1.0),
                  initializer="zeros", padding_idx=3)
    second = recps.torch.EmbeddingBagTable(
        first.table.name, DIM, client=client, push="step", mode="mean",
        optimizer=recps.SGD(1.0), initializer="zeros")
    (first(torch.tensor([1, 2, 3])).sum()
     + second(torch.tensor([[1, 3]])).sum()).backward()
    recps.torch.push_gradients([torch.nn.ModuleList([first, second]), first])
    assert first.table.lookup([1, 2, 3])[:, 0].tolist() == [-1.5, -1, -0.5]
    second.learning_rate = 0.1
    with pytest.raises(ValueError, match="learning_rate is None.*0.1"):
        recps.torch.push_gradients([first, second])


def test_padding_and_evaluation(client):
    mine = table(client, padding_idx=0, initializer=recps.Constant(0.5),
                 optimizer=recps.SGD(1.0))
    rows = mine(torch.tensor([0, 7]))
    assert rows.tolist() == [[0.0] * DIM, [0.5] * DIM] and rows.requires_grad
    rows.sum().backward()
    assert len(mine.table) == 1
    mine.eval()
    rows = mine(torch.tensor([7, 8]))
    assert rows.tolist() == [[-0.5] * DIM, [0.0] * DIM]
    assert not rows.requires_grad


def test_a_state_dict_says_where_the_rows_are(tmp_path):
    with recps.connect("embedded", checkpoint_dir=tmp_path) as client:
        model = Model(table(client))
        losses_of(model, None, batches(3))
        assert not [n for n, _ in model.named_parameters() if "emb" in n]
        client.save(3)
        state = copy.deepcopy(model.state_dict())
        assert state["emb._extra_state"] == {
            "format": 1, "table": model.emb.table.name, "dimension": DIM,
            "optimizer": "adagrad", "servers": [],
            "checkpoint_dir": str(tmp_path), "checkpoint_step": 3}
        torch.save(state, tmp_path / "dense.pt")
        before = model.emb.table.lookup(numpy.arange(KEYS))
        losses_of(model, None, batches(2))
        state = torch.load(tmp_path / "dense.pt")
        model.load_state_dict(state)
        client.restore(state["emb._extra_state"]["checkpoint_step"])
        numpy.testing.assert_array_equal(
            model.emb.table.lookup(numpy.arange(KEYS)), before)
        other = Model(table(client))
        with pytest.raises(recps.MismatchError, match="table is"):
            other.load_state_dict(state)
        for field, value in (("dimension", 9), ("optimizer", "sgd")):
            bad = {**state["emb._extra_state"], field: value}
            with pytest.raises(recps.MismatchError, match=f"{field} is "):
                model.load_state_dict({**state, "emb._extra_state": bad})
        moved = {**state["emb._extra_state"], "servers": ["elsewhere:1"],
                 "checkpoint_dir": "/elsewhere"}
        model.load_state_dict({**state, "emb._extra_state": moved})
        # of a model with nn.Embedding
        del state["emb._extra_state"]
        with pytest.raises(RuntimeError, match="emb._extra_state"):
            model.load_state_dict(state)
        model.load_state_dict(state, strict=False)


def test_rows_are_assigned_from_arrays_too(client):
    module = recps.torch.EmbeddingTable("assigned", 2, client=client)
    wanted = numpy.arange(6, dtype="f4").reshape(3, 2)
    for ids, rows in ((numpy.arange(3), wanted), ([0, 1, 2], wanted.tolist()),
                      (torch.arange(3), torch.from_numpy(wanted))):
        module.assign([0, 1, 2], numpy.zeros((3, 2), "f4"))
        module.assign(ids, rows)
        numpy.testing.assert_array_equal(
            module.table.lookup([0, 1, 2]), wanted)


def test_numbers_of_a_module_are_checked_when_they_are_set(client):
    module = recps.torch.EmbeddingTable("numbers", 2, client=client)
    module.learning_rate = 0.5
    module.learning_rate = None
    for wrong in (-1, float("nan"), float("inf"), "x"):
        with pytest.raises((TypeError, ValueError), match="learning_rate"):
            module.learning_rate = wrong
    for wrong in (float("nan"), float("-inf"), "x"):
        with pytest.raises((TypeError, ValueError), match="gradient_scale"):
            recps.torch.EmbeddingTable("numbers", 2, client=client,
                              gradient_scale=wrong)
    assert module.learning_rate is None and module.gradient_scale == 1.0


def test_a_catchup_that_counts_no_steps_is_said(client):
    with pytest.warns(UserWarning, match="adam_catchup.*step=s"):
        table(client, optimizer=recps.Adam(catchup=True))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table(client, push="step", optimizer=recps.Adam(catchup=True))


def test_gradients_of_one_module_are_pushed(client):
    mine = table(client, push="step", optimizer=recps.SGD(1.0),
                 initializer="zeros")
    mine(torch.tensor([4])).sum().backward()
    recps.torch.push_gradients(mine)
    assert (mine(torch.tensor([4])) == -1).all()


@pytest.mark.parametrize("push", ["backward", "step"])
def test_a_frozen_table_is_not_pushed_to(client, push):
    mine = table(client, push=push, initializer=recps.Constant(0.5))
    assert mine.requires_grad_(False) is mine
    rows = mine(torch.tensor([3]))
    assert not rows.requires_grad
    weight = torch.ones(DIM, requires_grad=True)
    (mine(torch.tensor([3])) * weight).sum().backward()
    recps.torch.push_gradients(mine)
    assert len(mine.table) == 0 and weight.grad.tolist() == [0.5] * DIM
    mine.requires_grad_()
    mine(torch.tensor([3])).sum().backward()
    recps.torch.push_gradients([mine])
    mine.wait()
    assert len(mine.table) == 1


def test_what_is_wrong_is_said(client):
    with pytest.raises(TypeError, match="modules: int, must be torch.nn"):
        recps.torch.push_gradients([5])
    mine = table(client)
    with pytest.raises(TypeError, match="torch.float32"):
        mine(torch.tensor([1.0]))
    with pytest.raises(TypeError, match="list, must be a tensor"):
        mine([1, 2])
    with pytest.raises(recps.MismatchError, match="NoneType"):
        mine.set_extra_state(None)
    with pytest.raises(ValueError, match="backward or step"):
        table(client, push="never")
    bag = table(client, recps.torch.EmbeddingBagTable)
    with pytest.raises(ValueError, match="bags"):
        bag(torch.tensor([1, 2]))
    with pytest.raises(TypeError, match="offsets: torch.float32"):
        bag(torch.tensor([1, 2]), torch.tensor([0.0]))
    with pytest.raises(ValueError, match="mode"):
        table(client, recps.torch.EmbeddingBagTable, mode="max")
    rows = mine(torch.tensor([1]))
    with pytest.raises(RuntimeError, match="second derivative"):
        torch.autograd.grad((rows**2).sum(), mine._anchor, create_graph=True,
                            allow_unused=True)
    client.close()
    with pytest.raises(recps.ClosedError):
        mine(torch.tensor([1]))


def test_data_loader_workers_feed_it_and_may_not_use_it():
    said = package.run("""
import torch, recps, recps.torch
client = recps.connect("embedded")
emb = recps.torch.EmbeddingTable("t", 4, client=client, optimizer="adam")
class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, i):
        return torch.tensor([i, i + 1]), float(i % 2)
class Bad(Rows):
    def __getitem__(self, i):
        return emb(torch.tensor([i]))
for ids, labels in torch.utils.data.DataLoader(Rows(), 16, num_workers=2):
    loss = ((emb(ids).sum((1, 2)) - labels) ** 2).mean()
    loss.backward()
emb.wait()
print(len(emb.table), "rows")
try:
    next(iter(torch.utils.data.DataLoader(Bad(), 16, num_workers=1)))
except Exception as error:
    print("fork" in str(error), type(error).__name__)
""")
    assert said == "65 rows\nTrue ForkedError\n"


DDP = """
import os, sys
import torch, torch.distributed as dist
import recps, recps.torch
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="file://" + sys.argv[2],
                        rank=rank, world_size=2)
client = recps.connect({"ps": [sys.argv[3]]}, connect_timeout=20)
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.emb = recps.torch.EmbeddingTable(
            "ddp", 4, client=client, optimizer=recps.SGD(0.5),
            initializer="zeros", gradient_scale=1 / dist.get_world_size())
        self.top = torch.nn.Linear(4, 1)
    def forward(self, ids):
        return self.top(self.emb(ids).sum(1)).squeeze(1)
model = torch.nn.parallel.DistributedDataParallel(Model())
sgd = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(8):
    ids = torch.arange(32).reshape(16, 2)[rank::2] + step
    loss = ((model(ids) - 1) ** 2).mean()
    sgd.zero_grad()
    loss.backward()
    sgd.step()
    model.module.emb.wait()
    dist.barrier()  # every rank's pushes are in: as one process
print(model.module.top.weight.flatten().tolist()
      + model.module.emb.table.lookup(9).tolist())
dist.barrier()
dist.destroy_process_group()
"""


def test_ddp_averages_the_dense_part(recpsd, tmp_path):
    if not torch.distributed.is_available():
        pytest.skip("this PyTorch has no torch.distributed")
    ranks = [subprocess.Popen(
        [sys.executable, "-c", DDP, str(rank), str(tmp_path / "store"),
         f"127.0.0.1:{recpsd.port}"], text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=package.environment(OMP_NUM_THREADS="1")) for rank in range(2)]
    try:
        said = [rank.communicate(timeout=60)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], said
    # the same in one process, on the whole batch
    torch.manual_seed(1)
    top, emb = torch.nn.Linear(4, 1), torch.nn.Embedding(64, 4)
    torch.nn.init.zeros_(emb.weight)
    sgd = torch.optim.SGD([{"params": top.parameters(), "lr": 0.1},
                           {"params": emb.parameters(), "lr": 0.5}], lr=1)
    for step in range(8):
        ids = torch.arange(32).reshape(16, 2) + step
        loss = ((top(emb(ids).sum(1)).squeeze(1) - 1) ** 2).mean()
        sgd.zero_grad()
        loss.backward()
        sgd.step()
    wanted = top.weight.flatten().tolist() + emb.weight[9].tolist()
    for words in said:
        found = json.loads(words.splitlines()[-1])
        numpy.testing.assert_allclose(found, wanted, atol=1e-5)


def test_the_manual_is_right(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(2)
    text = (programs.ROOT / "docs/PYTHON.md").read_text("utf8")
    blocks = [code for code in re.findall(r"```python\n(.*?)```", text, re.S)
              if "torch" in code]
    assert blocks
    for code in blocks:
        scope = {"recps": recps}
        exec(code, scope)  # pylint: disable=exec-used
        scope["client"].close()


def test_what_is_public_is_documented_and_typed():
    assert package.faults_of(recps.torch, recps.torch.__all__) == []

# SPDX-License-Identifier: Apache-2.0
"""What a server that began anew has lost, as Python hears of it."""
import re

import pytest

import package
import programs

recps = package.load()
import numpy  # noqa: E402


class Servers:
    """Of a job without checkpoints; each may be killed and started again,
    empty, at its address."""

    def __init__(self, count):
        self.addresses = package.free_addresses(count)
        self.running = [programs.Recpsd(
            f"--ps-hosts={','.join(self.addresses)}", "--job-name=ps",
            f"--task-index={index}", bind=None) for index in range(count)]

    def begin_anew(self, index):
        one = self.running[index]
        one.process.kill()
        one.process.wait()
        one.port_file.unlink()
        one.start()

    def client(self):
        return recps.connect(
            {"cluster": {"ps": self.addresses, "worker": ["localhost:1"]},
             "task": {"type": "worker", "index": 0}}, connect_timeout=10)

    def __enter__(self):
        for one in self.running:
            one.start()
        return self

    def __exit__(self, *_):
        for one in self.running:
            one.__exit__()


def one_table(client):
    return client.get_embedding_table("t", 2, optimizer=recps.SGD(1.0),
                                      initializer="zeros")


def test_what_a_server_lost_is_told_and_pushed_again():
    ones = numpy.ones((1, 2), numpy.float32)
    with Servers(2) as servers, servers.client() as client:
        table = one_table(client)
        keys = numpy.arange(50)
        for _ in range(3):
            table.push(keys, numpy.ones((50, 2), numpy.float32))
        servers.begin_anew(0)
        with pytest.raises(recps.RolledBackError,
                           match="with 3 acknowledged pushes") as caught:
            table.lookup(keys)
        (lost,) = caught.value.lost
        assert lost == recps.Rollback(0, 1, 4, 3, 3, 0)  # 1 made the table
        # nothing of a table goes on before it has been taken note of
        for call in (lambda: table.push([1], ones), lambda: table.evict(),
                     lambda: client.get_embedding_table("u", 2)):
            with pytest.raises(recps.RolledBackError) as again:
                call()
            assert again.value.lost == (lost,)
        client.ping()
        figures = client.rolled_back()
        assert [f.acknowledged - f.pushes for f in figures] == [0, 3]
        assert figures[1] == recps.Rollback(1, 0, 0, 0, 3, 0)
        # the table is there again, without what is lost
        rows = table.lookup(keys)
        assert set(rows[:, 0]) == {0.0, -3.0}
        gone = rows[:, 0] == 0
        table.push(keys[gone], 3 * numpy.ones((gone.sum(), 2), "f4"))
        assert (table.lookup(keys) == -3).all()
        assert [f.last for f in client.rolled_back()] == [0, 0]


def test_tickets_hear_of_a_loss_and_each_push_is_counted_once():
    ones = numpy.ones((1, 2), numpy.float32)
    with Servers(1) as servers, servers.client() as client:
        table = one_table(client)
        told = done = 0
        for _ in range(2):
            for _ in range(5):
                table.push([7], ones)
                done += 1
            servers.begin_anew(0)
            tickets = []
            for _ in range(4):
                try:
                    tickets.append(table.push_async([7], ones))
                except recps.RolledBackError:
                    pass
            for ticket in tickets:
                with pytest.raises(recps.RolledBackError) as caught:
                    ticket.wait()
                assert caught.value.lost[0].pushes == 5
            (figures,) = client.rolled_back()
            told += figures.pushes
            assert figures.acknowledged == done
        table.push([7], ones)
        (figures,) = client.rolled_back()
        assert figures.acknowledged - told == 1
        numpy.testing.assert_array_equal(table.lookup([7]), -ones)


def test_the_manuals_step_is_taken_again(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = (programs.ROOT / "docs/PYTHON.md").read_text("utf8")
    code = re.search(r"```python\n(def step\(.*?)```", text, re.S).group(1)
    scope = {"recps": recps}
    exec(code, scope)  # pylint: disable=exec-used
    with Servers(1) as servers, servers.client() as client:
        table = one_table(client)
        for number in range(4):
            if number == 2:
                servers.begin_anew(0)
            scope["step"](client, table, [7], lambda rows: rows * 0 - 1)
        assert table.lookup([7]).tolist() == [[2, 2]]
    assert capsys.readouterr().out == (
        "server 0: the last 2 of 2 pushes are lost\n")

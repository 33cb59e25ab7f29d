# SPDX-License-Identifier: Apache-2.0
"""The wire in Python, written from proto/PROTOCOL.md and not from the C code.

A second implementation to test the first one with, and a way to send what no
honest client sends.
"""
import hashlib
import hmac
import json
import mmap
import os
import select
import socket
import struct
import time

MAGIC = 0x31535052
HEADER = struct.Struct("<IHHIIQQQQIIiI")
SECTION = struct.Struct("<QHHIQQQif")
BODY_MAX = 16 << 20

HELLO, GET_TABLE, LOOKUP, PUSH, STEP_END = 1, 2, 4, 6, 7
ALTER_TABLE, ERASE, EVICT, DROP, HOT_KEYS, SCAN = 3, 10, 13, 14, 16, 17
APPLY, SAVE, RESTORE, STAT, SHUTDOWN, PING = 8, 11, 12, 15, 20, 21
SHM_ATTACH, AUTH, LOG_LEVEL, CANCEL = 19, 22, 23, 24
REPLY, MORE, BODY_XXH3, READ_ONLY, WISH = 1, 2, 4, 8, 16
KEYS, COUNTS, OFFSETS, ROWS, META, TEXT, PROOF = 1, 2, 3, 4, 7, 9, 10
INDEX = 11
F32, F16, BF16, I8 = 0, 1, 2, 3  # value types of rows

OK, INVAL, LIMIT, MISMATCH, NOT_FOUND = 0, -1, -3, -4, -5
RETRY_LATER, DEADLINE, TIMEOUT, CANCELED = -8, -9, -10, -11
UNSUPPORTED, NO_AUTH, UNREACHABLE = -12, -15, -18

P1, P2, P3, P4, P5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
MASK = 0xFFFFFFFF


def _rotl(x, r):
    return ((x << r) | (x >> (32 - r))) & MASK


def xxh32(data, seed=0):
    """XXH32 as its specification gives it."""
    n, at = len(data), 0
    if n >= 16:
        lanes = [(seed + P1 + P2) & MASK, (seed + P2) & MASK, seed & MASK,
                 (seed - P1) & MASK]
        while at + 16 <= n:
            for i, word in enumerate(struct.unpack_from("<4I", data, at)):
                lanes[i] = _rotl((lanes[i] + word * P2) & MASK, 13) * P1 & MASK
            at += 16
        acc = sum(_rotl(v, r) for v, r in zip(lanes, (1, 7, 12, 18))) & MASK
    else:
        acc = (seed + P5) & MASK
    acc = (acc + n) & MASK
    while at + 4 <= n:
        word = struct.unpack_from("<I", data, at)[0]
        acc = _rotl((acc + word * P3) & MASK, 17) * P4 & MASK
        at += 4
    for byte in data[at:]:
        acc = _rotl((acc + byte * P5) & MASK, 11) * P1 & MASK
    acc = (acc ^ (acc >> 15)) * P2 & MASK
    acc = (acc ^ (acc >> 13)) * P3 & MASK
    return acc ^ (acc >> 16)


def header(opcode, body_bytes, request_id=1, *, number=0, step=0, epoch=0,
           flags=0, version=1, magic=MAGIC, deadline_us=0, checksum=None,
           body_xxh3=0):
    raw = HEADER.pack(magic, version, opcode, flags, body_bytes, request_id,
                      number, step, body_xxh3, epoch, 0, deadline_us, 0)[:60]
    if checksum is None:
        checksum = xxh32(raw)
    return raw + struct.pack("<I", checksum)


def section(kind, data, *, table_id=0, value=0, dim=0, count=None,
            learning_rate=float("nan")):
    return {"kind": kind, "data": bytes(data), "table_id": table_id,
            "value": value, "dim": dim,
            "count": len(data) if count is None else count,
            "learning_rate": learning_rate}


def text(value):
    if not isinstance(value, str):
        value = json.dumps(value, separators=(",", ":"))
    return section(TEXT, value.encode())


def frame(opcode, sections, request_id=1, **fields):
    """A whole frame: header, counts, section table, aligned arrays."""
    at = 64 + 8 + 48 * len(sections)
    table, arrays = b"", b""
    for s in sections:
        offset = 0
        if s["data"]:
            pad = -(at + len(arrays)) % 64
            arrays += b"\0" * pad
            offset = at + len(arrays)
            arrays += s["data"]
        table += SECTION.pack(s["table_id"], s["kind"], s["value"], s["dim"],
                              s["count"], offset, len(s["data"]), 0,
                              s["learning_rate"])
    body = struct.pack("<II", len(sections), 0) + table + arrays
    return header(opcode, len(body), request_id, **fields) + body


def proof_of(token, label, nonces, data, offset):
    """What proto/auth.h says, with Python's hmac."""
    data = data[:offset] + bytes(32) + data[offset + 32:]
    return hmac.new(token, label.ljust(16).encode() + nonces + data,
                    hashlib.sha256).digest()


def section_offset(data, kind):
    """Where the array of a frame's first section of a kind lies."""
    for i in range(struct.unpack_from("<I", data, 64)[0]):
        s = SECTION.unpack_from(data, 72 + 48 * i)
        if s[1] == kind:
            return s[5]
    raise ValueError("no such section")


def prove(token, nonces, data):
    """A HELLO with the client's proof where it has zeros."""
    at = section_offset(data, PROOF)
    proof = proof_of(token, "recps/1 client", nonces, data, at)
    return data[:at] + proof + data[at + 32:]


class Reply:
    """A reply taken apart."""

    def __init__(self, raw, body):
        f = HEADER.unpack(raw)
        assert f[0] == MAGIC and xxh32(raw[:60]) == f[12], "a damaged header"
        self.opcode, self.flags, self.request_id = f[2], f[3], f[5]
        self.number, self.step, self.epoch, self.status = f[6], f[7], f[9], f[11]
        self.body_xxh3, self.body = f[8], body
        assert self.flags & REPLY
        self.sections = []
        whole = self.raw = raw + body
        for i in range(struct.unpack_from("<I", body)[0] if body else 0):
            s = SECTION.unpack_from(body, 8 + 48 * i)
            self.sections.append({
                "table_id": s[0], "kind": s[1], "value": s[2], "dim": s[3],
                "count": s[4],
                "data": whole[s[5]:s[5] + s[6]], "status": s[7]})

    def find(self, kind):
        return next((s["data"] for s in self.sections if s["kind"] == kind),
                    None)

    @property
    def text(self):
        data = self.find(TEXT)
        return None if data is None else data.decode()

    @property
    def json(self):
        return json.loads(self.text)


class Connection:
    """One connection that speaks frames, or anything else: over TCP to a
    port, or over a Unix socket to a path."""

    def __init__(self, port, timeout=20, host="127.0.0.1", tls=None):
        if isinstance(port, os.PathLike):
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.settimeout(timeout)
            self.sock.connect(str(port))
        else:
            self.sock = socket.create_connection((host, port), timeout)
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:  # an ssl.SSLContext
            self.sock = tls.wrap_socket(self.sock, server_hostname=host)
        self.last_id = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.sock.close()

    def send(self, data):
        self.sock.sendall(data)

    def send_frame(self, opcode, sections=(), **fields):
        self.last_id += 1
        self.send(frame(opcode, list(sections), self.last_id, **fields))
        return self.last_id

    def _exactly(self, n):
        data = b""
        while len(data) < n:
            part = self.sock.recv(n - len(data))
            if not part:
                raise EOFError(f"closed after {len(data)} of {n} bytes")
            data += part
        return data

    def receive(self):
        raw = self._exactly(64)
        return Reply(raw, self._exactly(HEADER.unpack(raw)[4]))

    def call(self, opcode, sections=(), **fields):
        request_id = self.send_frame(opcode, sections, **fields)
        reply = self.receive()
        assert (reply.request_id, reply.opcode) == (request_id, opcode)
        return reply

    def closed(self):
        """Did the server close, with or without a reset?"""
        try:
            while self.sock.recv(65536):
                pass
        except (ConnectionResetError, BrokenPipeError):
            pass
        except TimeoutError:
            return False
        return True

    def challenge(self):
        """AUTH: both nonces, in the order in which they are proven."""
        mine = os.urandom(32)
        reply = self.call(AUTH, [section(PROOF, mine)])
        assert reply.status == OK, reply.text
        return mine + reply.find(PROOF)

    def greet(self, words, token):
        """HELLO with a proof; the answer's proof is checked."""
        nonces = self.challenge()
        self.last_id += 1
        self.send(prove(token, nonces, frame(
            HELLO, [text(words), section(PROOF, bytes(32))], self.last_id)))
        reply = self.receive()
        if reply.status == OK:
            at = section_offset(reply.raw, PROOF)
            assert reply.find(PROOF) == proof_of(
                token, "recps/1 server", nonces, reply.raw, at)
        return reply

    def hello(self, ps_count=1, ps_index=0, role="none", token=None, **extra):
        words = {"versions": [1, 1], "job_id": "recps", "job_seed": "0",
                 "ps_count": ps_count, "ps_index": ps_index,
                 "fingerprint": "0000000000000000", "role": role,
                 "client": os.urandom(8).hex(), "lane": 0,
                 "program": "pytest", "route_version": 1}
        words.update(extra)
        if token is not None:
            return self.greet(words, token)
        return self.call(HELLO, [text(words)])

    def table(self, name="emb", dim=4, **spec):
        words = {"name": name, "dimension": dim, "optimizer": "sgd"}
        words.update(spec)
        reply = self.call(GET_TABLE, [text(words)])
        assert reply.status == OK, reply.text
        return int(reply.json["table_id"], 16)


CONTROL = 65536
FOR_DATA, FOR_ROOM = 1, 2


class Ring(Connection):
    """A greeted connection over a Unix socket, from SHM_ATTACH on: frames go
    through memory, as proto/PROTOCOL.md has it."""

    def __init__(self, connection):
        self.sock, self.last_id = connection.sock, connection.last_id
        self.send_over_socket = connection.send
        self.last_id += 1
        connection.send(frame(SHM_ATTACH, [], self.last_id))
        raw, fds, _, _ = socket.recv_fds(self.sock, 64, 3)
        reply = Reply(raw, connection._exactly(HEADER.unpack(raw)[4]))
        assert reply.status == OK, reply.text
        self.size = reply.json["ring_bytes"]
        self.memory_fd, self.bell_fd, self.pipe_fd = fds
        self.memory = mmap.mmap(self.memory_fd, CONTROL + 2 * self.size)
        self.taken = self.written = 0

    # what a side writes: tail, head, sleeps; first the server's, then ours
    def word(self, side, which, value=None):
        at = 384 * (side == "client") + {"tail": 0, "head": 128,
                                         "sleeps": 256}[which]
        form = "I" if which == "sleeps" else "Q"
        # not by struct.pack_into: it writes zeros before the value, and a
        # server that sees a head of 0 hangs up on who goes back
        end = at + struct.calcsize(form)
        with memoryview(self.memory)[at:end].cast(form) as words:
            if value is not None:
                words[0] = value
            return words[0]

    def ring_bell(self):
        os.write(self.bell_fd, struct.pack("<Q", 1))

    def wake(self, reason):
        if self.word("server", "sleeps") & reason:
            self.word("server", "sleeps", 0)
            self.ring_bell()

    def close(self):
        self.memory.close()
        os.close(self.memory_fd)
        os.close(self.bell_fd)
        os.close(self.pipe_fd)
        self.sock.close()

    def copy_in(self, data):
        """To the ring's back, round its end; not published."""
        at = self.written % self.size
        first = data[:self.size - at]
        self.memory[CONTROL + at:CONTROL + at + len(first)] = first
        rest = data[len(first):]
        self.memory[CONTROL:CONTROL + len(rest)] = rest

    def publish(self, n):
        self.written += (n + 63) // 64 * 64
        self.word("client", "tail", self.written)
        self.wake(FOR_DATA)

    def room(self):
        return self.size - (self.written - self.word("server", "head"))

    def send(self, data):
        while data:
            n = min(len(data), self.wait(self.room, FOR_ROOM))
            self.copy_in(data[:n])
            self.publish(n)
            data = data[n:]

    def has(self):
        return self.word("server", "tail") - self.taken

    def wait(self, look, reason, timeout=20):
        """What look() answers once that is true; we sleep for a bell."""
        end = time.monotonic() + timeout
        while not look():
            self.word("client", "sleeps", reason)
            if look():
                break
            if not select.select([self.pipe_fd], [], [],
                                 end - time.monotonic())[0]:
                raise TimeoutError("no bell")
            if not os.read(self.pipe_fd, 4096) and not look():
                raise EOFError("the server closed")
        self.word("client", "sleeps", 0)
        return look()

    def _exactly(self, n):
        data = b""
        while len(data) < n:
            part = min(n - len(data), self.wait(self.has, FOR_DATA))
            at = CONTROL + self.size + self.taken % self.size
            part = min(part, CONTROL + 2 * self.size - at)
            data += self.memory[at:at + part]
            self.taken += part
            if self.taken % 64 == 0:
                self.release()
        return data

    def release(self):
        self.taken = (self.taken + 63) // 64 * 64
        self.word("client", "head", self.taken)
        self.wake(FOR_ROOM)

    def receive(self):
        reply = super().receive()
        self.release()
        return reply

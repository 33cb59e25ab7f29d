# SPDX-License-Identifier: Apache-2.0
"""Somebody between clients and a server who knows frames, and cuts them."""
import collections
import random
import socket
import struct
import threading

UP, DOWN = "up", "down"


class Framed:
    """One direction of one connection: where in which frame it is."""

    def __init__(self):
        self.data, self.opcode, self.at, self.length = b"", 0, 0, 0

    def pieces(self, data):
        """(opcode, offset in its frame, bytes) of what may go on: a frame
        does with its whole header."""
        self.data += data
        while self.data:
            if self.at == self.length:
                if len(self.data) < 64:
                    return
                self.at = 0
                self.opcode = struct.unpack_from("<H", self.data, 6)[0]
                self.length = 64 + struct.unpack_from("<I", self.data, 12)[0]
            part = self.data[:self.length - self.at]
            self.data = self.data[len(part):]
            at, self.at = self.at, self.at + len(part)
            yield self.opcode, at, part


class CuttingProxy:
    """Cuts every connection where cut() says, once each time."""

    def __init__(self, port):
        self.port = port
        self.lock = threading.Lock()
        self.armed = None       # (direction, opcode, byte of the frame, reset)
        self.skip = 0           # frames of that kind that pass before
        self.chance = 0.0       # that a piece is cut somewhere
        self.drawn = random.Random(7)
        self.cuts = 0
        self.connections = 0
        self.sizes = collections.defaultdict(int)
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.own_port = self.listener.getsockname()[1]
        self.open = set()
        threading.Thread(target=self.run, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()
        for pair in list(self.open):
            self.close(pair)

    def cut(self, direction, opcode, byte, reset=False, skip=0):
        with self.lock:
            self.armed = (direction, opcode, byte, reset)
            self.skip = skip

    def close(self, pair, reset=False):
        for sock in pair:
            try:
                if reset:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                    struct.pack("ii", 1, 0))
                # wakes the thread that reads it: that keeps it open
                sock.shutdown(socket.SHUT_RD if reset else socket.SHUT_RDWR)
            except OSError:
                pass
            sock.close()
        self.open.discard(pair)

    def cut_all(self):
        for pair in list(self.open):
            self.close(pair)

    def run(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self.port))
            except OSError:
                client.close()
                continue
            for sock in (client, server):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            pair = (client, server)
            self.open.add(pair)
            self.connections += 1
            for a, b, way in [(client, server, UP), (server, client, DOWN)]:
                threading.Thread(target=self.carry, args=(a, b, way, pair),
                                 daemon=True).start()

    def verdict(self, way, opcode, at, part):
        """How many of these bytes go, or None: all, and no cut; and how."""
        with self.lock:
            if self.armed is not None:
                direction, wanted, byte, reset = self.armed
                if (direction, wanted) == (way, opcode):
                    self.skip -= at == 0
                    if self.skip < 0 and at <= byte <= at + len(part):
                        self.armed = None
                        return byte - at, reset
            if self.chance and self.drawn.random() < self.chance:
                return (self.drawn.randrange(len(part) + 1),
                        self.drawn.random() < 0.5)
        return None, False

    def carry(self, source, sink, way, pair):
        framed = Framed()
        try:
            while data := source.recv(1 << 16):
                for opcode, at, part in framed.pieces(data):
                    self.sizes[way, opcode] = framed.length
                    place, reset = self.verdict(way, opcode, at, part)
                    if place is not None:
                        sink.sendall(part[:place])
                        self.cuts += 1
                        self.close(pair, reset)
                        return
                    sink.sendall(part)
        except OSError:
            pass
        self.close(pair)

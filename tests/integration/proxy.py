# SPDX-License-Identifier: Apache-2.0
"""Somebody between a client and a server."""
import socket
import threading


class Proxy:
    """Carries bytes between one client and the server, and may change them."""

    def __init__(self, port, upward=None, downward=None):
        self.port = port
        self.change = {True: upward, False: downward}
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.own_port = self.listener.getsockname()[1]
        self.changed = 0
        self.sockets = []
        threading.Thread(target=self.run, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()
        for sock in self.sockets:
            sock.close()

    def run(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.port))
            self.sockets += [client, server]
            for a, b, up in [(client, server, True), (server, client, False)]:
                threading.Thread(target=self.carry, args=(a, b, up),
                                 daemon=True).start()

    def carry(self, source, sink, up):
        try:
            while data := source.recv(65536):
                change = self.change[up]
                changed = change(data) if change else data
                self.changed += changed != data
                sink.sendall(changed)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

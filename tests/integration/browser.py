# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium, driven over its DevTools pipe (no package needed)."""
import base64
import fcntl
import json
import os
import select
import shutil
import signal
import tempfile
import time

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


class Browser:
    """One browser with one page; its messages are kept in `events`."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(
            prefix="chromium-", ignore_cleanup_errors=True)
        self.events = []
        self.buffer = b""
        self.last = 0
        self.session = None

    def __enter__(self):
        pair_in, pair_out = os.pipe(), os.pipe()
        # the protocol is on descriptors 3 and 4; out of the way of those
        theirs_in = fcntl.fcntl(pair_in[0], fcntl.F_DUPFD_CLOEXEC, 10)
        theirs_out = fcntl.fcntl(pair_out[1], fcntl.F_DUPFD_CLOEXEC, 10)
        self.to, self.back = pair_in[1], pair_out[0]
        nowhere = [(os.POSIX_SPAWN_OPEN, fd, "/dev/null", os.O_RDWR, 0)
                   for fd in range(3)]
        self.process = os.posix_spawn(
            CHROMIUM,
            [CHROMIUM, "--headless", "--remote-debugging-pipe", "--no-sandbox",
             "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--disable-background-networking", "--disable-extensions",
             f"--user-data-dir={self.folder.name}", "about:blank"],
            {**os.environ, "HOME": self.folder.name},
            file_actions=[*nowhere, (os.POSIX_SPAWN_DUP2, theirs_in, 3),
                          (os.POSIX_SPAWN_DUP2, theirs_out, 4)], setpgroup=0)
        for fd in (theirs_in, theirs_out, pair_in[0], pair_out[1]):
            os.close(fd)
        target = self.call("Target.createTarget", url="about:blank")
        self.session = self.call("Target.attachToTarget", flatten=True,
                                 targetId=target["targetId"])["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_):
        os.killpg(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)
        os.close(self.to)
        os.close(self.back)
        self.folder.cleanup()

    def _receive(self, timeout):
        end = time.monotonic() + timeout
        while b"\0" not in self.buffer:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.back], [], [], left)[0]:
                raise TimeoutError("the browser says nothing")
            data = os.read(self.back, 1 << 20)
            if not data:
                raise RuntimeError("the browser has gone")
            self.buffer += data
        message, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(message)

    def call(self, method, **parameters):
        self.last += 1
        message = {"id": self.last, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive(60)
            if answer.get("id") == self.last:
                assert "error" not in answer, (method, answer)
                return answer["result"]
            self.events.append(answer)

    def run(self, script):
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=script,
                           returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def until(self, script, timeout=60):
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            value = self.run(script)
            if value:
                return value
            time.sleep(0.1)
        raise AssertionError(f"did not come true: {script}")

    def open(self, url, width, height, *, dark=False):
        self.events.clear()
        self.call("Emulation.setDeviceMetricsOverride", width=width,
                  height=height, deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme",
             "value": "dark" if dark else "light"}])
        self.call("Page.navigate", url=url)

    def screenshot(self, path):
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True,
                         clip={**size, "x": 0, "y": 0, "scale": 1})
        with open(path, "wb") as out:
            out.write(base64.b64decode(shot["data"]))

    def faults(self):
        """Exceptions, errors of the console, and what the policy stopped."""
        return [e for e in self.events
                if e["method"] == "Runtime.exceptionThrown" or
                (e["method"] == "Log.entryAdded" and
                 e["params"]["entry"]["level"] == "error")]

    def asked_for(self):
        return {e["params"]["request"]["url"] for e in self.events
                if e["method"] == "Network.requestWillBeSent"}

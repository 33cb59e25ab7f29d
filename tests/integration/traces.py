# SPDX-License-Identifier: Apache-2.0
"""A profile as a test reads it: trace.json as Chrome's trace event format
says it must be, and the tables beside it."""
import collections
import csv
import json

CATEGORIES = ["operator", "copy", "communication", "scheduling", "step"]


def check_event(event):
    assert event["ph"] in ("X", "C", "M"), event
    assert isinstance(event["name"], str) and event["name"], event
    assert isinstance(event["pid"], int) and isinstance(event["tid"], int)
    if event["ph"] == "M":
        assert event["name"] in ("process_name", "thread_name"), event
        assert isinstance(event["args"]["name"], str)
        return
    assert event["ts"] >= 0, event
    if event["ph"] == "C":
        assert isinstance(event["args"]["value"], (int, float)), event
        return
    assert event["dur"] >= 0, event
    assert event["cat"] in CATEGORIES, event


def check_nesting(events):
    """A viewer draws a thread's spans as a stack: none may cross another."""
    tracks = collections.defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            # thousandths of a microsecond, as integers
            start = round(event["ts"] * 1000)
            tracks[event["tid"]].append(
                (start, start + round(event["dur"] * 1000)))
    for spans in tracks.values():
        spans.sort(key=lambda span: (span[0], -span[1]))
        stack = []
        for start, end in spans:
            while stack and stack[-1] <= start:
                stack.pop()
            assert not stack or end <= stack[-1]
            stack.append(end)


class Trace:
    def __init__(self, folder):
        self.folder = folder
        self.all = json.loads((folder / "trace.json").read_text("ascii"))
        self.events = self.all["traceEvents"]
        for event in self.events:
            check_event(event)
        check_nesting(self.events)
        self.tracks = {e["tid"]: e["args"]["name"] for e in self.events
                       if e["ph"] == "M" and e["name"] == "thread_name"}
        used = {e["tid"] for e in self.events if e["ph"] == "X"}
        assert used <= set(self.tracks)
        assert len(set(self.tracks.values())) == len(self.tracks)

    def spans(self, category, name=None):
        return [e for e in self.events if e["ph"] == "X" and
                e["cat"] == category and name in (None, e["name"])]

    def steps(self):
        return [e["args"]["step"] for e in self.spans("step")]

    def table(self, name):
        with open(self.folder / f"{name}.csv", newline="", encoding="ascii") as f:
            return list(csv.DictReader(f))

# SPDX-License-Identifier: Apache-2.0
"""A strict reader of Prometheus' text format 0.0.4.

Written from the format's description (prometheus.io/docs/instrumenting/
exposition_formats), not from the C code.
"""
import collections
import math
import re

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"'
HELP = re.compile(rf"# HELP ({NAME}) (.*)")
TYPE = re.compile(rf"# TYPE ({NAME}) (counter|gauge|histogram|summary|untyped)")
SAMPLE = re.compile(rf"({NAME})(?:\{{((?:{LABEL},?)*)\}})? (\S+)( -?\d+)?")
ESCAPES = {r"\\": "\\", r"\"": '"', r"\n": "\n"}

Family = collections.namedtuple("Family", "name type help samples")


def unescape(text):
    return re.sub(r'\\[\\"n]', lambda m: ESCAPES[m.group(0)], text)


def labels_of(text):
    pairs = re.findall(LABEL, text or "")
    assert ",".join(f'{k}="{v}"' for k, v in pairs) == (text or "").rstrip(",")
    names = [k for k, _ in pairs]
    assert len(set(names)) == len(names), text
    return frozenset((k, unescape(v)) for k, v in pairs)


def belongs(name, family):
    suffixes = {"histogram": ("_bucket", "_sum", "_count"),
                "summary": ("", "_sum", "_count")}.get(family.type, ("",))
    return any(name == family.name + s for s in suffixes)


def check_histogram(family):
    """Cumulative, ascending, the last +Inf, and equal to the count."""
    series = collections.defaultdict(list)
    for (name, labels), value in family.samples.items():
        if name.endswith("_bucket"):
            bound = float(dict(labels)["le"])
            rest = frozenset(p for p in labels if p[0] != "le")
            series[rest].append((bound, value))
    for rest, buckets in series.items():
        bounds = [b for b, _ in buckets]
        counts = [c for _, c in buckets]
        assert bounds == sorted(set(bounds)), (family.name, bounds)
        assert counts == sorted(counts), (family.name, rest, counts)
        assert bounds[-1] == math.inf
        assert family.samples[family.name + "_count", rest] == counts[-1]
        assert (family.name + "_sum", rest) in family.samples


def parse(text):
    """{name: Family}; samples are {(name, frozenset of labels): value}."""
    assert text.endswith("\n")
    families, current, pending_help = {}, None, None
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            match = HELP.fullmatch(line)
            assert match, line
            pending_help = match.groups()
        elif line.startswith("# TYPE "):
            match = TYPE.fullmatch(line)
            assert match, line
            name, kind = match.groups()
            assert pending_help and pending_help[0] == name, line
            assert name not in families, f"{name} comes twice"
            current = families[name] = Family(name, kind, pending_help[1], {})
        else:
            match = SAMPLE.fullmatch(line)
            assert match, line
            name, labels, value = match.group(1), match.group(2), match.group(5)
            assert current and belongs(name, current), line
            key = name, labels_of(labels)
            assert key not in current.samples, line
            current.samples[key] = float(value)
    for family in families.values():
        # what promtool's linter asks of names
        assert family.help
        assert (family.type == "counter") == family.name.endswith("_total")
        if family.type == "histogram":
            check_histogram(family)
    return families


class Metrics:
    """One scrape: metrics("recps_rows", table="emb")."""

    def __init__(self, text):
        self.families = parse(text)

    def __call__(self, name, default=None, **labels):
        wanted = frozenset(labels.items())
        for family in self.families.values():
            if (name, wanted) in family.samples:
                return family.samples[name, wanted]
        if default is None:
            raise KeyError((name, labels))
        return default

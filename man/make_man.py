# SPDX-License-Identifier: Apache-2.0
"""A manual page of what a program says of itself.

make_man.py OUTPUT NAME SECTION VERSION "what it is" PROGRAM [--word WORD]...
            [--commands] [--page FILE:HEADING]... [--see NAME(N)]...

NAME, SYNOPSIS, DESCRIPTION and OPTIONS are PROGRAM --help (and of each --word,
and of each command that it lists); --page adds a section of a Markdown page.
So nothing here is a second text that could say something else.
"""
import argparse
import datetime
import os
import re
import subprocess
import textwrap


def help_of(program, *words):
    env = {k: v for k, v in os.environ.items()
           if not k.startswith(("TF_CONFIG", "RECPS_"))}
    return subprocess.run([program, *words, "--help"], env=env, text=True,
                          capture_output=True, check=True).stdout


# ---- roff ----

def escape(text):
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    text = text.replace("`", "\\(ga").replace("^", "\\(ha").replace("~", "\\(ti")
    text = text.replace("|", "|\\:")  # a list of choices may go on below
    text = re.sub(r"^\.", r"\\&.", text, flags=re.M)
    return "".join(c if c < "\x80" else f"\\[u{ord(c):04X}]" for c in text)


def filled(text):
    """A paragraph; long lines of input are legal, but nobody reads them."""
    lines = textwrap.wrap(" ".join(text.split()), 78, break_long_words=False,
                          break_on_hyphens=False)
    return "\n".join(escape(line) for line in lines)


def verbatim(lines):
    return "\n".join([".PP", ".nf", ".RS 4", *(escape(l) for l in lines),
                      ".RE", ".fi"])


# ---- what a program prints ----

def split_help(text):
    """Its synopsis (lines) and the blocks behind it, split by empty lines."""
    usage, rest = text.split("\n\n", 1)
    lines = [line.removeprefix("usage:").strip() for line in usage.split("\n")]
    return lines, [b.split("\n") for b in re.split(r"\n\n+", rest.strip("\n"))]


def entries(lines):
    """[(head, text)] of "  --flag TEXT    words", the words going on below."""
    found = []
    for line in lines:
        match = re.match(r"  (\S.*?)(?:  +(\S.*))?$", line)
        if match and not line.startswith("   "):
            found.append([match.group(1), [match.group(2) or ""]])
        elif found:
            found[-1][1].append(line.strip())
    return [(head, " ".join(words).strip()) for head, words in found]


def block(lines):
    """A paragraph, or a list with a title above it."""
    out = []
    if not lines[0].startswith(" ") and any(l.startswith("  ") for l in lines):
        title = re.sub(r"^Options of [a-z -]+ \(", "Options (", lines[0])
        out += [".PP", filled(title)]
        lines = lines[1:]
    if lines and lines[0].startswith("  "):
        for head, words in entries(lines):
            out += entry(head, words)
    elif lines:
        out += [".PP", filled(" ".join(lines))]
    return out


def is_list(lines):
    return any(line.startswith("  -") for line in lines)


def synopsis(lines):
    out = []
    for line in lines:
        if re.match(r"recps", line):
            out += [".PP" if not out else ".br", escape(line)]
        else:  # the usage goes on
            out.append(escape(line))
    return out


# ---- a section of a page ----

def inline(text):
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text)
    return text.replace("**", "").replace("`", "").replace("\\|", "|")


def cells(line):
    return [inline(c.strip()) for c in re.split(r"(?<!\\)\|", line)[1:-1]]


def table(lines):
    """Each row an entry: its first cell, then the others, from the third on
    with their titles."""
    titles, out = cells(lines[0]), []
    for line in lines[2:]:
        head, *others = cells(line)
        words = [f"{title}: {cell}" if title and number > 0 else cell
                 for number, (title, cell) in enumerate(zip(titles[1:], others))
                 if cell]
        out += [".TP", f"\\fB{escape(head)}\\fR", filled("; ".join(words))]
    return out


def markdown(lines):
    out, at = [], 0
    while at < len(lines):
        end = at
        if lines[at].startswith("```"):
            end = next(i for i in range(at + 1, len(lines))
                       if lines[i].startswith("```"))
            out.append(verbatim(lines[at + 1:end]))
        elif lines[at].startswith("|"):
            while end + 1 < len(lines) and lines[end + 1].startswith("|"):
                end += 1
            out += table(lines[at:end + 1])
        elif re.match(r"(- |\d+\. )", lines[at]):
            while end + 1 < len(lines) and lines[end + 1].startswith("  "):
                end += 1
            mark, words = re.match(r"(-|\d+\.) (.*)",
                                   " ".join(lines[at:end + 1])).groups()
            mark = "\\(bu" if mark == "-" else mark
            out += [f".IP {mark} 3", filled(inline(words))]
        elif lines[at].startswith("#"):
            title = inline(lines[at].lstrip("# "))
            out.append(f".SS {escape(title)}")
        elif lines[at].strip() and not lines[at].startswith("<!--"):
            while end + 1 < len(lines) and lines[end + 1].strip() and not re.match(
                    r"(\||```|- |\d+\. |#)", lines[end + 1]):
                end += 1
            out += [".PP", filled(inline(" ".join(lines[at:end + 1])))]
        at = end + 1
    return out


def page_section(path, heading):
    with open(path, encoding="utf8") as file:
        text = file.read()
    match = re.search(rf"^(#+) {re.escape(heading)}\n(.*?)(?=^#{{1,2}} |\Z)", text,
                      re.M | re.S)
    if match is None:
        raise SystemExit(f"{path}: there is no heading \"{heading}\"")
    return [f".SH {escape(heading.upper())}", *markdown(
        match.group(2).strip("\n").split("\n"))]


# ---- the page ----

def entry(head, words):
    return [".TP", f"\\fB{escape(head)}\\fR", filled(words)]


def options_in(blocks):
    """The lists that have a title: the options that programs share."""
    return [b for b in blocks if is_list(b) and b[0].rstrip().endswith(":")]


def command_of(program, name, known):
    """One command, and behind it those that it has itself."""
    usage, blocks = split_help(help_of(program, *name.split()))
    shared = options_in(blocks)
    out = [f".SS {escape(name)}", *synopsis(usage)]
    inner = []
    for part in blocks[:blocks.index(shared[0])]:
        if part[0].startswith("  ") and not is_list(part):
            inner += [word for word, _ in entries(part)]
        else:
            out += block(part)
    for part in shared:
        for head, words in entries(part):
            if head not in known:
                out += entry(head, words)
    for word in inner:
        out += command_of(program, f"{name} {word}", known)
    return out


def commands_of(program, lines, common):
    """A part for each command: how it is called, what it does, its own flags,
    and the options that it alone has."""
    out = [".SH COMMANDS"]
    known = {head for b in common for head, _ in entries(b)}
    for name, _ in entries(lines):
        out += command_of(program, name, known)
    return out


def options_of(blocks):
    out = [".SH OPTIONS"]
    for part in blocks:
        if is_list(part):
            out += block(part)
    return out


def date_of(files):
    """Of the sources; packagers set SOURCE_DATE_EPOCH."""
    seconds = os.environ.get("SOURCE_DATE_EPOCH")
    if not seconds:
        seconds = max(os.stat(file).st_mtime for file in files)
    day = datetime.datetime.fromtimestamp(float(seconds), datetime.timezone.utc)
    return day.strftime("%Y-%m-%d")


def make(arguments):
    usage, blocks = split_help(help_of(arguments.program))
    title = f"{arguments.name.upper()} {arguments.section}"
    day = date_of([__file__, *(p.split(":")[0] for p in arguments.page)])
    out = [".\\\" Made of --help and docs/ when recps was built.",
           f".TH {escape(title)} {day} \"recps {arguments.version}\"",
           ".nh", ".ad l",
           ".SH NAME", f"{escape(arguments.name)} \\- {escape(arguments.what)}",
           ".SH SYNOPSIS", *synopsis(usage), ".SH DESCRIPTION"]
    options = [b for b in blocks if is_list(b)]
    for part in blocks:
        if part in options:
            break
        if not (arguments.commands and part[0].startswith("  ")):
            out += block(part)
    if arguments.commands:
        listed = next(b for b in blocks if b[0].startswith("  "))
        last = entries(listed)[-1][0]  # all but launch have the same options
        options = options_in(split_help(help_of(arguments.program, last))[1])
        out += commands_of(arguments.program, listed, options)
    out += options_of(options)
    for word in arguments.word:
        usage, blocks = split_help(help_of(arguments.program, word))
        out += [f".SH {escape(f'{arguments.name} {word}'.upper())}",
                *synopsis(usage)]
        for part in blocks:
            out += block(part)
    for page in arguments.page:
        out += page_section(*page.split(":", 1))
    out += [".SH SEE ALSO", ", ".join(f"\\fB{escape(name)}\\fR({number})"
            for name, number in (see.rstrip(")").split("(")
                                 for see in arguments.see))]
    text = "\n".join(out) + "\n"
    return re.sub(r"^(\.S[HS] .*)\n\.PP$", r"\1", text, flags=re.M)


def main():
    parser = argparse.ArgumentParser()
    for name in ("output", "name", "section", "version", "what", "program"):
        parser.add_argument(name)
    parser.add_argument("--commands", action="store_true")
    for name in ("--word", "--page", "--see"):
        parser.add_argument(name, action="append", default=[])
    arguments = parser.parse_args()
    with open(arguments.output, "w", encoding="utf8") as file:
        file.write(make(arguments))


main()

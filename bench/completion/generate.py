# SPDX-License-Identifier: Apache-2.0
"""What completes recps-bench, of what its --help says.

generate.py OUTPUT bash|zsh PROGRAM
"""
import re
import subprocess
import sys

BASH = """\
# SPDX-License-Identifier: Apache-2.0
# bash completion of recps-bench. Made when it was built.
declare -gA _recps_bench_flags=(
{flags})
declare -gA _recps_bench_values=(
{values})

_recps_bench_complete() {{
    local cur=${{COMP_WORDS[COMP_CWORD]}}
    local prev=${{COMP_WORDS[COMP_CWORD-1]}}
    local word=${{COMP_WORDS[1]-}} kind

    if [[ $cur == = ]]; then
        cur=''
    elif [[ $prev == = ]]; then
        prev=${{COMP_WORDS[COMP_CWORD-2]}}
    fi
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        mapfile -t COMPREPLY < <(compgen -W "{words} --help --version" -- "$cur")
    elif [[ $cur == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "${{_recps_bench_flags[$word]-}}" \\
            -- "$cur")
        [[ ${{COMPREPLY[0]-}} != *= ]] || compopt -o nospace 2>/dev/null
    else
        kind=${{_recps_bench_values[$word $prev]-}}
        case $kind in
        words\\ *) mapfile -t COMPREPLY < <(compgen -W "${{kind#words }}" \\
            -- "$cur") ;;
        file) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
        esac
    fi
}}
complete -F _recps_bench_complete recps-bench
"""

ZSH = """\
#compdef recps-bench
# SPDX-License-Identifier: Apache-2.0
# zsh completion of recps-bench. Made when it was built.
local context state state_descr line
typeset -A opt_args

_arguments -C '--help[print help]' '--version[print the version]' \\
    '1: :({words})' '*:: :->rest'
case $state in
(rest)
    case $words[1] in
{cases}    esac
    ;;
esac
"""


def help_of(program, *words):
    return subprocess.run([program, *words, "--help"], text=True,
                          capture_output=True, check=True).stdout


def flags_of(text):
    """[(name, argument or None, words)]; the words may go on below."""
    found = []
    for line in text.splitlines():
        match = re.match(r"  --([a-z-]+)(?: (\S+))?(?: +(\S.*))?$", line)
        if match:
            found.append([match[1], match[2], match[3] or ""])
        elif found and line.startswith("   "):
            found[-1][2] += " " + line.strip()
    return [(name, argument, words.strip()) for name, argument, words in found]


def choices(words):
    """Of "tcp (default), unix or shm: which way"; else none."""
    words = re.sub(r" \(default[^)]*\)", "", words)
    match = re.match(r"(\w+(?:, \w+)* or \w+)(?:: |$)", words)
    return re.split(r", | or ", match[1]) if match else []


def bash(words, flags):
    values = []
    for word in words:
        for name, argument, text in flags[word]:
            kind = "file" if argument in ("FILE", "PATH") else ""
            if argument and choices(text):
                kind = "words " + " ".join(choices(text))
            if kind:
                values.append(f"    ['{word} --{name}']='{kind}'\n")
    lines = []
    for word in words:
        names = " ".join(f"--{name}{'=' if argument else ''}"
                         for name, argument, _ in flags[word])
        lines.append(f"    [{word}]='{names}'\n")
    return BASH.format(words=" ".join(words), flags="".join(lines),
                       values="".join(values))


def zsh(words, flags):
    cases = []
    for word in words:
        specs = []
        for name, argument, text in flags[word]:
            help_ = re.sub(r"([\[\]:])", r"\\\1", text).replace("'", "'\\''")
            if not argument:
                specs.append(f"'--{name}[{help_}]'")
                continue
            action = "_files" if argument in ("FILE", "PATH") else ""
            if choices(text):
                action = f"({' '.join(choices(text))})"
            specs.append(f"'--{name}=[{help_}]:{name}:{action}'")
        cases.append(f"    ({word}) _arguments \\\n        "
                     + " \\\n        ".join(specs) + " ;;\n")
    return ZSH.format(words=" ".join(words), cases="".join(cases))


def main():
    output, shell, program = sys.argv[1:]
    words = re.findall(r"^(?:usage:)? +recps-bench (\w+) ", help_of(program),
                       re.M)
    flags = {word: flags_of(help_of(program, word)) for word in words}
    text = {"bash": bash, "zsh": zsh}[shell](words, flags)
    with open(output, "w", encoding="utf8") as file:
        file.write(text)


if __name__ == "__main__":
    main()

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# .clang-format holds (version 14, Debian 12's: others format differently).
set -eu
cd "$1"
tool=
for name in clang-format-14 clang-format; do
    if command -v "$name" >/dev/null 2>&1 &&
        "$name" --version | grep -q 'version 14\.'; then
        tool=$name
        break
    fi
done
if [ -z "$tool" ]; then
    echo 'clang-format 14 is not installed: skipped'
    exit 77
fi
find include base admin conf proto embedding server client bench tests \
    \( -name '*.[ch]' -o -name '*.cc' \) | sort | xargs "$tool" --dry-run -Werror

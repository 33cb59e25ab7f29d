#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# docs/CLIENT.md shows example.c as it is (its first line apart).
set -eu
shown=$(sed -n '/^```c$/,/^```$/p' "$2" | sed '1d;$d')
real=$(sed 1d "$1")
if [ "$shown" != "$real" ]; then
    echo "the program in $2 is not $1: copy it again" >&2
    exit 1
fi

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Shell scripts are clean POSIX sh.
set -eu
cd "$1"
if ! command -v shellcheck >/dev/null 2>&1; then
    echo 'shellcheck is not installed: skipped'
    exit 77
fi
shellcheck run tests/lint/*.sh

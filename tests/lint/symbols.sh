#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every global symbol of every static library given starts with rps_.
set -eu
bad=$(nm -g --defined-only "$@" 2>/dev/null |
    awk '$2 ~ /^[ABCDGRTVW]$/ && $3 !~ /^(rps_|__(asan|ubsan|odr|tsan|gcov))/')
if [ -n "$bad" ]; then
    printf '%s\n' "$bad" >&2
    echo '^ global symbols that do not start with rps_' >&2
    exit 1
fi

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A shared library shows exactly the functions that include/recps declares
# with RPS_API (librecps-collective those of collective.h, librecps-npu those of
# npu*.h and the words of a status, librecps the others), and needs neither
# libevent nor jemalloc.
set -eu
library=$1
source=$2
case $library in
*librecps-collective*) headers=$source/include/recps/collective.h ;;
*librecps-npu*)
    headers=$(find "$source/include/recps" -name 'npu*.h' -o -name status.h)
    ;;
*)
    headers=$(find "$source/include/recps" -name '*.h' ! -name collective.h \
        ! -name 'npu*.h')
    ;;
esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# gold shows where data ends, too
nm -D --defined-only "$library" | awk '{print $NF}' |
    grep -vE '^(_init|_fini|__asan|__ubsan|__odr|__tsan)' |
    grep -vE '^(__bss_start|_edata|_end)$' | sort >"$work/has"
# shellcheck disable=SC2086 # a list of paths
cat $headers | tr '\n' ' ' |
    grep -oE 'RPS_API [^;(]*\(' | sed -E 's/.*[ *](rps_[a-z0-9_]+)\(/\1/' |
    grep '^rps_' | sort -u >"$work/wants"
if ! diff "$work/wants" "$work/has"; then
    echo '^ < declared only, > exported only' >&2
    exit 1
fi
if readelf -d "$library" | grep -E 'NEEDED.*(libevent|jemalloc)'; then
    echo '^ must not be needed by librecps' >&2
    exit 1
fi

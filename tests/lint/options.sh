#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# docs/OPTIONS.md is what the table of conf/options.h prints, and
# conf/examples/recpsd.json has every option.
set -eu
program=$1
source=$2
if ! "$program" | diff "$source/docs/OPTIONS.md" - >&2; then
    echo "^ print it anew: $program >docs/OPTIONS.md" >&2
    exit 1
fi
exec "$program" "$source/conf/examples/recpsd.json"

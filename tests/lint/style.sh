#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What no formatter sees: the SPDX line, 80 columns, no tabs or blanks at the
# end, functions of at most 70 lines, files of at most 800, no left-overs.
set -eu
cd "$1"
# shellcheck disable=SC2016 # awk's $
find include base admin conf proto embedding server client bench tests \
    -name '*.[ch]' | sort | xargs awk '
function fault(text) { print FILENAME ":" FNR ": " text; bad = 1 }
FNR == 1 {
    start = 0
    if ($0 != "/* SPDX-License-Identifier: Apache-2.0 */") {
        fault("first line is not the SPDX line")
    }
}
FNR == 801 { fault("more than 800 lines") }
length($0) > 80 && !/clang-format off|https?:/ && !off { fault("over 80 columns") }
/clang-format off/ { off = 1 }
/clang-format on/ { off = 0 }
/\t/ { fault("a tab") }
/[ \t]$/ { fault("blanks at the end") }
/TODO|FIXME|XXX:|HACK/ { fault("a left-over") }
/^\{/ { start = FNR }
/^\}/ {
    if (start && FNR - start > 70) {
        fault("a function of " FNR - start " lines")
    }
    start = 0
}
END { exit bad }'

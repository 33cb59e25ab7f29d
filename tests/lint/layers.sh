#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Who may include whom (docs/ARCHITECTURE.md). Prints each include that
# breaks the rule, and each file whose folder has no rule.
set -eu
cd "$1"
exec awk '
# The room of a path: the longest prefix that has a rule.
function room(path,    n) {
    for (n = length(path); n > 0; n--) {
        if ((n == length(path) || substr(path, n + 1, 1) == "/") &&
                substr(path, 1, n) in may) {
            return substr(path, 1, n)
        }
    }
    return ""
}
function rule(name, list) { may[name] = " " list " " name " " }
BEGIN {
    rule("include", "")
    rule("base", "include")
    rule("admin", "include base")
    rule("conf", "include base")
    rule("proto", "include base")
    rule("embedding", "include base embedding/kernels")
    rule("embedding/kernels", "include base")
    rule("embedding/checkpoint", "include base embedding")
    rule("server", "include base conf proto embedding embedding/checkpoint")
    rule("server/daemon", "include base admin conf proto server")
    rule("client", "include base conf proto")
    rule("client/channel_local.c", "include base conf proto client server")
    rule("client/collective", "include")
    rule("client/profile", "include base")
    rule("client/npu/kernels", "include base")
    rule("client/npu", "include base client/npu/kernels client/profile")
    worker = "include base admin conf client/npu/kernels client/precision "
    worker = worker "client/profile"
    rule("client/worker", worker)
    group = "include base conf client/profile client/worker embedding"
    rule("client/worker/group.c", group)
    rule("client/worker/group_servers.c", group)
    rule("client/worker/group_step.c", group)
    rule("client/precision", "include base embedding/checkpoint")
    cli = "include base conf client client/precision client/profile "
    cli = cli "embedding/checkpoint"
    rule("client/cli", cli)
    any = "include base admin conf proto embedding embedding/kernels "
    any = any "embedding/checkpoint server server/daemon client client/worker "
    any = any "client/cli client/collective client/npu client/profile "
    any = any "client/npu/kernels client/precision"
    rule("bench", any)
    rule("tests", any " bench")
}
{
    split($0, part, "\t")
    from = room(part[1])
    to = room(part[2])
    if (from == "" || to == "" || index(may[from], " " to " ") == 0) {
        print part[1] ": " from " must not include " part[2]
        bad = 1
    }
}
END { exit bad }
' <<EOF
$(grep -rnE '^#include ("|<recps/)' include base admin conf proto embedding \
    server client bench tests --include='*.[ch]' |
    sed -E 's/^([^:]*):[0-9]+:#include ["<]([^">]*)[">].*/\1	\2/;
        s/	recps\//	include\/recps\//')
EOF

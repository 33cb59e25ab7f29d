/* SPDX-License-Identifier: Apache-2.0 */
/* One resolution of one text, for the tests of conf/. */
#ifndef RPS_TESTS_UNIT_CONF_RESOLVED_H
#define RPS_TESTS_UNIT_CONF_RESOLVED_H

#include <recps/cluster.h>

#include <string.h>

struct resolved {
    rps_status status;
    rps_cluster cluster;
    rps_cluster_error error;
};

static inline rps_cluster_options
options_of(const char *text)
{
    rps_cluster_options options;

    memset(&options, 0, sizeof(options));
    options.struct_bytes = sizeof(options);
    options.tf_config = text;
    return options;
}

static inline struct resolved
resolve_with(const rps_cluster_options *options)
{
    struct resolved resolved;

    memset(&resolved, 0, sizeof(resolved));
    resolved.status =
            rps_cluster_resolve(&resolved.cluster, options, &resolved.error);
    return resolved;
}

static inline struct resolved
resolve(const char *text)
{
    const rps_cluster_options options = options_of(text);

    return resolve_with(&options);
}

static inline void
finish(struct resolved *resolved)
{
    rps_cluster_finish(&resolved->cluster);
    rps_cluster_error_finish(&resolved->error);
}

#endif /* RPS_TESTS_UNIT_CONF_RESOLVED_H */

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of the resolver share. The order is the order of the files:
 * source (text -> JSON), roles (JSON -> lists of members), task (who am I);
 * cluster.c joins them. Nothing here leaves conf/.
 */
#ifndef RPS_CONF_CLUSTER_INTERNAL_H
#define RPS_CONF_CLUSTER_INTERNAL_H

#include "base/text.h"

#include <recps/cluster.h>

#include <jansson.h>
#include <stdbool.h>

#define RPS_CLUSTER_BYTES_MAX   (16u * 1024u * 1024u)
#define RPS_CLUSTER_DEPTH_MAX   64u
#define RPS_CLUSTER_INDEX_MAX   0xfffffffeu
#define RPS_CLUSTER_MEMBERS_MAX 1000000u

/** One role's members as they stand in the cluster. */
struct rps_role_list {
    enum rps_role role;
    bool present;  /* the role has a key, perhaps without members */
    bool by_index; /* given as an object {"index": "host:port"} */
    char path[32]; /* "cluster.ps" or "--ps-hosts", for messages */
    uint32_t count;
    rps_member *members; /* [count], by index */
};

#define RPS_ROLE_LISTS ((size_t)RPS_ROLE_EVALUATOR + 1)

/** A cluster while it is resolved. */
struct rps_resolver {
    const rps_cluster_options *options;
    rps_cluster_error *error;
    json_t *root;  /* the whole document; NULL: none was given */
    json_t *roles; /* the cluster object in force; NULL: not set */
    bool roles_by_flag;
    struct rps_text notes;
    struct rps_role_list lists[RPS_ROLE_LISTS]; /* by enum rps_role */
    enum rps_role order[RPS_ROLE_LISTS]; /* roles as the text lists them */
    size_t order_count;
};

/** The task as written: type "" is none, index < 0 is none. */
struct rps_task {
    const char *type; /* NULL: not given */
    enum rps_role role;
    bool index_given;
    uint64_t index;
};

/** Room for a piece of foreign text in a message. */
struct rps_quoted {
    char text[256];
};

/* refuse.c */

/** Fill *error ("TF_CONFIG: " goes before the words); RPS_E_INVAL. */
rps_status rps_cluster_refuse(rps_cluster_error *error, const char *code,
        const char *format, ...) __attribute__((format(printf, 3, 4)));

/** `text` in double quotes, cut and without control characters. */
const char *rps_quote(struct rps_quoted *quoted, const char *text);

/** The same without the quotes around it. */
const char *rps_printable(struct rps_quoted *quoted, const char *text);

/** One line for people; a later line starts anew. */
void rps_cluster_note(struct rps_resolver *resolver, const char *format, ...)
        __attribute__((format(printf, 2, 3)));

/* cluster_source.c */

/** Find and parse the document: *root_out NULL where none was given. */
rps_status rps_cluster_load(const rps_cluster_options *options,
        json_t **root_out, rps_cluster_error *error);

/* cluster_hint.c */

/** What the writer of this broken JSON may have meant, or NULL. */
const char *rps_json_hint(
        const char *text, size_t length, const json_error_t *at);

/* cluster_address.c */

/** "Host.:2222" -> new "host:2222"; `path` names it where it is refused. */
rps_status rps_address_normalise(const char *path, const char *text,
        char **address_out, rps_cluster_error *error);

/* cluster_roles.c */

/** -1 for a name that is no role; "master" is RPS_ROLE_CHIEF. */
int rps_role_parse(const char *name);

/** Refuse a name that is no role; `path` is "cluster" or "task.type". */
rps_status rps_role_refuse(
        rps_cluster_error *error, const char *path, const char *name);

/** Pick the cluster object in force (flags, cluster, sparseCluster). */
rps_status rps_roles_choose(struct rps_resolver *resolver);

/** Fill resolver->lists from resolver->roles. */
rps_status rps_roles_read(struct rps_resolver *resolver);

void rps_roles_finish(struct rps_resolver *resolver);

/* cluster_task.c */

/** Read task and the flags that stand for it. */
rps_status rps_task_read(struct rps_resolver *resolver, struct rps_task *task);

/** Is this task a member of the cluster that was read? */
rps_status rps_task_check(
        const struct rps_resolver *resolver, const struct rps_task *task);

/** No cluster is set: only worker 0, or no task, may go on alone. */
rps_status rps_task_check_alone(
        const struct rps_resolver *resolver, const struct rps_task *task);

/** A parameter server that sees only itself (TFJob enableDynamicWorker). */
bool rps_task_sees_only_itself(
        const struct rps_resolver *resolver, const struct rps_task *task);

/**
 * --task-index=auto: the number at the end of the host name, else the
 * variables of Kubernetes Jobs, Volcano and Slurm.
 */
bool rps_task_index_auto(
        const char *host, uint64_t *index_out, const char **source_out);

#endif /* RPS_CONF_CLUSTER_INTERNAL_H */

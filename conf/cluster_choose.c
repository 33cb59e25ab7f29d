/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which cluster counts: the host flags replace the document's, and an old
 * TFJob operator's "sparseCluster" stands for a missing one. What is not
 * read is named once.
 */
#include "conf/cluster_internal.h"

#include <string.h>

static const char *const known_keys[] = {
        "cluster", "task", "sparseCluster", "recps"};
static const char *const known_task_keys[] = {"type", "index"};

#define IGNORED_BYTES_MAX 1024u

/* "a:1,b:2" -> ["a:1", "b:2"]; an empty flag is [""], refused later. */
static json_t *
split_hosts(const char *hosts)
{
    json_t *list = json_array();

    for (const char *at = hosts; list != NULL && at != NULL;) {
        const char *comma = strchr(at, ',');
        const size_t length = comma == NULL ? strlen(at) : (size_t)(comma - at);
        /* not checked for UTF-8 here: an address takes ASCII only */
        if (json_array_append_new(list, json_stringn_nocheck(at, length)) !=
                0) {
            json_decref(list);
            return NULL;
        }
        at = comma == NULL ? NULL : comma + 1;
    }
    return list;
}

static rps_status
choose_flags(struct rps_resolver *resolver, bool *given)
{
    const rps_cluster_options *options = resolver->options;
    const char *const roles[] = {"ps", "worker", "chief", "evaluator"};
    const char *const hosts[] = {options->ps_hosts, options->worker_hosts,
            options->chief_hosts, options->evaluator_hosts};
    const size_t count = sizeof(roles) / sizeof(roles[0]);
    const json_t *cluster = json_object_get(resolver->root, "cluster");
    struct rps_text flags = {0};

    *given = false;
    for (size_t i = 0; i < count; i++) {
        if (hosts[i] == NULL) {
            continue;
        }
        if (resolver->roles == NULL) {
            resolver->roles = json_object();
        }
        if (json_object_set_new(
                    resolver->roles, roles[i], split_hosts(hosts[i])) != 0) {
            rps_text_finish(&flags);
            return RPS_E_NOMEM;
        }
        rps_text_add(&flags, "%s--%s-hosts", *given ? ", " : "", roles[i]);
        *given = true;
    }
    resolver->roles_by_flag = *given;
    if (*given && json_object_size(cluster) > 0 && !flags.failed) {
        rps_cluster_note(resolver, "the cluster of TF_CONFIG is replaced by %s",
                flags.bytes);
    }
    rps_text_finish(&flags);
    return RPS_OK;
}

/* null and {} are no cluster. */
static rps_status
choose_key(struct rps_resolver *resolver, const char *key, bool *given)
{
    json_t *value = json_object_get(resolver->root, key);

    *given = false;
    if (value == NULL || json_is_null(value)) {
        return RPS_OK;
    }
    if (!json_is_object(value)) {
        return rps_cluster_refuse(resolver->error, "E_SHAPE",
                "%s: must be an object {role: [\"host:port\", ...]}", key);
    }
    if (json_object_size(value) > 0) {
        resolver->roles = json_incref(value);
        *given = true;
    }
    return RPS_OK;
}

static bool
is_known(const char *key, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(key, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

static void
list_ignored(struct rps_text *list, const char *prefix, json_t *object,
        const char *const *names, size_t count)
{
    struct rps_quoted quoted;
    const char *key = NULL;
    json_t *value = NULL;

    json_object_foreach(object, key, value)
    {
        const char *meant = NULL;
        if (is_known(key, names, count)) {
            continue;
        }
        if (list->length > IGNORED_BYTES_MAX) {
            rps_text_add(list, ", ...");
            return;
        }
        meant = rps_nearest_name(key, names, count);
        rps_text_add(list, "%s%s%s", list->length > 0 ? ", " : "", prefix,
                rps_printable(&quoted, key));
        if (meant != NULL) {
            rps_text_add(list, " (did you mean \"%s\"?)", meant);
        }
    }
}

static void
note_ignored(struct rps_resolver *resolver)
{
    struct rps_text list = {0};

    list_ignored(&list, "", resolver->root, known_keys,
            sizeof(known_keys) / sizeof(known_keys[0]));
    list_ignored(&list, "task.", json_object_get(resolver->root, "task"),
            known_task_keys,
            sizeof(known_task_keys) / sizeof(known_task_keys[0]));
    if (list.length > 0 && !list.failed) {
        rps_cluster_note(resolver, "ignored: %s", list.bytes);
    }
    rps_text_finish(&list);
}

rps_status
rps_roles_choose(struct rps_resolver *resolver)
{
    bool given = false;
    rps_status status = choose_flags(resolver, &given);

    if (status == RPS_OK && !given) {
        status = choose_key(resolver, "cluster", &given);
    }
    if (status == RPS_OK &&
            json_object_get(resolver->root, "sparseCluster") != NULL) {
        if (given) {
            rps_cluster_note(resolver, "ignored: sparseCluster");
        } else {
            status = choose_key(resolver, "sparseCluster", &given);
            if (given) {
                rps_cluster_note(resolver, "sparseCluster read as cluster");
            }
        }
    }
    note_ignored(resolver);
    return status;
}

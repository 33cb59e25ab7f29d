/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Joins the parts: document -> roles -> task -> counts, rank, fingerprint.
 * docs/TF_CONFIG.md has the rules; each refusal has one code and one line.
 */
#include "conf/cluster_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

void
rps_cluster_options_init(rps_cluster_options *options)
{
    if (options == NULL) {
        return;
    }
    memset(options, 0, sizeof(*options));
    options->struct_bytes = sizeof(*options);
    options->tf_config_file = getenv("TF_CONFIG_FILE");
    options->tf_config_env = getenv("TF_CONFIG");
}

const char *
rps_role_str(enum rps_role role)
{
    switch (role) {
    case RPS_ROLE_LOCAL:
        return "local";
    case RPS_ROLE_CHIEF:
        return "chief";
    case RPS_ROLE_WORKER:
        return "worker";
    case RPS_ROLE_PS:
        return "ps";
    case RPS_ROLE_EVALUATOR:
        return "evaluator";
    case RPS_ROLE_NONE:
        return "none";
    }
    return "none";
}

static void
members_free(rps_member *members, uint32_t count)
{
    for (uint32_t i = 0; members != NULL && i < count; i++) {
        free(members[i].address);
    }
    free(members);
}

void
rps_cluster_finish(rps_cluster *cluster)
{
    if (cluster == NULL) {
        return;
    }
    members_free(cluster->ps, cluster->ps_count);
    members_free(cluster->workers, cluster->workers_listed);
    free(cluster->chief_address);
    free(cluster->evaluator_address);
    free(cluster->own_address);
    free(cluster->recps_json);
    free(cluster->notes);
    memset(cluster, 0, sizeof(*cluster));
}

void
rps_cluster_error_finish(rps_cluster_error *error)
{
    if (error != NULL) {
        free(error->message);
        memset(error, 0, sizeof(*error));
    }
}

/* The members of a role, taken out of its list. */
static rps_member *
take_members(struct rps_role_list *list, uint32_t *count_out)
{
    rps_member *members = list->members;

    *count_out = list->count;
    list->members = NULL;
    list->count = 0;
    return members;
}

static rps_status
refuse_hole(const struct rps_resolver *resolver, uint32_t index)
{
    return rps_cluster_refuse(resolver->error, "E_SPARSE_PS",
            "%s: index %u is missing; every parameter server must be listed",
            resolver->lists[RPS_ROLE_PS].path, index);
}

/* Without --num-ps the list is the whole truth, so it has no holes. */
static rps_status
check_ps_list(const struct rps_resolver *resolver)
{
    const struct rps_role_list *ps = &resolver->lists[RPS_ROLE_PS];
    const uint32_t num_ps = resolver->options->num_ps;
    const char *path = ps->present ? ps->path : "cluster.ps";

    for (uint32_t i = 0; num_ps == 0 && i < ps->count; i++) {
        if (ps->members[i].index != i) {
            return refuse_hole(resolver, i);
        }
    }
    if (num_ps > RPS_CLUSTER_MEMBERS_MAX) {
        return rps_cluster_refuse(resolver->error, "E_COUNT",
                "--num-ps: %u is more than %u", num_ps,
                RPS_CLUSTER_MEMBERS_MAX);
    }
    if (num_ps > 0 && ps->count > 0 &&
            ps->members[ps->count - 1].index >= num_ps) {
        return rps_cluster_refuse(resolver->error, "E_COUNT",
                "%s: index %u is listed, but --num-ps is %u", path,
                ps->members[ps->count - 1].index, num_ps);
    }
    if (num_ps > 0 && !ps->by_index && ps->count != num_ps) {
        return rps_cluster_refuse(resolver->error, "E_COUNT",
                "%s: lists %u parameter servers, but --num-ps is %u", path,
                ps->count, num_ps);
    }
    return RPS_OK;
}

/* ps[i] is server i; one that is not listed has no address. */
static rps_status
place_ps(struct rps_resolver *resolver, rps_cluster *cluster)
{
    struct rps_role_list *ps = &resolver->lists[RPS_ROLE_PS];
    const uint32_t count = resolver->options->num_ps > 0
                                   ? resolver->options->num_ps
                                   : ps->count;

    if (count == 0) {
        return RPS_OK;
    }
    cluster->ps = calloc(count, sizeof(*cluster->ps));
    if (cluster->ps == NULL) {
        return RPS_E_NOMEM;
    }
    cluster->ps_count = count;
    for (uint32_t i = 0; i < count; i++) {
        cluster->ps[i].index = i;
    }
    for (uint32_t i = 0; i < ps->count; i++) {
        cluster->ps[ps->members[i].index].address = ps->members[i].address;
        ps->members[i].address = NULL;
    }
    if (ps->count < count) {
        cluster->addresses_differ = 1;
    }
    return RPS_OK;
}

/*
 * enableDynamicWorker gives a server a list of one, itself: its place in
 * the list says nothing, its index is the task's.
 */
static rps_status
place_only_itself(
        const struct rps_resolver *resolver, const struct rps_task *task)
{
    const struct rps_role_list *ps = &resolver->lists[RPS_ROLE_PS];
    const uint32_t num_ps = resolver->options->num_ps;

    if (num_ps == 0) {
        return rps_cluster_refuse(resolver->error, "E_SELFONLY",
                "%s: lists this task only (TFJob enableDynamicWorker); the "
                "number of parameter servers is unknown: give --num-ps",
                ps->path);
    }
    if (num_ps > RPS_CLUSTER_MEMBERS_MAX || task->index >= num_ps) {
        return rps_cluster_refuse(resolver->error, "E_INDEX",
                "task.index: %llu is not a ps of this cluster (--num-ps is "
                "%u)",
                (unsigned long long)task->index, num_ps);
    }
    ps->members[0].index = (uint32_t)task->index;
    return RPS_OK;
}

static rps_status
place_workers(struct rps_resolver *resolver, rps_cluster *cluster)
{
    struct rps_role_list *list = &resolver->lists[RPS_ROLE_WORKER];
    const uint32_t num_workers = resolver->options->num_workers;
    const uint32_t last =
            list->count > 0 ? list->members[list->count - 1].index : 0;

    if (num_workers > 0 && list->count > 0 &&
            (last >= num_workers ||
                    (!list->by_index && list->count != num_workers))) {
        return rps_cluster_refuse(resolver->error, "E_COUNT",
                "%s: lists %u workers up to index %u, but --num-workers is %u",
                list->path, list->count, last, num_workers);
    }
    cluster->worker_count_known = num_workers > 0 || !list->by_index;
    cluster->worker_count = num_workers > 0 ? num_workers : list->count;
    /* members of one job then hold lists of different lengths */
    cluster->addresses_differ |= list->by_index;
    cluster->workers = take_members(list, &cluster->workers_listed);
    return RPS_OK;
}

/* The own entry of a role's list. */
static const char *
find_own(const struct rps_resolver *resolver, const struct rps_task *task)
{
    const struct rps_role_list *list = NULL;

    if (task->role == RPS_ROLE_NONE || task->role == RPS_ROLE_LOCAL) {
        return NULL;
    }
    list = &resolver->lists[task->role];
    for (uint32_t i = 0; i < list->count; i++) {
        if (list->members[i].index == task->index) {
            return list->members[i].address;
        }
    }
    return NULL;
}

/* Chief first, then the workers; evaluator and ps have no rank. */
static void
set_rank(rps_cluster *cluster)
{
    const uint32_t chiefs = cluster->chief_address != NULL;

    cluster->is_chief = cluster->role == RPS_ROLE_LOCAL ||
                        cluster->role == RPS_ROLE_CHIEF ||
                        (cluster->role == RPS_ROLE_WORKER && chiefs == 0 &&
                                cluster->index == 0);
    if (cluster->role == RPS_ROLE_LOCAL) {
        cluster->replica_count = 1;
    } else if (cluster->worker_count_known) {
        cluster->replica_count = cluster->worker_count + chiefs;
    }
    if (cluster->role == RPS_ROLE_WORKER) {
        cluster->rank = cluster->index + chiefs;
    }
}

/*
 * XXH64 over "host:port\n" of every server in order; where members see
 * different lists, over "n_ps=N\n", which all of them know.
 */
static rps_status
set_fingerprint(rps_cluster *cluster)
{
    struct rps_text text = {0};
    uint64_t hash = 0;

    if (cluster->addresses_differ) {
        rps_text_add(&text, "n_ps=%u\n", cluster->ps_count);
    }
    for (uint32_t i = 0; !cluster->addresses_differ && i < cluster->ps_count;
            i++) {
        rps_text_add(&text, "%s\n", cluster->ps[i].address);
    }
    hash = XXH64(text.bytes, text.length, 0);
    if (text.failed) {
        rps_text_finish(&text);
        return RPS_E_NOMEM;
    }
    rps_text_finish(&text);
    cluster->fingerprint = hash;
    return RPS_OK;
}

/* Move the lists into the result, after everything was checked. */
static rps_status
fill(struct rps_resolver *resolver, const struct rps_task *task,
        rps_cluster *cluster)
{
    struct rps_role_list *chief = &resolver->lists[RPS_ROLE_CHIEF];
    struct rps_role_list *evaluator = &resolver->lists[RPS_ROLE_EVALUATOR];
    const char *own = find_own(resolver, task);
    rps_status status = RPS_OK;

    cluster->role = task->role;
    cluster->index = (uint32_t)task->index;
    if (own != NULL) {
        cluster->own_address = strdup(own);
        if (cluster->own_address == NULL) {
            return RPS_E_NOMEM;
        }
    }
    if (chief->count > 0) {
        cluster->chief_address = chief->members[0].address;
        chief->members[0].address = NULL;
    }
    if (evaluator->count > 0) {
        cluster->evaluator_address = evaluator->members[0].address;
        evaluator->members[0].address = NULL;
    }
    status = place_workers(resolver, cluster);
    if (status == RPS_OK) {
        status = place_ps(resolver, cluster);
    }
    if (status == RPS_OK) {
        set_rank(cluster);
    }
    return status;
}

static rps_status
resolve_cluster(struct rps_resolver *resolver, struct rps_task *task,
        rps_cluster *cluster)
{
    const bool no_task = task->type == NULL || !task->index_given;
    rps_status status = RPS_OK;

    if (resolver->options->task_optional && no_task) {
        task->role = RPS_ROLE_NONE;
        task->index = 0;
    } else if (rps_task_sees_only_itself(resolver, task) && task->index_given) {
        status = place_only_itself(resolver, task);
        return status == RPS_OK ? fill(resolver, task, cluster) : status;
    } else {
        status = rps_task_check(resolver, task);
    }
    if (status == RPS_OK) {
        status = check_ps_list(resolver);
    }
    return status == RPS_OK ? fill(resolver, task, cluster) : status;
}

static rps_status
resolve_alone(struct rps_resolver *resolver, const struct rps_task *task,
        rps_cluster *cluster)
{
    const rps_status status = rps_task_check_alone(resolver, task);

    cluster->role = RPS_ROLE_LOCAL;
    cluster->worker_count_known = 1;
    set_rank(cluster);
    if (resolver->options->num_ps > 0 || resolver->options->num_workers > 0) {
        rps_cluster_note(resolver,
                "ignored: --num-ps and --num-workers, no cluster is set");
    }
    return status;
}

/* Keep the text of "recps" for the options; it must be an object. */
static rps_status
keep_recps(const struct rps_resolver *resolver, rps_cluster *cluster)
{
    const json_t *recps = json_object_get(resolver->root, "recps");

    if (recps == NULL || json_is_null(recps)) {
        return RPS_OK;
    }
    if (!json_is_object(recps)) {
        return rps_cluster_refuse(resolver->error, "E_SHAPE",
                "recps: must be an object {\"option\": value}");
    }
    cluster->recps_json = json_dumps(recps, JSON_COMPACT);
    return cluster->recps_json == NULL ? RPS_E_NOMEM : RPS_OK;
}

/* One of two sources counts; say which, people set both by accident. */
static void
note_source(struct rps_resolver *resolver)
{
    const rps_cluster_options *options = resolver->options;
    const char *used = options->tf_config != NULL ? "--tf-config is given"
                                                  : "TF_CONFIG_FILE is set";

    if (options->tf_config_env != NULL &&
            (options->tf_config != NULL || options->tf_config_file != NULL)) {
        rps_cluster_note(resolver, "ignored: variable TF_CONFIG, %s", used);
    }
}

/* The cluster's faults are told before the task's. */
static rps_status
resolve(struct rps_resolver *resolver, rps_cluster *cluster)
{
    struct rps_task task;
    rps_status status = keep_recps(resolver, cluster);

    note_source(resolver);
    if (status == RPS_OK) {
        status = rps_roles_choose(resolver);
    }
    if (status == RPS_OK && resolver->roles != NULL) {
        status = rps_roles_read(resolver);
    }
    if (status == RPS_OK) {
        status = rps_task_read(resolver, &task);
    }
    if (status != RPS_OK) {
        return status;
    }
    return resolver->roles == NULL ? resolve_alone(resolver, &task, cluster)
                                   : resolve_cluster(resolver, &task, cluster);
}

rps_status
rps_cluster_resolve(rps_cluster *cluster, const rps_cluster_options *options,
        rps_cluster_error *error)
{
    struct rps_resolver resolver = {.options = options, .error = error};
    rps_status status = RPS_OK;

    if (error != NULL) {
        memset(error, 0, sizeof(*error));
    }
    if (cluster != NULL) {
        memset(cluster, 0, sizeof(*cluster));
    }
    if (cluster == NULL || options == NULL) {
        return rps_cluster_refuse(error, "E_OPTION", "%s is NULL",
                cluster == NULL ? "cluster" : "options");
    }
    status = rps_cluster_load(options, &resolver.root, error);
    if (status == RPS_OK) {
        status = resolve(&resolver, cluster);
    }
    if (status == RPS_OK) {
        status = set_fingerprint(cluster);
    }
    if (status == RPS_OK && resolver.notes.failed) {
        status = RPS_E_NOMEM;
    }
    cluster->notes = resolver.notes.bytes;
    rps_roles_finish(&resolver);
    json_decref(resolver.roles);
    json_decref(resolver.root);
    if (status != RPS_OK) {
        rps_cluster_finish(cluster);
    }
    return status;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The task: read from the document or the flags, then checked against the
 * cluster that was read.
 */
#include "conf/cluster_internal.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define INDICES_SHOWN_MAX 16u

static const char *
role_of(const struct rps_task *task)
{
    return task->type == NULL ? "worker" : task->type;
}

bool
rps_task_index_auto(
        const char *host, uint64_t *index_out, const char **source_out)
{
    static const char *const variables[] = {"JOB_COMPLETION_INDEX",
            "VC_TASK_INDEX", "VK_TASK_INDEX", "SLURM_PROCID"};
    const size_t length = strcspn(host, "."); /* the first label */
    char label[256];
    size_t at = length;

    /* a StatefulSet's pods are NAME-0, NAME-1, ... */
    while (at > 0 && isdigit((unsigned char)host[at - 1])) {
        at--;
    }
    if (at > 0 && at < length && length < sizeof(label) &&
            host[at - 1] == '-') {
        memcpy(label, host, length);
        label[length] = '\0';
        *source_out = "the host name";
        if (rps_parse_u64(label + at, index_out)) {
            return true;
        }
    }
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
        const char *value = getenv(variables[i]);
        *source_out = variables[i];
        if (value != NULL && rps_parse_u64(value, index_out)) {
            return true;
        }
    }
    return false;
}

static rps_status
refuse_negative(rps_cluster_error *error, const char *path, const char *text)
{
    struct rps_quoted quoted;

    return rps_cluster_refuse(error, "E_INDEX", "%s: must not be negative (%s)",
            path, rps_printable(&quoted, text));
}

/* "3", not "03", "+3", " 3" or "3.0". */
static rps_status
read_index_text(struct rps_task *task, const char *path, const char *text,
        rps_cluster_error *error)
{
    const char *digits = text[0] == '-' ? text + 1 : text;
    const bool decimal = digits[0] != '\0' &&
                         digits[strspn(digits, "0123456789")] == '\0' &&
                         (digits[0] != '0' || digits[1] == '\0');

    if (decimal && text[0] == '-' && digits[0] != '0') {
        return refuse_negative(error, path, text);
    }
    if (!decimal || digits != text || !rps_parse_u64(text, &task->index)) {
        return rps_cluster_refuse(
                error, "E_INDEX", "%s: must be a non-negative integer", path);
    }
    task->index_given = true;
    return RPS_OK;
}

static rps_status
read_index(struct rps_task *task, const json_t *value, rps_cluster_error *error)
{
    const json_int_t number = json_integer_value(value);
    char text[32];

    if (json_is_string(value)) {
        return read_index_text(
                task, "task.index", json_string_value(value), error);
    }
    if (!json_is_integer(value)) {
        return rps_cluster_refuse(
                error, "E_INDEX", "task.index: must be a non-negative integer");
    }
    if (number < 0) {
        (void)snprintf(text, sizeof(text), "%lld", (long long)number);
        return refuse_negative(error, "task.index", text);
    }
    task->index = (uint64_t)number;
    task->index_given = true;
    return RPS_OK;
}

static rps_status
read_auto(struct rps_resolver *resolver, struct rps_task *task)
{
    char host[256] = "";
    const char *source = NULL;

    if (gethostname(host, sizeof(host) - 1) != 0) {
        host[0] = '\0';
    }
    if (!rps_task_index_auto(host, &task->index, &source)) {
        return rps_cluster_refuse(resolver->error, "E_INDEX",
                "--task-index: auto finds no index: the host name \"%s\" does "
                "not end in -NUMBER, and JOB_COMPLETION_INDEX, VC_TASK_INDEX, "
                "VK_TASK_INDEX and SLURM_PROCID are not set",
                host);
    }
    rps_cluster_note(resolver, "task index %llu is taken from %s",
            (unsigned long long)task->index, source);
    task->index_given = true;
    return RPS_OK;
}

static rps_status
read_type(const struct rps_resolver *resolver, struct rps_task *task)
{
    const bool by_flag = resolver->options->job_name != NULL;
    int role = -1;

    if (task->type == NULL || task->type[0] == '\0') {
        task->type = NULL; /* --job_name= is the guide's default: none */
        return RPS_OK;
    }
    role = rps_role_parse(task->type);
    if (role < 0 && !resolver->options->allow_unknown_roles) {
        return rps_role_refuse(resolver->error,
                by_flag ? "--job-name" : "task.type", task->type);
    }
    task->role = role < 0 ? RPS_ROLE_NONE : (enum rps_role)role;
    return RPS_OK;
}

static rps_status
find_type(const struct rps_resolver *resolver, struct rps_task *task,
        const json_t *object)
{
    const json_t *type = json_object_get(object, "type");

    if (resolver->options->job_name != NULL) {
        task->type = resolver->options->job_name;
    } else if (type != NULL && !json_is_null(type)) {
        if (!json_is_string(type)) {
            return rps_cluster_refuse(
                    resolver->error, "E_SHAPE", "task.type: must be a string");
        }
        task->type = json_string_value(type);
    }
    return read_type(resolver, task);
}

rps_status
rps_task_read(struct rps_resolver *resolver, struct rps_task *task)
{
    const json_t *object = json_object_get(resolver->root, "task");
    const char *flag = resolver->options->task_index;
    const json_t *index = NULL;
    rps_status status = RPS_OK;

    memset(task, 0, sizeof(*task));
    if (object != NULL && !json_is_object(object) && !json_is_null(object)) {
        return rps_cluster_refuse(resolver->error, "E_SHAPE",
                "task: must be an object {\"type\": role, \"index\": number}");
    }
    status = find_type(resolver, task, object);
    if (status != RPS_OK) {
        return status;
    }
    index = json_object_get(object, "index");
    if (flag != NULL && strcmp(flag, "auto") == 0) {
        return read_auto(resolver, task);
    }
    if (flag != NULL) {
        return read_index_text(task, "--task-index", flag, resolver->error);
    }
    return index == NULL ? RPS_OK : read_index(task, index, resolver->error);
}

rps_status
rps_task_check_alone(
        const struct rps_resolver *resolver, const struct rps_task *task)
{
    struct rps_quoted quoted;
    char index[24] = "";

    if ((task->type == NULL || strcmp(task->type, "worker") == 0) &&
            (!task->index_given || task->index == 0)) {
        return RPS_OK;
    }
    if (task->index_given) {
        (void)snprintf(
                index, sizeof(index), " %llu", (unsigned long long)task->index);
    }
    return rps_cluster_refuse(resolver->error, "E_NOCLUSTER",
            "\"cluster\" is not set, so task must be worker 0 or absent, not "
            "%s%s",
            rps_printable(&quoted, role_of(task)), index);
}

bool
rps_task_sees_only_itself(
        const struct rps_resolver *resolver, const struct rps_task *task)
{
    const struct rps_role_list *ps = &resolver->lists[RPS_ROLE_PS];
    const struct rps_role_list *workers = &resolver->lists[RPS_ROLE_WORKER];

    return task->type != NULL && task->role == RPS_ROLE_PS && !ps->by_index &&
           ps->count == 1 && workers->by_index && workers->count == 0;
}

/* "worker x2, ps x1", or "nothing". */
static char *
describe_cluster(const struct rps_resolver *resolver)
{
    struct rps_text text = {0};

    for (size_t i = 0; i < resolver->order_count; i++) {
        const struct rps_role_list *list = &resolver->lists[resolver->order[i]];
        if (list->count > 0) {
            rps_text_add(&text, "%s%s x%u", text.length > 0 ? ", " : "",
                    rps_role_str(list->role), list->count);
        }
    }
    if (text.length == 0) {
        rps_text_add(&text, "nothing");
    }
    return text.bytes;
}

static rps_status
refuse_role(const struct rps_resolver *resolver, const struct rps_task *task)
{
    const bool by_flag = resolver->options->job_name != NULL;
    char *cluster = describe_cluster(resolver);
    rps_status status = RPS_E_NOMEM;

    if (cluster != NULL) {
        status = rps_cluster_refuse(resolver->error, "E_TASK",
                "%s: \"%s\" is not in the cluster (cluster has %s)",
                by_flag ? "--job-name" : "task.type", task->type, cluster);
    }
    free(cluster);
    return status;
}

/* "0,1,2"; long lists are "0..127", or cut where they have holes. */
static void
describe_indices(const struct rps_role_list *list, struct rps_text *text)
{
    const uint32_t count = list->count;

    if (count > INDICES_SHOWN_MAX &&
            list->members[count - 1].index == count - 1) {
        rps_text_add(text, "0..%u", count - 1);
        return;
    }
    for (uint32_t i = 0; i < count && i < INDICES_SHOWN_MAX; i++) {
        rps_text_add(text, "%s%u", i > 0 ? "," : "", list->members[i].index);
    }
    if (count > INDICES_SHOWN_MAX) {
        rps_text_add(text, ",...");
    }
}

static rps_status
refuse_index(const struct rps_resolver *resolver, const struct rps_task *task,
        const struct rps_role_list *list)
{
    const bool by_flag = resolver->options->task_index != NULL;
    const char *role = rps_role_str(list->role);
    struct rps_text indices = {0};
    rps_status status = RPS_E_NOMEM;

    describe_indices(list, &indices);
    if (!indices.failed) {
        status = rps_cluster_refuse(resolver->error, "E_INDEX",
                "%s: %llu is not %s %s of this cluster (indices %s)",
                by_flag ? "--task-index" : "task.index",
                (unsigned long long)task->index, role[0] == 'e' ? "an" : "a",
                role, indices.bytes);
    }
    rps_text_finish(&indices);
    return status;
}

static rps_status
check_index(const struct rps_resolver *resolver, const struct rps_task *task)
{
    const struct rps_role_list *list = &resolver->lists[task->role];
    const bool by_flag = resolver->options->task_index != NULL;

    if (task->role == RPS_ROLE_CHIEF && task->index != 0) {
        return rps_cluster_refuse(resolver->error, "E_CHIEF",
                "%s: the chief's index must be 0, not %llu",
                by_flag ? "--task-index" : "task.index",
                (unsigned long long)task->index);
    }
    for (uint32_t i = 0; i < list->count; i++) {
        if (list->members[i].index == task->index) {
            return RPS_OK;
        }
    }
    return refuse_index(resolver, task, list);
}

rps_status
rps_task_check(const struct rps_resolver *resolver, const struct rps_task *task)
{
    const char *missing = task->type == NULL ? "type" : "index";
    const char *flag = task->type == NULL ? "--job-name" : "--task-index";
    const struct rps_role_list *list = NULL;

    if (task->type == NULL || !task->index_given) {
        return rps_cluster_refuse(resolver->error, "E_TASK",
                "\"cluster\" is set, so task.%s must be set (or give %s)",
                missing, flag);
    }
    if (task->role == RPS_ROLE_NONE) {
        return RPS_OK; /* an unknown role that was allowed */
    }
    list = &resolver->lists[task->role];
    if (list->count > 0) {
        return check_index(resolver, task);
    }
    if (task->role != RPS_ROLE_EVALUATOR) {
        return refuse_role(resolver, task);
    }
    /* an evaluator need not be listed */
    return task->index <= RPS_CLUSTER_INDEX_MAX
                   ? RPS_OK
                   : rps_cluster_refuse(resolver->error, "E_INDEX",
                             "task.index: must be below 2^32");
}

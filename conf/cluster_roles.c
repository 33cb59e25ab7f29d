/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cluster object: role -> list of "host:port", or object from index to
 * "host:port". Roles are read in the order of the text, so that a message
 * names what the reader meets first.
 */
#include "conf/cluster_internal.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const role_names[] = {
        "chief", "master", "worker", "ps", "evaluator"};
#define ROLE_NAMES_COUNT (sizeof(role_names) / sizeof(role_names[0]))

int
rps_role_parse(const char *name)
{
    static const enum rps_role roles[ROLE_NAMES_COUNT] = {RPS_ROLE_CHIEF,
            RPS_ROLE_CHIEF, RPS_ROLE_WORKER, RPS_ROLE_PS, RPS_ROLE_EVALUATOR};

    for (size_t i = 0; i < ROLE_NAMES_COUNT; i++) {
        if (strcmp(name, role_names[i]) == 0) {
            return (int)roles[i];
        }
    }
    return -1;
}

/* Names that people give a role elsewhere. */
static const char *
find_synonym(const char *word)
{
    static const char *const pairs[][2] = {{"server", "ps"}, {"servers", "ps"},
            {"parameter_server", "ps"}, {"parameter_servers", "ps"},
            {"parameterserver", "ps"}, {"pserver", "ps"},
            {"coordinator", "chief"}, {"eval", "evaluator"},
            {"trainer", "worker"}};

    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        if (strcmp(word, pairs[i][0]) == 0) {
            return pairs[i][1];
        }
    }
    return NULL;
}

/* "ps_hosts" -> ps, "Workers" -> worker; NULL if nothing is near. */
static const char *
find_meant(const char *name)
{
    char word[40];
    size_t length = strlen(name);
    const char *meant = NULL;

    if (length >= sizeof(word)) {
        return NULL;
    }
    for (size_t i = 0; i <= length; i++) {
        word[i] = (char)tolower((unsigned char)name[i]);
    }
    if (length > 6 && (strcmp(word + length - 6, "_hosts") == 0 ||
                              strcmp(word + length - 6, "-hosts") == 0)) {
        word[length -= 6] = '\0';
    }
    meant = find_synonym(word);
    if (meant == NULL) {
        meant = rps_nearest_name(word, role_names, ROLE_NAMES_COUNT);
    }
    /* short words are near to everything */
    return meant != NULL && length < 4 && word[0] != meant[0] ? NULL : meant;
}

rps_status
rps_role_refuse(rps_cluster_error *error, const char *path, const char *name)
{
    struct rps_quoted quoted;
    char hint[96] = "";
    const char *meant = find_meant(name);

    if (strncmp(name, "workerpool", 10) == 0) {
        (void)snprintf(hint, sizeof(hint),
                "; this looks like CLUSTER_SPEC, not TF_CONFIG");
    } else if (meant != NULL) {
        (void)snprintf(hint, sizeof(hint), "; did you mean \"%s\"?", meant);
    }
    return rps_cluster_refuse(error, "E_ROLE",
            "%s: unknown role %s (known: chief, master, worker, ps, "
            "evaluator)%s",
            path, rps_quote(&quoted, name), hint);
}

static rps_status
refuse_shape(const char *path, const json_t *value, rps_cluster_error *error)
{
    const char *text = json_string_value(value);
    const char *hint = "";

    if (text != NULL && strchr(text, ',') != NULL) {
        hint = " (a comma-separated string: split it into a list)";
    } else if (text != NULL) {
        hint = " (one address: put it into a list)";
    }
    return rps_cluster_refuse(error, "E_SHAPE",
            "%s: must be a list of \"host:port\" or an object "
            "{\"index\": \"host:port\"}%s",
            path, hint);
}

/* Add one member; the list has room for it. */
static rps_status
add_member(struct rps_role_list *list, uint32_t index, const json_t *value,
        rps_cluster_error *error)
{
    char path[64];
    char *address = NULL;
    rps_status status = RPS_OK;

    (void)snprintf(path, sizeof(path), "%s[%u]", list->path, index);
    if (!json_is_string(value)) {
        return rps_cluster_refuse(
                error, "E_SHAPE", "%s: must be a \"host:port\" string", path);
    }
    status = rps_address_normalise(
            path, json_string_value(value), &address, error);
    if (status == RPS_OK) {
        list->members[list->count].index = index;
        list->members[list->count++].address = address;
    }
    return status;
}

static rps_status
read_list(struct rps_role_list *list, const json_t *value,
        rps_cluster_error *error)
{
    rps_status status = RPS_OK;

    for (size_t i = 0; status == RPS_OK && i < json_array_size(value); i++) {
        status = add_member(list, (uint32_t)i, json_array_get(value, i), error);
    }
    return status;
}

/* "0", "17": decimal, no sign, no leading zero, below 2^32 - 1. */
static bool
parse_key(const char *key, uint32_t *index_out)
{
    uint64_t index = 0;

    if (key[0] == '\0' || key[strspn(key, "0123456789")] != '\0' ||
            (key[0] == '0' && key[1] != '\0') || !rps_parse_u64(key, &index) ||
            index > RPS_CLUSTER_INDEX_MAX) {
        return false;
    }
    *index_out = (uint32_t)index;
    return true;
}

static int
compare_members(const void *a, const void *b)
{
    const rps_member *left = a;
    const rps_member *right = b;

    return left->index < right->index ? -1 : left->index > right->index;
}

static rps_status
read_object(struct rps_role_list *list, json_t *value, rps_cluster_error *error)
{
    struct rps_quoted quoted;
    const char *key = NULL;
    json_t *address = NULL;
    uint32_t index = 0;
    rps_status status = RPS_OK;

    list->by_index = true;
    json_object_foreach(value, key, address)
    {
        if (!parse_key(key, &index)) {
            return rps_cluster_refuse(error, "E_SPARSE_KEY",
                    "%s: task index %s must be a decimal number without sign "
                    "or leading zeros",
                    list->path, rps_quote(&quoted, key));
        }
        status = add_member(list, index, address, error);
        if (status != RPS_OK) {
            return status;
        }
    }
    if (list->count > 1) {
        qsort(list->members, list->count, sizeof(*list->members),
                compare_members);
    }
    return RPS_OK;
}

static rps_status
read_role(struct rps_role_list *list, json_t *value, rps_cluster_error *error)
{
    const size_t size = json_is_array(value) ? json_array_size(value)
                                             : json_object_size(value);

    if (!json_is_array(value) && !json_is_object(value)) {
        return refuse_shape(list->path, value, error);
    }
    if (size > RPS_CLUSTER_MEMBERS_MAX) {
        return rps_cluster_refuse(error, "E_SHAPE",
                "%s: %zu members, more than %u", list->path, size,
                RPS_CLUSTER_MEMBERS_MAX);
    }
    list->members = calloc(size + 1, sizeof(*list->members));
    if (list->members == NULL) {
        return RPS_E_NOMEM;
    }
    return json_is_array(value) ? read_list(list, value, error)
                                : read_object(list, value, error);
}

/* Two tasks at one address would both bind it, or one answer for both. */
static rps_status
check_twice(const struct rps_role_list *list, json_t *users,
        rps_cluster_error *error)
{
    char user[32];
    const char *other = NULL;

    for (uint32_t i = 0; i < list->count; i++) {
        const char *address = list->members[i].address;
        (void)snprintf(user, sizeof(user), "%s:%u", rps_role_str(list->role),
                list->members[i].index);
        other = json_string_value(json_object_get(users, address));
        if (other != NULL) {
            return rps_cluster_refuse(error, "E_DUPADDR",
                    "cluster: address %s is used by %s and %s", address, other,
                    user);
        }
        if (json_object_set_new(users, address, json_string(user)) != 0) {
            return RPS_E_NOMEM;
        }
    }
    return RPS_OK;
}

static rps_status
check_addresses(const struct rps_resolver *resolver)
{
    rps_status status = RPS_OK;
    json_t *users = json_object();

    if (users == NULL) {
        return RPS_E_NOMEM;
    }
    for (size_t i = 0; status == RPS_OK && i < resolver->order_count; i++) {
        status = check_twice(
                &resolver->lists[resolver->order[i]], users, resolver->error);
    }
    json_decref(users);
    return status;
}

/* At most one chief and one evaluator; the chief's index is 0. */
static rps_status
check_single(const struct rps_resolver *resolver)
{
    const struct rps_role_list *chief = &resolver->lists[RPS_ROLE_CHIEF];
    const struct rps_role_list *evaluator =
            &resolver->lists[RPS_ROLE_EVALUATOR];

    if (chief->count > 1) {
        return rps_cluster_refuse(resolver->error, "E_CHIEF",
                "cluster: at most one chief, found %u", chief->count);
    }
    if (chief->count == 1 && chief->members[0].index != 0) {
        return rps_cluster_refuse(resolver->error, "E_CHIEF",
                "%s: the chief's index must be 0, not %u", chief->path,
                chief->members[0].index);
    }
    if (evaluator->count > 1) {
        return rps_cluster_refuse(resolver->error, "E_EVAL",
                "cluster: at most one evaluator, found %u", evaluator->count);
    }
    return RPS_OK;
}

/* Every key must be a role, and chief and master are one role. */
static rps_status
read_names(struct rps_resolver *resolver)
{
    struct rps_quoted quoted;
    const char *name = NULL;
    json_t *value = NULL;

    json_object_foreach(resolver->roles, name, value)
    {
        const int role = rps_role_parse(name);
        struct rps_role_list *list = NULL;
        if (role < 0 && !resolver->options->allow_unknown_roles) {
            return rps_role_refuse(resolver->error, "cluster", name);
        }
        if (role < 0) {
            rps_cluster_note(resolver, "ignored: role %s of the cluster",
                    rps_quote(&quoted, name));
            continue;
        }
        list = &resolver->lists[role];
        if (list->present) {
            return rps_cluster_refuse(resolver->error, "E_CHIEF",
                    "cluster: \"chief\" and \"master\" are two names of one "
                    "role; keep one");
        }
        list->present = true;
        list->role = (enum rps_role)role;
        (void)snprintf(list->path, sizeof(list->path),
                resolver->roles_by_flag ? "--%s-hosts" : "cluster.%s", name);
        resolver->order[resolver->order_count++] = list->role;
    }
    return RPS_OK;
}

rps_status
rps_roles_read(struct rps_resolver *resolver)
{
    const char *name = NULL;
    json_t *value = NULL;
    rps_status status = read_names(resolver);

    if (status != RPS_OK) {
        return status;
    }
    json_object_foreach(resolver->roles, name, value)
    {
        const int role = rps_role_parse(name);
        if (role >= 0) {
            status = read_role(&resolver->lists[role], value, resolver->error);
        }
        if (status != RPS_OK) {
            return status;
        }
    }
    status = check_single(resolver);
    return status == RPS_OK ? check_addresses(resolver) : status;
}

void
rps_roles_finish(struct rps_resolver *resolver)
{
    for (size_t i = 0; i < RPS_ROLE_LISTS; i++) {
        struct rps_role_list *list = &resolver->lists[i];
        for (uint32_t k = 0; k < list->count; k++) {
            free(list->members[k].address);
        }
        free(list->members);
        list->members = NULL;
        list->count = 0;
    }
}

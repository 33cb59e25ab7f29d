/* SPDX-License-Identifier: Apache-2.0 */
/* Which tables a RESTORE takes of a checkpoint, and as what. */
#include "base/spec.h"
#include "embedding/checkpoint/restore.h"

#include <stdlib.h>
#include <string.h>

static const struct rps_ckpt_manifest *
manifest_of(const struct rps_ckpt_restoring *r)
{
    return &r->chain.links[r->chain.count - 1].manifest;
}

static rps_status
not_there(const struct rps_ckpt_restoring *r, const char *name,
        struct rps_error *error)
{
    const struct rps_ckpt_manifest *manifest = manifest_of(r);
    char names[512] = "";
    size_t used = 0;

    for (size_t i = 0; i < manifest->table_count && used < sizeof(names); i++) {
        const int n = snprintf(names + used, sizeof(names) - used, "%s%s",
                i == 0 ? "" : ", ", manifest->tables[i].spec.name);

        used += n > 0 ? (size_t)n : 0;
    }
    return rps_fail(error, RPS_E_NOT_FOUND,
            "%s: there is no table \"%.130s\"; it has %s",
            r->chain.links[r->chain.count - 1].folder.path, name,
            used == 0 ? "none" : names);
}

/* The rows of one table go into another where these agree. */
static rps_status
check_shape(const struct rps_ckpt_restoring *r,
        const struct rps_ckpt_wanted *wanted, struct rps_error *error)
{
    const rps_table_spec *from = &wanted->entry->spec;
    const rps_table_spec *to = &wanted->spec;
    const char *path = r->chain.links[r->chain.count - 1].folder.path;

    if (from->dim != to->dim) {
        return rps_fail(error, RPS_E_MISMATCH,
                "%s: table %s has dim %u, table %s is to have %u", path,
                from->name, from->dim, to->name, to->dim);
    }
    if (from->dense_elements != to->dense_elements) {
        return rps_fail(error, RPS_E_MISMATCH,
                "%s: table %s has dense_elements %llu, table %s is to have "
                "%llu",
                path, from->name, (unsigned long long)from->dense_elements,
                to->name, (unsigned long long)to->dense_elements);
    }
    return RPS_OK;
}

/* Slots mean something to the optimizer that wrote them alone. */
static void
choose_parts(const struct rps_ckpt_restoring *r, struct rps_ckpt_wanted *wanted)
{
    const rps_table_spec *from = &wanted->entry->spec;
    const rps_table_spec *to = &wanted->spec;
    const bool whole = !r->how->weights_only;

    wanted->slots = whole && from->optimizer == to->optimizer;
    wanted->counts = whole && r->same_seed && from->admission == to->admission;
}

static const char *
name_of(const struct rps_restore_table *asked)
{
    return asked->spec != NULL ? asked->spec->name : asked->name;
}

static const struct rps_ckpt_table *
find(const struct rps_ckpt_manifest *manifest,
        const struct rps_restore_table *asked)
{
    const size_t at =
            rps_ckpt_table_find(manifest->tables, manifest->table_count,
                    asked->from != NULL ? asked->from : name_of(asked));

    return at < manifest->table_count ? &manifest->tables[at] : NULL;
}

static rps_status
plan_table(const struct rps_ckpt_restoring *r,
        const struct rps_restore_table *asked, struct rps_ckpt_wanted *wanted,
        struct rps_error *error)
{
    const struct rps_ckpt_manifest *manifest = manifest_of(r);
    const char *name = asked->spec != NULL ? asked->spec->name : asked->name;
    const char *from = asked->from != NULL ? asked->from : name;
    const size_t at =
            rps_ckpt_table_find(manifest->tables, manifest->table_count, from);
    rps_status status = RPS_OK;

    if (at == manifest->table_count) {
        return not_there(r, from, error);
    }
    wanted->entry = &manifest->tables[at];
    wanted->spec = asked->spec != NULL ? *asked->spec : wanted->entry->spec;
    if (asked->spec == NULL) {
        if (strlen(name) >= sizeof(wanted->spec.name)) {
            return rps_fail(error, RPS_E_INVAL,
                    "the name of a table is too long: \"%.130s\"", name);
        }
        memset(wanted->spec.name, 0, sizeof(wanted->spec.name));
        memcpy(wanted->spec.name, name, strlen(name));
    }
    status = check_shape(r, wanted, error);
    choose_parts(r, wanted);
    return status;
}

rps_status
rps_ckpt_restore_plan(struct rps_ckpt_restoring *r, struct rps_error *error)
{
    const struct rps_restore *how = r->how;
    const struct rps_ckpt_manifest *manifest = manifest_of(r);
    const bool all = how->tables == NULL;
    const size_t asked_count = all ? manifest->table_count : how->table_count;
    rps_status status = RPS_OK;

    r->wanted = calloc(asked_count + 1, sizeof(*r->wanted));
    if (r->wanted == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "%s: no memory", how->dir);
    }
    for (size_t i = 0; i < asked_count && status == RPS_OK; i++) {
        const struct rps_restore_table same = {
                .name = all ? manifest->tables[i].spec.name : NULL};
        const struct rps_restore_table *asked = all ? &same : &how->tables[i];

        if (asked->optional && find(manifest, asked) == NULL) {
            continue;
        }
        status = plan_table(r, asked, &r->wanted[r->wanted_count++], error);
    }
    return status;
}

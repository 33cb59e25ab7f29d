/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a folder or file to rows. Ranks are read one after the other: what
 * stays of one are its rows, so that memory does not grow with the ranks.
 */
#include "base/text.h"
#include "client/cli/checkpoint_tool.h"
#include "client/cli/profile.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct loading {
    struct rps_profile_side *side;
    struct rps_checkpoint_progress progress;
    struct rps_error error;
};

/* --- rows ---------------------------------------------------------------- */

static int
by_class_and_name(const void *a, const void *b)
{
    const struct rps_profile_row *x = a, *y = b;

    if (x->class != y->class) {
        return x->class < y->class ? -1 : 1;
    }
    return strcmp(x->name, y->name);
}

static int
by_class_and_time(const void *a, const void *b)
{
    const struct rps_profile_row *x = a, *y = b;

    if (x->class == y->class && x->self_ns != y->self_ns) {
        return x->self_ns > y->self_ns ? -1 : 1;
    }
    return by_class_and_name(a, b);
}

static void
join(struct rps_profile_row *row, const struct rps_profile_row *other)
{
    row->count += other->count;
    row->ns += other->ns;
    row->self_ns += other->self_ns;
    row->min_ns = other->min_ns < row->min_ns ? other->min_ns : row->min_ns;
    row->max_ns = other->max_ns > row->max_ns ? other->max_ns : row->max_ns;
    row->bytes += other->bytes;
    row->flops += other->flops;
}

void
rps_profile_merge(struct rps_profile_row *rows, size_t *count)
{
    size_t kept = 0;

    if (*count == 0) {
        return;
    }
    qsort(rows, *count, sizeof(*rows), by_class_and_name);
    for (size_t i = 1; i < *count; i++) {
        if (by_class_and_name(&rows[kept], &rows[i]) == 0) {
            join(&rows[kept], &rows[i]);
        } else {
            rows[++kept] = rows[i];
        }
    }
    *count = kept + 1;
    qsort(rows, *count, sizeof(*rows), by_class_and_time);
}

static bool
keep(struct rps_profile_side *side, const char **text)
{
    *text = rps_strings_keep(&side->strings, *text);
    return *text != NULL;
}

static rps_status
add_rows(struct rps_profile_side *side, const struct rps_totals *totals)
{
    size_t count;
    const struct rps_total *list = rps_totals_list(totals, &count);
    struct rps_profile_row *rows =
            realloc(side->rows, (side->row_count + count + 1) * sizeof(*rows));

    if (rows == NULL) {
        return RPS_E_NOMEM;
    }
    side->rows = rows;
    for (size_t i = 0; i < count; i++) {
        struct rps_profile_row *row = &rows[side->row_count];

        *row = (struct rps_profile_row){
                .class = list[i].class,
                .name = list[i].name,
                .type = list[i].type,
                .holds = list[i].holds,
                .count = list[i].count,
                .ns = list[i].ns,
                .self_ns = list[i].self_ns,
                .min_ns = list[i].min_ns,
                .max_ns = list[i].max_ns,
                .bytes = list[i].bytes,
                .flops = list[i].flops,
        };
        if (!keep(side, &row->name) || !keep(side, &row->type) ||
                !keep(side, &row->holds)) {
            return RPS_E_NOMEM;
        }
        side->row_count++;
    }
    rps_profile_merge(side->rows, &side->row_count);
    return RPS_OK;
}

/* --- ranks --------------------------------------------------------------- */

static void
join_steps(struct rps_totals_steps *all, const struct rps_totals_steps *steps)
{
    if (steps->count == 0) {
        return;
    }
    if (all->count == 0) {
        *all = *steps;
        return;
    }
    all->count += steps->count;
    all->ns += steps->ns;
    all->min_ns = steps->min_ns < all->min_ns ? steps->min_ns : all->min_ns;
    all->max_ns = steps->max_ns > all->max_ns ? steps->max_ns : all->max_ns;
}

static rps_status
add_rank(struct loading *loading, uint32_t rank, const char *path)
{
    struct rps_profile_side *side = loading->side;
    struct rps_profile_rank *ranks =
            realloc(side->ranks, (side->rank_count + 1) * sizeof(*ranks));
    struct rps_totals *totals = rps_totals_create();
    struct rps_trace_info info;
    rps_status status = RPS_E_NOMEM;

    side->ranks = ranks != NULL ? ranks : side->ranks;
    if (ranks != NULL && totals != NULL) {
        status = rps_trace_read(path, "", totals, &info,
                rps_checkpoint_progress_show, &loading->progress,
                &loading->error);
    } else {
        (void)rps_fail(&loading->error, status, "no memory");
    }
    if (status == RPS_OK) {
        rps_totals_work_out(totals);
        ranks[side->rank_count] = (struct rps_profile_rank){
                .rank = rank, .steps = rps_totals_steps(totals)};
        side->has_steps = ranks[side->rank_count].steps.count > 0;
        if (!side->has_steps) {
            const uint64_t ns = rps_totals_wall_ns(totals);

            ranks[side->rank_count].steps =
                    (struct rps_totals_steps){.count = 1,
                            .ns = ns,
                            .min_ns = ns,
                            .median_ns = ns,
                            .max_ns = ns};
        }
        join_steps(&side->steps, &ranks[side->rank_count].steps);
        side->rank_count++;
        side->info.is_ours = side->info.is_ours || info.is_ours;
        side->info.is_torch = side->info.is_torch || info.is_torch;
        side->info.spans += info.spans;
        side->info.dropped += info.dropped;
        status = add_rows(side, totals);
    }
    rps_totals_destroy(totals);
    return status;
}

/* "rank12": 12 */
static bool
is_rank(const char *name, uint64_t *rank_out)
{
    return strncmp(name, "rank", 4) == 0 && rps_parse_u64(name + 4, rank_out) &&
           *rank_out <= UINT32_MAX;
}

static int
by_number(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* The ranks below the folder, in order; *count_out 0: none. */
static rps_status
list_ranks(const char *folder, uint64_t **ranks_out, size_t *count_out,
        struct rps_error *error)
{
    DIR *dir = opendir(folder);
    const struct dirent *entry;
    uint64_t *ranks = NULL;
    size_t count = 0, capacity = 0;
    uint64_t rank;

    *ranks_out = NULL;
    *count_out = 0;
    if (dir == NULL) {
        return rps_fail(
                error, RPS_E_IO, "cannot open %s: %s", folder, strerror(errno));
    }
    while ((entry = readdir(dir)) != NULL && count < RPS_PROFILE_RANKS_MAX) {
        if (!is_rank(entry->d_name, &rank)) {
            continue;
        }
        if (count == capacity) {
            uint64_t *grown = realloc(
                    ranks, (capacity = 2 * capacity + 16) * sizeof(*grown));

            if (grown == NULL) {
                closedir(dir);
                free(ranks);
                return rps_fail(error, RPS_E_NOMEM, "no memory");
            }
            ranks = grown;
        }
        ranks[count++] = rank;
    }
    closedir(dir);
    if (count > 0) {
        qsort(ranks, count, sizeof(*ranks), by_number);
    }
    *ranks_out = ranks;
    *count_out = count;
    return RPS_OK;
}

static rps_status
add_trace_of(struct loading *loading, uint32_t rank, const char *folder,
        const char *below)
{
    char *path = rps_format("%s%s/trace.json", folder, below);
    rps_status status =
            path != NULL ? add_rank(loading, rank, path)
                         : rps_fail(&loading->error, RPS_E_NOMEM, "no memory");

    free(path);
    return status;
}

static rps_status
add_folder(struct loading *loading, const char *folder)
{
    uint64_t *ranks = NULL;
    size_t count = 0;
    rps_status status = list_ranks(folder, &ranks, &count, &loading->error);
    char below[32];

    if (status == RPS_OK && count == 0) {
        status = add_trace_of(loading, 0, folder, "");
        if (status == RPS_E_NOT_FOUND) {
            (void)rps_fail(&loading->error, status,
                    "%s has neither trace.json nor rank0/trace.json", folder);
        }
    }
    for (size_t i = 0; status == RPS_OK && i < count; i++) {
        (void)snprintf(below, sizeof(below), "/rank%" PRIu64, ranks[i]);
        status = add_trace_of(loading, (uint32_t)ranks[i], folder, below);
    }
    free(ranks);
    return status;
}

static int
fail(rps_status status, const struct rps_error *error)
{
    switch (status) {
    case RPS_E_NOT_FOUND:
    case RPS_E_IO:
        return rps_tool_fail(RPS_TOOL_NOINPUT, "profile", "%s", error->text);
    case RPS_E_CORRUPT:
    case RPS_E_LIMIT:
        return rps_tool_fail(RPS_TOOL_CORRUPT, "profile", "%s", error->text);
    default:
        return rps_tool_fail(RPS_TOOL_FAILED, "profile", "%s", error->text);
    }
}

int
rps_profile_load(struct rps_profile_side *side, const char *path)
{
    struct loading loading = {.side = side};
    struct stat info;
    rps_status status;

    *side = (struct rps_profile_side){.path = path};
    if (stat(path, &info) != 0) {
        return rps_tool_fail(RPS_TOOL_NOINPUT, "profile", "cannot open %s: %s",
                path, strerror(errno));
    }
    rps_checkpoint_progress_begin(&loading.progress);
    status = S_ISDIR(info.st_mode) ? add_folder(&loading, path)
                                   : add_rank(&loading, 0, path);
    rps_checkpoint_progress_end(&loading.progress);
    if (status == RPS_OK && side->info.spans == 0) {
        status = rps_fail(&loading.error, RPS_E_CORRUPT,
                "%s has no spans: there is nothing to add up", path);
    }
    return status == RPS_OK ? RPS_TOOL_OK : fail(status, &loading.error);
}

void
rps_profile_side_finish(struct rps_profile_side *side)
{
    free(side->ranks);
    free(side->rows);
    rps_strings_finish(&side->strings);
    *side = (struct rps_profile_side){.path = NULL};
}

/* --- what both answers say ----------------------------------------------- */

uint64_t
rps_profile_class_ns(const struct rps_profile_side *side,
        enum rps_profile_class class, uint64_t *count_out)
{
    uint64_t ns = 0, count = 0;

    for (size_t i = 0; i < side->row_count; i++) {
        if (side->rows[i].class == class) {
            ns += side->rows[i].self_ns;
            count += side->rows[i].count;
        }
    }
    if (count_out != NULL) {
        *count_out = count;
    }
    return ns;
}

double
rps_profile_a_step(const struct rps_profile_side *side, uint64_t whole)
{
    return (double)whole / (double)side->steps.count;
}

char *
rps_profile_describe(
        const struct rps_profile_side *side, char *out, size_t bytes)
{
    const struct rps_totals_steps *steps = &side->steps;
    const double ms = 1e-6;

    (void)snprintf(out, bytes,
            "%s%zu rank%s, %" PRIu64
            " step%s of %.3f ms (%.3f to %.3f)%s, %" PRIu64 " spans",
            side->info.is_torch ? "PyTorch, " : "", side->rank_count,
            side->rank_count == 1 ? "" : "s", steps->count,
            steps->count == 1 ? "" : "s",
            rps_profile_a_step(side, steps->ns) * ms,
            (double)steps->min_ns * ms, (double)steps->max_ns * ms,
            side->has_steps ? "" : ", all of it as one: it has no steps",
            side->info.spans);
    return out;
}

json_t *
rps_profile_side_json(const struct rps_profile_side *side)
{
    const struct rps_totals_steps *steps = &side->steps;
    json_t *ranks = json_array();

    for (size_t i = 0; i < side->rank_count; i++) {
        const struct rps_profile_rank *rank = &side->ranks[i];

        json_array_append_new(ranks,
                json_pack("{s:I, s:I, s:f}", "rank", (json_int_t)rank->rank,
                        "steps", (json_int_t)rank->steps.count, "step_us",
                        (double)rank->steps.ns * 1e-3 /
                                (double)rank->steps.count));
    }
    return json_pack("{s:s, s:s, s:o, s:b, s:I, s:I, s:{s:I, s:f, s:f, s:f}}",
            "path", side->path, "kind",
            side->info.is_ours    ? "recps"
            : side->info.is_torch ? "pytorch"
                                  : "trace",
            "ranks", ranks, "has_steps", (int)side->has_steps, "spans",
            (json_int_t)side->info.spans, "dropped",
            (json_int_t)side->info.dropped, "steps", "count",
            (json_int_t)steps->count, "mean_us",
            rps_profile_a_step(side, steps->ns) * 1e-3, "min_us",
            (double)steps->min_ns * 1e-3, "max_us",
            (double)steps->max_ns * 1e-3);
}

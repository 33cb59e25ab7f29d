/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/checkpoint/saves.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/spec.h"
#include "bench/check.h"
#include "bench/print.h"
#include "embedding/checkpoint/checkpoint.h"
#include "embedding/cut.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILL_KEYS 4096u

struct fill {
    uint64_t *keys; /* [FILL_KEYS] */
    float *rows;    /* [FILL_KEYS][dim] */
    float *slots;   /* [FILL_KEYS][slot floats] */
    uint32_t *meta; /* [FILL_KEYS] */
};

/* Any that a row may have: finite, not below 0. */
static void
fill_row(struct fill *fill, size_t i, uint64_t key, const rps_table_spec *spec)
{
    const uint32_t slot_floats = rps_spec_slot_floats(spec);

    fill->keys[i] = key;
    bench_pattern(
            spec->value_dtype, key, spec->dim, fill->rows + i * spec->dim);
    if (slot_floats > 0) {
        bench_pattern(RPS_VALUE_F32, ~key, slot_floats,
                fill->slots + i * slot_floats);
    }
    fill->meta[i] = (uint32_t)(key % 7) << 24 | (uint32_t)(key % 1000);
}

static rps_status
fill_table(struct bench_saves *saves, struct fill *fill)
{
    const rps_table_spec *spec = &saves->args->spec;
    const bool slots = rps_spec_slot_floats(spec) > 0;
    rps_status status = RPS_OK;

    for (uint64_t at = 0; at < saves->set.rows && status == RPS_OK;) {
        size_t n = 0;

        for (; n < FILL_KEYS && at < saves->set.rows; n++, at++) {
            fill_row(fill, n, bench_keyset_key(&saves->set, at), spec);
        }
        status = rps_table_assign(saves->table, n, fill->keys, fill->rows,
                slots ? fill->slots : NULL, fill->meta, &saves->error);
    }
    return status;
}

static rps_status
fill_all(struct bench_saves *saves)
{
    const rps_table_spec *spec = &saves->args->spec;
    struct fill fill = {
            .keys = calloc(FILL_KEYS, sizeof(*fill.keys)),
            .rows = calloc((size_t)FILL_KEYS * spec->dim, sizeof(*fill.rows)),
            .slots =
                    calloc((size_t)FILL_KEYS * (rps_spec_slot_floats(spec) + 1),
                            sizeof(*fill.slots)),
            .meta = calloc(FILL_KEYS, sizeof(*fill.meta)),
    };
    rps_status status = fill.keys != NULL && fill.rows != NULL &&
                                        fill.slots != NULL && fill.meta != NULL
                                ? fill_table(saves, &fill)
                                : RPS_E_NOMEM;

    free(fill.keys);
    free(fill.rows);
    free(fill.slots);
    free(fill.meta);
    return status;
}

static rps_status
make_folder(struct bench_saves *saves)
{
    const char *dir = saves->args->dir;
    const int n = snprintf(
            saves->folder, sizeof(saves->folder), "%s/recps-bench-XXXXXX", dir);

    if (n < 0 || (size_t)n >= sizeof(saves->folder) ||
            mkdtemp(saves->folder) == NULL) {
        saves->folder[0] = '\0';
        return rps_fail(&saves->error, RPS_E_IO, "a folder in %s: %s", dir,
                (size_t)n >= sizeof(saves->folder) ? "its name is too long"
                                                   : strerror(errno));
    }
    return RPS_OK;
}

/* The threads of a restore may be on any CPU, so ours is, too. */
static rps_status
warm_memory(struct bench_saves *saves)
{
    struct rps_table_stats stats;
    cpu_set_t all;

    rps_table_stats_of(saves->table, &stats);
    (void)sched_getaffinity(0, sizeof(all), &all);
    bench_reserve_finish(&saves->reserve);
    if (!bench_reserve_init(&saves->reserve, stats.bytes)) {
        return rps_fail(&saves->error, RPS_E_NOMEM,
                "out of memory: fewer --rows or a smaller --dim");
    }
    (void)sched_setaffinity(0, sizeof(all), &all);
    return RPS_OK;
}

/* So far as rows are there. */
static void
give_memory(void *context, uint64_t rows, uint64_t rows_total)
{
    struct bench_saves *saves = context;
    const double share =
            rows_total > 0 ? (double)rows / (double)rows_total : 0.0;
    const size_t used = (size_t)(share * (double)saves->reserve.bytes);

    while (bench_reserve_is_due(&saves->reserve, used)) {
        bench_reserve_give(&saves->reserve);
    }
}

rps_status
bench_saves_init(struct bench_saves *saves,
        const struct bench_checkpoint_args *args,
        struct bench_checkpoint_report *report)
{
    rps_status status = RPS_OK;

    *saves = (struct bench_saves){.args = args, .report = report};
    pthread_rwlock_init(&saves->changing, NULL);
    status = make_folder(saves);
    if (status == RPS_OK) {
        status =
                bench_keyset_init(&saves->set, args->rows, NULL, &saves->error);
    }
    if (status == RPS_OK) {
        status = rps_store_create(&saves->store, 0);
    }
    if (status == RPS_OK) {
        status = rps_store_open_table(
                saves->store, &args->spec, &saves->table, &saves->error);
    }
    if (status == RPS_OK) {
        bench_progress("filling %" PRIu64 " rows of dim %" PRIu32, args->rows,
                args->spec.dim);
        status = fill_all(saves);
    }
    return status == RPS_OK ? warm_memory(saves) : status;
}

void
bench_saves_finish(struct bench_saves *saves)
{
    rps_store_destroy(saves->store);
    bench_reserve_finish(&saves->reserve);
    bench_keyset_finish(&saves->set);
    pthread_rwlock_destroy(&saves->changing);
    if (saves->folder[0] != '\0') {
        char *lock = NULL;

        /* of saves that ended; others were removed one by one */
        (void)asprintf(&lock, "%s/.recps-lock", saves->folder);
        if (lock != NULL) {
            (void)unlink(lock);
        }
        free(lock);
        (void)rmdir(saves->folder);
    }
}

static struct rps_checkpoint_id
id_of(const struct bench_saves *saves, uint64_t step)
{
    return (struct rps_checkpoint_id){.dir = saves->folder,
            .step = step,
            .epoch = 1,
            .part = 0,
            .parts = 1};
}

static rps_status
commit(struct bench_saves *saves, uint64_t step, bool is_delta,
        const json_t *answer)
{
    const struct rps_checkpoint_id id = id_of(saves, step);
    const struct bench_parent none = {.step = 0};
    struct bench_parent self;
    char *text = NULL;
    rps_status status = bench_manifest_make(step, answer,
            is_delta ? &saves->parent : &none, &text, &self, &saves->error);

    if (status == RPS_OK) {
        status = rps_checkpoint_commit(
                &id, text, strlen(text), 0, &saves->error);
    }
    if (status == RPS_OK) {
        saves->parent = self;
    }
    free(text);
    return status;
}

/* Of what the part lists; the two JSON files are not counted. */
static void
count_part(const json_t *answer, struct bench_saved *saved)
{
    json_t *part = json_object_get(answer, "part");
    const char *name = NULL;
    json_t *value = NULL;

    saved->bytes = 0;
    saved->rows = 0;
    json_object_foreach(json_object_get(part, "files"), name, value)
    {
        uint64_t bytes = 0;

        (void)rps_json_count(json_object_get(value, "bytes"), &bytes);
        saved->bytes += bytes;
    }
    json_object_foreach(json_object_get(part, "tables"), name, value)
    {
        uint64_t rows = 0;

        (void)rps_json_count(json_object_get(value, "rows"), &rows);
        saved->rows += rows;
    }
}

static rps_status
prepare_and_commit(struct bench_saves *saves, uint64_t step, bool is_delta,
        struct rps_cut *cut, struct bench_saved *saved)
{
    const struct rps_checkpoint_id id = id_of(saves, step);
    json_t *part = NULL;
    rps_status status = rps_checkpoint_prepare(
            &id, is_delta, cut, NULL, 0, &part, &saves->error);

    if (status == RPS_OK) {
        status = commit(saves, step, is_delta, part);
    }
    count_part(part, saved);
    json_decref(part);
    return status;
}

rps_status
bench_saves_write(struct bench_saves *saves, uint64_t step, bool is_delta,
        struct bench_saved *saved)
{
    const bool known = bench_rss_peak_reset();
    const double before = (double)bench_rss_bytes();
    const uint64_t start = rps_clock_ns();
    struct rps_cut *cut = NULL;
    rps_status status;

    pthread_rwlock_wrlock(&saves->changing);
    status = rps_cut_take(saves->store, (struct rps_now){.step = 1},
            saves->args->save_buffer, &cut, &saves->error);
    pthread_rwlock_unlock(&saves->changing);
    if (status != RPS_OK) {
        return status;
    }
    saved->pause = (double)(rps_clock_ns() - start) / 1e9;
    status = prepare_and_commit(saves, step, is_delta, cut, saved);
    if (status == RPS_OK) {
        rps_cut_commit(cut);
    } else {
        rps_cut_abort(cut);
    }
    saved->seconds = (double)(rps_clock_ns() - start) / 1e9;
    saved->extra_rss = known ? fmax(0, (double)bench_rss_peak_bytes() - before)
                             : (double)NAN;
    return status;
}

static bool
owns_all(void *context, uint64_t hash)
{
    (void)context;
    (void)hash;
    return true;
}

static rps_status
check_digest(struct bench_saves *saves, struct rps_store *store, uint64_t step)
{
    const uint64_t id = rps_table_id_of(saves->table);
    struct rps_table *table = rps_store_find(store, id);
    char is[RPS_DIGEST_HEX_BYTES] = "no table";
    char was[RPS_DIGEST_HEX_BYTES];

    rps_digest_hex(rps_table_digest(saves->table), was);
    if (table != NULL) {
        rps_digest_hex(rps_table_digest(table), is);
    }
    saves->report->checked_restores++;
    return strcmp(is, was) == 0
                   ? RPS_OK
                   : rps_fail(&saves->error, RPS_E_CORRUPT,
                             "wrong answer: step %" PRIu64
                             " was restored with digest %s, it had %s",
                             step, is, was);
}

/* The reserve's memory is the store's then: both are in the RSS. */
static rps_status
restore(struct bench_saves *saves, uint64_t step, struct rps_store *store,
        struct bench_restored *restored)
{
    const struct rps_restore how = {.dir = saves->folder,
            .step = step,
            .part = 0,
            .parts = 1,
            .owns = owns_all,
            .progress = give_memory,
            .context = saves};
    const bool known = bench_rss_peak_reset();
    const uint64_t start = rps_clock_ns();
    struct rps_lane_record *lanes = NULL;
    size_t lane_count = 0;
    json_t *manifest = NULL;
    rps_status status = rps_checkpoint_restore(
            &how, store, &manifest, &lanes, &lane_count, &saves->error);
    const double after = (double)bench_rss_bytes();

    restored->seconds = (double)(rps_clock_ns() - start) / 1e9;
    restored->extra_rss =
            known ? fmax(0, (double)bench_rss_peak_bytes() - after)
                  : (double)NAN;
    json_decref(manifest);
    free(lanes);
    return status;
}

rps_status
bench_saves_restore(struct bench_saves *saves, uint64_t step, bool same,
        struct bench_restored *restored)
{
    struct rps_store *store = NULL;
    rps_status status = rps_store_create(&store, 0);
    rps_status warm;

    if (status == RPS_OK) {
        status = restore(saves, step, store, restored);
    }
    if (status == RPS_OK && same) {
        status = check_digest(saves, store, step);
    }
    rps_store_destroy(store);
    warm = warm_memory(saves);
    return status == RPS_OK ? warm : status;
}

rps_status
bench_saves_verify(struct bench_saves *saves, uint64_t step,
        double *seconds_out, uint64_t *bytes_out)
{
    struct rps_checkpoint_report report = {0};
    char *path = rps_checkpoint_path(saves->folder, step);
    const uint64_t start = rps_clock_ns();
    rps_status status = RPS_E_NOMEM;

    if (path != NULL) {
        status =
                rps_checkpoint_verify(path, NULL, NULL, &report, &saves->error);
    }
    *seconds_out = (double)(rps_clock_ns() - start) / 1e9;
    *bytes_out = report.bytes;
    if (status == RPS_OK && !report.matches) {
        status = rps_fail(&saves->error, RPS_E_CORRUPT,
                "wrong answer: %s has another digest than its files", path);
    }
    rps_checkpoint_report_finish(&report);
    free(path);
    return status;
}

rps_status
bench_saves_remove(struct bench_saves *saves, uint64_t step)
{
    char *path = rps_checkpoint_path(saves->folder, step);
    rps_status status =
            path == NULL ? RPS_E_NOMEM : rps_dir_remove(path, &saves->error);

    free(path);
    return status;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A PS without a network, for tests/integration/test_checkpoint_numpy.py,
 * which plays the chief:
 *
 *   checkpoint_writer prepare DIR STEP PART PARTS > answer.json
 *   checkpoint_writer commit DIR STEP PART PARTS < manifest.json
 *   checkpoint_writer verify DIR > digest
 *
 * Tables "emb" (adagrad, dim 4), "half" (float16, momentum, dim 3) and "brain"
 * (bfloat16, rowwise_adagrad, dim 5) have keys 0..999 and 2^64 - 1000 ..
 * 2^64 - 1: row = (key mod 1000) + column / 4, rounded to the type, slot
 * element = (key mod 1000) + column / 4 + 0.5, uses = key mod 256, last = key
 * mod 2^24. Table "empty" (adam, dim 3) has none.
 *
 * "emb" and "counted" (sgd, dim 2, no row) have counts of keys 10000..10099:
 * key - 9999. "sketched" (sgd, dim 2, no row) has those of a sketch: cell
 * 331777 i is 1 + i, i < 100.
 */
#include "base/hash.h"
#include "base/text.h"
#include "embedding/checkpoint/checkpoint.h"
#include "tests/unit/embedding/checkpoint/prepare.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIM_MAX   5u
#define KEY_COUNT 1000u
#define COUNTED   100u
#define CELL_STEP 331777u
#define TEXT_MAX  (1u << 20)

static const struct {
    const char *name;
    uint32_t dim;
    enum rps_optimizer optimizer;
    enum rps_value type;
    bool has_rows;
    bool has_counts;
    enum rps_admission admission;
} tables[] = {
        {"empty", 3, RPS_OPTIMIZER_ADAM, RPS_VALUE_F32},
        {"emb", 4, RPS_OPTIMIZER_ADAGRAD, RPS_VALUE_F32, .has_rows = true,
                .has_counts = true},
        {"half", 3, RPS_OPTIMIZER_MOMENTUM, RPS_VALUE_F16, .has_rows = true},
        {"brain", 5, RPS_OPTIMIZER_ROWWISE_ADAGRAD, RPS_VALUE_BF16,
                .has_rows = true},
        {"counted", 2, RPS_OPTIMIZER_SGD, RPS_VALUE_F32, .has_counts = true},
        {"sketched", 2, RPS_OPTIMIZER_SGD, RPS_VALUE_F32, .has_counts = true,
                .admission = RPS_ADMISSION_SKETCH},
};

static rps_status
put_row(struct rps_table *table, uint64_t key, struct rps_error *error)
{
    float row[DIM_MAX];
    float slots[DIM_MAX];
    const uint32_t meta = (uint32_t)(key & 0xff) << 24 | (key & 0xffffff);

    for (uint32_t i = 0; i < DIM_MAX; i++) {
        row[i] = (float)(key % 1000) + (float)i / 4;
        slots[i] = row[i] + 0.5f;
    }
    return rps_table_assign(table, 1, &key, row, slots, &meta, error);
}

static bool
is_here(const struct rps_checkpoint_id *id, uint64_t slot)
{
    return slot * id->parts / RPS_SLOT_COUNT == id->part;
}

static rps_status
put_rows(struct rps_table *table, const struct rps_checkpoint_id *id,
        uint64_t job_seed, struct rps_error *error)
{
    rps_status status = RPS_OK;

    for (uint64_t i = 0; i < 2 * KEY_COUNT && status == RPS_OK; i++) {
        const uint64_t key = i < KEY_COUNT ? i : UINT64_MAX - (i - KEY_COUNT);

        if (is_here(id, rps_hash_slot(rps_key_hash(key, job_seed)))) {
            status = put_row(table, key, error);
        }
    }
    return status;
}

static rps_status
put_counts(struct rps_table *table, const struct rps_checkpoint_id *id,
        uint64_t job_seed, struct rps_error *error)
{
    const enum rps_admission kind = rps_table_spec_of(table)->admission;
    rps_status status = RPS_OK;

    for (uint32_t i = 0; i < COUNTED && status == RPS_OK; i++) {
        const struct rps_admission_count entry = {
                .id = kind == RPS_ADMISSION_SKETCH ? (uint64_t)CELL_STEP * i
                                                   : 10000 + i,
                .count = 1 + i};

        if (is_here(id, rps_admission_slot(kind, entry.id, job_seed))) {
            status = rps_table_restore_admission(table, 1, &entry, error);
        }
    }
    return status;
}

static rps_status
fill(struct rps_store *store, const struct rps_checkpoint_id *id,
        struct rps_error *error)
{
    const uint64_t job_seed = rps_store_job_seed(store);
    rps_status status = RPS_OK;

    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
        struct rps_table *table = NULL;
        rps_table_spec spec;

        rps_table_spec_init(
                &spec, tables[i].name, tables[i].dim, tables[i].optimizer);
        spec.value_dtype = tables[i].type;
        spec.admission = tables[i].admission;
        spec.min_used_times = tables[i].has_counts ? 200 : 0;
        status = rps_store_open_table(store, &spec, &table, error);
        if (status == RPS_OK && tables[i].has_rows) {
            status = put_rows(table, id, job_seed, error);
        }
        if (status == RPS_OK && tables[i].has_counts) {
            status = put_counts(table, id, job_seed, error);
        }
        if (status != RPS_OK) {
            return status;
        }
    }
    return status;
}

static rps_status
prepare(const struct rps_checkpoint_id *id, struct rps_error *error)
{
    const struct rps_lane_record lanes[] = {
            {17, 1, RPS_OK, 5}, {UINT64_MAX, 2, RPS_E_MISMATCH, 6}};
    struct rps_store *store = NULL;
    json_t *answer = NULL;
    rps_status status = rps_store_create(&store, 0);

    if (status != RPS_OK) {
        return status;
    }
    status = fill(store, id, error);
    if (status == RPS_OK) {
        status = prepare_store(id, store, lanes, 2, &answer, error);
    }
    if (status == RPS_OK) {
        json_dumpf(answer, stdout, JSON_SORT_KEYS);
    }
    json_decref(answer);
    rps_store_destroy(store);
    return status;
}

static rps_status
commit(const struct rps_checkpoint_id *id, struct rps_error *error)
{
    char *text = malloc(TEXT_MAX);
    size_t n;
    rps_status status;

    if (text == NULL) {
        return RPS_E_NOMEM;
    }
    n = fread(text, 1, TEXT_MAX, stdin);
    status = rps_checkpoint_commit(id, text, n, 0, error);
    free(text);
    return status;
}

static rps_status
verify(const char *path, struct rps_error *error)
{
    struct rps_checkpoint_report report;
    char hex[RPS_DIGEST_HEX_BYTES];
    rps_status status = rps_checkpoint_verify(path, NULL, NULL, &report, error);

    if (status == RPS_OK) {
        printf("%s\n", rps_digest_hex(report.digest, hex));
    }
    rps_checkpoint_report_finish(&report);
    return status;
}

int
main(int argc, char **argv)
{
    struct rps_error error = {""};
    struct rps_checkpoint_id id = {.epoch = 1};
    uint64_t numbers[3] = {0, 0, 1};
    rps_status status = RPS_E_INVAL;

    if (argc < 3) {
        return 2;
    }
    for (int i = 3; i < argc && i < 6; i++) {
        if (!rps_parse_u64(argv[i], &numbers[i - 3])) {
            return 2;
        }
    }
    id.dir = argv[2];
    id.step = numbers[0];
    id.part = (uint32_t)numbers[1];
    id.parts = (uint32_t)numbers[2];
    if (strcmp(argv[1], "prepare") == 0) {
        status = prepare(&id, &error);
    } else if (strcmp(argv[1], "commit") == 0) {
        status = commit(&id, &error);
    } else if (strcmp(argv[1], "verify") == 0) {
        status = verify(argv[2], &error);
    }
    if (status != RPS_OK) {
        fprintf(stderr, "%s: %s\n", rps_status_str(status), error.text);
    }
    return status == RPS_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}

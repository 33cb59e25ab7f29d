/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which store the cold tier should be: rows of one size, moved out in batches
 * and read and written at random, by LMDB, RocksDB and a mapped file of rows.
 * Every row that is read is checked. Built where both libraries are there;
 * the figures are in docs/TABLE.md.
 *
 *   recps-bench-cold-stores DIR ROWS ROW_BYTES BATCH
 */
#include "base/hash.h"

#include <fcntl.h>
#include <inttypes.h>
#include <lmdb.h>
#include <rocksdb/c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct job {
    const char *dir;
    uint64_t rows;
    size_t row_bytes;
    size_t batch;
    uint64_t *keys; /* [batch] */
    char *values;   /* [batch][row_bytes] */
};

static void
die(const char *what, const char *why)
{
    fprintf(stderr, "recps-bench-cold-stores: %s: %s\n", what, why);
    exit(1);
}

static double
now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void
make_row(const struct job *job, uint64_t key, char *row)
{
    const uint64_t word = rps_mix64(key);

    for (size_t at = 0; at + sizeof(word) <= job->row_bytes;
            at += sizeof(word)) {
        memcpy(row + at, &word, sizeof(word));
    }
}

static void
check_row(const struct job *job, uint64_t key, const char *row)
{
    const uint64_t word = rps_mix64(key);

    if (memcmp(row, &word, sizeof(word)) != 0 ||
            memcmp(row + (job->row_bytes - 8) / 8 * 8, &word, sizeof(word)) !=
                    0) {
        die("a row", "is not what was written");
    }
}

/** A store under test. Keys are 0 .. rows - 1. */
struct store {
    const char *name;
    void (*open)(const struct job *job);
    void (*write)(const struct job *job);
    void (*read)(const struct job *job);
    void (*close)(void);
};

static MDB_env *env;
static MDB_dbi dbi;

static void
lmdb_check(int rc)
{
    if (rc != 0) {
        die("LMDB", mdb_strerror(rc));
    }
}

static void
lmdb_open(const struct job *job)
{
    char path[512];
    MDB_txn *txn;

    snprintf(path, sizeof(path), "%s/lmdb", job->dir);
    mkdir(path, 0700);
    lmdb_check(mdb_env_create(&env));
    lmdb_check(mdb_env_set_mapsize(
            env, (size_t)(job->rows * (job->row_bytes + 512) * 3)));
    /* scratch: no sync, writes straight into the map */
    lmdb_check(mdb_env_open(env, path,
            MDB_NOSYNC | MDB_WRITEMAP | MDB_NOMETASYNC | MDB_NORDAHEAD, 0600));
    lmdb_check(mdb_txn_begin(env, NULL, 0, &txn));
    lmdb_check(mdb_dbi_open(txn, NULL, MDB_INTEGERKEY, &dbi));
    lmdb_check(mdb_txn_commit(txn));
}

static void
lmdb_write(const struct job *job)
{
    MDB_txn *txn;

    lmdb_check(mdb_txn_begin(env, NULL, 0, &txn));
    for (size_t i = 0; i < job->batch; i++) {
        MDB_val key = {sizeof(job->keys[i]), &job->keys[i]};
        MDB_val value = {job->row_bytes, job->values + i * job->row_bytes};
        lmdb_check(mdb_put(txn, dbi, &key, &value, 0));
    }
    lmdb_check(mdb_txn_commit(txn));
}

static void
lmdb_read(const struct job *job)
{
    MDB_txn *txn;

    lmdb_check(mdb_txn_begin(env, NULL, MDB_RDONLY, &txn));
    for (size_t i = 0; i < job->batch; i++) {
        MDB_val key = {sizeof(job->keys[i]), &job->keys[i]};
        MDB_val value;
        lmdb_check(mdb_get(txn, dbi, &key, &value));
        memcpy(job->values + i * job->row_bytes, value.mv_data, job->row_bytes);
    }
    mdb_txn_abort(txn);
}

static void
lmdb_close(void)
{
    mdb_env_close(env);
}

static rocksdb_t *rocks;
static rocksdb_options_t *rocks_options;
static rocksdb_writeoptions_t *rocks_write_options;
static rocksdb_readoptions_t *rocks_read_options;

static void
rocks_check(char *error)
{
    if (error != NULL) {
        die("RocksDB", error);
    }
}

static void
rocks_open(const struct job *job)
{
    char path[512];
    char *error = NULL;
    rocksdb_block_based_table_options_t *table =
            rocksdb_block_based_options_create();

    snprintf(path, sizeof(path), "%s/rocks", job->dir);
    rocks_options = rocksdb_options_create();
    rocksdb_options_set_create_if_missing(rocks_options, 1);
    rocksdb_options_set_compression(rocks_options, rocksdb_no_compression);
    rocksdb_options_increase_parallelism(rocks_options, 2);
    rocksdb_block_based_options_set_filter_policy(
            table, rocksdb_filterpolicy_create_bloom(10));
    rocksdb_options_set_block_based_table_factory(rocks_options, table);
    rocks_write_options = rocksdb_writeoptions_create();
    rocksdb_writeoptions_disable_WAL(rocks_write_options, 1);
    rocks_read_options = rocksdb_readoptions_create();
    rocksdb_readoptions_set_verify_checksums(rocks_read_options, 0);
    rocks = rocksdb_open(rocks_options, path, &error);
    rocks_check(error);
}

static void
rocks_write(const struct job *job)
{
    rocksdb_writebatch_t *batch = rocksdb_writebatch_create();
    char *error = NULL;

    for (size_t i = 0; i < job->batch; i++) {
        rocksdb_writebatch_put(batch, (const char *)&job->keys[i],
                sizeof(job->keys[i]), job->values + i * job->row_bytes,
                job->row_bytes);
    }
    rocksdb_write(rocks, rocks_write_options, batch, &error);
    rocks_check(error);
    rocksdb_writebatch_destroy(batch);
}

static void
rocks_read(const struct job *job)
{
    const char **keys = calloc(job->batch, sizeof(*keys));
    size_t *key_bytes = calloc(job->batch, sizeof(*key_bytes));
    char **values = calloc(job->batch, sizeof(*values));
    size_t *value_bytes = calloc(job->batch, sizeof(*value_bytes));
    char **errors = calloc(job->batch, sizeof(*errors));

    for (size_t i = 0; i < job->batch; i++) {
        keys[i] = (const char *)&job->keys[i];
        key_bytes[i] = sizeof(job->keys[i]);
    }
    rocksdb_multi_get(rocks, rocks_read_options, job->batch, keys, key_bytes,
            values, value_bytes, errors);
    for (size_t i = 0; i < job->batch; i++) {
        rocks_check(errors[i]);
        if (value_bytes[i] != job->row_bytes) {
            die("RocksDB", "a row is missing");
        }
        memcpy(job->values + i * job->row_bytes, values[i], job->row_bytes);
        rocksdb_free(values[i]);
    }
    free(keys);
    free(key_bytes);
    free(values);
    free(value_bytes);
    free(errors);
}

static void
rocks_close(void)
{
    rocksdb_close(rocks);
}

/* Row k at k * row_bytes: what finds a row's place is in memory already. */
static char *mapped;
static size_t mapped_bytes;

static void
file_open(const struct job *job)
{
    char path[512];
    int fd;

    snprintf(path, sizeof(path), "%s/rows", job->dir);
    mapped_bytes = (size_t)job->rows * job->row_bytes;
    fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || posix_fallocate(fd, 0, (off_t)mapped_bytes) != 0) {
        die(path, "cannot be made");
    }
    mapped =
            mmap(NULL, mapped_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) {
        die(path, "cannot be mapped");
    }
    (void)madvise(mapped, mapped_bytes, MADV_RANDOM);
    close(fd);
}

static void
file_write(const struct job *job)
{
    for (size_t i = 0; i < job->batch; i++) {
        memcpy(mapped + job->keys[i] * job->row_bytes,
                job->values + i * job->row_bytes, job->row_bytes);
    }
}

static void
file_read(const struct job *job)
{
    for (size_t i = 0; i < job->batch; i++) {
        memcpy(job->values + i * job->row_bytes,
                mapped + job->keys[i] * job->row_bytes, job->row_bytes);
    }
}

static void
file_close(void)
{
    munmap(mapped, mapped_bytes);
}

static double
fill(const struct job *job, const struct store *store)
{
    const double start = now_s();

    for (uint64_t key = 0; key + job->batch <= job->rows; key += job->batch) {
        for (size_t i = 0; i < job->batch; i++) {
            job->keys[i] = key + i;
            make_row(job, key + i, job->values + i * job->row_bytes);
        }
        store->write(job);
    }
    return (now_s() - start) / (double)job->rows;
}

static double
random_io(const struct job *job, const struct store *store, bool writes)
{
    const uint64_t batches = job->rows / job->batch / 4 + 1;
    const uint64_t rows = job->rows / job->batch * job->batch;
    double spent = 0.0;

    for (uint64_t b = 0; b < batches; b++) {
        double start;
        for (size_t i = 0; i < job->batch; i++) {
            job->keys[i] = rps_mix64(b * job->batch + i + 1) % rows;
            make_row(job, job->keys[i], job->values + i * job->row_bytes);
        }
        if (!writes) {
            memset(job->values, 0, job->batch * job->row_bytes);
        }
        start = now_s();
        (writes ? store->write : store->read)(job);
        spent += now_s() - start;
        for (size_t i = 0; i < job->batch; i++) {
            check_row(job, job->keys[i], job->values + i * job->row_bytes);
        }
    }
    return spent / (double)(batches * job->batch);
}

int
main(int argc, char **argv)
{
    static const struct store stores[] = {
            {"lmdb", lmdb_open, lmdb_write, lmdb_read, lmdb_close},
            {"rocksdb", rocks_open, rocks_write, rocks_read, rocks_close},
            {"mapped file", file_open, file_write, file_read, file_close}};
    struct job job;

    if (argc != 5) {
        fprintf(stderr, "usage: %s DIR ROWS ROW_BYTES BATCH\n", argv[0]);
        return 64;
    }
    job = (struct job){.dir = argv[1],
            .rows = strtoull(argv[2], NULL, 10),
            .row_bytes = strtoull(argv[3], NULL, 10),
            .batch = strtoull(argv[4], NULL, 10)};
    if (job.batch == 0 || job.row_bytes < 8 || job.rows < job.batch) {
        fprintf(stderr, "%s: ROWS >= BATCH >= 1, ROW_BYTES >= 8\n", argv[0]);
        return 64;
    }
    job.keys = calloc(job.batch, sizeof(*job.keys));
    job.values = calloc(job.batch, job.row_bytes);
    if (job.keys == NULL || job.values == NULL) {
        die("memory", "none is left");
    }
    printf("%-12s %14s %14s %14s\n", "us a row", "moved out", "read",
            "written");
    for (size_t s = 0; s < sizeof(stores) / sizeof(stores[0]); s++) {
        double out;
        double read;
        double written;
        stores[s].open(&job);
        out = fill(&job, &stores[s]);
        read = random_io(&job, &stores[s], false);
        written = random_io(&job, &stores[s], true);
        stores[s].close();
        printf("%-12s %14.2f %14.2f %14.2f\n", stores[s].name, out * 1e6,
                read * 1e6, written * 1e6);
        fflush(stdout);
    }
    free(job.keys);
    free(job.values);
    return 0;
}

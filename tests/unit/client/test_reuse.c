/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many bytes a batch takes whose keys are used as often as those of
 * production: a histogram of dlrm_datasets (RECPS_TEST_DATA has it, else
 * ../shared/data beside the checkout, else this is skipped). Embedded, where
 * the same frames go from hand to hand, and over a server.
 */
#include "tests/unit/client/servers.h"
#include "tests/unit/suite.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static struct servers servers;
static rps_client *client;

static uint64_t
draw(uint64_t below)
{
    static uint64_t state = 88172645463325252u;

    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (state >> 11) % below;
}

static rps_embedding_table *
open_table(uint32_t dim)
{
    rps_table_spec spec;
    rps_embedding_table *table = NULL;

    rps_table_spec_init(&spec, "emb", dim, RPS_OPTIMIZER_SGD);
    must(rps_get_embedding_table(client, &spec, &table));
    return table;
}

/** A bin of the histogram: how often a row is used in a batch. */
struct bin {
    double above, most; /* uses */
    double rows, uses;  /* shares */
};

static FILE *
open_histogram(void)
{
    const char *folder = getenv("RECPS_TEST_DATA");
    char path[512];

    (void)snprintf(path, sizeof(path), "%s/dlrm2022_reuse_hist.tsv",
            folder != NULL ? folder : RPS_TEST_SOURCE "/../shared/data");
    return fopen(path, "re");
}

static size_t
read_bins(FILE *file, struct bin bins[32])
{
    char line[256];
    size_t n = 0;

    while (n < 32 && fgets(line, sizeof(line), file) != NULL) {
        struct bin *bin = &bins[n];

        if (line[0] != '#') {
            ck_assert_int_eq(sscanf(line, "%lf %lf %lf %lf", &bin->above,
                                     &bin->most, &bin->rows, &bin->uses),
                    4);
            n++;
        }
    }
    return n;
}

/* Keys of a batch of about `distinct` rows, shuffled; their number. The rows
 * of the last bins are so few that the table shows 0 of them: there is one
 * for as many uses as the bin has at least. */
static size_t
make_batch(const struct bin *bins, size_t bin_count, double distinct,
        uint64_t *keys, size_t *distinct_out)
{
    const double total = distinct * 12.7;
    size_t n = 0;
    uint64_t key = 0;

    for (size_t b = 0; b < bin_count; b++) {
        const double uses = total * bins[b].uses;
        const double few = uses / (bins[b].above + 1);
        const double rows = bins[b].rows > 0.0005 ? distinct * bins[b].rows
                            : few > 1             ? few
                                                  : 1;

        for (double at = 0; at < uses; at++) {
            keys[n++] = key + (uint64_t)(at * floor(rows) / uses);
        }
        key += (uint64_t)rows;
    }
    for (size_t i = n - 1; i > 0; i--) {
        const size_t with = draw(i + 1);
        const uint64_t kept = keys[i];

        keys[i] = keys[with];
        keys[with] = kept;
    }
    *distinct_out = key;
    return n;
}

/* Both ways, since this was asked last. */
static uint64_t
bytes_since(uint64_t *before)
{
    rps_traffic now;
    uint64_t bytes;

    rps_client_traffic(client, &now);
    bytes = now.sent_bytes + now.received_bytes - *before;
    *before += bytes;
    return bytes;
}

/* bytes[0] of a lookup, bytes[1] of a push. */
static void
measure(const rps_lookup *lookup, const rps_push *push, uint64_t bytes[2])
{
    uint64_t before = 0;
    rps_ticket ticket;

    (void)bytes_since(&before);
    must(rps_lookup_start(client, NULL, lookup, 1, &ticket));
    must(rps_wait(client, ticket, 0));
    bytes[0] = bytes_since(&before);
    must(rps_push_start(client, NULL, push, 1, &ticket));
    must(rps_wait(client, ticket, 0));
    bytes[1] = bytes_since(&before);
}

/* Against as many keys that are all distinct: each id and its row travels. */
START_TEST(reuse_as_in_production_saves_nine_bytes_of_ten)
{
    enum {
        DISTINCT = 20000,
        ROOM = 14 * DISTINCT,
        FLOATS = 16
    };
    FILE *file = open_histogram();
    struct bin bins[32];
    uint64_t *keys = malloc(2 * ROOM * sizeof(*keys));
    float *rows = calloc(ROOM, FLOATS * sizeof(*rows));
    rps_lookup lookup = {.rows = rows};
    rps_push push = {.gradients = rows, .learning_rate = NAN};
    uint64_t each[2], once[2];
    size_t distinct = 0;

    if (file == NULL) {
        (void)fprintf(stderr, "skipped: no histogram (RECPS_TEST_DATA)\n");
    } else if (servers_start(&servers, (uint32_t)_i)) {
        const size_t bin_count = read_bins(file, bins);

        client = servers_open_chief(&servers);

        lookup.table = push.table = open_table(FLOATS);
        lookup.keys = push.keys = keys;
        lookup.key_count = push.key_count =
                make_batch(bins, bin_count, DISTINCT, keys, &distinct);
        ck_assert_uint_le(lookup.key_count, ROOM);
        ck_assert_double_eq_tol(
                (double)lookup.key_count / (double)distinct, 12.7, 0.5);
        measure(&lookup, &push, once);
        for (size_t i = 0; i < lookup.key_count; i++) {
            keys[i] = ~(uint64_t)i;
        }
        measure(&lookup, &push, each);
        (void)fprintf(stderr,
                "reuse %.2f: bytes of lookups / %.2f, of "
                "pushes / %.2f\n",
                (double)lookup.key_count / (double)distinct,
                (double)each[0] / (double)once[0],
                (double)each[1] / (double)once[1]);
        ck_assert_uint_ge(each[0], 10 * once[0]);
        ck_assert_uint_ge(each[1], 10 * once[1]);
        rps_client_close(client);
        servers_stop(&servers);
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    free(keys);
    free(rows);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("reuse");
    TCase *tcase = tcase_create("reuse");

    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(
            tcase, reuse_as_in_production_saves_nine_bytes_of_ten, 0, 2);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Rows written as they are: by numbers (ASSIGN), by bits (restore). */
#include "base/hash.h"
#include "embedding/room.h"
#include "tests/unit/embedding/fixture.h"

#include <check.h>
#include <float.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#define DIM 3u /* odd: a row of short values has two bytes of padding */

static struct rps_table *
table_of_type(enum rps_value type, enum rps_optimizer optimizer)
{
    rps_table_spec spec = spec_of(DIM, optimizer);

    spec.value_dtype = type;
    return table_of(&spec);
}

/* One row's bits as they are visited. */
struct seen_bits {
    uint64_t key;
    size_t bytes;
    uint32_t slot_floats;
    bool found;
    unsigned char bits[DIM * 4];
    float slots[2 * DIM];
};

static rps_status
see_bits(void *context, const struct rps_row_view *row)
{
    struct seen_bits *seen = context;

    if (row->key == seen->key) {
        seen->found = true;
        memcpy(seen->bits, row->value, seen->bytes);
        memcpy(seen->slots, row->slots, seen->slot_floats * sizeof(float));
    }
    return RPS_OK;
}

static struct seen_bits
bits_of(struct rps_table *table, uint64_t key, uint32_t slot_floats)
{
    const bool wide = rps_table_spec_of(table)->value_dtype == RPS_VALUE_F32;
    struct seen_bits seen = {.key = key,
            .bytes = DIM * (wide ? 4 : 2),
            .slot_floats = slot_floats};

    ck_assert_int_eq(rps_table_visit(table, see_bits, &seen), RPS_OK);
    ck_assert(seen.found);
    return seen;
}

START_TEST(assigned_numbers_become_the_nearest_float16_ties_to_even)
{
    struct rps_table *table =
            table_of_type(RPS_VALUE_F16, RPS_OPTIMIZER_ADAGRAD);
    const uint64_t keys[3] = {0, 7, UINT64_MAX};
    /* 2049 and 2051 lie between two of them; 65519 is the last below the
     * half of the way to 65536; 2^-25 is the half of the way to 0 */
    const float rows[9] = {1.0f, -0.0f, 0.1f, 2049.0f, 2051.0f, 65519.0f,
            0x1p-24f, 0x1p-25f, 0x1.8p-25f};
    const uint16_t wanted[9] = {0x3c00, 0x8000, 0x2e66, 0x6800, 0x6802, 0x7bff,
            0x0001, 0x0000, 0x0001};
    const float slots[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9};

    ck_assert_int_eq(
            rps_table_assign(table, 3, keys, rows, slots, NULL, NULL), RPS_OK);
    for (size_t i = 0; i < 3; i++) {
        const struct seen_bits seen = bits_of(table, keys[i], DIM);
        ck_assert_mem_eq(seen.bits, wanted + 3 * i, 6);
        ck_assert_mem_eq(seen.slots, slots + 3 * i, 12);
    }
    rps_table_destroy(table);
}
END_TEST

START_TEST(assigned_numbers_become_the_nearest_bfloat16_ties_to_even)
{
    struct rps_table *table = table_of_type(RPS_VALUE_BF16, RPS_OPTIMIZER_SGD);
    const uint64_t keys[2] = {1, 2};
    /* 257 and 259 lie between two; 0x1.fefffep127 is the last that is not
     * infinite */
    const float rows[6] = {1.0f, 257.0f, 259.0f, 0x1.fefffep127f, -0.0f, 0.1f};
    const uint16_t wanted[6] = {0x3f80, 0x4380, 0x4382, 0x7f7f, 0x8000, 0x3dcd};

    ck_assert_int_eq(
            rps_table_assign(table, 2, keys, rows, NULL, NULL, NULL), RPS_OK);
    ck_assert_mem_eq(bits_of(table, 1, 0).bits, wanted, 6);
    ck_assert_mem_eq(bits_of(table, 2, 0).bits, wanted + 3, 6);
    rps_table_destroy(table);
}
END_TEST

static const struct {
    enum rps_value type;
    float value;
} overflows[] = {
        {RPS_VALUE_F16, 65520.0f},
        {RPS_VALUE_F16, -1e30f},
        {RPS_VALUE_F16, NAN},
        {RPS_VALUE_BF16, 0x1.ffp127f},
        {RPS_VALUE_BF16, -FLT_MAX},
        {RPS_VALUE_BF16, INFINITY},
        {RPS_VALUE_F32, -INFINITY},
};

START_TEST(a_number_too_large_for_the_type_is_refused_naming_its_key)
{
    struct rps_table *table =
            table_of_type(overflows[_i].type, RPS_OPTIMIZER_SGD);
    const uint64_t keys[2] = {5, 977};
    const float rows[6] = {1, 2, 3, 4, overflows[_i].value, 6};
    struct rps_error error = {.text = ""};

    ck_assert_int_eq(rps_table_assign(table, 2, keys, rows, NULL, NULL, &error),
            RPS_E_NONFINITE);
    ck_assert_msg(strstr(error.text, "key 977") != NULL, "%s", error.text);
    ck_assert_uint_eq(rows_of(table), 0);
    rps_table_destroy(table);
}
END_TEST

/* Every finite pattern of a short type, three a row. */
START_TEST(restored_bits_are_what_is_visited)
{
    static const enum rps_value types[] = {RPS_VALUE_F16, RPS_VALUE_BF16};
    const uint32_t exponent = _i == 0 ? 0x7c00 : 0x7f80;
    struct rps_table *table =
            table_of_type(types[_i], RPS_OPTIMIZER_ROWWISE_ADAGRAD);
    bool same = true;

    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        const uint16_t row[DIM] = {(uint16_t)bits, 0x3c00, (uint16_t)bits};
        const uint64_t key = bits;
        const float slot = 0.25f;
        const rps_status wanted =
                (bits & exponent) == exponent ? RPS_E_NONFINITE : RPS_OK;
        const rps_status status =
                rps_table_restore_rows(table, 1, &key, row, &slot, NULL, NULL);

        same = same && status == wanted;
        if (bits % 1021 == 0 && status == RPS_OK) {
            const struct seen_bits seen = bits_of(table, key, 1);
            same = same && memcmp(seen.bits, row, 6) == 0;
            same = same && seen.slots[0] == slot;
        }
    }
    ck_assert(same);
    rps_table_destroy(table);
}
END_TEST

START_TEST(restored_float32_rows_keep_their_bits_and_meta)
{
    struct rps_table *table = table_of_type(RPS_VALUE_F32, RPS_OPTIMIZER_ADAM);
    const uint64_t key = UINT64_MAX;
    const float row[DIM] = {-0.0f, 0x1p-149f, FLT_MAX};
    const float slots[2 * DIM] = {1, 2, 3, 4, 5, 6};
    const uint32_t meta = 0xfedcba98;
    struct seen_row got;

    ck_assert_int_eq(
            rps_table_restore_rows(table, 1, &key, row, slots, &meta, NULL),
            RPS_OK);
    got = see(table, key, 2 * DIM);
    ck_assert_uint_eq(got.meta, meta);
    ck_assert_mem_eq(got.content, row, sizeof(row));
    ck_assert_mem_eq(got.content + DIM, slots, sizeof(slots));
    rps_table_destroy(table);
}
END_TEST

/* By the formula of the type, from the bits that are visited. */
static float
number_of(enum rps_value type, const unsigned char *bits, size_t j)
{
    uint32_t wide = 0;
    float number = 0.0f;

    memcpy(&wide, bits + 2 * j, 2);
    if (type == RPS_VALUE_BF16) {
        wide <<= 16;
        memcpy(&number, &wide, sizeof(number));
        return number;
    }
    number = (wide >> 10 & 31) == 0 ? ldexpf((float)(wide & 1023), -24)
                                    : ldexpf((float)(wide & 1023) + 1024,
                                              (int)(wide >> 10 & 31) - 25);
    return wide >> 15 == 1 ? -number : number;
}

START_TEST(rows_of_short_values_are_read_as_floats)
{
    static const enum rps_value types[] = {RPS_VALUE_F16, RPS_VALUE_BF16};
    struct rps_table *table = table_of_type(types[_i], RPS_OPTIMIZER_SGD);
    const float zeros[DIM] = {0, 0, 0};
    const uint64_t keys[3] = {3, 1ull << 63, UINT64_MAX};
    float before[3][DIM];
    float after[3][DIM];
    float sent[3][DIM];
    uint32_t positions[3];

    look_up(table, 3, keys, false, before[0], sizeof(before[0]));
    for (size_t i = 0; i < 3; i++) {
        push(table, 1, 1, &keys[i], zeros);
    }
    look_up(table, 3, keys, false, after[0], sizeof(after[0]));
    ck_assert_mem_eq(before, after, sizeof(before));
    ck_assert_uint_eq(
            rps_table_changed(table, 3, keys, 0, positions, sent[0]), 3);
    ck_assert_mem_eq(sent, after, sizeof(sent));
    for (size_t i = 0; i < 3; i++) {
        const struct seen_bits seen = bits_of(table, keys[i], 0);
        for (size_t j = 0; j < DIM; j++) {
            ck_assert_float_eq(after[i][j], number_of(types[_i], seen.bits, j));
            ck_assert_float_ne(after[i][j], 0.0f);
        }
    }
    rps_table_destroy(table);
}
END_TEST

#define MADE 16u

struct assigning {
    struct rps_table *table;
    _Atomic bool over;
};

static void *
assign_one(void *context)
{
    struct assigning *assigning = context;
    const uint64_t key = 0;
    const float row[DIM] = {7, 8, 9};

    ck_assert_int_eq(
            rps_table_assign(assigning->table, 1, &key, row, NULL, NULL, NULL),
            RPS_OK);
    assigning->over = true;
    return NULL;
}

/* A push makes rows in advance, another thread assigns one of them, without
 * meta, then the push's own sum for it is refused. */
START_TEST(an_assigned_row_outlives_the_push_that_made_it)
{
    const rps_table_spec spec = spec_of(DIM, RPS_OPTIMIZER_SGD);
    uint64_t keys[MADE];
    uint64_t hashes[MADE];
    const size_t starts[2] = {0, MADE};
    struct assigning assigning = {.over = false};
    struct rps_room room = {.keys = keys, .hashes = hashes, .starts = starts};
    struct rps_shard *shard;
    pthread_t thread;
    float row[DIM];

    ck_assert_int_eq(
            rps_table_create_sharded(&assigning.table, &spec, 0, 0, NULL),
            RPS_OK);
    for (uint64_t key = 0; key < MADE; key++) {
        keys[key] = key;
        hashes[key] = rps_key_hash(key, 0);
    }
    room.table = assigning.table;
    shard = &assigning.table->shards[0];
    ck_assert_int_eq(rps_room_begin(&room), RPS_OK);
    ck_assert(rps_room_made(&room, 0)); /* more than an empty index has */
    ck_assert_int_eq(pthread_create(&thread, NULL, assign_one, &assigning), 0);
    for (unsigned i = 0; i < 100000 && !assigning.over; i++) {
        sched_yield();
    }
    pthread_mutex_lock(&shard->lock);
    (void)rps_room_refuse_locked(&room, 0, 0);
    pthread_mutex_unlock(&shard->lock);
    rps_room_end(&room);
    pthread_join(thread, NULL);
    look_up(assigning.table, 1, keys, true, row, sizeof(row));
    ck_assert_float_eq(row[0], 7);
    ck_assert_float_eq(row[2], 9);
    ck_assert_uint_eq(rows_of(assigning.table), MADE);
    rps_table_destroy(assigning.table);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("assign");
    TCase *tc = tcase_create("assign");

    tcase_set_timeout(tc, 120);
    tcase_add_test(
            tc, assigned_numbers_become_the_nearest_float16_ties_to_even);
    tcase_add_test(
            tc, assigned_numbers_become_the_nearest_bfloat16_ties_to_even);
    tcase_add_loop_test(tc,
            a_number_too_large_for_the_type_is_refused_naming_its_key, 0,
            (int)(sizeof(overflows) / sizeof(overflows[0])));
    tcase_add_loop_test(tc, restored_bits_are_what_is_visited, 0, 2);
    tcase_add_test(tc, restored_float32_rows_keep_their_bits_and_meta);
    tcase_add_loop_test(tc, rows_of_short_values_are_read_as_floats, 0, 2);
    tcase_add_test(tc, an_assigned_row_outlives_the_push_that_made_it);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}

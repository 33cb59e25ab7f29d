/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Readers on damaged input: whatever the bytes are, a row has the dataset's
 * shape or is refused with its place. The sanitizers look on.
 */
#include "base/hash.h"
#include "client/worker/dataset.h"
#include "tests/unit/suite.h"
#include "tests/unit/worker/files.h"

#include <math.h>

#define ROUNDS 400u

static const char criteo[] =
        "1\t5\t-2\t\t\t\t\t\t\t\t\t\t\t7\t68fd1e64\t\t\t\t\t\t\t\t\t\t\t\t\t\t"
        "\t\t\t\t\t\t\t\t\t\t\tb\r\n"
        "0\t\t\t\t\t\t\t\t\t\t\t\t\t7\t68fd1e64\t\t\t\t\t\t\t\t\t\t\t\t\t\t"
        "\t\t\t\t\t\t\t\t\t\t\t\n";
static const char libfm[] = "-1 204:1 4798:1\r\n1 5:1\n0\n+1 7:1 8:1 9:1";
static const char feasign[] = "0:1 18446744073709551615:29 3:3 4:29\n"
                              "1:1 9:7\n1:1\n";

struct stream {
    uint64_t state;
};

static uint64_t
draw(struct stream *stream, uint64_t bound)
{
    return rps_mix64(stream->state++) % bound;
}

/* One to four changes: a byte replaced, cut out, doubled, or the tail gone. */
static size_t
damage(struct stream *stream, char *bytes, size_t length)
{
    static const char odd[] = "\0\n\r\t :-+0199fx.e\xff";
    uint64_t changes = 1 + draw(stream, 4);

    while (changes-- > 0 && length > 1) {
        size_t at = (size_t)draw(stream, length);

        switch (draw(stream, 4)) {
        case 0:
            bytes[at] = odd[draw(stream, sizeof(odd) - 1)];
            break;
        case 1:
            memmove(bytes + at, bytes + at + 1, length - at - 1);
            length--;
            break;
        case 2:
            memmove(bytes + at + 1, bytes + at, length - at);
            length++;
            break;
        default:
            length = at > 0 ? at : 1;
            break;
        }
    }
    return length;
}

static void
check_row(const struct rps_row *row, struct rps_dataset_shape shape)
{
    uint32_t i;

    ck_assert(row->labels[0] == 0.0f || row->labels[0] == 1.0f);
    ck_assert_uint_eq(row->offsets[0], 0);
    for (i = 0; i < shape.fields; i++) {
        ck_assert_uint_le(row->offsets[i], row->offsets[i + 1]);
    }
    for (i = 0; i < shape.dense; i++) {
        ck_assert(isfinite((double)row->dense[i]));
    }
}

/* The rows that could be read. */
static uint64_t
read_all(const char *spec, bool skip)
{
    struct rps_dataset_options options = {.skip_bad_rows = skip};
    struct rps_dataset *dataset = NULL;
    struct rps_error error = {""};
    rps_status status = rps_dataset_open(&dataset, spec, &options, &error);
    uint64_t counted = 0;
    uint64_t rows = 0;
    struct rps_row row;

    while (status == RPS_OK) {
        status = rps_dataset_next(dataset, &row, &error);
        if (status == RPS_OK) {
            check_row(&row, rps_dataset_shape_of(dataset));
            rows++;
        }
    }
    if (dataset != NULL && status == RPS_E_NOT_FOUND) {
        ck_assert_int_eq(rps_dataset_rows(dataset, &counted, NULL), RPS_OK);
        ck_assert_uint_eq(counted, rows);
    } else {
        ck_assert_int_eq(status, RPS_E_INVAL);
        ck_assert_msg(strstr(error.text, "damaged:") != NULL ||
                              strstr(error.text, "no row has") != NULL,
                "%s", error.text);
    }
    rps_dataset_close(dataset);
    return rows;
}

static void
check_format(const char *format, const char *text, size_t length)
{
    struct stream stream = {.state = 17};
    uint64_t rows = 0;
    char bytes[512];
    char spec[300];
    unsigned i;

    (void)snprintf(spec, sizeof(spec), "%s:%s", format, path_of("damaged"));
    for (i = 0; i < ROUNDS; i++) {
        memcpy(bytes, text, length);
        put_bytes("damaged", bytes, damage(&stream, bytes, length));
        rows += read_all(spec, i % 2 == 0);
    }
    ck_assert_uint_gt(rows, ROUNDS / 4); /* the damage leaves some whole */
}

START_TEST(damaged_input_is_read_or_refused_with_its_place)
{
    check_format("criteo", criteo, sizeof(criteo) - 1);
    check_format("libfm", libfm, sizeof(libfm) - 1);
    check_format("feasign", feasign, sizeof(feasign) - 1);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("damage");
    TCase *tc = tcase_create("damage");

    tcase_set_timeout(tc, 60);
    tcase_add_checked_fixture(tc, make_folder, remove_folder);
    tcase_add_test(tc, damaged_input_is_read_or_refused_with_its_place);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}

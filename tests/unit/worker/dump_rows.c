/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints what a reader made of its input, for check_rows.py: a line a row,
 * labels TAB bits of the dense values in hex TAB keys, fields separated by
 * blanks, the keys of a field by commas.
 */
#include "client/worker/dataset.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void
print_row(const struct rps_row *row, struct rps_dataset_shape shape)
{
    uint32_t i;
    uint32_t k;

    for (i = 0; i < shape.labels; i++) {
        printf(i == 0 ? "%g" : " %g", (double)row->labels[i]);
    }
    putchar('\t');
    for (i = 0; i < shape.dense; i++) {
        uint32_t bits;

        memcpy(&bits, &row->dense[i], sizeof(bits));
        printf(i == 0 ? "%08" PRIx32 : " %08" PRIx32, bits);
    }
    putchar('\t');
    for (i = 0; i < shape.fields; i++) {
        if (i > 0) {
            putchar(' ');
        }
        for (k = row->offsets[i]; k < row->offsets[i + 1]; k++) {
            printf(k == row->offsets[i] ? "%" PRIu64 : ",%" PRIu64,
                    row->keys[k]);
        }
    }
    putchar('\n');
}

int
main(int argc, char **argv)
{
    struct rps_dataset_options options = {
            .little_demo = argc > 2 && strcmp(argv[2], "demo") == 0};
    struct rps_dataset *dataset = NULL;
    struct rps_error error = {""};
    struct rps_row row;
    rps_status status;

    if (argc < 2) {
        fprintf(stderr, "usage: dump_rows SPEC [demo]\n");
        return 2;
    }
    status = rps_dataset_open(&dataset, argv[1], &options, &error);
    while (status == RPS_OK) {
        status = rps_dataset_next(dataset, &row, &error);
        if (status == RPS_OK) {
            print_row(&row, rps_dataset_shape_of(dataset));
        }
    }
    rps_dataset_close(dataset);
    if (status != RPS_E_NOT_FOUND) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file.h"
#include "base/text.h"
#include "client/precision/csv.h"
#include "client/precision/variables_write.h"

#include <inttypes.h>
#include <math.h>

static const char head[] =
        "variable,kind,cosine,rows_a,rows_b,rows_both,only_a,only_b,changed,"
        "below,norm_a,norm_b,not_finite_a,not_finite_b,worst_key,worst_cosine,"
        "largest_change,largest_key,largest_column,problem\n";

static void
add_rows(struct rps_text *text, const struct rps_variable *variable)
{
    rps_text_add(text,
            ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64
            ",%" PRIu64 ",%" PRIu64,
            variable->rows_a, variable->rows_b, variable->both,
            variable->only_a, variable->only_b, variable->changed,
            variable->below);
}

static void
add_worst(struct rps_text *text, const struct rps_variable *variable)
{
    rps_text_add(text, ",%.12g,%.12g,%" PRIu64 ",%" PRIu64, variable->norm_a,
            variable->norm_b, variable->bad_a, variable->bad_b);
    if (variable->changed == 0) {
        rps_text_add(text, ",,,,,,");
    } else {
        rps_text_add(text, ",%" PRIu64 ",%.12g,%.9g,%" PRIu64 ",%" PRIu32 ",",
                variable->worst_key, variable->worst_cosine, variable->largest,
                variable->largest_key, variable->largest_column);
    }
}

static void
add_line(struct rps_text *text, const struct rps_variable *variable)
{
    rps_csv_word(text, variable->name);
    rps_text_add(text, ",%s,",
            variable->slot != NULL ? "slot"
            : variable->dense      ? "dense"
                                   : "table");
    if (variable->problem == NULL) {
        rps_text_add(text, "%.12g", variable->cosine);
    }
    add_rows(text, variable);
    if (variable->problem == NULL) {
        add_worst(text, variable);
    } else {
        rps_text_add(text, ",,,,,,,,,,");
        rps_csv_word(text, variable->problem);
    }
    rps_text_add(text, "\n");
}

rps_status
rps_variables_write_csv(const struct rps_variables *variables, const char *path,
        struct rps_error *error)
{
    struct rps_text text = {.bytes = NULL};
    rps_status status;

    rps_text_add(&text, "%s", head);
    for (size_t i = 0; i < variables->count; i++) {
        add_line(&text, &variables->list[i]);
    }
    status = text.failed
                     ? rps_fail(error, RPS_E_NOMEM, "%s: no memory", path)
                     : rps_file_replace(path, text.bytes, text.length, error);
    rps_text_finish(&text);
    return status;
}

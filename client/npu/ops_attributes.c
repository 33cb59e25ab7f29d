/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an operator does beside its tensors, in words for who watches. Each
 * begins with a comma: what all operators have comes before them.
 */
#include "client/npu/ops.h"
#include "client/npu/watch.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static bool
is_asked(const struct rps_npu_op *op)
{
    return op->watched && op->status == RPS_OK;
}

void
rps_npu_op_say_word(struct rps_npu_op *op, const char *key, const char *word)
{
    if (is_asked(op)) {
        rps_text_add(&op->attributes, ", \"%s\": \"%s\"", key, word);
    }
}

void
rps_npu_op_say_bool(struct rps_npu_op *op, const char *key, bool value)
{
    if (is_asked(op)) {
        rps_text_add(
                &op->attributes, ", \"%s\": %s", key, value ? "true" : "false");
    }
}

/* Beyond what JSON's readers take as a whole number: in quotes. */
void
rps_npu_op_say_count(struct rps_npu_op *op, const char *key, uint64_t value)
{
    const char *quote = value > INT64_MAX ? "\"" : "";

    if (is_asked(op)) {
        rps_text_add(&op->attributes, ", \"%s\": %s%" PRIu64 "%s", key, quote,
                value, quote);
    }
}

/* JSON has no infinity and no NaN: in quotes. */
void
rps_npu_op_say_number(struct rps_npu_op *op, const char *key, double value)
{
    char text[40];
    char *comma;

    if (!is_asked(op)) {
        return;
    }
    if (!isfinite(value)) {
        rps_npu_op_say_word(op, key,
                isnan(value)  ? "nan"
                : value > 0.0 ? "inf"
                              : "-inf");
        return;
    }
    (void)snprintf(text, sizeof(text), "%.17g", value);
    comma = strchr(text, ','); /* of the user's locale */
    if (comma != NULL) {
        *comma = '.';
    }
    rps_text_add(&op->attributes, ", \"%s\": %s", key, text);
}

/* All of them as one object. */
void
rps_npu_op_attributes(const struct rps_npu_op *op, struct rps_text *text)
{
    const struct rps_npu_arithmetic how = rps_npu_op_how(op->ops);

    if (!op->watched) {
        return;
    }
    rps_text_add(text,
            "{\"deterministic\": %s, \"mixed\": %s, \"precise\": %s%s}",
            how.deterministic ? "true" : "false", how.mixed ? "true" : "false",
            how.precise ? "true" : "false",
            op->attributes.bytes == NULL ? "" : op->attributes.bytes);
    text->failed = text->failed || op->attributes.failed;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Why a tensor does not agree, and how the two were run. */
#include "client/precision/compare_impl.h"
#include "client/precision/compare_words.h"
#include "client/precision/read_impl.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The worst of a side that does not agree; NULL: all do. */
const struct rps_compared_tensor *
rps_compare_worst(const struct rps_compared *compared, bool is_output)
{
    const struct rps_compared_tensor *worst = NULL;

    for (uint32_t i = 0; i < compared->tensor_count; i++) {
        const struct rps_compared_tensor *tensor = &compared->tensors[i];

        if (tensor->is_output != is_output || tensor->agrees) {
            continue;
        }
        if (worst == NULL ||
                (!isnan(worst->cosine) && !(tensor->cosine >= worst->cosine))) {
            worst = tensor;
        }
    }
    return worst;
}

void
rps_compare_add_cosine(struct rps_text *text, double cosine)
{
    if (cosine > 0.999999 && cosine < 1.0) {
        rps_text_add(text, "1 - %.2g", 1.0 - cosine);
    } else {
        rps_text_add(text, "%.9g", cosine);
    }
}

void
rps_compare_add_tensor(
        struct rps_text *text, const struct rps_compared_tensor *tensor)
{
    const struct rps_dumped_tensor *one =
            tensor->left != NULL ? tensor->left : tensor->right;

    rps_text_add(text, "%s %" PRIu32, tensor->is_output ? "output" : "input",
            tensor->index);
    if (one != NULL && one->label != NULL) {
        rps_text_add(text, " (%s)", one->label);
    }
}

static void
add_not_finite(struct rps_text *text, const struct rps_compared_tensor *tensor)
{
    rps_text_add(text,
            " is not finite (left: %" PRIu64 " NaN, %" PRIu64
            " Inf; right: %" PRIu64 " NaN, %" PRIu64 " Inf)",
            tensor->left_nan, tensor->left_inf, tensor->right_nan,
            tensor->right_inf);
}

/* The figure that is below, and by what it is measured. */
static void
add_below(const struct rps_compare_words *words,
        const struct rps_compared_tensor *tensor)
{
    struct rps_text *text = words->text;
    const bool short_one =
            tensor->cosine >= words->options->threshold &&
            tensor->length_ratio <
                    rps_compare_length_threshold(words->options->threshold);

    rps_text_add(text, " has cosine ");
    rps_compare_add_cosine(text, tensor->cosine);
    if (short_one) {
        rps_text_add(text, ", but one side is %.9g times as long as the other",
                tensor->length_ratio > 0.0 ? 1.0 / tensor->length_ratio
                                           : (double)INFINITY);
    }
    if (words->options->exact) {
        rps_text_add(text,
                "; the bytes are not the same, the largest difference is "
                "%.9g",
                tensor->max_absolute);
    } else {
        rps_text_add(
                text, " (the threshold is %.15g)", words->options->threshold);
    }
}

void
rps_compare_add_figures(const struct rps_compare_words *words,
        const struct rps_compared_tensor *tensor)
{
    struct rps_text *text = words->text;

    rps_compare_add_tensor(text, tensor);
    if (!tensor->readable) {
        rps_text_add(text, " is of another shape");
    } else if (tensor->left_nan + tensor->left_inf + tensor->right_nan +
                       tensor->right_inf >
               0) {
        add_not_finite(text, tensor);
    } else if (tensor->rows_differ > 0) {
        rps_text_add(text,
                " has %" PRIu64 " rows that differ (all rows "
                "together have cosine ",
                tensor->rows_differ);
        rps_compare_add_cosine(text, tensor->cosine);
        rps_text_add(text, ")");
    } else if (rps_compare_is_whole(tensor->left->dtype)) {
        rps_text_add(text, " has other whole numbers");
    } else {
        add_below(words, tensor);
    }
}

/* --- how they were run --------------------------------------------------- */

/* Of recps-train's options: what it writes, and where. */
static const char *const written[] = {"admin", "admin_port_file",
        "checkpoint_dir", "dump", "dump_and_save", "dump_limit", "dump_path",
        "dump_rank", "dump_step", "json_log", "keep", "log_every", "log_format",
        "log_level", "profile", "profile_steps", "rotate", "save_deltas",
        "save_steps", "summary_dir", "unix_dir"};

static bool
is_told(const char *key)
{
    return rps_dumped_is_plain(key) && strcmp(key, "command") != 0 &&
           strcmp(key, "version") != 0 && strcmp(key, "options") != 0 &&
           strcmp(key, "environment") != 0;
}

static bool
is_option_told(const char *key, const json_t *run)
{
    for (size_t i = 0; i < sizeof(written) / sizeof(written[0]); i++) {
        if (strcmp(written[i], key) == 0) {
            return false;
        }
    }
    return is_told(key) && json_object_get(run, key) == NULL;
}

static void
add_value(struct rps_text *text, const json_t *value, const char *absent)
{
    char *dumped = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);

    const char *string = json_string_value(value);

    if (string != NULL && rps_dumped_is_plain(string)) {
        rps_text_add(text, "%s", string);
    } else {
        rps_text_add(text, "%s", dumped != NULL ? dumped : absent);
    }
    free(dumped);
}

static void
add_setting(struct rps_text *text, const char *key, const json_t *sides[2],
        const char *absent, bool *any)
{
    rps_text_add(text, "%s%s (",
            *any ? ", " : "The two were run with other settings: ", key);
    add_value(text, sides[0], absent);
    rps_text_add(text, ", ");
    add_value(text, sides[1], absent);
    rps_text_add(text, ")");
    *any = true;
}

/* Those of either side; who does not have one has its default. A dump of
 * before they were written has none at all. */
static void
add_options(const struct rps_compare_words *words, bool *any)
{
    const json_t *run = words->left->run;
    json_t *left = json_object_get(run, "options");
    json_t *right = json_object_get(words->right->run, "options");
    const char *key;
    json_t *value;

    if (!json_is_object(left) || !json_is_object(right)) {
        return;
    }
    json_object_foreach(left, key, value)
    {
        const json_t *sides[] = {value, json_object_get(right, key)};

        if (is_option_told(key, run) && !json_equal(sides[0], sides[1])) {
            add_setting(words->text, key, sides, "default", any);
        }
    }
    json_object_foreach(right, key, value)
    {
        const json_t *sides[] = {NULL, value};

        if (is_option_told(key, run) && json_object_get(left, key) == NULL) {
            add_setting(words->text, key, sides, "default", any);
        }
    }
}

void
rps_compare_words_run(const struct rps_compare_words *words)
{
    const char *key;
    json_t *value;
    bool any = false;

    if (words->left->run == NULL || words->right->run == NULL) {
        return;
    }
    json_object_foreach(words->left->run, key, value)
    {
        const json_t *sides[] = {
                value, json_object_get(words->right->run, key)};

        if (is_told(key) && !json_equal(sides[0], sides[1])) {
            add_setting(words->text, key, sides, "none", &any);
        }
    }
    add_options(words, &any);
    if (any) {
        rps_text_add(words->text, ".\n");
    }
}

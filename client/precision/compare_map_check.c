/* SPDX-License-Identifier: Apache-2.0 */
/* What of a mapping was of no use: a slip in a name or an index compares less
 * than was meant. */
#include "client/precision/compare_impl.h"
#include "client/precision/read_impl.h"

#include <inttypes.h>
#include <stdlib.h>

static bool
has_index(const struct rps_dumped_operator *op, bool is_output, uint64_t index)
{
    const uint32_t count = is_output ? op->output_count : op->input_count;
    const struct rps_dumped_tensor *tensors =
            is_output ? op->outputs : op->inputs;

    for (uint32_t i = 0; i < count; i++) {
        if (tensors[i].index == index) {
            return true;
        }
    }
    return false;
}

static void
add_missing(struct rps_text *text, const struct rps_compare_map_pair *pair,
        const struct rps_dumped_operator *op, bool is_output, const char *index,
        bool is_left)
{
    rps_text_add(text,
            "The mapping's pair %s, %s: %s %s: %s \"%s\" of the %s has none.\n",
            pair->left, pair->right, is_output ? "output" : "input",
            rps_dumped_is_plain(index) ? index : "?", op->type, op->name,
            is_left ? "left" : "right");
}

static void
check_indices(struct rps_text *text, const struct rps_compare_map_pair *pair,
        const struct rps_compare_match *match, bool is_output)
{
    json_t *list = is_output ? pair->outputs : pair->inputs;
    const char *key;
    json_t *value;

    json_object_foreach(list, key, value)
    {
        const json_int_t right = json_integer_value(value);
        uint64_t left = 0;

        if (!rps_parse_u64(key, &left) ||
                !has_index(match->left[0], is_output, left)) {
            add_missing(text, pair, match->left[0], is_output, key, true);
        }
        if (right < 0 ||
                !has_index(match->right[0], is_output, (uint64_t)right)) {
            char *number = rps_format("%" PRId64, (int64_t)right);

            add_missing(text, pair, match->right[0], is_output,
                    number != NULL ? number : "?", false);
            free(number);
        }
    }
}

void
rps_compare_map_check(const struct rps_compare_map *map,
        const struct rps_compare_matches *matches, struct rps_text *text)
{
    for (uint32_t i = 0; i < map->count; i++) {
        const struct rps_compare_map_pair *pair = &map->pairs[i];
        const struct rps_compare_match *first = NULL;

        for (uint32_t k = 0; k < matches->count && first == NULL; k++) {
            first = matches->list[k].mapped == pair ? &matches->list[k] : NULL;
        }
        if (first == NULL) {
            rps_text_add(text,
                    "The mapping's pair %s, %s matches no two operators.\n",
                    pair->left, pair->right);
            continue;
        }
        check_indices(text, pair, first, false);
        check_indices(text, pair, first, true);
    }
}

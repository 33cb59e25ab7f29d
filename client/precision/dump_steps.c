/* SPDX-License-Identifier: Apache-2.0 */
/* Which steps are dumped: "0|5|10", "0-3|7", "all". */
#include "base/text.h"
#include "client/precision/dump.h"

#include <inttypes.h>
#include <string.h>

#define WORD_BYTES 48u

static bool
parse_range(const char *word, struct rps_dump_range *range)
{
    char first[WORD_BYTES];
    const char *dash = strchr(word, '-');
    const size_t n = dash == NULL ? strlen(word) : (size_t)(dash - word);

    memcpy(first, word, n);
    first[n] = '\0';
    if (!rps_parse_u64(first, &range->first)) {
        return false;
    }
    range->last = range->first;
    return (dash == NULL || rps_parse_u64(dash + 1, &range->last)) &&
           range->first <= range->last && range->last < UINT64_MAX;
}

/* Keeps them ascending and apart: what touches becomes one. */
static bool
insert(struct rps_dump_steps *steps, struct rps_dump_range range)
{
    struct rps_dump_range *at = steps->ranges;
    uint32_t first = 0, past = 0;

    while (first < steps->count && at[first].last + 1 < range.first) {
        first++;
    }
    past = first;
    while (past < steps->count && at[past].first <= range.last + 1) {
        if (at[past].first < range.first) {
            range.first = at[past].first;
        }
        if (at[past].last > range.last) {
            range.last = at[past].last;
        }
        past++;
    }
    if (past == first && steps->count == RPS_DUMP_STEPS_MAX) {
        return false;
    }
    memmove(at + first + 1, at + past, (steps->count - past) * sizeof(*at));
    at[first] = range;
    steps->count = steps->count - (past - first) + 1;
    return true;
}

static rps_status
add_word(struct rps_dump_steps *steps, const char *text, const char *word,
        size_t length, struct rps_error *error)
{
    char copy[WORD_BYTES];
    struct rps_dump_range range;

    if (length >= sizeof(copy)) {
        return rps_fail(error, RPS_E_INVAL,
                "dumped steps \"%s\": a word of %zu bytes is no step", text,
                length);
    }
    memcpy(copy, word, length);
    copy[length] = '\0';
    if (!parse_range(copy, &range)) {
        return rps_fail(error, RPS_E_INVAL,
                "dumped steps \"%s\": \"%s\" is neither a step nor a range: "
                "give steps from 0, the first one, with | between them, as in "
                "\"0|5|10\" or \"0-3|7\", or \"all\"",
                text, copy);
    }
    if (!insert(steps, range)) {
        return rps_fail(error, RPS_E_INVAL,
                "dumped steps \"%s\": more than %u ranges, at \"%s\"", text,
                RPS_DUMP_STEPS_MAX, copy);
    }
    return RPS_OK;
}

rps_status
rps_dump_steps_parse(
        struct rps_dump_steps *steps, const char *text, struct rps_error *error)
{
    const char *word = text;
    rps_status status = RPS_OK;

    *steps = (struct rps_dump_steps){0};
    if (strcmp(text, "all") == 0) {
        steps->count = 1;
        steps->ranges[0].last = UINT64_MAX;
        return RPS_OK;
    }
    for (;;) {
        const size_t length = strcspn(word, "|");

        status = add_word(steps, text, word, length, error);
        if (status != RPS_OK || word[length] == '\0') {
            return status;
        }
        word += length + 1;
    }
}

bool
rps_dump_steps_has(const struct rps_dump_steps *steps, uint64_t step)
{
    for (uint32_t i = 0; i < steps->count; i++) {
        if (step >= steps->ranges[i].first && step <= steps->ranges[i].last) {
            return true;
        }
    }
    return false;
}

uint64_t
rps_dump_steps_count(const struct rps_dump_steps *steps, uint64_t end)
{
    uint64_t count = 0;

    for (uint32_t i = 0; i < steps->count; i++) {
        const struct rps_dump_range *range = &steps->ranges[i];

        if (range->first < end) {
            count += (range->last < end ? range->last + 1 : end) - range->first;
        }
    }
    return count;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/options.h"

#include "base/spec.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>
#include <sysexits.h>

int
bench_refuse(const char *program, const char *what, const char *value,
        const char *allowed)
{
    fprintf(stderr, "%s: %s: \"%s\": %s\n", program, what, value, allowed);
    return EX_USAGE;
}

int
bench_set_number(const char *program, uint64_t *out, const char *what,
        const char *text, uint64_t most)
{
    char allowed[64];

    if (rps_parse_u64(text, out) && *out > 0 && *out <= most) {
        return 0;
    }
    snprintf(allowed, sizeof(allowed), "a whole number from 1 to %llu",
            (unsigned long long)most);
    return bench_refuse(program, what, text, allowed);
}

const char *
bench_next_word(const char **at, char mark, char word[BENCH_WORD_MAX])
{
    const char *end = strchrnul(*at, mark);
    const size_t length = (size_t)(end - *at);

    if (length == 0 || length >= BENCH_WORD_MAX) {
        return NULL;
    }
    memcpy(word, *at, length);
    word[length] = '\0';
    *at = *end == '\0' ? end : end + 1;
    return word;
}

static int
refuse_mix(const char *program, const char *text)
{
    return bench_refuse(program, "--mix", text,
            "NAME:WEIGHT with commas between, NAME lookup, push or insert, "
            "WEIGHT a whole number up to 1000000, not all 0");
}

int
bench_set_mix(
        const char *program, const char *text, uint64_t weights[BENCH_OP_COUNT])
{
    static const char *const names[] = {"lookup", "push", "insert"};
    const char *at = text;
    uint64_t sum = 0;
    char word[BENCH_WORD_MAX];

    memset(weights, 0, BENCH_OP_COUNT * sizeof(*weights));
    do {
        char *colon = NULL;
        uint64_t weight = 0;
        size_t op = 0;
        if (bench_next_word(&at, ',', word) == NULL ||
                (colon = strchr(word, ':')) == NULL) {
            return refuse_mix(program, text);
        }
        *colon = '\0';
        while (op < BENCH_OP_COUNT && strcmp(word, names[op]) != 0) {
            op++;
        }
        if (op == BENCH_OP_COUNT || !rps_parse_u64(colon + 1, &weight) ||
                weight > 1000000) {
            return refuse_mix(program, text);
        }
        weights[op] += weight;
        sum += weight;
    } while (*at != '\0');
    return sum > 0 ? 0 : refuse_mix(program, text);
}

const char *
bench_value_str(enum rps_value value)
{
    static const char *const names[] = {[RPS_VALUE_F32] = "f32",
            [RPS_VALUE_F16] = "f16",
            [RPS_VALUE_BF16] = "bf16",
            [RPS_VALUE_I8] = "i8"};

    return names[value];
}

int
bench_set_value(const char *program, const char *text, enum rps_value *value)
{
    static const enum rps_value values[] = {
            RPS_VALUE_F32, RPS_VALUE_F16, RPS_VALUE_BF16};

    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        if (strcmp(text, bench_value_str(values[i])) == 0) {
            *value = values[i];
            return 0;
        }
    }
    return bench_refuse(
            program, "--value-type", text, "must be f32, f16 or bf16");
}

int
bench_set_optimizer(
        const char *program, const char *text, enum rps_optimizer *optimizer)
{
    char allowed[256] = "must be one of";

    if (rps_optimizer_parse(text, optimizer)) {
        return 0;
    }
    for (int i = 0; i < RPS_OPTIMIZER_COUNT; i++) {
        const size_t length = strlen(allowed);
        snprintf(allowed + length, sizeof(allowed) - length, " %s",
                rps_optimizer_str((enum rps_optimizer)i));
    }
    return bench_refuse(program, "--optimizer", text, allowed);
}

int
bench_set_dist(
        const char *program, const char *text, struct bench_dist_spec *dist)
{
    return bench_dist_parse(text, dist)
                   ? 0
                   : bench_refuse(program, "--dist", text,
                             "must be uniform, zipf:S (0 < S <= 10), hot:P "
                             "(0 <= P <= 100), seq, trace:FILE or reuse:FILE");
}

int
bench_set_seconds(const char *program, const char *text, double *seconds)
{
    return rps_parse_double(text, seconds) && *seconds > 0 && *seconds <= 86400
                   ? 0
                   : bench_refuse(program, "--seconds", text,
                             "a number above 0, at most 86400");
}

int
bench_set_seed(const char *program, const char *text, uint64_t *seed)
{
    return rps_parse_u64(text, seed) && *seed <= INT64_MAX
                   ? 0
                   : bench_refuse(program, "--seed", text,
                             "a whole number below 2^63");
}

/* SPDX-License-Identifier: Apache-2.0 */
/* "KIND:KEY=VALUE,..." into a schedule. */
#include "base/text.h"
#include "client/worker/schedule.h"

#include <math.h>
#include <string.h>

#define WORD_BYTES 64u
#define RATE_MAX   1e6 /* that of --sparse-lr */

struct parse {
    struct rps_schedule *schedule;
    struct rps_error *error;
    const char *flag;
    const char *text;
    char key[WORD_BYTES];
    char value[WORD_BYTES];
    bool begin_given;
    uint32_t given; /* a bit a key of `keys` */
};

static const char *const keys[] = {"warmup", "steps", "begin", "end", "power",
        "cycle", "rate", "staircase"};

static rps_status
refuse(const struct parse *parse, const char *must)
{
    return rps_fail(parse->error, RPS_E_INVAL, "--%s=%s: %s=%s: %s",
            parse->flag, parse->text, parse->key, parse->value, must);
}

static rps_status
take_count(const struct parse *parse, uint64_t least, uint64_t *out)
{
    if (!rps_parse_u64(parse->value, out) || *out < least ||
            *out > UINT64_C(1000000000000)) {
        return refuse(parse, least > 0 ? "must be from 1 to 1000000000000 steps"
                                       : "must be from 0 to 1000000000000 "
                                         "steps");
    }
    return RPS_OK;
}

static rps_status
take_number(
        const struct parse *parse, double most, const char *must, double *out)
{
    if (!rps_parse_double(parse->value, out) || *out < 0.0 || *out > most) {
        return refuse(parse, must);
    }
    return RPS_OK;
}

static rps_status
take_switch(const struct parse *parse, bool *out)
{
    *out = strcmp(parse->value, "true") == 0;
    return *out || strcmp(parse->value, "false") == 0
                   ? RPS_OK
                   : refuse(parse, "must be true or false");
}

/* "STEP=RATE" */
static rps_status
take_piece(struct parse *parse)
{
    struct rps_schedule *schedule = parse->schedule;
    const uint32_t n = schedule->piece_count;
    uint64_t from = 0;

    if (n == RPS_SCHEDULE_PIECES_MAX) {
        return refuse(parse, "at most 32 pieces");
    }
    if (!rps_parse_u64(parse->key, &from) ||
            (n > 0 && from <= schedule->pieces[n - 1].from)) {
        return refuse(parse, "must be STEPS=RATE, the steps ascending");
    }
    schedule->pieces[n].from = from;
    schedule->piece_count++;
    return take_number(parse, RATE_MAX, "must be a rate from 0 to 1e6",
            &schedule->pieces[n].rate);
}

static rps_status
take_polynomial(struct parse *parse)
{
    struct rps_schedule *schedule = parse->schedule;

    if (strcmp(parse->key, "end") == 0) {
        return take_number(parse, RATE_MAX, "must be a rate from 0 to 1e6",
                &schedule->end);
    }
    if (strcmp(parse->key, "power") == 0) {
        return take_number(
                parse, 100.0, "must be from 0 to 100", &schedule->power);
    }
    if (strcmp(parse->key, "cycle") == 0) {
        return take_switch(parse, &schedule->cycle);
    }
    return refuse(parse,
            "no such key; polynomial has steps, end, power, cycle, begin and "
            "warmup");
}

static rps_status
take_exponential(struct parse *parse)
{
    struct rps_schedule *schedule = parse->schedule;

    if (strcmp(parse->key, "rate") == 0) {
        return take_number(
                parse, 1.0, "must be from 0 to 1", &schedule->factor);
    }
    if (strcmp(parse->key, "staircase") == 0) {
        return take_switch(parse, &schedule->staircase);
    }
    return refuse(parse,
            "no such key; exponential has steps, rate, staircase, begin and "
            "warmup");
}

/* Pieces are numbers, which ascend. */
static rps_status
take_once(struct parse *parse)
{
    for (uint32_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        if (strcmp(parse->key, keys[i]) != 0) {
            continue;
        }
        if ((parse->given & (1u << i)) != 0) {
            return refuse(parse, "this key stands twice: give it once");
        }
        parse->given |= 1u << i;
    }
    return RPS_OK;
}

static rps_status
take_pair(struct parse *parse)
{
    struct rps_schedule *schedule = parse->schedule;
    const bool decays = schedule->kind == RPS_SCHEDULE_POLYNOMIAL ||
                        schedule->kind == RPS_SCHEDULE_EXPONENTIAL;

    if (strcmp(parse->key, "warmup") == 0) {
        return take_count(parse, 0, &schedule->warmup);
    }
    if (decays && strcmp(parse->key, "steps") == 0) {
        return take_count(parse, 1, &schedule->steps);
    }
    if (decays && strcmp(parse->key, "begin") == 0) {
        parse->begin_given = true;
        return take_count(parse, 0, &schedule->begin);
    }
    switch (schedule->kind) {
    case RPS_SCHEDULE_POLYNOMIAL:
        return take_polynomial(parse);
    case RPS_SCHEDULE_EXPONENTIAL:
        return take_exponential(parse);
    case RPS_SCHEDULE_PIECEWISE:
        return take_piece(parse);
    case RPS_SCHEDULE_CONSTANT:
        break;
    }
    return refuse(parse, "no such key; constant has warmup alone");
}

static bool
cut(const char *from, size_t length, char out[WORD_BYTES])
{
    if (length == 0 || length >= WORD_BYTES) {
        return false;
    }
    memcpy(out, from, length);
    out[length] = '\0';
    return true;
}

static rps_status
take_pairs(struct parse *parse, const char *at)
{
    for (;;) {
        const size_t length = strcspn(at, ",");
        const size_t key = strcspn(at, "=,");
        rps_status status;

        if (key == length || !cut(at, key, parse->key) ||
                !cut(at + key + 1, length - key - 1, parse->value)) {
            return rps_fail(parse->error, RPS_E_INVAL,
                    "--%s=%s: behind the colon must be KEY=VALUE, with commas "
                    "between",
                    parse->flag, parse->text);
        }
        status = take_once(parse);
        if (status == RPS_OK) {
            status = take_pair(parse);
        }
        if (status != RPS_OK || at[length] == '\0') {
            return status;
        }
        at += length + 1;
    }
}

static bool
take_kind(struct rps_schedule *schedule, const char *text, size_t length)
{
    static const char *const names[] = {
            [RPS_SCHEDULE_CONSTANT] = "constant",
            [RPS_SCHEDULE_POLYNOMIAL] = "polynomial",
            [RPS_SCHEDULE_EXPONENTIAL] = "exponential",
            [RPS_SCHEDULE_PIECEWISE] = "piecewise",
    };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strlen(names[i]) == length &&
                strncmp(names[i], text, length) == 0) {
            schedule->kind = (enum rps_schedule_kind)i;
            return true;
        }
    }
    return false;
}

static rps_status
check_whole(const struct parse *parse)
{
    const struct rps_schedule *schedule = parse->schedule;
    const char *missing = NULL;

    if (schedule->kind == RPS_SCHEDULE_PIECEWISE &&
            schedule->piece_count == 0) {
        missing = "STEPS=RATE";
    } else if ((schedule->kind == RPS_SCHEDULE_POLYNOMIAL ||
                       schedule->kind == RPS_SCHEDULE_EXPONENTIAL) &&
               schedule->steps == 0) {
        missing = "steps=N";
    } else if (schedule->kind == RPS_SCHEDULE_EXPONENTIAL &&
               isnan(schedule->factor)) {
        missing = "rate=R";
    }
    return missing == NULL ? RPS_OK
                           : rps_fail(parse->error, RPS_E_INVAL,
                                     "--%s=%s: %s is missing", parse->flag,
                                     parse->text, missing);
}

rps_status
rps_schedule_parse(struct rps_schedule *schedule, const char *flag,
        const char *text, struct rps_error *error)
{
    struct parse parse = {
            .schedule = schedule, .error = error, .flag = flag, .text = text};
    const size_t length = strcspn(text, ":");
    rps_status status = RPS_OK;

    *schedule = (struct rps_schedule){.power = 1.0, .factor = NAN};
    if (!take_kind(schedule, text, length)) {
        return rps_fail(error, RPS_E_INVAL,
                "--%s=%s: must be constant, polynomial:steps=N, "
                "exponential:steps=N,rate=R or piecewise:STEPS=RATE,...",
                flag, text);
    }
    if (text[length] != '\0') {
        status = take_pairs(&parse, text + length + 1);
    }
    if (status == RPS_OK) {
        status = check_whole(&parse);
    }
    if (!parse.begin_given) {
        schedule->begin = schedule->warmup;
    }
    return status;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* What nan*.c share. */
#ifndef RPS_PRECISION_NAN_IMPL_H
#define RPS_PRECISION_NAN_IMPL_H

#include "client/precision/graph.h"
#include "client/precision/nan.h"
#include "client/precision/replay.h"

struct rps_nan_search {
    struct rps_nan_report *report;
    const struct rps_dumped_steps *steps;
    uint32_t step; /* index into steps: the report's */
    struct rps_graph *graph;
    bool nan_alone;
    bool failed; /* no memory */
};

/** One more sentence. */
void rps_nan_say(struct rps_nan_search *search, struct rps_nan_words *words,
        const char *format, ...) __attribute__((format(printf, 3, 4)));

/** Is it what is looked for? */
static inline bool
rps_nan_is_dirty(const struct rps_nan_search *search, double x)
{
    return search->nan_alone ? x != x : x - x != 0.0;
}

/** A tensor's numbers; false: it cannot be read, and a problem says so. */
bool rps_nan_load(struct rps_nan_search *search,
        const struct rps_dumped_tensor *tensor,
        struct rps_dumped_values *values);

/** The same, and its first element that is looked for in *element_out; false,
 * too, where there is none. */
bool rps_nan_look(struct rps_nan_search *search,
        const struct rps_dumped_tensor *tensor, uint64_t *element_out,
        double *value_out);

/** "linear top.2/linear", input 1 (weight), element [3, 17]; of `dumped`. */
char *rps_nan_spot_words(
        const struct rps_dumped *dumped, const struct rps_nan_spot *spot);

/** From report->first to an ending. */
void rps_nan_follow(struct rps_nan_search *search);

/** All of what follows is finite and every operator so far is right: which
 * numbers grew, and where they come from. */
void rps_nan_follow_growth(struct rps_nan_search *search, uint32_t op);

/** An input that nobody in this step wrote: the endings EMBEDDING, PUSH,
 * HOST, or OVERWRITTEN between two steps. */
void rps_nan_end_at_source(
        struct rps_nan_search *search, const struct rps_nan_spot *spot);
/** A lookup's output. */
void rps_nan_end_at_lookup(
        struct rps_nan_search *search, const struct rps_nan_spot *spot);
/** The report's cause is the largest number at the end of its way. */
void rps_nan_end_at_growth(struct rps_nan_search *search);
/** A writer's output is not what its reader read. */
void rps_nan_end_overwritten(struct rps_nan_search *search,
        const struct rps_nan_spot *spot, const struct rps_nan_spot *before);
void rps_nan_end_at_operator(struct rps_nan_search *search,
        const struct rps_nan_spot *spot, const char *why);
void rps_nan_end_unknown(struct rps_nan_search *search,
        const struct rps_nan_spot *spot, const char *why);

/** The cause's elements that are looked for. */
void rps_nan_note_elements(
        struct rps_nan_search *search, const struct rps_nan_spot *spot);

/** Is it a table's lookup? A push? Dense variables from the servers? */
bool rps_nan_is_lookup(const struct rps_dumped_operator *op);
bool rps_nan_is_push(const struct rps_dumped_operator *op);
bool rps_nan_is_variables(const struct rps_dumped_operator *op);

/** Keys whose rows hold the tensor's dirty elements: of a lookup's output, or a
 * push's gradients. */
void rps_nan_note_keys(
        struct rps_nan_search *search, const struct rps_nan_spot *spot);

/** The keys that were noted, behind some words. */
void rps_nan_say_keys(struct rps_nan_search *search, const char *before);

#endif /* RPS_PRECISION_NAN_IMPL_H */

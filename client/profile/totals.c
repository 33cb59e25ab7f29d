/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A span that is added becomes 32 bytes that name its kind and its track. They
 * are sorted at the end, and a stack of open spans a track says what lies
 * inside what: sum of self_ns of a track = time in which it has a span, as
 * long as spans nest.
 */
#include "client/profile/totals.h"

#include "base/checksum.h"
#include "client/profile/strings.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX 256u /* of spans in spans; deeper ones count as siblings */

struct event {
    uint64_t start_ns;
    uint64_t end_ns;
    uint32_t kind;
    const char *track; /* kept: the same text is the same pointer */
};

struct rps_totals {
    struct rps_strings strings;
    struct event *events; /* [event_count] */
    size_t event_count;
    size_t event_capacity;
    struct rps_total *kinds; /* [kind_count] */
    size_t kind_count;
    size_t kind_capacity;
    uint32_t *slots; /* [slot_count] kind + 1; 0: free */
    size_t slot_count;
    uint64_t *steps; /* [step_count] ns */
    size_t step_count;
    size_t step_capacity;
    bool worked_out;
};

static const char *const class_names[RPS_PROFILE_CLASSES] = {
        [RPS_PROFILE_OPERATOR] = "operator",
        [RPS_PROFILE_COPY] = "copy",
        [RPS_PROFILE_COMMUNICATION] = "communication",
        [RPS_PROFILE_SCHEDULING] = "scheduling",
};

const char *rps_profile_class_name(enum rps_profile_class class)
{
    assert((unsigned)class < RPS_PROFILE_CLASSES);
    return class_names[class];
}

struct rps_totals *
rps_totals_create(void)
{
    return calloc(1, sizeof(struct rps_totals));
}

void
rps_totals_destroy(struct rps_totals *totals)
{
    if (totals == NULL) {
        return;
    }
    rps_strings_finish(&totals->strings);
    free(totals->events);
    free(totals->kinds);
    free(totals->slots);
    free(totals->steps);
    free(totals);
}

/* Room for one more of an array; `most` is its limit. */
static rps_status
reserve(void **array, size_t count, size_t *capacity, size_t bytes, size_t most)
{
    size_t wanted;
    void *grown;

    if (count >= most) {
        return RPS_E_LIMIT;
    }
    if (count < *capacity) {
        return RPS_OK;
    }
    wanted = *capacity + *capacity / 2 + 64;
    grown = realloc(*array, wanted * bytes);
    if (grown == NULL) {
        return RPS_E_NOMEM;
    }
    *array = grown;
    *capacity = wanted;
    return RPS_OK;
}

/* --- kinds --------------------------------------------------------------- */

static bool
keep(struct rps_totals *totals, const char **text)
{
    *text = rps_strings_keep(&totals->strings, *text != NULL ? *text : "");
    return *text != NULL;
}

/* Its strings are kept ones: pointers say all. */
static uint64_t
hash_of(const struct rps_total *kind)
{
    const uintptr_t parts[] = {(uintptr_t)kind->class, (uintptr_t)kind->type,
            (uintptr_t)kind->name, (uintptr_t)kind->holds,
            (uintptr_t)kind->track, (uintptr_t)kind->shapes};

    return rps_checksum(parts, sizeof(parts));
}

static bool
is_same(const struct rps_total *a, const struct rps_total *b)
{
    return a->class == b->class && a->type == b->type && a->name == b->name &&
           a->holds == b->holds && a->track == b->track &&
           a->shapes == b->shapes;
}

static size_t
slot_of(const struct rps_totals *totals, const struct rps_total *kind)
{
    const size_t mask = totals->slot_count - 1;
    size_t at = (size_t)hash_of(kind) & mask;

    while (totals->slots[at] != 0 &&
            !is_same(&totals->kinds[totals->slots[at] - 1], kind)) {
        at = (at + 1) & mask;
    }
    return at;
}

static rps_status
grow_slots(struct rps_totals *totals)
{
    const size_t count = totals->slot_count == 0 ? 256 : 2 * totals->slot_count;
    uint32_t *slots = calloc(count, sizeof(*slots));

    if (slots == NULL) {
        return RPS_E_NOMEM;
    }
    free(totals->slots);
    totals->slots = slots;
    totals->slot_count = count;
    for (size_t i = 0; i < totals->kind_count; i++) {
        slots[slot_of(totals, &totals->kinds[i])] = (uint32_t)i + 1;
    }
    return RPS_OK;
}

static rps_status
find_kind(struct rps_totals *totals, const struct rps_total *wanted,
        uint32_t *kind_out)
{
    rps_status status = totals->kind_count >= totals->slot_count / 2
                                ? grow_slots(totals)
                                : RPS_OK;
    size_t at;

    if (status != RPS_OK) {
        return status;
    }
    at = slot_of(totals, wanted);
    if (totals->slots[at] == 0) {
        status = reserve((void **)&totals->kinds, totals->kind_count,
                &totals->kind_capacity, sizeof(*totals->kinds),
                RPS_TOTALS_KINDS_MAX);
        if (status != RPS_OK) {
            return status;
        }
        totals->kinds[totals->kind_count++] = *wanted;
        totals->slots[at] = (uint32_t)totals->kind_count;
    }
    *kind_out = totals->slots[at] - 1;
    return RPS_OK;
}

/* --- adding -------------------------------------------------------------- */

static void
count_span(struct rps_total *kind, const struct rps_profile_span *span)
{
    const uint64_t ns = span->end_ns - span->start_ns;

    kind->min_ns = kind->count == 0 || ns < kind->min_ns ? ns : kind->min_ns;
    kind->max_ns = ns > kind->max_ns ? ns : kind->max_ns;
    kind->count++;
    kind->ns += ns;
    kind->bytes += span->bytes;
    kind->flops += span->flops;
}

rps_status
rps_totals_add(struct rps_totals *totals, const struct rps_profile_span *span)
{
    struct rps_total wanted = {
            .class = span->class,
            .type = span->type,
            .name = span->name != NULL ? span->name : span->type,
            .holds = span->holds,
            .track = span->track,
            .shapes = span->shapes,
    };
    uint32_t kind = 0;
    rps_status status;

    assert(!totals->worked_out && span->end_ns >= span->start_ns);
    if (!keep(totals, &wanted.type) || !keep(totals, &wanted.name) ||
            !keep(totals, &wanted.holds) || !keep(totals, &wanted.track) ||
            !keep(totals, &wanted.shapes)) {
        return RPS_E_NOMEM;
    }
    status = find_kind(totals, &wanted, &kind);
    if (status == RPS_OK) {
        status = reserve((void **)&totals->events, totals->event_count,
                &totals->event_capacity, sizeof(*totals->events),
                RPS_TOTALS_SPANS_MAX);
    }
    if (status == RPS_OK) {
        totals->events[totals->event_count++] = (struct event){
                .start_ns = span->start_ns,
                .end_ns = span->end_ns,
                .kind = kind,
                .track = wanted.track,
        };
        count_span(&totals->kinds[kind], span);
    }
    return status;
}

rps_status
rps_totals_step(struct rps_totals *totals, uint64_t ns)
{
    rps_status status = reserve((void **)&totals->steps, totals->step_count,
            &totals->step_capacity, sizeof(*totals->steps),
            RPS_TOTALS_STEPS_MAX);

    if (status == RPS_OK) {
        totals->steps[totals->step_count++] = ns;
    }
    return status;
}

void
rps_totals_reclass(struct rps_totals *totals, const char *type,
        enum rps_profile_class class)
{
    assert(!totals->worked_out);
    for (size_t i = 0; i < totals->kind_count; i++) {
        if (strcmp(totals->kinds[i].type, type) == 0) {
            totals->kinds[i].class = class;
        }
    }
}

/* --- working out --------------------------------------------------------- */

static int
by_track_and_start(const void *a, const void *b)
{
    const struct event *x = a, *y = b;

    if (x->track != y->track) {
        return (uintptr_t)x->track < (uintptr_t)y->track ? -1 : 1;
    }
    if (x->start_ns != y->start_ns) {
        return x->start_ns < y->start_ns ? -1 : 1;
    }
    return (x->end_ns < y->end_ns) - (x->end_ns > y->end_ns);
}

/* What the span around it has no longer for itself: where one ends after that
 * one, only the part that both have. */
static void
take_from(struct rps_totals *totals, const struct event *around,
        const struct event *inner)
{
    const uint64_t end =
            inner->end_ns < around->end_ns ? inner->end_ns : around->end_ns;
    const uint64_t ns = end - inner->start_ns;
    uint64_t *self_ns = &totals->kinds[around->kind].self_ns;

    *self_ns -= ns < *self_ns ? ns : *self_ns;
}

static void
work_out_inside(struct rps_totals *totals)
{
    const struct event *open[DEPTH_MAX];
    size_t depth = 0;

    for (size_t i = 0; i < totals->event_count; i++) {
        const struct event *event = &totals->events[i];

        while (depth > 0 &&
                (open[depth - 1]->track != event->track ||
                        open[depth - 1]->end_ns <= event->start_ns)) {
            depth--;
        }
        if (depth > 0) {
            take_from(totals, open[depth - 1], event);
        }
        if (depth < DEPTH_MAX) {
            open[depth++] = event;
        }
    }
}

static int
by_class_and_time(const void *a, const void *b)
{
    const struct rps_total *x = a, *y = b;

    if (x->class != y->class) {
        return x->class < y->class ? -1 : 1;
    }
    if (x->self_ns != y->self_ns) {
        return x->self_ns > y->self_ns ? -1 : 1;
    }
    return strcmp(x->name, y->name);
}

static int
by_number(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

void
rps_totals_work_out(struct rps_totals *totals)
{
    if (totals->worked_out) {
        return;
    }
    if (totals->event_count > 0) {
        qsort(totals->events, totals->event_count, sizeof(*totals->events),
                by_track_and_start);
    }
    for (size_t i = 0; i < totals->kind_count; i++) {
        totals->kinds[i].self_ns = totals->kinds[i].ns;
    }
    work_out_inside(totals);
    if (totals->kind_count > 0) { /* events name kinds by place until here */
        qsort(totals->kinds, totals->kind_count, sizeof(*totals->kinds),
                by_class_and_time);
    }
    if (totals->step_count > 0) {
        qsort(totals->steps, totals->step_count, sizeof(*totals->steps),
                by_number);
    }
    totals->worked_out = true;
}

/* --- reading ------------------------------------------------------------- */

const struct rps_total *
rps_totals_list(const struct rps_totals *totals, size_t *count_out)
{
    assert(totals->worked_out);
    *count_out = totals->kind_count;
    return totals->kinds;
}

uint64_t
rps_totals_class_ns(
        const struct rps_totals *totals, enum rps_profile_class class)
{
    uint64_t sum = 0;

    assert(totals->worked_out);
    for (size_t i = 0; i < totals->kind_count; i++) {
        sum += totals->kinds[i].class == class ? totals->kinds[i].self_ns : 0;
    }
    return sum;
}

uint64_t
rps_totals_class_count(
        const struct rps_totals *totals, enum rps_profile_class class)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < totals->kind_count; i++) {
        sum += totals->kinds[i].class == class ? totals->kinds[i].count : 0;
    }
    return sum;
}

struct rps_totals_steps
rps_totals_steps(const struct rps_totals *totals)
{
    struct rps_totals_steps steps = {.count = totals->step_count};

    assert(totals->worked_out);
    for (size_t i = 0; i < totals->step_count; i++) {
        steps.ns += totals->steps[i];
    }
    if (steps.count > 0) {
        steps.min_ns = totals->steps[0];
        steps.median_ns = totals->steps[steps.count / 2];
        steps.max_ns = totals->steps[steps.count - 1];
    }
    return steps;
}

uint64_t
rps_totals_wall_ns(const struct rps_totals *totals)
{
    uint64_t first = UINT64_MAX, last = 0;

    for (size_t i = 0; i < totals->event_count; i++) {
        const struct event *event = &totals->events[i];

        first = event->start_ns < first ? event->start_ns : first;
        last = event->end_ns > last ? event->end_ns : last;
    }
    return last > first ? last - first : 0;
}

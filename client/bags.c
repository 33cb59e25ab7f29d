/* SPDX-License-Identifier: Apache-2.0 */
#include "client/bags.h"

#include "proto/value.h"

#include <stdlib.h>
#include <string.h>

/* Fixed bytes of a key (with its count), an occurrence, an entry. */
#define KEY_BYTES   (sizeof(uint64_t) + sizeof(uint32_t))
#define PLACE_BYTES sizeof(uint32_t)

/** What is needed while the plan is made. */
struct planning {
    struct rps_bag_plan *plan;
    const struct rps_batch *batch;
    const struct rps_dedup *dedup;
    size_t row_bytes;
    size_t piece_bytes;
    bool push;
    uint32_t piece_count, piece_capacity;
    uint32_t keys, occurrences, entries; /* written so far */
    uint16_t *owners;                    /* [distinct]: PS of a key */
    uint32_t *next;                      /* [ps_count + 1] */
    uint32_t *sorted_keys;               /* [occurrences], by PS */
    uint32_t *sorted_bags;
    uint32_t *local;  /* [distinct]: its place in the piece's keys */
    uint32_t *within; /* [distinct]: 1 + the last piece that has it */
    uint8_t *seen;    /* [bag_count]: it has an entry */
};

static void *
numbers(size_t n)
{
    return calloc(n > 0 ? n : 1, sizeof(uint32_t));
}

static rps_status
allocate(struct planning *p, uint32_t ps_count)
{
    struct rps_bag_plan *plan = p->plan;
    const size_t distinct = p->dedup->count;
    const size_t occurrences = p->dedup->key_count;
    const size_t bags = p->batch->bag_count;

    plan->starts = numbers((size_t)ps_count + 1);
    plan->keys = numbers(occurrences);
    plan->counts = numbers(occurrences);
    plan->index = numbers(occurrences);
    plan->bags = numbers(occurrences);
    plan->ends = numbers(occurrences);
    plan->order = numbers(occurrences);
    plan->sizes = numbers(bags);
    p->owners = calloc(distinct + 1, sizeof(*p->owners));
    p->next = numbers((size_t)ps_count + 1);
    p->sorted_keys = numbers(occurrences);
    p->sorted_bags = numbers(occurrences);
    p->local = numbers(distinct);
    p->within = numbers(distinct);
    p->seen = calloc(bags + 1, 1);
    return plan->starts != NULL && plan->keys != NULL && plan->counts != NULL &&
                           plan->index != NULL && plan->bags != NULL &&
                           plan->ends != NULL && plan->order != NULL &&
                           plan->sizes != NULL && p->owners != NULL &&
                           p->next != NULL && p->sorted_keys != NULL &&
                           p->sorted_bags != NULL && p->local != NULL &&
                           p->within != NULL && p->seen != NULL
                   ? RPS_OK
                   : RPS_E_NOMEM;
}

static void
finish_planning(struct planning *p)
{
    free(p->owners);
    free(p->next);
    free(p->sorted_keys);
    free(p->sorted_bags);
    free(p->local);
    free(p->within);
    free(p->seen);
}

/* Counting sort of the occurrences by PS; bag order stays inside of one. */
static void
sort_occurrences(struct planning *p, uint32_t ps_count)
{
    const struct rps_batch *batch = p->batch;
    const struct rps_dedup *dedup = p->dedup;

    for (uint32_t ps = 0; ps < ps_count; ps++) {
        for (uint32_t i = dedup->starts[ps]; i < dedup->starts[ps + 1]; i++) {
            p->owners[dedup->order[i]] = (uint16_t)ps;
            p->next[ps + 1] += dedup->counts[dedup->order[i]];
        }
    }
    for (uint32_t ps = 0; ps < ps_count; ps++) {
        p->next[ps + 1] += p->next[ps];
    }
    for (size_t bag = 0; bag < batch->bag_count; bag++) {
        for (uint32_t i = batch->offsets[bag]; i < batch->offsets[bag + 1];
                i++) {
            const uint32_t key = dedup->index[i];

            if (key != RPS_DEDUP_PADDING) {
                const uint32_t at = p->next[p->owners[key]]++;

                p->sorted_keys[at] = key;
                p->sorted_bags[at] = (uint32_t)bag;
                p->plan->sizes[bag]++;
            }
        }
    }
}

static size_t
larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* The largest of what a piece takes: in its request, its reply, as floats; and
 * of what it adds up as much as is to RPS_BAG_FLOATS_MAX as that is to a
 * frame. */
static size_t
bytes_of(const struct planning *p, const struct rps_bag_piece *piece)
{
    const size_t dim = p->batch->table->spec.dim;
    const size_t rows = piece->entry_count * p->row_bytes;
    const size_t floats = piece->key_count * dim * sizeof(float);
    const size_t added = piece->occurrence_count * dim /
                         (RPS_BAG_FLOATS_MAX / RPS_BODY_BYTES_MAX);
    const size_t request =
            piece->key_count * KEY_BYTES +
            ((size_t)piece->occurrence_count + piece->entry_count + 1) *
                    PLACE_BYTES;

    return larger(larger(floats, added),
            p->push ? request + rows : larger(request, rows));
}

static struct rps_bag_piece *
new_piece(struct planning *p)
{
    struct rps_bag_piece *grown = p->plan->pieces;

    if (p->piece_count == p->piece_capacity) {
        const uint32_t capacity =
                p->piece_capacity > 0 ? 2 * p->piece_capacity : 8;

        grown = realloc(grown, capacity * sizeof(*grown));
        if (grown == NULL) {
            return NULL;
        }
        p->plan->pieces = grown;
        p->piece_capacity = capacity;
    }
    grown += p->piece_count++;
    *grown = (struct rps_bag_piece){.key_first = p->keys,
            .occurrence_first = p->occurrences,
            .entry_first = p->entries};
    return grown;
}

static void
add_entry(struct planning *p, struct rps_bag_piece *piece, uint32_t bag)
{
    struct rps_bag_plan *plan = p->plan;

    plan->bags[p->entries] = bag;
    plan->order[p->entries] =
            p->seen[bag] != 0 ? plan->rest++ : RPS_ENTRY_FIRST;
    p->seen[bag] = 1;
    p->entries++;
    piece->entry_count++;
}

/* One more occurrence, if it fits; false: the piece is full. */
static bool
add_occurrence(struct planning *p, struct rps_bag_piece *piece, uint32_t key,
        uint32_t bag)
{
    struct rps_bag_plan *plan = p->plan;
    struct rps_bag_piece more = *piece;
    const bool is_new_key = p->within[key] != p->piece_count;
    const bool is_new_bag =
            piece->entry_count == 0 || plan->bags[p->entries - 1] != bag;

    more.key_count += is_new_key;
    more.entry_count += is_new_bag;
    more.occurrence_count++;
    if (piece->occurrence_count > 0 && bytes_of(p, &more) > p->piece_bytes) {
        return false;
    }
    if (is_new_key) {
        p->within[key] = p->piece_count;
        p->local[key] = piece->key_count++;
        plan->keys[p->keys++] = key;
    }
    if (is_new_bag) {
        add_entry(p, piece, bag);
    }
    plan->counts[piece->key_first + p->local[key]]++;
    plan->index[p->occurrences++] = p->local[key];
    plan->ends[p->entries - 1] = ++piece->occurrence_count;
    return true;
}

static rps_status
cut_pieces(struct planning *p, uint32_t begin, uint32_t end)
{
    struct rps_bag_piece *piece = NULL;
    uint32_t i = begin;

    while (i < end) {
        if (piece == NULL) {
            piece = new_piece(p);
        }
        if (piece == NULL) {
            return RPS_E_NOMEM;
        }
        if (add_occurrence(p, piece, p->sorted_keys[i], p->sorted_bags[i])) {
            i++;
            piece->bytes = bytes_of(p, piece);
        } else {
            piece = NULL;
        }
    }
    return RPS_OK;
}

rps_status
rps_bag_plan_init(struct rps_bag_plan *plan, const struct rps_batch *batch,
        const struct rps_dedup *dedup, uint32_t ps_count, size_t row_bytes,
        bool push, size_t piece_bytes)
{
    struct planning p = {.plan = plan,
            .batch = batch,
            .dedup = dedup,
            .row_bytes = row_bytes,
            .piece_bytes = piece_bytes,
            .push = push};
    uint32_t begin = 0;
    rps_status status;

    *plan = (struct rps_bag_plan){0};
    status = allocate(&p, ps_count);
    if (status == RPS_OK) {
        sort_occurrences(&p, ps_count);
    }
    for (uint32_t ps = 0; status == RPS_OK && ps < ps_count; ps++) {
        status = cut_pieces(&p, begin, p.next[ps]);
        begin = p.next[ps];
        plan->starts[ps + 1] = p.piece_count;
    }
    finish_planning(&p);
    if (status != RPS_OK) {
        rps_bag_plan_finish(plan);
    }
    return status;
}

void
rps_bag_plan_finish(struct rps_bag_plan *plan)
{
    free(plan->pieces);
    free(plan->starts);
    free(plan->keys);
    free(plan->counts);
    free(plan->index);
    free(plan->bags);
    free(plan->ends);
    free(plan->order);
    free(plan->sizes);
    *plan = (struct rps_bag_plan){0};
}

static bool
is_identity(const uint32_t *index, uint32_t n)
{
    uint32_t i = 0;

    while (i < n && index[i] == i) {
        i++;
    }
    return i == n;
}

static void
write_keys(const struct rps_bag_plan *plan, const struct rps_bag_piece *piece,
        const struct rps_batch *batch, const struct rps_dedup *dedup, bool push,
        struct rps_builder *builder)
{
    const struct rps_section section = {.table_id = batch->table->id,
            .kind = RPS_SECTION_KEYS,
            .value = push ? 0 : (uint16_t)batch->wire,
            .count = piece->key_count};
    const size_t at = rps_builder_reserve(builder, &section);
    uint64_t *keys;

    if (at == 0) {
        return;
    }
    keys = (uint64_t *)(void *)(builder->frame + at);
    for (uint32_t i = 0; i < piece->key_count; i++) {
        keys[i] = dedup->keys[plan->keys[piece->key_first + i]];
    }
}

static void
write_counts(const struct rps_bag_plan *plan, const struct rps_bag_piece *piece,
        const struct rps_batch *batch, const struct rps_dedup *dedup, bool push,
        struct rps_builder *builder)
{
    const struct rps_section section = {.table_id = batch->table->id,
            .kind = RPS_SECTION_COUNTS,
            .count = piece->key_count};
    const uint32_t *own = plan->counts + piece->key_first;
    const uint32_t *keys = plan->keys + piece->key_first;
    bool ones = true;
    uint32_t *counts;
    size_t at;

    for (uint32_t i = 0; ones && i < piece->key_count; i++) {
        ones = (push ? own[i] : dedup->counts[keys[i]]) == 1;
    }
    at = ones ? 0 : rps_builder_reserve(builder, &section);
    if (at == 0) {
        return; /* absent means 1 each */
    }
    counts = (uint32_t *)(void *)(builder->frame + at);
    for (uint32_t i = 0; i < piece->key_count; i++) {
        counts[i] = push ? own[i] : dedup->counts[keys[i]];
    }
}

void
rps_bag_plan_write(const struct rps_bag_plan *plan,
        const struct rps_bag_piece *piece, const struct rps_batch *batch,
        const struct rps_dedup *dedup, bool push, struct rps_builder *builder)
{
    const uint32_t *index = plan->index + piece->occurrence_first;
    struct rps_section section = {.table_id = batch->table->id,
            .kind = RPS_SECTION_INDEX,
            .count = piece->occurrence_count};
    size_t at;

    write_keys(plan, piece, batch, dedup, push, builder);
    write_counts(plan, piece, batch, dedup, push, builder);
    if (!is_identity(index, piece->occurrence_count)) {
        rps_builder_add(builder, &section, index);
    }
    section.kind = RPS_SECTION_OFFSETS;
    section.count = (uint64_t)piece->entry_count + 1;
    at = rps_builder_reserve(builder, &section);
    if (at != 0) {
        memset(builder->frame + at, 0, sizeof(uint32_t));
        memcpy(builder->frame + at + sizeof(uint32_t),
                plan->ends + piece->entry_first,
                piece->entry_count * sizeof(uint32_t));
    }
}

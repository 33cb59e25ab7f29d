/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the numbers and verdicts of every (client, lane). Leaves what a
 * request does, and which requests are numbered, to service.c.
 */
#include "server/lane.h"

#include "base/clock.h"
#include "base/hash.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LANE_BUCKETS  4096u
#define SWEEP_BUCKETS 16u /* looked at by each attach */

struct rps_lane {
    struct rps_lane *next; /* of its bucket */
    uint64_t client;
    uint32_t lane;
    bool busy;      /* a numbered request is being served */
    uint32_t users; /* open connections and waiting HELLOs */
    uint64_t turn;  /* of the newest connection */
    uint64_t used;  /* lanes->clock when it was last attached or ended */
    uint64_t idle_since_ms; /* users fell to 0, or it was restored */
    uint64_t last;          /* newest number with a verdict */
    struct rps_verdicts verdicts;
};

struct rps_lanes {
    pthread_mutex_t lock; /* guards everything below */
    pthread_cond_t idle;  /* a lane stopped being busy */
    uint64_t clock;
    uint64_t ttl_ms; /* set before use; 0: none */
    uint32_t sweep;  /* bucket that is looked at next */
    uint64_t reconnects;
    uint64_t repeats;
    size_t count;
    struct rps_lane *buckets[LANE_BUCKETS];
};

void
rps_verdicts_keep(
        struct rps_verdicts *verdicts, uint64_t number, rps_status status)
{
    size_t slot = number % RPS_VERDICTS_KEPT;

    verdicts->number[slot] = number;
    verdicts->status[slot] = (int32_t)status;
}

bool
rps_verdicts_find(const struct rps_verdicts *verdicts, uint64_t number,
        rps_status *status_out)
{
    size_t slot = number % RPS_VERDICTS_KEPT;

    if (number == 0 || verdicts->number[slot] != number) {
        return false;
    }
    *status_out = (rps_status)verdicts->status[slot];
    return true;
}

struct rps_lanes *
rps_lanes_create(uint64_t ttl_ms)
{
    struct rps_lanes *lanes = calloc(1, sizeof(*lanes));

    if (lanes != NULL) {
        lanes->ttl_ms = ttl_ms;
        pthread_mutex_init(&lanes->lock, NULL);
        pthread_cond_init(&lanes->idle, NULL);
    }
    return lanes;
}

void
rps_lanes_destroy(struct rps_lanes *lanes)
{
    if (lanes == NULL) {
        return;
    }
    for (size_t b = 0; b < LANE_BUCKETS; b++) {
        while (lanes->buckets[b] != NULL) {
            struct rps_lane *lane = lanes->buckets[b];

            lanes->buckets[b] = lane->next;
            free(lane);
        }
    }
    pthread_cond_destroy(&lanes->idle);
    pthread_mutex_destroy(&lanes->lock);
    free(lanes);
}

static struct rps_lane **
bucket_of(struct rps_lanes *lanes, uint64_t client, uint32_t lane)
{
    return &lanes->buckets[rps_mix64(client ^ rps_mix64(lane)) % LANE_BUCKETS];
}

static bool
is_stale(const struct rps_lanes *lanes, const struct rps_lane *lane,
        uint64_t now_ms)
{
    return lanes->ttl_ms != 0 && lane->users == 0 &&
           now_ms - lane->idle_since_ms > lanes->ttl_ms;
}

static void
forget_stale_locked(
        struct rps_lanes *lanes, struct rps_lane **at, uint64_t now_ms)
{
    while (*at != NULL) {
        struct rps_lane *lane = *at;

        if (is_stale(lanes, lane, now_ms)) {
            *at = lane->next;
            free(lane);
            lanes->count--;
        } else {
            at = &lane->next;
        }
    }
}

/* Its own bucket, and in turn the others. */
static void
sweep_locked(struct rps_lanes *lanes, struct rps_lane **bucket)
{
    const uint64_t now_ms = rps_clock_ms();

    forget_stale_locked(lanes, bucket, now_ms);
    for (uint32_t i = 0; i < SWEEP_BUCKETS; i++) {
        forget_stale_locked(lanes, &lanes->buckets[lanes->sweep], now_ms);
        lanes->sweep = (lanes->sweep + 1) % LANE_BUCKETS;
    }
}

/* Forget the lane that nobody has used for longest. */
static void
forget_oldest_locked(struct rps_lanes *lanes)
{
    struct rps_lane **oldest = NULL;

    for (size_t b = 0; b < LANE_BUCKETS; b++) {
        for (struct rps_lane **at = &lanes->buckets[b]; *at != NULL;
                at = &(*at)->next) {
            if ((*at)->users == 0 &&
                    (oldest == NULL || (*at)->used < (*oldest)->used)) {
                oldest = at;
            }
        }
    }
    if (oldest != NULL) {
        struct rps_lane *gone = *oldest;

        *oldest = gone->next;
        free(gone);
        lanes->count--;
    }
}

static struct rps_lane *
find_locked(struct rps_lanes *lanes, uint64_t client, uint32_t lane)
{
    struct rps_lane *at = *bucket_of(lanes, client, lane);

    while (at != NULL && (at->client != client || at->lane != lane)) {
        at = at->next;
    }
    return at;
}

static struct rps_lane *
add_locked(struct rps_lanes *lanes, uint64_t client, uint32_t lane)
{
    struct rps_lane **bucket = bucket_of(lanes, client, lane);
    struct rps_lane *made = calloc(1, sizeof(*made));

    if (made == NULL) {
        return NULL;
    }
    made->client = client;
    made->lane = lane;
    made->used = ++lanes->clock;
    made->idle_since_ms = rps_clock_ms();
    made->next = *bucket;
    *bucket = made;
    lanes->count++;
    return made;
}

struct rps_lane *
rps_lane_attach(struct rps_lanes *lanes, uint64_t client, uint32_t number,
        uint64_t *turn_out)
{
    struct rps_lane *lane;

    pthread_mutex_lock(&lanes->lock);
    sweep_locked(lanes, bucket_of(lanes, client, number));
    lane = find_locked(lanes, client, number);
    lanes->reconnects += lane != NULL;
    if (lane == NULL) {
        if (lanes->count >= RPS_LANES_MAX) {
            forget_oldest_locked(lanes);
        }
        lane = add_locked(lanes, client, number);
    }
    if (lane != NULL) {
        lane->users++;
        lane->used = ++lanes->clock;
        *turn_out = ++lane->turn;
        while (lane->busy) {
            pthread_cond_wait(&lanes->idle, &lanes->lock);
        }
    }
    pthread_mutex_unlock(&lanes->lock);
    return lane;
}

void
rps_lane_detach(struct rps_lanes *lanes, struct rps_lane *lane, uint64_t turn)
{
    if (lane == NULL) {
        return;
    }
    pthread_mutex_lock(&lanes->lock);
    assert(lane->users > 0 && turn <= lane->turn);
    lane->users--;
    lane->idle_since_ms = rps_clock_ms();
    pthread_mutex_unlock(&lanes->lock);
}

static enum rps_lane_answer
judge_locked(struct rps_lane *lane, uint64_t turn, uint64_t number,
        rps_status *verdict, struct rps_error *error)
{
    if (turn != lane->turn || lane->busy) {
        *verdict = rps_fail(error, RPS_E_CANCELED,
                "lane %" PRIu32 " was opened again by a newer connection",
                lane->lane);
        return RPS_LANE_REFUSE;
    }
    if (number == lane->last + 1) {
        return RPS_LANE_RUN;
    }
    if (rps_verdicts_find(&lane->verdicts, number, verdict)) {
        (void)rps_fail(error, *verdict,
                "number %" PRIu64 " was carried out before; this is its"
                " verdict",
                number);
        return RPS_LANE_REPEAT;
    }
    *verdict = rps_fail(error, RPS_E_INVAL,
            "number %" PRIu64 " on lane %" PRIu32 ": the next one is %" PRIu64
            " and verdicts of the last %u are kept",
            number, lane->lane, lane->last + 1, RPS_VERDICTS_KEPT);
    return RPS_LANE_REFUSE;
}

enum rps_lane_answer
rps_lane_begin(struct rps_lanes *lanes, struct rps_lane *lane, uint64_t turn,
        uint64_t number, rps_status *verdict, struct rps_error *error)
{
    enum rps_lane_answer answer;

    pthread_mutex_lock(&lanes->lock);
    answer = judge_locked(lane, turn, number, verdict, error);
    if (answer == RPS_LANE_RUN) {
        lane->busy = true;
    }
    lanes->repeats += answer == RPS_LANE_REPEAT;
    pthread_mutex_unlock(&lanes->lock);
    return answer;
}

void
rps_lane_end(struct rps_lanes *lanes, struct rps_lane *lane, uint64_t number,
        bool keep, rps_status verdict)
{
    pthread_mutex_lock(&lanes->lock);
    assert(lane->busy);
    lane->busy = false;
    lane->used = ++lanes->clock;
    if (keep) {
        lane->last = number;
        rps_verdicts_keep(&lane->verdicts, number, verdict);
    }
    pthread_cond_broadcast(&lanes->idle);
    pthread_mutex_unlock(&lanes->lock);
}

/* First number whose verdict may be kept. */
static uint64_t
first_kept(const struct rps_lane *lane)
{
    return lane->last >= RPS_VERDICTS_KEPT ? lane->last - RPS_VERDICTS_KEPT + 1
                                           : 1;
}

bool
rps_lane_describe(struct rps_lanes *lanes, struct rps_lane *lane, json_t *into)
{
    json_t *list = json_array();
    char text[24];
    bool good = list != NULL;

    pthread_mutex_lock(&lanes->lock);
    snprintf(text, sizeof(text), "%" PRIu64, lane != NULL ? lane->last : 0);
    good = good &&
           json_object_set_new(into, "last_number", json_string(text)) == 0;
    for (uint64_t n = lane != NULL ? first_kept(lane) : 1;
            good && lane != NULL && n <= lane->last; n++) {
        rps_status status;

        if (rps_verdicts_find(&lane->verdicts, n, &status)) {
            snprintf(text, sizeof(text), "%" PRIu64, n);
            good = json_array_append_new(
                           list, json_pack("[s, i]", text, (int)status)) == 0;
        }
    }
    pthread_mutex_unlock(&lanes->lock);
    return json_object_set_new(into, "verdicts", list) == 0 && good;
}

void
rps_lanes_figures_read(
        struct rps_lanes *lanes, struct rps_lanes_figures *figures)
{
    pthread_mutex_lock(&lanes->lock);
    *figures = (struct rps_lanes_figures){.lanes = lanes->count,
            .reconnects = lanes->reconnects,
            .repeats = lanes->repeats};
    pthread_mutex_unlock(&lanes->lock);
}

static size_t
record_locked(const struct rps_lane *lane, struct rps_lane_record *out)
{
    size_t count = 0;

    for (uint64_t n = first_kept(lane); n <= lane->last; n++) {
        rps_status status;

        if (rps_verdicts_find(&lane->verdicts, n, &status)) {
            out[count].client = lane->client;
            out[count].lane = lane->lane;
            out[count].status = (int32_t)status;
            out[count].number = n;
            count++;
        }
    }
    return count;
}

rps_status
rps_lanes_record(struct rps_lanes *lanes, struct rps_lane_record **records_out,
        size_t *count_out)
{
    const uint64_t now_ms = rps_clock_ms();
    struct rps_lane_record *records;
    size_t count = 0;

    pthread_mutex_lock(&lanes->lock);
    records = calloc(lanes->count * RPS_VERDICTS_KEPT + 1, sizeof(*records));
    for (size_t b = 0; records != NULL && b < LANE_BUCKETS; b++) {
        for (struct rps_lane *at = lanes->buckets[b]; at != NULL;
                at = at->next) {
            count += is_stale(lanes, at, now_ms)
                             ? 0
                             : record_locked(at, records + count);
        }
    }
    pthread_mutex_unlock(&lanes->lock);
    *records_out = records;
    *count_out = count;
    return records != NULL ? RPS_OK : RPS_E_NOMEM;
}

rps_status
rps_lanes_merge(struct rps_lanes *lanes, const struct rps_lane_record *records,
        size_t count)
{
    uint64_t before;
    rps_status status = RPS_OK;

    pthread_mutex_lock(&lanes->lock);
    before = lanes->clock; /* lanes made here have used > before */
    for (size_t i = 0; i < count && status == RPS_OK; i++) {
        const struct rps_lane_record *record = &records[i];
        struct rps_lane *lane =
                find_locked(lanes, record->client, record->lane);

        if (lane == NULL && lanes->count < RPS_LANES_MAX) {
            lane = add_locked(lanes, record->client, record->lane);
            status = lane != NULL ? RPS_OK : RPS_E_NOMEM;
        }
        if (lane != NULL && lane->used > before && lane->users == 0) {
            rps_verdicts_keep(&lane->verdicts, record->number,
                    (rps_status)record->status);
            lane->last =
                    record->number > lane->last ? record->number : lane->last;
        }
    }
    pthread_mutex_unlock(&lanes->lock);
    return status;
}

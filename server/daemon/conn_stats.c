/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns when a connection's requests began, so that the loop's statistics know
 * how long each took: from its header's arrival to its reply. Most are
 * answered within rps_service_handle(); the others are remembered by their
 * id until they are.
 */
#include "base/clock.h"
#include "server/daemon/conn_impl.h"

#include <stdlib.h>
#include <string.h>

static struct rps_loop_stats *
stats_of(const struct rps_conn *conn)
{
    return rps_loop_stats(conn->loop);
}

void
rps_conn_stats_begin(struct rps_conn *conn)
{
    conn->answered = false;
    rps_stat_add(&stats_of(conn)->pending, 1);
}

void
rps_conn_stats_keys(struct rps_conn *conn, const struct rps_message *message)
{
    uint64_t keys = 0;
    bool any = false;

    for (uint32_t i = 0; i < message->section_count; i++) {
        if (message->sections[i].kind == RPS_SECTION_KEYS) {
            keys += message->sections[i].count;
            any = true;
        }
    }
    if (any) {
        rps_loop_stats_keys(stats_of(conn), message->header.opcode, keys);
    }
}

/* At most RPS_CONN_PENDING_MAX. Without memory its time is not counted. */
static void
remember(struct rps_conn *conn)
{
    struct rps_waiting *grown;

    if (conn->waiting_count == conn->waiting_capacity) {
        const uint32_t capacity = conn->waiting_capacity * 2 + 4;

        grown = realloc(conn->waiting, capacity * sizeof(*grown));
        if (grown == NULL) {
            return;
        }
        conn->waiting = grown;
        conn->waiting_capacity = capacity;
    }
    conn->waiting[conn->waiting_count++] = (struct rps_waiting){
            .request_id = conn->header.request_id, .since_ns = conn->header_ns};
    rps_stat_add(&stats_of(conn)->parked, 1);
}

void
rps_conn_stats_end(struct rps_conn *conn)
{
    if (!conn->answered && !conn->dead) {
        remember(conn);
    }
}

/* When the request began; 0: not known. */
static uint64_t
recall(struct rps_conn *conn, uint64_t request_id)
{
    for (uint32_t i = 0; i < conn->waiting_count; i++) {
        if (conn->waiting[i].request_id == request_id) {
            const uint64_t since_ns = conn->waiting[i].since_ns;

            conn->waiting[i] = conn->waiting[--conn->waiting_count];
            rps_stat_add(&stats_of(conn)->parked, UINT64_MAX);
            return since_ns;
        }
    }
    return 0;
}

void
rps_conn_stats_reply(struct rps_conn *conn, const uint8_t *frame,
        uint16_t opcode, int32_t status)
{
    uint64_t now = rps_clock_ns();
    uint64_t since = 0;
    uint64_t request_id;

    memcpy(&request_id, frame + 16, sizeof(request_id)); /* proto/frame.h */
    if (conn->handling && !conn->answered &&
            request_id == conn->header.request_id) {
        conn->answered = true;
        since = conn->header_ns;
    } else {
        since = recall(conn, request_id);
    }
    rps_stat_add(&stats_of(conn)->pending, UINT64_MAX);
    rps_loop_stats_reply(
            stats_of(conn), opcode, status, since != 0 ? now - since : 0);
}

void
rps_conn_stats_finish(struct rps_conn *conn)
{
    struct rps_loop_stats *stats = stats_of(conn);

    rps_stat_add(&stats->pending, 0 - (uint64_t)conn->pending);
    rps_stat_add(&stats->parked, 0 - (uint64_t)conn->waiting_count);
    rps_stat_add(&stats->unsent_bytes, 0 - (uint64_t)conn->out_bytes);
    free(conn->waiting);
}

void
rps_conn_stats_lost(struct rps_conn *conn, const char *event)
{
    static const struct {
        const char *event;
        enum rps_refused why;
    } reasons[] = {{"bad_frame", RPS_REFUSED_BAD_FRAME},
            {"no_hello", RPS_REFUSED_NO_HELLO},
            {"handshakes_max", RPS_REFUSED_HANDSHAKES},
            {"tls_failed", RPS_REFUSED_TLS}, {"stalled", RPS_REFUSED_STALLED}};
    enum rps_refused why = RPS_REFUSED_MEMORY;

    for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++) {
        if (strcmp(event, reasons[i].event) == 0) {
            why = reasons[i].why;
        }
    }
    rps_stat_add(&stats_of(conn)->refused[why], 1);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * QUIT: the state as lines of the log, for a server that behaves oddly and
 * whose admin port nobody can reach. It goes on.
 */
#include "base/clock.h"
#include "base/log.h"
#include "server/daemon/daemon_impl.h"

#include <inttypes.h>

#define TABLES_WAIT_MS 200u

static const char *const busy_words[] = {[RPS_BUSY_NOT] = "nothing",
        [RPS_BUSY_SAVE] = "save",
        [RPS_BUSY_RESTORE] = "restore"};

static void
dump_service(struct rps_daemon *daemon)
{
    const struct rps_service_figures *figures = &daemon->figures;
    struct rps_error live = {.text = ""};
    struct rps_error ready = {.text = ""};

    (void)rps_is_live(&daemon->view, &live);
    (void)rps_is_ready(&daemon->view, &ready);
    rps_log_asked("state",
            "live=\"%s\" ready=\"%s\" epoch=%" PRIu32 " step=%" PRIu64
            " connections=%u writer=%s writer_ms=%" PRIu64
            " writer_waiting=%zu memory_used=%" PRIu64 " memory_limit=%" PRIu64
            " saves=%" PRIu64 " save_failures=%" PRIu64 " tables=%zu",
            live.text[0] != '\0' ? live.text : "yes",
            ready.text[0] != '\0' ? ready.text : "yes", figures->epoch,
            figures->step, atomic_load(&daemon->shared.connections),
            busy_words[figures->busy],
            figures->busy != RPS_BUSY_NOT ? figures->busy_ms : 0,
            figures->writer_waiting, figures->memory_used,
            figures->memory_limit, figures->saves, figures->save_failures,
            figures->table_count);
}

static void
dump_loop(const struct rps_daemon *daemon, uint32_t index)
{
    const struct rps_loop_stats *stats = rps_loop_stats(daemon->loops[index]);
    const uint64_t now = rps_clock_ns();
    const uint64_t tick = rps_stat_get(&stats->tick_ns);

    rps_log_asked("state_loop",
            "loop=%" PRIu32 " turned_ms_ago=%" PRIu64 " requests=%" PRIu64
            " parked=%" PRIu64 " unsent_bytes=%" PRIu64
            " received_bytes=%" PRIu64 " sent_bytes=%" PRIu64,
            index, now > tick ? (now - tick) / 1000000 : 0,
            rps_stat_get(&stats->pending), rps_stat_get(&stats->parked),
            rps_stat_get(&stats->unsent_bytes),
            rps_stat_get(&stats->received_bytes),
            rps_stat_get(&stats->sent_bytes));
}

static void
dump_table(const struct rps_table_figures *table)
{
    rps_log_asked("state_table",
            "table=%s dim=%" PRIu32 " rows=%" PRIu64 " bytes=%" PRIu64
            " lookups=%" PRIu64 " missing=%" PRIu64 " pushes=%" PRIu64
            " evicted=%" PRIu64 " refused=%" PRIu64,
            table->name, table->dim, table->rows, table->bytes, table->lookups,
            table->missing, table->pushes,
            table->evicted_cold + table->evicted_full, table->dropped);
}

void
rps_daemon_dump(struct rps_daemon *daemon)
{
    struct rps_service_figures *figures = &daemon->figures;

    if (rps_service_figures_read(daemon->service, TABLES_WAIT_MS, figures) !=
            RPS_OK) {
        rps_log_asked("state",
                "the tables cannot be looked at now; what follows of them is "
                "of an earlier time");
    }
    dump_service(daemon);
    for (uint32_t i = 0; i < daemon->loop_count; i++) {
        dump_loop(daemon, i);
    }
    for (size_t i = 0; i < figures->table_count; i++) {
        dump_table(&figures->tables[i]);
    }
}

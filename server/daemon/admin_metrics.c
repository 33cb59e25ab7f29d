/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /metrics. Labels are bounded: names of tables, opcodes, statuses, loops;
 * never a key, a user or a peer. The loops' counters are summed (loop_sums.h),
 * so that nobody else has to.
 */
#include "admin/exposition.h"
#include "admin/process_metrics.h"
#include "base/clock.h"
#include "server/daemon/admin_impl.h"
#include "server/daemon/loop_sums.h"
#include "server/daemon/version.h"

#include <recps/client.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define LABELS_BYTES 320u /* a table's name, escaped, and one more label */

/* ---- requests ---- */

static const char *
op_name(uint16_t op)
{
    return op == 0 ? "UNKNOWN" : rps_opcode_str(op);
}

/* RPS_E_LIMIT: LIMIT; RPS_OK: OK. */
static const char *
code_name(int code)
{
    const char *name = rps_status_str((rps_status)-code);

    return name + (strncmp(name, "RPS_E_", 6) == 0 ? 6 : 4);
}

static void
add_replies(struct rps_text *text, const struct rps_view *view)
{
    static const char name[] = "recps_requests_total";

    rps_family(text, name, "counter", "Requests answered, by how.");
    for (uint16_t op = 0; op < RPS_OPS_COUNTED; op++) {
        for (int code = 0; code < RPS_CODES_COUNTED; code++) {
            const uint64_t n = RPS_LOOPS_SUM(view, replies[op][code]);
            char labels[LABELS_BYTES];

            if (n > 0) {
                snprintf(labels, sizeof(labels), "op=\"%s\",code=\"%s\"",
                        op_name(op), code_name(code));
                rps_sample(text, name, labels, n);
            }
        }
    }
}

/* Ends a histogram: the bucket of everything, the sum, the count. */
static void
end_histogram(struct rps_text *text, const char *name, const char *op,
        uint64_t count, double sum)
{
    rps_text_add(text, "%s_bucket{op=\"%s\",le=\"+Inf\"} %" PRIu64 "\n", name,
            op, count);
    rps_text_add(text, "%s_sum{op=\"%s\"} %.15g\n", name, op, sum);
    rps_text_add(text, "%s_count{op=\"%s\"} %" PRIu64 "\n", name, op, count);
}

static void
add_times_of(struct rps_text *text, const struct rps_view *view,
        const char *name, uint16_t op)
{
    uint64_t counts[RPS_TIME_BUCKETS];
    uint64_t total = 0, below = 0;

    for (uint32_t i = 0; i < RPS_TIME_BUCKETS; i++) {
        counts[i] = RPS_LOOPS_SUM(view, times[op].buckets[i]);
        total += counts[i];
    }
    if (total == 0) {
        return;
    }
    for (uint32_t i = 0; i + 1 < RPS_TIME_BUCKETS; i++) {
        below += counts[i];
        rps_text_add(text, "%s_bucket{op=\"%s\",le=\"%.12g\"} %" PRIu64 "\n",
                name, op_name(op), (double)rps_time_bucket_begin(i + 1) / 1e9,
                below);
    }
    end_histogram(text, name, op_name(op), total,
            (double)RPS_LOOPS_SUM(view, times[op].ns) / 1e9);
}

static void
add_sizes_of(struct rps_text *text, const struct rps_view *view,
        const char *name, uint16_t op)
{
    uint64_t counts[RPS_SIZE_BUCKETS];
    uint64_t total = 0, below = 0;

    for (uint32_t i = 0; i < RPS_SIZE_BUCKETS; i++) {
        counts[i] = RPS_LOOPS_SUM(view, keys[op].buckets[i]);
        total += counts[i];
    }
    if (total == 0) {
        return;
    }
    for (uint32_t i = 0; i + 1 < RPS_SIZE_BUCKETS; i++) {
        below += counts[i];
        rps_text_add(text, "%s_bucket{op=\"%s\",le=\"%u\"} %" PRIu64 "\n", name,
                op_name(op), 1u << (2 * i), below);
    }
    end_histogram(text, name, op_name(op), total,
            (double)RPS_LOOPS_SUM(view, keys[op].sum));
}

static void
add_requests(struct rps_text *text, const struct rps_view *view)
{
    static const char seconds[] = "recps_request_duration_seconds";
    static const char keys[] = "recps_request_keys";

    add_replies(text, view);
    rps_family(text, seconds, "histogram",
            "From a request's header to its reply, waiting included.");
    for (uint16_t op = 0; op < RPS_OPS_COUNTED; op++) {
        add_times_of(text, view, seconds, op);
    }
    rps_family(text, keys, "histogram", "Keys a request names.");
    for (uint16_t op = 0; op < RPS_OPS_COUNTED; op++) {
        add_sizes_of(text, view, keys, op);
    }
}

/* ---- connections and loops ---- */

static void
add_refused(struct rps_text *text, const struct rps_view *view)
{
    static const char name[] = "recps_connections_refused_total";
    static const char *const reasons[RPS_REFUSED_COUNT] = {
            [RPS_REFUSED_LIMIT] = "reason=\"limit\"",
            [RPS_REFUSED_BAD_FRAME] = "reason=\"bad_frame\"",
            [RPS_REFUSED_NO_HELLO] = "reason=\"no_hello\"",
            [RPS_REFUSED_HANDSHAKES] = "reason=\"handshakes_max\"",
            [RPS_REFUSED_TLS] = "reason=\"tls_failed\"",
            [RPS_REFUSED_MEMORY] = "reason=\"memory\"",
            [RPS_REFUSED_STALLED] = "reason=\"stalled\""};

    rps_family(text, name, "counter",
            "Connections that the server closed, by the reason.");
    for (uint32_t i = 0; i < RPS_REFUSED_COUNT; i++) {
        uint64_t n = RPS_LOOPS_SUM(view, refused[i]);

        if (i == RPS_REFUSED_LIMIT) {
            n += rps_stat_get(&view->shared->turned_away);
        }
        rps_sample(text, name, reasons[i], n);
    }
}

/* A loop that stands still is as late as it is by now. */
static void
add_lag(struct rps_text *text, const struct rps_view *view)
{
    static const char name[] = "recps_event_loop_lag_seconds";
    const uint64_t period = (uint64_t)RPS_LOOP_TICK_MS * 1000000u;

    rps_family(text, name, "gauge", "How late a loop's clock turns.");
    for (uint32_t i = 0; i < rps_loops_of(view); i++) {
        const struct rps_loop_stats *stats = rps_loop_stats(view->loops[i]);
        const uint64_t due = rps_stat_get(&stats->tick_ns) + period;
        const uint64_t now = rps_clock_ns();
        uint64_t lag = rps_stat_get(&stats->lag_ns);
        char labels[32];

        lag = now > due && now - due > lag ? now - due : lag;
        snprintf(labels, sizeof(labels), "loop=\"%" PRIu32 "\"", i);
        rps_sample_real(text, name, labels, (double)lag / 1e9);
    }
}

static void
add_connections(struct rps_text *text, const struct rps_view *view,
        const struct rps_service_figures *figures)
{
    static const char queue[] = "recps_queue_depth";
    static const char over[] = "recps_transport_connections";

    rps_gauge(text, "recps_connections", "Connections that are open.",
            (double)atomic_load(&view->shared->connections));
    rps_family(text, over, "gauge", "Of them, by how frames reach us.");
    for (int i = RPS_TRANSPORT_TCP; i <= RPS_TRANSPORT_SHM; i++) {
        char label[32];

        snprintf(label, sizeof(label), "transport=\"%s\"",
                rps_transport_str((enum rps_transport)i));
        rps_sample(text, over, label, RPS_LOOPS_SUM(view, open[i]));
    }
    rps_gauge(text, "recps_shm_bytes",
            "Memory shared with clients; part of the memory limit.",
            (double)RPS_LOOPS_SUM(view, ring_bytes));
    rps_gauge(text, "recps_connections_limit", "The option connections_max.",
            (double)view->shared->connections_max);
    rps_counter(text, "recps_connections_accepted_total",
            "Connections that were served.", RPS_LOOPS_SUM(view, accepted));
    add_refused(text, view);
    rps_counter(text, "recps_auth_failures_total",
            "HELLOs without a proof of the token, or with a wrong one.",
            figures->auth_failures);
    rps_gauge(text, "recps_clients", "Clients whose numbers are known.",
            (double)figures->lanes);
    rps_counter(text, "recps_reconnects_total",
            "HELLOs of a client that was known.", figures->reconnects);
    rps_counter(text, "recps_repeated_requests_total",
            "Changes that came again and got their kept verdict.",
            figures->repeats);
    rps_counter(text, "recps_received_bytes_total",
            "Bytes of frames read from peers, without what TLS adds.",
            RPS_LOOPS_SUM(view, received_bytes));
    rps_counter(text, "recps_sent_bytes_total",
            "Bytes of frames written to peers, without what TLS adds.",
            RPS_LOOPS_SUM(view, sent_bytes));
    rps_gauge(text, "recps_unsent_bytes", "Replies that peers did not take.",
            (double)RPS_LOOPS_SUM(view, unsent_bytes));
    rps_gauge(text, "recps_buffer_bytes",
            "Memory of connections: requests that come in, replies that are "
            "not taken yet.",
            (double)RPS_LOOPS_SUM(view, held_bytes));
    rps_gauge(text, "recps_buffer_limit_bytes", "The option buffers_max.",
            (double)view->shared->buffers_max);
    rps_gauge(text, "recps_connections_waiting",
            "Connections that are not read from until others need less.",
            (double)RPS_LOOPS_SUM(view, waiting));
    rps_family(text, queue, "gauge",
            "Requests without an answer; of them, those that wait for other "
            "members or the writer; what waits for the writer's thread.");
    rps_sample(text, queue, "queue=\"requests\"", RPS_LOOPS_SUM(view, pending));
    rps_sample(text, queue, "queue=\"parked\"", RPS_LOOPS_SUM(view, parked));
    rps_sample(text, queue, "queue=\"writer\"", figures->writer_waiting);
    add_lag(text, view);
}

/* ---- tables ---- */

struct table_metric {
    const char *name; /* rows of one family stand together */
    const char *type;
    const char *help;
    const char *label; /* beside the table's; "" for none */
    size_t offset;     /* of a uint64_t */
};

#define FIELD(field) offsetof(struct rps_table_figures, field)
/* clang-format off */
static const struct table_metric table_metrics[] = {
    {"recps_rows", "gauge", "Rows of a table.", "", FIELD(rows)},
    {"recps_table_bytes", "gauge", "Memory of a table, its index included.",
        "", FIELD(bytes)},
    {"recps_table_index_bytes", "gauge", "Of them, the index.", "",
        FIELD(index_bytes)},
    {"recps_table_admission_bytes", "gauge",
        "Of them, counts of keys without a row.", "", FIELD(admission_bytes)},
    {"recps_table_memory_limit_bytes", "gauge",
        "The table's own limit; 0: none.", "", FIELD(memory_limit)},
    {"recps_pending_keys", "gauge", "Keys that are counted and have no row.",
        "", FIELD(admission_keys)},
    {"recps_keys_looked_up_total", "counter", "Keys of lookups.", "",
        FIELD(lookups)},
    {"recps_keys_missing_total", "counter", "Of them, keys without a row.",
        "", FIELD(missing)},
    {"recps_pushes_applied_total", "counter",
        "Pushes (async) or steps (sync) that changed the table.", "",
        FIELD(pushes)},
    {"recps_gradients_applied_total", "counter",
        "Optimizer steps of rows.", "", FIELD(applied)},
    {"recps_gradients_dropped_total", "counter",
        "Gradients that changed no row, by the reason.",
        ",reason=\"nonfinite\"", FIELD(nonfinite)},
    {"recps_gradients_dropped_total", NULL, NULL, ",reason=\"unadmitted\"",
        FIELD(unadmitted)},
    {"recps_rows_inserted_total", "counter", "Rows that were made.", "",
        FIELD(inserted)},
    {"recps_rows_erased_total", "counter", "Rows erased by request.", "",
        FIELD(erased)},
    {"recps_rows_evicted_total", "counter", "Rows evicted, by the reason.",
        ",reason=\"cold\"", FIELD(evicted_cold)},
    {"recps_rows_evicted_total", NULL, NULL, ",reason=\"full\"",
        FIELD(evicted_full)},
    {"recps_disk_rows", "gauge", "Of a table's rows, those on the disk.", "",
        FIELD(disk_rows)},
    {"recps_disk_bytes", "gauge", "What they take there.", "",
        FIELD(disk_bytes)},
    {"recps_disk_keys_looked_up_total", "counter",
        "Keys of lookups whose row was on the disk.", "", FIELD(disk_hits)},
    {"recps_rows_lowered_total", "counter", "Rows that went to the disk.", "",
        FIELD(lowered)},
    {"recps_rows_raised_total", "counter", "Rows that came back from it.", "",
        FIELD(raised)},
    {"recps_rows_rejected_total", "counter",
        "New keys that found no room, all of a refused push each time.",
        ",reason=\"full\"", FIELD(dropped)},
};
/* clang-format on */
#undef FIELD

static void
add_tables(struct rps_text *text, const struct rps_service_figures *figures)
{
    const char *name = "";

    for (size_t m = 0; m < sizeof(table_metrics) / sizeof(table_metrics[0]);
            m++) {
        const struct table_metric *metric = &table_metrics[m];

        if (metric->type != NULL) {
            name = metric->name;
            rps_family(text, name, metric->type, metric->help);
        }
        for (size_t i = 0; i < figures->table_count; i++) {
            const struct rps_table_figures *table = &figures->tables[i];
            char labels[LABELS_BYTES];
            uint64_t value;

            memcpy(&value, (const char *)table + metric->offset, sizeof(value));
            rps_label(labels, sizeof(labels) - 32, "table", table->name);
            strcat(labels, metric->label);
            rps_sample(text, name, labels, value);
        }
    }
}

/* ---- the server ---- */

/* PS 0 alone knows them; before a job began there is no sample. */
static void
add_replicas(struct rps_text *text, const struct rps_job_figures *job)
{
    static const char info[] = "recps_job_info";
    static const char replicas[] = "recps_replicas";
    static const char behind[] = "recps_replicas_behind_steps";
    char labels[LABELS_BYTES];

    rps_family(text, info, "gauge", "What the job's steps wait for.");
    if (job->begun) {
        rps_label(labels, sizeof(labels), "mode", job->mode);
        rps_sample(text, info, labels, 1);
    }
    rps_family(text, replicas, "gauge",
            "Replicas of the job: waited for, left, or lost or silent and "
            "given up (on_lost leave).");
    if (job->begun) {
        rps_sample(text, replicas, "state=\"here\"", job->here);
        rps_sample(text, replicas, "state=\"left\"", job->left);
        rps_sample(text, replicas, "state=\"given_up\"", job->given_up);
    }
    rps_family(text, behind, "gauge",
            "Steps between the first and the last replica that is here.");
    if (job->begun) {
        rps_sample(text, behind, "", job->behind);
    }
}

static void
add_job(struct rps_text *text, const struct rps_service_figures *figures)
{
    static const char dropped[] = "recps_contributions_dropped_total";

    rps_gauge(text, "recps_epoch", "Epoch of the job; 0: none began.",
            figures->epoch);
    rps_gauge(text, "recps_step", "The last step that was applied.",
            (double)figures->step);
    rps_family(text, dropped, "counter",
            "Replicas' pushes of a step that changed nothing: after their "
            "step's decision, or not counted by it.");
    rps_sample(text, dropped, "reason=\"late\"", figures->late);
    rps_sample(text, dropped, "reason=\"uncounted\"", figures->uncounted);
    add_replicas(text, &figures->job);
    rps_gauge(text, "recps_memory_used_bytes", "Memory of all tables.",
            (double)figures->memory_used);
    rps_gauge(text, "recps_memory_limit_bytes",
            "The option memory_limit; 0: none.", (double)figures->memory_limit);
}

/* What a save costs those who push. */
static void
add_cuts(struct rps_text *text, const struct rps_service_figures *figures)
{
    rps_gauge(text, "recps_checkpoint_cut_pause_seconds",
            "How long no row could change for the last cut.",
            figures->save_pause);
    rps_gauge(text, "recps_checkpoint_barrier_seconds",
            "How long replicas were held for the last cut of async, at PS 0.",
            figures->save_barrier);
    rps_gauge(text, "recps_checkpoint_open",
            "1 from a cut until it is saved or given up.", figures->save_open);
    rps_gauge(text, "recps_save_buffer_bytes",
            "Rows that changed before they were written, copied.",
            (double)figures->save_buffer_bytes);
    rps_gauge(text, "recps_save_buffer_peak_bytes",
            "The most of them since the start.",
            (double)figures->save_buffer_peak);
    rps_gauge(text, "recps_save_buffer_limit_bytes", "The option save_buffer.",
            (double)figures->save_buffer_limit);
    rps_counter(text, "recps_save_buffer_rows_total", "Rows that were copied.",
            figures->save_copied);
    rps_counter(text, "recps_save_buffer_waits_total",
            "Pushes that waited for the disk, as the buffer was full.",
            figures->save_waits);
}

static void
add_checkpoints(
        struct rps_text *text, const struct rps_service_figures *figures)
{
    static const char busy[] = "recps_checkpoint_in_progress";

    rps_counter(text, "recps_checkpoints_total",
            "Checkpoints of which this server committed its part.",
            figures->saves);
    rps_counter(text, "recps_checkpoint_failures_total",
            "Saves that failed or were given up, here.",
            figures->save_failures);
    rps_gauge(text, "recps_checkpoint_last_success_timestamp_seconds",
            "When the last one was committed; 0: none since the start.",
            (double)figures->saved_unix_s);
    rps_gauge(text, "recps_checkpoint_duration_seconds",
            "Of the last one, from its cut to the end of COMMIT.",
            figures->save_seconds);
    rps_gauge(text, "recps_checkpoint_bytes",
            "Of the last one, this server's files.",
            (double)figures->save_bytes);
    rps_gauge(text, "recps_checkpoint_is_delta",
            "1 where the last one holds only what changed.",
            figures->save_delta);
    add_cuts(text, figures);
    rps_counter(text, "recps_restores_total",
            "Epochs begun, with a checkpoint's tables or empty ones.",
            figures->restores);
    rps_counter(text, "recps_restore_failures_total", "RESTOREs that failed.",
            figures->restore_failures);
    rps_gauge(text, "recps_restore_duration_seconds", "Of the last RESTORE.",
            figures->restore_seconds);
    rps_family(text, busy, "gauge", "1 while the writer's thread is at it.");
    rps_sample(text, busy, "what=\"save\"", figures->busy == RPS_BUSY_SAVE);
    rps_sample(
            text, busy, "what=\"restore\"", figures->busy == RPS_BUSY_RESTORE);
    rps_gauge(text, "recps_restore_rows_read",
            "Rows that the RESTORE in hand, or the last one, has read.",
            (double)figures->restore_rows);
    rps_gauge(text, "recps_restore_rows_expected", "All that it reads.",
            (double)figures->restore_rows_total);
}

/* A server that trains has no samples of it. */
static void
add_serving(struct rps_text *text, const struct rps_serving_figures *serving)
{
    static const char step[] = "recps_serving_step";
    static const char age[] = "recps_serving_age_seconds";
    static const char loads[] = "recps_serving_loads_total";
    static const char failures[] = "recps_serving_load_failures_total";

    rps_family(text, step, "gauge", "Step of the checkpoint that is served.");
    if (serving->holds) {
        rps_sample(text, step, "", serving->step);
    }
    rps_family(text, age, "gauge", "Since it was saved.");
    if (serving->holds) {
        rps_sample(text, age, "", serving->age_seconds);
    }
    rps_family(text, loads, "counter",
            "Checkpoints that became the one that is served: deltas written "
            "in place, or loaded whole.");
    if (serving->is_serving) {
        rps_sample(text, loads, "how=\"delta\"", serving->loads_delta);
        rps_sample(text, loads, "how=\"full\"", serving->loads_full);
    }
    rps_family(text, failures, "counter", "Checkpoints that were passed over.");
    if (serving->is_serving) {
        rps_sample(text, failures, "", serving->load_failures);
    }
}

static void
add_process(struct rps_text *text, const struct rps_view *view)
{
    rps_process_metrics_add(text);
    rps_gauge(text, "recps_cgroup_memory_limit_bytes",
            "Limit of the control group; 0: none.", (double)view->memory_max);
}

static void
add_identity(struct rps_text *text, const struct rps_view *view)
{
    rps_family(text, "recps_build_info", "gauge", "1, with what this is.");
    rps_sample(text, "recps_build_info",
            "version=\"" RPS_VERSION "\",commit=\"" RPS_COMMIT "\"", 1);
    rps_gauge(text, "recps_ready", "1 where /readyz says so.",
            rps_is_ready(view, NULL));
}

void
rps_admin_metrics(
        const struct rps_admin_request *request, struct rps_http_answer *answer)
{
    struct rps_text *text = &answer->body;

    answer->type = RPS_EXPOSITION_TYPE;
    /* where the tables cannot be looked at now, those of before are shown */
    (void)rps_service_figures_read(
            request->view->service, RPS_ADMIN_TABLES_MS, request->figures);
    add_identity(text, request->view);
    add_job(text, request->figures);
    add_tables(text, request->figures);
    add_requests(text, request->view);
    add_connections(text, request->view, request->figures);
    add_checkpoints(text, request->figures);
    add_serving(text, &request->figures->serving);
    add_process(text, request->view);
}

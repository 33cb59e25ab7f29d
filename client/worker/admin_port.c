/* SPDX-License-Identifier: Apache-2.0 */
#include "client/worker/admin_port.h"

#include "admin/exposition.h"
#include "admin/http.h"
#include "admin/port_file.h"
#include "admin/process_metrics.h"
#include "base/clock.h"
#include "base/log.h"

#include <assert.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BIND_RETRY_MS 250u
#define BIND_WAIT_MS  3000u
#define LOOK_NS       1000000000u /* rates are over this time at least */
#define LABELS_BYTES  128u

struct rps_admin_port {
    const struct rps_settings *settings; /* borrowed */
    struct rps_usage_machine machine;    /* set before start */
    struct rps_http *http;
    uint16_t port;

    pthread_mutex_t lock; /* guards: */
    uint64_t step;        /* 0: none yet */
    uint32_t epoch;
    double loss;
    uint64_t samples;
    uint64_t stage_ns[RPS_SPENT_COUNT];
    struct rps_report_cache cache;   /* capacity 0: none */
    rps_admin_device_fn read_device; /* NULL: none */
    void *device;

    /* admin thread */
    struct rps_usage_look before;
    struct rps_usage_look now;
};

/* What the loop left, at a moment. */
struct seen {
    uint64_t step;
    uint32_t epoch;
    double loss;
    uint64_t samples;
    uint64_t stage_ns[RPS_SPENT_COUNT];
    uint64_t stages_ns; /* their sum */
    struct rps_report_cache cache;
    struct rps_usage usage;
    struct rps_usage_look look;
};

static const char *const stages[RPS_SPENT_COUNT] = {
#define STAGE_NAME(constant, json, words) json,
        RPS_SPENT_STAGES(STAGE_NAME)
#undef STAGE_NAME
};

/* --- the loop's side ----------------------------------------------------- */

void
rps_admin_port_step(
        struct rps_admin_port *port, const struct rps_admin_step *step)
{
    if (port == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&port->lock);
    port->step = step->step;
    port->epoch = step->epoch;
    port->loss = step->loss;
    port->samples += step->samples;
    memcpy(port->stage_ns, step->spent->ns, sizeof(port->stage_ns));
    port->cache = step->cache;
    (void)pthread_mutex_unlock(&port->lock);
}

void
rps_admin_port_device(
        struct rps_admin_port *port, rps_admin_device_fn read, void *context)
{
    if (port == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&port->lock);
    port->read_device = read;
    port->device = context;
    (void)pthread_mutex_unlock(&port->lock);
}

/* --- looking ------------------------------------------------------------- */

static void
look_locked(struct rps_admin_port *port, struct rps_usage_look *look)
{
    rps_usage_look(look);
    look->samples = port->samples;
    look->has_device = port->read_device != NULL &&
                       port->read_device(port->device, &look->device);
}

/* Rates are between the last two looks, which are a second apart at least: two
 * who ask do not cut each other's time to pieces. */
static void
see(struct rps_admin_port *port, struct seen *seen)
{
    const uint64_t now = rps_clock_ns();

    *seen = (struct seen){.step = 0};
    (void)pthread_mutex_lock(&port->lock);
    if (port->before.at_ns == 0 || now - port->now.at_ns >= LOOK_NS) {
        port->before = port->now;
        look_locked(port, &port->now);
    }
    seen->step = port->step;
    seen->epoch = port->epoch;
    seen->loss = port->loss;
    seen->samples = port->samples;
    memcpy(seen->stage_ns, port->stage_ns, sizeof(seen->stage_ns));
    seen->cache = port->cache;
    (void)pthread_mutex_unlock(&port->lock);
    for (int i = 0; i < RPS_SPENT_COUNT; i++) {
        seen->stages_ns += seen->stage_ns[i];
    }
    seen->look = port->now;
    seen->usage = rps_usage_between(&port->machine, &port->before, &port->now);
}

static double
share_of(const struct seen *seen, int stage)
{
    return seen->stages_ns > 0
                   ? (double)seen->stage_ns[stage] / (double)seen->stages_ns
                   : 0.0;
}

/* --- /metrics ------------------------------------------------------------ */

static void
add_info(struct rps_text *text, const struct rps_settings *settings)
{
    const rps_cluster *cluster = &settings->options->cluster;
    char labels[LABELS_BYTES];

    (void)snprintf(labels, sizeof(labels),
            "version=\"" RPS_VERSION "\",role=\"%s\",index=\"%" PRIu32
            "\",rank=\"%" PRIu32 "\"",
            rps_role_str(cluster->role), cluster->index, settings->rank);
    rps_family(text, "recps_worker_info", "gauge", "1, with who this is.");
    rps_sample(text, "recps_worker_info", labels, 1);
}

/* A family without a sample says: there is no such thing here. */
static void
add_if_known(
        struct rps_text *text, const char *name, const char *help, double value)
{
    rps_family(text, name, "gauge", help);
    if (!isnan(value)) {
        rps_sample_real(text, name, "", value);
    }
}

static void
add_disk(struct rps_text *text, const struct seen *seen, const char *name,
        const char *help, uint64_t bytes)
{
    rps_family(text, name, "counter", help);
    if (seen->look.has_disk) {
        rps_sample(text, name, "", bytes);
    }
}

static void
add_usage(struct rps_text *text, const struct seen *seen)
{
    add_if_known(text, "recps_worker_cpu_usage_ratio",
            "Of the processors that this process may use, since the look "
            "before.",
            seen->usage.cpu_usage);
    add_if_known(text, "recps_worker_mem_usage_ratio",
            "Of the memory that this process may use.", seen->usage.mem_usage);
    add_if_known(text, "recps_worker_npu_util_ratio",
            "Time in which the device was busy, since the look before.",
            seen->usage.npu_util);
    add_if_known(text, "recps_worker_npu_mem_usage_ratio",
            "Of the device's memory, what its pool and the input queue took.",
            seen->usage.npu_mem_usage);
    add_disk(text, seen, "recps_worker_disk_read_bytes_total",
            "Read from disks, without what the page cache had.",
            seen->look.disk_read);
    add_disk(text, seen, "recps_worker_disk_write_bytes_total",
            "Written to disks.", seen->look.disk_written);
}

static void
add_stages(struct rps_text *text, const struct seen *seen)
{
    static const char seconds[] = "recps_worker_stage_seconds_total";
    static const char share[] = "recps_worker_stage_share_ratio";
    char labels[LABELS_BYTES];

    rps_family(text, seconds, "counter", "Time of the loop, by its stage.");
    for (int i = 0; i < RPS_SPENT_COUNT; i++) {
        rps_sample_real(text, seconds,
                rps_label(labels, sizeof(labels), "stage", stages[i]),
                (double)seen->stage_ns[i] * 1e-9);
    }
    rps_family(text, share, "gauge", "Of the loop's time, since its begin.");
    for (int i = 0; i < RPS_SPENT_COUNT; i++) {
        rps_sample_real(text, share,
                rps_label(labels, sizeof(labels), "stage", stages[i]),
                share_of(seen, i));
    }
}

static void
add_cache(struct rps_text *text, const struct rps_report_cache *cache)
{
    if (cache->capacity == 0) {
        return;
    }
    rps_counter(text, "recps_worker_cache_asked_rows_total",
            "Rows of a batch's distinct keys, with a device cache.",
            cache->asked);
    rps_counter(text, "recps_worker_cache_held_rows_total",
            "Of these, that were on the device.", cache->held);
    rps_counter(text, "recps_worker_cache_current_rows_total",
            "Of these, that were not fetched again.",
            cache->fresh + cache->unchanged);
}

static void
answer_metrics(struct rps_admin_port *port, struct rps_http_answer *answer)
{
    struct rps_text *text = &answer->body;
    struct seen seen;

    see(port, &seen);
    answer->type = RPS_EXPOSITION_TYPE;
    add_info(text, port->settings);
    rps_gauge(text, "recps_worker_step", "The last step that ended.",
            (double)seen.step);
    rps_gauge(text, "recps_worker_epoch", "Of the job.", (double)seen.epoch);
    add_if_known(text, "recps_worker_loss", "Of the last step.",
            seen.step > 0 ? seen.loss : (double)NAN);
    rps_counter(text, "recps_worker_samples_total",
            "Rows that were trained here.", seen.samples);
    add_if_known(text, "recps_worker_samples_per_second",
            "Since the look before.", seen.usage.samples_rate);
    add_usage(text, &seen);
    add_stages(text, &seen);
    add_cache(text, &seen.cache);
    rps_process_metrics_add(text);
}

/* --- /statz -------------------------------------------------------------- */

static void
set_number(json_t *object, const char *name, double value)
{
    if (isfinite(value)) {
        json_object_set_new(object, name, json_real(value));
    }
}

static json_t *
stages_json(const struct seen *seen)
{
    json_t *object = json_object();

    for (int i = 0; i < RPS_SPENT_COUNT; i++) {
        json_object_set_new(object, stages[i], json_real(share_of(seen, i)));
    }
    return object;
}

static void
answer_stat(struct rps_admin_port *port, struct rps_http_answer *answer)
{
    const rps_cluster *cluster = &port->settings->options->cluster;
    struct seen seen;
    json_t *object;
    char *text;

    see(port, &seen);
    object = json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:o}", "role",
            rps_role_str(cluster->role), "index", (json_int_t)cluster->index,
            "rank", (json_int_t)port->settings->rank, "step",
            (json_int_t)seen.step, "epoch", (json_int_t)seen.epoch,
            "resident_bytes", (json_int_t)seen.look.resident, "stages",
            stages_json(&seen));
    if (seen.step > 0) {
        set_number(object, "loss", seen.loss);
    }
    set_number(object, "samples_per_second", seen.usage.samples_rate);
    set_number(object, "cpu_usage", seen.usage.cpu_usage);
    set_number(object, "mem_usage", seen.usage.mem_usage);
    set_number(object, "npu_util", seen.usage.npu_util);
    set_number(object, "npu_mem_usage", seen.usage.npu_mem_usage);
    set_number(object, "disk_read_rate", seen.usage.disk_read_rate);
    set_number(object, "disk_write_rate", seen.usage.disk_write_rate);
    if (seen.cache.asked > 0) {
        set_number(object, "cache_hit_rate",
                (double)seen.cache.held / (double)seen.cache.asked);
    }
    text = object != NULL ? json_dumps(object, JSON_COMPACT | JSON_SORT_KEYS)
                          : NULL;
    json_decref(object);
    answer->type = "application/json";
    answer->body.failed = answer->body.failed || text == NULL;
    rps_text_add(&answer->body, "%s\n", text != NULL ? text : "");
    free(text);
}

/* --- life ---------------------------------------------------------------- */

static const char *const paths[] = {"/livez", "/metrics", "/statz"};

static void
answer_page(
        const struct rps_http_request *request, struct rps_http_answer *answer)
{
    struct rps_admin_port *port = request->context;

    switch (request->page) {
    case 0:
        rps_text_add(&answer->body, "ok\n");
        break;
    case 1:
        answer_metrics(port, answer);
        break;
    default:
        answer_stat(port, answer);
        break;
    }
}

static rps_status
make_plan(const struct rps_settings *settings, struct rps_listen_plan *plan,
        struct rps_error *error)
{
    const char *own = settings->options->cluster.own_address;

    if (strcmp(settings->admin, "entry") != 0) {
        return rps_listen_plan_make(plan, settings->admin, NULL, error);
    }
    return own != NULL
                   ? rps_listen_plan_make(plan, "", own, error)
                   : rps_fail(error, RPS_E_INVAL,
                             "entry: this process has no entry in the cluster");
}

static rps_status
bind_port(struct rps_admin_port *port, const struct rps_listen_plan *plan,
        struct rps_error *error)
{
    const struct rps_http_options options = {.paths = paths,
            .page_count = sizeof(paths) / sizeof(paths[0]),
            .answer = answer_page,
            .context = port};
    const struct timespec rest = {.tv_nsec = BIND_RETRY_MS * 1000000};
    const uint64_t give_up = rps_clock_ms() + BIND_WAIT_MS;
    rps_status status;

    while ((status = rps_http_start(&port->http, plan, &options, error)) ==
                    RPS_E_RETRY_LATER &&
            rps_clock_ms() < give_up) {
        (void)nanosleep(&rest, NULL);
    }
    return status;
}

static rps_status
open_port(struct rps_admin_port *port, struct rps_error *error)
{
    const char *file = port->settings->admin_port_file;
    struct rps_listen_plan plan;
    rps_status status = make_plan(port->settings, &plan, error);

    if (status == RPS_OK) {
        status = bind_port(port, &plan, error);
    }
    if (status == RPS_OK) {
        port->port = rps_http_port(port->http);
        rps_log(RPS_LOG_INFO, "admin_on", "admin=%s",
                rps_http_address(port->http));
        status = file != NULL ? rps_port_file_write(file, port->port, error)
                              : RPS_OK;
    }
    return status;
}

rps_status
rps_admin_port_open(struct rps_admin_port **port_out,
        const struct rps_settings *settings, struct rps_error *error)
{
    struct rps_admin_port *port;
    struct rps_error cause;
    rps_status status;

    *port_out = NULL;
    if (settings->admin == NULL) {
        return RPS_OK;
    }
    port = calloc(1, sizeof(*port));
    if (port == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "--admin: no memory");
    }
    (void)pthread_mutex_init(&port->lock, NULL);
    port->settings = settings;
    rps_usage_machine_read(&port->machine);
    rps_usage_look(&port->now);
    rps_port_file_forget(settings->admin_port_file);
    status = open_port(port, &cause);
    if (status != RPS_OK) {
        rps_admin_port_close(port);
        return rps_fail(error,
                status == RPS_E_RETRY_LATER ? RPS_E_UNREACHABLE : status,
                "--admin %s: %s", settings->admin, cause.text);
    }
    *port_out = port;
    return RPS_OK;
}

void
rps_admin_port_close(struct rps_admin_port *port)
{
    if (port == NULL) {
        return;
    }
    rps_http_stop(port->http);
    rps_port_file_remove(port->settings->admin_port_file, port->port);
    (void)pthread_mutex_destroy(&port->lock);
    free(port);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"
#include "client/cli/launch.h"
#include "client/cli/tool.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- ports ---- */

/* A loopback port that is free now, kept by its socket until all have one. */
static int
hold_port(uint16_t *port_out)
{
    struct sockaddr_in address = {
            .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    int one = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0) {
        return -1;
    }
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0 ||
            getsockname(fd, (struct sockaddr *)&address, &length) != 0) {
        close(fd);
        return -1;
    }
    *port_out = ntohs(address.sin_port);
    return fd;
}

/*
 * The servers' ports stay held until the end: recpsd sets SO_REUSEADDR and
 * may bind them all the same, and nobody else is given them meanwhile. Those
 * of the others are let go: a command may bind its own without that option.
 */
static bool
choose_ports(struct rps_launch_plan *plan, uint16_t *ports, uint32_t count,
        uint32_t ps_count)
{
    uint32_t held = 0;

    plan->held = calloc(count, sizeof(*plan->held));
    if (plan->held == NULL) {
        return false;
    }
    while (held < count && (plan->held[held] = hold_port(&ports[held])) >= 0) {
        held++;
    }
    plan->held_count = held;
    while (plan->held_count > ps_count) {
        close(plan->held[--plan->held_count]);
    }
    return held == count;
}

/* ---- the "recps" object ---- */

/* As text: JSON's readers lose what is above 2^53. */
static json_t *
whole_number(uint64_t value)
{
    char text[24];

    snprintf(text, sizeof(text), "%" PRIu64, value);
    return json_string(text);
}

#define VALUE_STRING(value)   json_string((value) != NULL ? (value) : "")
#define VALUE_CHOICE(value)   VALUE_STRING(value)
#define VALUE_OPTIONAL(value) VALUE_STRING(value)
#define VALUE_U64(value)      whole_number(value)
#define VALUE_BYTES(value)    whole_number(value)
#define VALUE_F64(value)      json_real(value)
#define VALUE_SECONDS(value)  json_real(value)
#define VALUE_BOOL(value)     json_boolean(value)

/* A child reads its variables before its "recps" object: what the launcher
 * has settled must not be settled again. */
static void
forget_variable(const char *name)
{
    char variable[64] = "RECPS_";

    for (size_t i = strlen(variable); *name != '\0' && i + 1 < sizeof(variable);
            i++, name++) {
        variable[i] = (char)toupper((unsigned char)*name);
        variable[i + 1] = '\0';
    }
    unsetenv(variable);
}

static json_t *
recps_object(const struct rps_options *options)
{
    json_t *object = json_object();

#define PUT(scope, name, type, value, unit, allowed, text)                     \
    if (((scope)&RPS_SCOPE_LAUNCH) != 0 && rps_option_given(options, #name)) { \
        json_object_set_new(object, #name, VALUE_##type(options->name));       \
        forget_variable(#name);                                                \
    }
    RPS_OPTIONS(PUT)
#undef PUT
    if (!rps_option_given(options, "admin")) { /* one port, many servers */
        setenv("RECPS_ADMIN", "off", 1);
    }
    /* where each server listens is ours to say */
    forget_variable("bind");
    forget_variable("port_file");
    forget_variable("admin_port_file");
    return object;
}

/* ---- children ---- */

static json_t *
addresses(const uint16_t *ports, uint32_t count)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < count; i++) {
        char address[32];

        snprintf(address, sizeof(address), "127.0.0.1:%u", ports[i]);
        json_array_append_new(list, json_string(address));
    }
    return list;
}

/* As --ps-hosts takes it. */
static bool
name_servers(
        struct rps_launch_plan *plan, const uint16_t *ports, uint32_t count)
{
    struct rps_text text = {0};

    for (uint32_t i = 0; i < count; i++) {
        rps_text_add(&text, "%s127.0.0.1:%u", i > 0 ? "," : "", ports[i]);
    }
    if (text.failed) {
        rps_text_finish(&text);
        return false;
    }
    plan->ps_hosts = text.bytes;
    return true;
}

static json_t *
cluster_object(const struct rps_launch *launch, const uint16_t *ports)
{
    json_t *cluster = json_object();

    json_object_set_new(cluster, "ps", addresses(ports, launch->ps_count));
    ports += launch->ps_count;
    if (launch->chief) {
        json_object_set_new(cluster, "chief", addresses(ports, 1));
        ports += 1;
    }
    if (launch->worker_count > 0) {
        json_object_set_new(
                cluster, "worker", addresses(ports, launch->worker_count));
        ports += launch->worker_count;
    }
    if (launch->evaluator) {
        json_object_set_new(cluster, "evaluator", addresses(ports, 1));
    }
    return cluster;
}

static bool
add_child(struct rps_launch_plan *plan, enum rps_role role, uint32_t index,
        const json_t *cluster, json_t *recps)
{
    struct rps_launch_child *child = &plan->children[plan->count];
    const char *name = rps_role_str(role);
    json_t *config;
    int length;

    child->role = role;
    child->index = index;
    child->streams[0] = (struct rps_launch_stream){.fd = -1, .to = 1};
    child->streams[1] = (struct rps_launch_stream){.fd = -1, .to = 2};
    length = snprintf(
            child->label, sizeof(child->label), "%s:%" PRIu32, name, index);
    plan->label_width = length > plan->label_width ? length : plan->label_width;
    if (cluster == NULL) {
        config = json_pack("{s:O}", "recps", recps);
    } else {
        config = json_pack("{s:O, s:{s:s, s:i}, s:O}", "cluster", cluster,
                "task", "type", name, "index", (int)index, "recps", recps);
    }
    child->tf_config = rps_json_text(config);
    if (child->tf_config == NULL) {
        return false;
    }
    plan->count++;
    return true;
}

/* mpirun, and an evaluator beside it. */
static bool
add_group(struct rps_launch_plan *plan, const struct rps_launch *launch,
        const json_t *cluster, json_t *recps)
{
    plan->code = rps_launch_mpi_add(plan, launch, cluster, recps);
    if (plan->code != RPS_TOOL_OK) {
        return false;
    }
    plan->children[plan->ps_count].progress = true; /* the chief's */
    return !launch->evaluator ||
           add_child(plan, RPS_ROLE_EVALUATOR, 0, cluster, recps);
}

static bool
add_children(struct rps_launch_plan *plan, const struct rps_launch *launch,
        const json_t *cluster, json_t *recps)
{
    bool good = true;

    for (uint32_t i = 0; good && i < launch->ps_count; i++) {
        good = add_child(plan, RPS_ROLE_PS, i, cluster, recps);
    }
    plan->ps_count = plan->count;
    if (good && launch->mpi) {
        return add_group(plan, launch, cluster, recps);
    }
    if (good && launch->chief) {
        good = add_child(plan, RPS_ROLE_CHIEF, 0, cluster, recps);
    }
    for (uint32_t i = 0; good && i < launch->worker_count; i++) {
        good = add_child(plan, RPS_ROLE_WORKER, i, cluster, recps);
    }
    if (good) {
        plan->children[plan->ps_count].progress = true; /* the chief */
    }
    if (good && launch->evaluator) {
        good = add_child(plan, RPS_ROLE_EVALUATOR, 0, cluster, recps);
    }
    return good;
}

static bool
make_room_for_restarts(struct rps_launch_plan *plan)
{
    for (uint32_t i = 0; plan->restart && i < plan->count; i++) {
        struct rps_launch_child *child = &plan->children[i];

        child->restarted_ms =
                calloc(plan->restarts_max, sizeof(*child->restarted_ms));
        if (child->restarted_ms == NULL) {
            return false;
        }
    }
    return true;
}

static bool
make_server_argv(struct rps_launch_plan *plan)
{
    plan->server = calloc(2, sizeof(*plan->server));
    if (plan->server == NULL) {
        return false;
    }
    plan->server[0] = rps_launch_find_server();
    return plan->server[0] != NULL;
}

int
rps_launch_plan_make(
        struct rps_launch_plan *plan, const struct rps_launch *launch)
{
    uint32_t count = launch->ps_count + launch->chief + launch->worker_count +
                     launch->evaluator;
    uint16_t *ports = calloc(count, sizeof(*ports));
    json_t *recps = recps_object(launch->options);
    json_t *cluster = NULL;
    int code = RPS_TOOL_OK;

    plan->command = launch->command;
    plan->options = launch->options;
    plan->on_lost_leave = strcmp(launch->options->on_lost, "leave") == 0;
    plan->restart = launch->restart;
    plan->restarts_max = launch->restarts_max;
    if (launch->restart) { /* the others wait for who is started again */
        json_object_set_new(recps, "recover", json_true());
    }
    plan->drain_ms = (uint64_t)(launch->options->drain_timeout * 1000.0);
    plan->children = calloc(count, sizeof(*plan->children));
    if (ports == NULL || plan->children == NULL || recps == NULL ||
            !make_server_argv(plan)) {
        code = rps_tool_fail(RPS_TOOL_FAILED, "launch", "no memory");
    } else if (!choose_ports(plan, ports, count, launch->ps_count)) {
        code = rps_tool_fail(RPS_TOOL_FAILED, "launch",
                "no free loopback port: %s", strerror(errno));
    } else {
        cluster = launch->ps_count > 0 ? cluster_object(launch, ports) : NULL;
        if (!name_servers(plan, ports, launch->ps_count) ||
                !add_children(plan, launch, cluster, recps) ||
                !make_room_for_restarts(plan)) {
            code = plan->code != RPS_TOOL_OK ? plan->code /* said already */
                                             : rps_tool_fail(RPS_TOOL_FAILED,
                                                       "launch", "no memory");
        }
    }
    json_decref(cluster);
    json_decref(recps);
    free(ports);
    return code;
}

void
rps_launch_plan_finish(struct rps_launch_plan *plan)
{
    for (uint32_t i = 0; i < plan->count; i++) {
        struct rps_launch_child *child = &plan->children[i];

        free(child->tf_config);
        for (char **word = child->argv; word != NULL && *word != NULL; word++) {
            free(*word);
        }
        free(child->argv);
        free(child->restarted_ms);
        rps_text_finish(&child->streams[0].line);
        rps_text_finish(&child->streams[1].line);
        rps_text_finish(&child->streams[0].banner);
        rps_text_finish(&child->streams[1].banner);
    }
    free(plan->children);
    free(plan->ps_hosts);
    while (plan->held_count > 0) {
        close(plan->held[--plan->held_count]);
    }
    free(plan->held);
    if (plan->server != NULL) {
        free(plan->server[0]);
        free(plan->server);
    }
}

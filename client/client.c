/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening and closing a client, and what every call begins with.
 */
#include "base/clock.h"
#include "client/cluster_copy.h"
#include "client/connect.h"
#include "client/dial.h"
#include "client/exchange.h"
#include "client/io_thread.h"
#include "client/redial.h"
#include "client/watch.h"
#include "proto/auth.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONNECT_TIMEOUT_MS   300000u
#define RECONNECT_TIMEOUT_MS 60000u
#define JOB_ID_DEFAULT       "recps"

void
rps_client_options_init(rps_client_options *options)
{
    if (options == NULL) {
        return;
    }
    *options = (rps_client_options){
            .struct_bytes = sizeof(*options),
            .job_id = JOB_ID_DEFAULT,
            .connect_timeout_ms = CONNECT_TIMEOUT_MS,
            .reconnect_timeout_ms = RECONNECT_TIMEOUT_MS,
    };
}

/* --- what every call begins with ----------------------------------------- */

rps_status
rps_client_enter(const rps_client *client)
{
    if (client == NULL) {
        return rps_client_fail(RPS_E_INVAL, "client is NULL");
    }
    if (client->pid != getpid()) {
        return rps_client_fail(RPS_E_FORKED,
                "this client was opened by process %ld; open one of your own "
                "after fork",
                (long)client->pid);
    }
    assert(rps_io_has_turn(client)); /* RPS_TURN() */
    return RPS_OK;
}

static rps_status
gone(const struct rps_channel *channel)
{
    return rps_client_fail(RPS_E_UNREACHABLE,
            "%s (this client stays failed; open a new one)",
            channel->cause.text);
}

rps_status
rps_client_all_alive(const rps_client *client)
{
    uint32_t i;

    if (client->channel_count < client->ps_count) {
        return rps_client_fail(RPS_E_UNSUPPORTED,
                "an evaluator is connected to PS 0 alone; open an embedded "
                "client for its tables");
    }
    for (i = 0; i < client->channel_count; i++) {
        if (client->channels[i]->lost) {
            return gone(client->channels[i]);
        }
    }
    return RPS_OK;
}

rps_status
rps_client_all_whole(const rps_client *client)
{
    rps_status status = rps_client_all_alive(client);
    uint32_t i;

    for (i = 0; status == RPS_OK && i < client->channel_count; i++) {
        if (rps_channel_is_rolled_back(client->channels[i])) {
            struct rps_error error;

            status = rps_rolled_back_words(client->channels[i], &error);
            (void)rps_client_fail_with(status, &error);
        }
    }
    return status;
}

uint32_t
rps_server_count(const rps_client *client)
{
    return client != NULL ? client->channel_count : 0;
}

rps_status
rps_client_no_such_server(const rps_client *client, uint32_t ps)
{
    return rps_client_fail(RPS_E_INVAL,
            "PS %u: this client is connected to %u (0 to %u)", ps,
            client->channel_count, client->channel_count - 1);
}

rps_status
rps_client_one_alive(const rps_client *client, uint32_t ps)
{
    if (ps >= client->channel_count) {
        return rps_client_no_such_server(client, ps);
    }
    return client->channels[ps]->lost ? gone(client->channels[ps]) : RPS_OK;
}

void
rps_client_set_epoch(rps_client *client, uint32_t epoch)
{
    uint32_t i;

    for (i = 0; i < client->channel_count; i++) {
        client->channels[i]->epoch = epoch;
        client->channels[i]->owes_decision = false;
        client->channels[i]->rolled_back = (struct rps_lost){0};
        client->channels[i]->fenced = false;
    }
    client->joined = true;
    rps_save_forget(client); /* RESTORE has dropped it */
    free(client->decision);
    client->decision = NULL;
    client->decision_bytes = 0;
}

/* --- open ---------------------------------------------------------------- */

static rps_status
resolve_cluster(rps_client *client, const rps_cluster *given)
{
    rps_cluster_options options;
    rps_cluster_error error = {0};
    rps_status status;

    if (given != NULL && given->ps_count > 0 && given->ps == NULL) {
        return rps_client_fail(RPS_E_INVAL,
                "cluster: ps_count is %u, but ps is NULL", given->ps_count);
    }
    if (given != NULL) {
        return rps_cluster_copy(&client->cluster, given) ? RPS_OK
                                                         : rps_client_nomem();
    }
    rps_cluster_options_init(&options);
    status = rps_cluster_resolve(&client->cluster, &options, &error);
    if (status != RPS_OK) {
        (void)rps_client_fail(status, "%s",
                error.message != NULL ? error.message
                                      : "the cluster cannot be resolved");
    }
    rps_cluster_error_finish(&error);
    return status;
}

static rps_status
take_options(rps_client *client, const rps_client_options *options)
{
    client->job_id =
            strdup(options->job_id != NULL ? options->job_id : JOB_ID_DEFAULT);
    client->job_seed = options->job_seed;
    client->connect_timeout_ms = options->connect_timeout_ms;
    client->request_timeout_ms = options->request_timeout_ms;
    client->reconnect_timeout_ms = options->reconnect_timeout_ms;
    client->give_up = options->give_up;
    client->give_up_context = options->give_up_context;
    client->report = options->report;
    client->report_context = options->report_context;
    client->body_checksum = options->body_checksum != 0;
    client->checkpoint_read_only = options->checkpoint_read_only != 0;
    client->transport = options->transport;
    client->known_epoch = options->known_epoch;
    if (options->unix_dir != NULL && options->unix_dir[0] != '\0') {
        client->unix_dir = strdup(options->unix_dir);
        if (client->unix_dir == NULL) {
            return rps_client_nomem();
        }
    }
    if (options->checkpoint_dir != NULL && options->checkpoint_dir[0] != '\0') {
        client->checkpoint_dir = strdup(options->checkpoint_dir);
        if (client->checkpoint_dir == NULL) {
            return rps_client_nomem();
        }
    }
    return client->job_id != NULL ? RPS_OK : rps_client_nomem();
}

/* A transport that was asked for is taken, or the open fails. */
static rps_status
check_transport(const rps_client *client)
{
    const enum rps_transport transport = client->transport;

    if ((unsigned)transport >= RPS_TRANSPORT_COUNT) {
        return rps_client_fail(RPS_E_INVAL,
                "transport %d: auto, tcp, unix, shm or local", (int)transport);
    }
    if (client->embedded && transport != RPS_TRANSPORT_AUTO &&
            transport != RPS_TRANSPORT_LOCAL) {
        return rps_client_fail(RPS_E_INVAL,
                "transport %s: there is no cluster, so no server to reach; "
                "give one (TF_CONFIG, --ps-hosts), or auto or local",
                rps_transport_str(transport));
    }
    if (!client->embedded && transport == RPS_TRANSPORT_LOCAL) {
        return rps_client_fail(RPS_E_INVAL,
                "transport local: there is a cluster of %u parameter servers, "
                "and local means none",
                client->cluster.ps_count);
    }
    return RPS_OK;
}

static rps_status
place_in_job(rps_client *client)
{
    const rps_cluster *cluster = &client->cluster;

    client->embedded =
            cluster->role == RPS_ROLE_LOCAL || cluster->ps_count == 0;
    client->ps_count = client->embedded ? 1 : cluster->ps_count;
    if (client->ps_count > RPS_PS_COUNT_MAX) {
        return rps_client_fail(RPS_E_INVAL, "%u parameter servers, at most %u",
                client->ps_count, RPS_PS_COUNT_MAX);
    }
    client->channel_count =
            !client->embedded && cluster->role == RPS_ROLE_EVALUATOR
                    ? 1
                    : client->ps_count;
    client->member = client->embedded || cluster->role == RPS_ROLE_CHIEF ||
                     cluster->role == RPS_ROLE_WORKER;
    client->rank = client->embedded ? 0 : cluster->rank;
    if (check_transport(client) != RPS_OK) {
        return RPS_E_INVAL;
    }
    rps_route_init(&client->route, client->ps_count);
    client->channels =
            calloc(client->channel_count, sizeof(struct rps_channel *));
    client->polls = calloc(client->channel_count, sizeof(struct pollfd));
    client->watch = rps_watch_create(client->channel_count);
    return client->channels != NULL && client->polls != NULL &&
                           client->watch != NULL
                   ? RPS_OK
                   : rps_client_nomem();
}

static rps_status
take_access(rps_client *client, const rps_client_options *options)
{
    const struct rps_tls_files files = {.cert = options->tls_cert,
            .key = options->tls_key,
            .ca = options->tls_ca};
    struct rps_error error = {{0}};
    rps_status status = RPS_OK;

    if (options->token_file != NULL && options->token_file[0] != '\0') {
        status = rps_auth_built(&error);
        if (status == RPS_OK) {
            status = rps_secret_read(&client->token, "--token-file",
                    options->token_file, &error);
        }
    }
    if (status == RPS_OK && rps_tls_is_asked(&files)) {
        status = rps_tls_context_create(
                &client->tls, RPS_TLS_CLIENT, &files, &error);
    }
    return status == RPS_OK ? RPS_OK : rps_client_fail_with(status, &error);
}

static rps_status
check_options(const rps_client_options *options)
{
    if (options == NULL || options->struct_bytes != sizeof(*options)) {
        return rps_client_fail(
                RPS_E_INVAL, "options: begin with rps_client_options_init()");
    }
    if ((options->flags & ~RPS_CLIENT_THREAD) != 0) {
        return rps_client_fail(RPS_E_INVAL,
                "options.flags: 0x%x; RPS_CLIENT_THREAD is allowed",
                options->flags);
    }
    return RPS_OK;
}

rps_status
rps_client_open(rps_client **client_out, const rps_client_options *options)
{
    rps_client *client = NULL;
    rps_status status = check_options(options);

    if (client_out == NULL) {
        return rps_client_fail(RPS_E_INVAL, "client_out is NULL");
    }
    *client_out = NULL;
    if (status != RPS_OK) {
        return status;
    }
    client = calloc(1, sizeof(*client));
    if (client == NULL) {
        return rps_client_nomem();
    }
    client->pid = getpid();
    client->client_id = rps_random_id() | 1; /* 0 is no client */
    status = resolve_cluster(client, options->cluster);
    if (status == RPS_OK) {
        status = take_options(client, options);
    }
    if (status == RPS_OK) {
        status = place_in_job(client);
    }
    if (status == RPS_OK && !client->embedded) {
        status = take_access(client, options);
    }
    if (status == RPS_OK) {
        status = client->embedded ? rps_connect_local(client)
                                  : rps_connect_all(client);
    }
    if (status == RPS_OK && (options->flags & RPS_CLIENT_THREAD) != 0) {
        status = rps_io_start(client);
    }
    if (status != RPS_OK) {
        rps_client_close(client);
        return status;
    }
    *client_out = client;
    return RPS_OK;
}

/* --- close --------------------------------------------------------------- */

static void
destroy_channels(rps_client *client, bool forked)
{
    uint32_t i;

    for (i = 0; client->channels != NULL && i < client->channel_count; i++) {
        struct rps_channel *channel = client->channels[i];
        struct rps_exchange *waiting =
                channel != NULL ? channel->waiting : NULL;

        rps_channel_destroy(channel, forked); /* it borrows their frames */
        rps_exchanges_free(waiting);
    }
    free(client->channels);
    rps_dials_destroy(client->dials, client->channel_count);
}

void
rps_client_close(rps_client *client)
{
    if (client == NULL || !rps_io_stop(client)) {
        return; /* of a child: what it has is left where it lies */
    }
    rps_save_forget(client);
    while (client->tickets != NULL) {
        rps_ticket_destroy(client->tickets);
    }
    destroy_channels(client, client->pid != getpid());
    while (client->tables != NULL) {
        rps_embedding_table *table = client->tables;

        client->tables = table->next;
        free(table);
    }
    rps_watch_destroy(client->watch);
    rps_secret_finish(&client->token);
    rps_tls_context_destroy(client->tls);
    rps_cluster_finish(&client->cluster);
    free(client->polls);
    free(client->job_id);
    free(client->checkpoint_dir);
    free(client->unix_dir);
    free(client->decision);
    free(client->alike);
    free(client);
}

/* --- small answers ------------------------------------------------------- */

const char *
rps_client_error(const rps_client *client)
{
    return rps_client_words();
}

enum rps_transport
rps_server_transport(const rps_client *client, uint32_t ps)
{
    RPS_TURN(client);

    return client != NULL && ps < client->channel_count &&
                           !client->channels[ps]->lost
                   ? client->channels[ps]->transport
                   : RPS_TRANSPORT_AUTO;
}

void
rps_client_traffic(const rps_client *client, rps_traffic *traffic_out)
{
    RPS_TURN(client);

    if (traffic_out != NULL) {
        *traffic_out = client != NULL ? client->traffic : (rps_traffic){0};
    }
}

const rps_cluster *
rps_client_cluster(const rps_client *client)
{
    return client != NULL ? &client->cluster : NULL;
}

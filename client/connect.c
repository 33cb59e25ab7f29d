/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens a client: one dial a PS, all moved by one loop.
 */
#include "client/connect.h"

#include "base/clock.h"
#include "base/text.h"
#include "client/dial.h"

#include <limits.h>
#include <stdlib.h>

#define REPORT_EVERY_MS 10000u

/* Milliseconds until the first dial is due, at most `most`. */
static int
prepare_poll(const struct rps_dial *dials, uint32_t count, struct pollfd *polls,
        uint64_t now, uint64_t most)
{
    uint32_t i;

    for (i = 0; i < count; i++) {
        const struct rps_dial *dial = &dials[i];

        polls[i] = (struct pollfd){.fd = -1};
        polls[i].fd = rps_dial_watch(dial, &polls[i].events);
        if (dial->state != RPS_DIAL_DONE) {
            uint64_t left = dial->at_ms > now ? dial->at_ms - now : 0;

            most = left < most ? left : most;
        }
    }
    return most > INT_MAX ? INT_MAX : (int)most;
}

static uint32_t
missing_count(const struct rps_dial *dials, uint32_t count)
{
    uint32_t missing = 0;
    uint32_t i;

    for (i = 0; i < count; i++) {
        missing += dials[i].state != RPS_DIAL_DONE;
    }
    return missing;
}

/* "PS 1 (h:p): why; PS 2 (h:p): why" */
static void
name_missing(
        const struct rps_dial *dials, uint32_t count, struct rps_text *text)
{
    uint32_t i;

    for (i = 0; i < count; i++) {
        const struct rps_dial *dial = &dials[i];

        if (dial->state != RPS_DIAL_DONE) {
            rps_text_add(text, "%sPS %u (%s): %s", text->length > 0 ? "; " : "",
                    dial->ps, dial->address,
                    dial->cause.text[0] != '\0' ? dial->cause.text
                                                : "not reached yet");
        }
    }
}

static void
report(const rps_client *client, const struct rps_dial *dials, uint32_t count,
        uint64_t passed_ms)
{
    struct rps_text missing = {0};
    struct rps_text line = {0};

    if (client->report == NULL) {
        return;
    }
    name_missing(dials, count, &missing);
    rps_text_add(&line,
            "waiting for %u of %u parameter servers (%u s of %u): %s",
            missing_count(dials, count), count, (uint32_t)(passed_ms / 1000),
            client->connect_timeout_ms / 1000,
            missing.bytes != NULL ? missing.bytes : "");
    if (line.bytes != NULL) {
        client->report(client->report_context, line.bytes);
    }
    rps_text_finish(&missing);
    rps_text_finish(&line);
}

static rps_status
give_up(const struct rps_dial *dials, uint32_t count, uint64_t passed_ms)
{
    struct rps_text missing = {0};
    rps_status status;

    name_missing(dials, count, &missing);
    status = rps_client_fail(RPS_E_UNREACHABLE,
            "not reached in %.1f s: %s (is recpsd running there? see "
            "connect_timeout)",
            (double)passed_ms / 1000.0,
            missing.bytes != NULL ? missing.bytes : "");
    rps_text_finish(&missing);
    return status;
}

static const struct rps_dial *
first_fatal(const struct rps_dial *dials, uint32_t count)
{
    uint32_t i;

    for (i = 0; i < count; i++) {
        if (dials[i].fatal != RPS_OK) {
            return &dials[i];
        }
    }
    return NULL;
}

static rps_status
dial_loop(rps_client *client, struct rps_dial *dials, uint32_t count)
{
    uint64_t start = rps_clock_ms();
    uint64_t reported = 0;
    uint32_t i;

    while (missing_count(dials, count) > 0) {
        uint64_t passed = rps_clock_ms() - start;
        uint64_t left;
        const struct rps_dial *fatal;

        if (passed >= client->connect_timeout_ms) {
            return give_up(dials, count, passed);
        }
        if (passed - reported >= REPORT_EVERY_MS) {
            reported = passed;
            report(client, dials, count, passed);
        }
        left = client->connect_timeout_ms - passed;
        if (left > reported + REPORT_EVERY_MS - passed) {
            left = reported + REPORT_EVERY_MS - passed;
        }
        (void)poll(client->polls, count,
                prepare_poll(
                        dials, count, client->polls, start + passed, left));
        for (i = 0; i < count; i++) {
            rps_dial_move(&dials[i], client->polls[i].revents, rps_clock_ms());
        }
        fatal = first_fatal(dials, count);
        if (fatal != NULL) {
            return rps_client_fail(fatal->fatal, "PS %u (%s): %s", fatal->ps,
                    fatal->address, fatal->cause.text);
        }
    }
    return RPS_OK;
}

static rps_status
check_addresses(const rps_client *client)
{
    uint32_t i;

    for (i = 0; i < client->channel_count; i++) {
        if (client->cluster.ps[i].address == NULL) {
            return rps_client_fail(
                    RPS_E_INVAL, "PS %u: the cluster has no address for it", i);
        }
    }
    return RPS_OK;
}

rps_status
rps_connect_all(rps_client *client)
{
    const uint64_t now = rps_clock_ms();
    rps_status status = check_addresses(client);
    uint32_t i;

    if (status != RPS_OK) {
        return status;
    }
    client->dials = rps_dials_create(client);
    if (client->dials == NULL) {
        return rps_client_nomem();
    }
    for (i = 0; i < client->channel_count; i++) {
        rps_dial_begin(
                &client->dials[i], now, now + client->connect_timeout_ms);
    }
    status = dial_loop(client, client->dials, client->channel_count);
    for (i = 0; status == RPS_OK && i < client->channel_count; i++) {
        client->channels[i] = rps_dial_take(&client->dials[i]);
    }
    return status;
}

struct local_hello {
    rps_client *client;
    struct rps_hello hello;
};

static rps_status
take_local(void *context, struct rps_channel *channel,
        const struct rps_message *reply, struct rps_error *error)
{
    struct local_hello *hello = context;

    return rps_hello_take(&hello->hello, hello->client, channel, reply, error);
}

rps_status
rps_connect_local(rps_client *client)
{
    struct rps_local_options options = {
            .job_id = client->job_id,
            .job_seed = client->job_seed,
            .checkpoint_dir = client->checkpoint_dir,
            .checkpoint_read_only = client->checkpoint_read_only,
    };
    struct local_hello hello = {.client = client};
    struct rps_error error = {{0}};
    struct rps_channel *channel = NULL;
    rps_status status = rps_channel_local_create(&channel, &options, &error);

    if (status == RPS_OK) {
        client->channels[0] = channel;
        status = rps_hello_begin(&hello.hello, client, channel, &error);
    }
    while (status == RPS_OK && !hello.hello.greeted) {
        if (!channel->ops->arm(channel, true)) {
            struct pollfd wait = {0};

            wait.fd = channel->ops->watch(channel, &wait.events);
            (void)poll(&wait, 1, -1);
        }
        status = channel->ops->move(channel, take_local, &hello, &error);
    }
    rps_hello_finish(&hello.hello);
    return status == RPS_OK ? RPS_OK : rps_client_fail_with(status, &error);
}

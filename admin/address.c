/* SPDX-License-Identifier: Apache-2.0 */
#include "admin/address.h"

#include "base/text.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#define HOST_BYTES 256u

uint16_t
rps_address_port(const struct sockaddr_storage *address)
{
    if (address->ss_family == AF_INET6) {
        return ntohs(((const struct sockaddr_in6 *)address)->sin6_port);
    }
    return ntohs(((const struct sockaddr_in *)address)->sin_port);
}

void
rps_address_set_port(struct sockaddr_storage *address, uint16_t port)
{
    if (address->ss_family == AF_INET6) {
        ((struct sockaddr_in6 *)address)->sin6_port = htons(port);
    } else {
        ((struct sockaddr_in *)address)->sin_port = htons(port);
    }
}

char *
rps_address_text(const struct sockaddr *address, socklen_t length,
        char out[RPS_ADDRESS_TEXT_BYTES])
{
    char host[64] = "?";
    char port[8] = "?";

    if (getnameinfo(address, length, host, sizeof(host), port, sizeof(port),
                NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
        snprintf(out, RPS_ADDRESS_TEXT_BYTES, "unknown");
        return out;
    }
    snprintf(out, RPS_ADDRESS_TEXT_BYTES,
            address->sa_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
    return out;
}

bool
rps_address_is_loopback(const struct sockaddr_storage *address)
{
    if (address->ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)address;

        return (ntohl(in->sin_addr.s_addr) >> 24) == 127;
    }
    if (address->ss_family == AF_INET6) {
        const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)address;

        return IN6_IS_ADDR_LOOPBACK(&in->sin6_addr) != 0;
    }
    return false;
}

/* "host:port" or "[v6]:port" into its halves. */
static rps_status
split(const char *text, char host[HOST_BYTES], uint16_t *port,
        struct rps_error *error)
{
    const char *colon = strrchr(text, ':');
    uint64_t number = 0;
    size_t length;

    if (colon == NULL || !rps_parse_u64(colon + 1, &number) || number > 65535) {
        return rps_fail(error, RPS_E_INVAL,
                "\"%s\": must be host:port with a port of 0..65535", text);
    }
    length = (size_t)(colon - text);
    if (length > 2 && text[0] == '[' && text[length - 1] == ']') {
        text++;
        length -= 2;
    } else if (memchr(text, ':', length) != NULL || text[0] == '[') {
        return rps_fail(error, RPS_E_INVAL,
                "\"%s\": write an IPv6 address as [addr]:port", text);
    }
    if (length == 0 || length >= HOST_BYTES) {
        return rps_fail(error, RPS_E_INVAL,
                "\"%s\": the host is empty or too long", text);
    }
    memcpy(host, text, length);
    host[length] = '\0';
    *port = (uint16_t)number;
    return RPS_OK;
}

/* Adds a numeric address; a family that libc does not know is left out. */
static void
add_numeric(struct rps_listen_plan *plan, const char *host, bool optional)
{
    struct rps_listen_address *slot = &plan->addresses[plan->count];
    struct sockaddr_in *in4 = (struct sockaddr_in *)&slot->storage;
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&slot->storage;

    memset(slot, 0, sizeof(*slot));
    slot->optional = optional;
    if (inet_pton(AF_INET, host, &in4->sin_addr) == 1) {
        in4->sin_family = AF_INET;
        slot->length = sizeof(*in4);
    } else if (inet_pton(AF_INET6, host, &in6->sin6_addr) == 1) {
        in6->sin6_family = AF_INET6;
        slot->length = sizeof(*in6);
    } else {
        return;
    }
    rps_address_set_port(&slot->storage, plan->port);
    plan->count++;
}

static rps_status
add_resolved(
        struct rps_listen_plan *plan, const char *host, struct rps_error *error)
{
    struct addrinfo hints = {
            .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *list = NULL;
    int rc = getaddrinfo(host, NULL, &hints, &list);

    if (rc != 0) {
        return rps_fail(error, RPS_E_RETRY_LATER,
                "the name %s does not resolve: %s", host, gai_strerror(rc));
    }
    for (struct addrinfo *ai = list; ai != NULL; ai = ai->ai_next) {
        struct rps_listen_address *slot = &plan->addresses[plan->count];

        if (plan->count == RPS_LISTEN_MAX ||
                ai->ai_addrlen > sizeof(slot->storage)) {
            break;
        }
        memset(slot, 0, sizeof(*slot));
        memcpy(&slot->storage, ai->ai_addr, ai->ai_addrlen);
        slot->length = ai->ai_addrlen;
        slot->optional = plan->count > 0 && ai->ai_family == AF_INET6;
        rps_address_set_port(&slot->storage, plan->port);
        plan->count++;
    }
    freeaddrinfo(list);
    return RPS_OK;
}

/* The own entry says who may reach us, not where to bind: see the header. */
static void
add_for_entry(struct rps_listen_plan *plan, const char *host)
{
    if (strcmp(host, "localhost") == 0) {
        add_numeric(plan, "127.0.0.1", false);
        add_numeric(plan, "::1", true);
        return;
    }
    add_numeric(plan, host, false);
    if (plan->count == 1 &&
            rps_address_is_loopback(&plan->addresses[0].storage)) {
        return;
    }
    plan->count = 0;
    add_numeric(plan, "0.0.0.0", false);
    add_numeric(plan, "::", true);
}

rps_status
rps_listen_plan_make(struct rps_listen_plan *plan, const char *bind,
        const char *own, struct rps_error *error)
{
    char host[HOST_BYTES] = "";
    rps_status status = RPS_OK;

    memset(plan, 0, sizeof(*plan));
    if (bind != NULL && bind[0] != '\0') {
        status = split(bind, host, &plan->port, error);
        if (status == RPS_OK) {
            status = add_resolved(plan, host, error);
        }
    } else if (own != NULL) {
        status = split(own, host, &plan->port, error);
        if (status == RPS_OK) {
            add_for_entry(plan, host);
        }
    } else {
        plan->port = RPS_PORT_STANDALONE;
        add_numeric(plan, "127.0.0.1", false);
    }
    if (status != RPS_OK) {
        return status;
    }
    plan->loopback = true;
    for (uint32_t i = 0; i < plan->count; i++) {
        plan->loopback &= rps_address_is_loopback(&plan->addresses[i].storage);
    }
    return RPS_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One "host:port": checked whole, and brought to one spelling, so that equal
 * addresses are equal text. Names are kept as names; nothing is resolved.
 */
#include "conf/cluster_internal.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define HOST_BYTES_MAX  253u
#define LABEL_BYTES_MAX 63u

static bool
has_space(const char *text)
{
    for (; *text != '\0'; text++) {
        if (isspace((unsigned char)*text)) {
            return true;
        }
    }
    return false;
}

/* 1..65535, digits only; 0 if it is not. */
static unsigned
parse_port(const char *text)
{
    unsigned long port = 0;

    for (const char *at = text; *at != '\0'; at++) {
        if (*at < '0' || *at > '9') {
            return 0;
        }
        port = port * 10 + (unsigned long)(*at - '0');
        if (port > 65535) {
            return 0;
        }
    }
    return (unsigned)port;
}

static bool
is_host_byte(char byte)
{
    return (byte >= 'a' && byte <= 'z') || (byte >= '0' && byte <= '9') ||
           byte == '-' || byte == '_';
}

/* Numbers alone must be an IPv4 address: 198.51.100.300 is none, and neither
 * is 0, which resolvers take for one. */
static bool
is_broken_ipv4(const char *host)
{
    struct in_addr address;

    return host[strspn(host, "0123456789.")] == '\0' &&
           inet_pton(AF_INET, host, &address) != 1;
}

/* Lower case, no dot at the end; false if it cannot be a host name. */
static bool
normalise_name(char *host)
{
    size_t length = strlen(host);
    size_t label = 0;

    if (length > 0 && host[length - 1] == '.') {
        host[--length] = '\0';
    }
    if (length == 0 || length > HOST_BYTES_MAX) {
        return false;
    }
    for (size_t i = 0; i < length; i++) {
        host[i] = (char)tolower((unsigned char)host[i]);
        if (host[i] == '.') {
            if (label == 0) {
                return false;
            }
            label = 0;
        } else if (!is_host_byte(host[i]) || ++label > LABEL_BYTES_MAX) {
            return false;
        }
    }
    return label > 0 && host[0] != '-' && !is_broken_ipv4(host);
}

static bool
is_zone(const char *zone)
{
    for (const char *at = zone; *at != '\0'; at++) {
        if (!isalnum((unsigned char)*at) && strchr("._-", *at) == NULL) {
            return false;
        }
    }
    return *zone != '\0';
}

/* "2001:DB8:0::1" -> "2001:db8::1"; the zone after '%' stays as it is. */
static bool
normalise_ipv6(const char *host, char **out)
{
    char plain[INET6_ADDRSTRLEN];
    struct in6_addr address;
    const char *zone = strchr(host, '%');
    const size_t length = zone == NULL ? strlen(host) : (size_t)(zone - host);

    *out = NULL;
    if (length >= sizeof(plain) || (zone != NULL && !is_zone(zone + 1))) {
        return false;
    }
    memcpy(plain, host, length);
    plain[length] = '\0';
    if (inet_pton(AF_INET6, plain, &address) != 1 ||
            inet_ntop(AF_INET6, &address, plain, sizeof(plain)) == NULL) {
        return false;
    }
    *out = rps_format("[%s%s]", plain, zone == NULL ? "" : zone);
    return true;
}

static rps_status
refuse_syntax(const char *path, const char *text, rps_cluster_error *error)
{
    struct rps_quoted quoted;

    return rps_cluster_refuse(error, "E_ADDR",
            "%s: cannot read address %s; write host:port, and IPv6 as "
            "[addr]:port",
            path, rps_quote(&quoted, text));
}

static rps_status
refuse_no_port(const char *path, const char *text, rps_cluster_error *error)
{
    struct rps_quoted quoted;

    return rps_cluster_refuse(error, "E_ADDR_PORT",
            "%s: address %s has no port", path, rps_quote(&quoted, text));
}

/* `host` is a writable copy of what stands before the port. */
static rps_status
join(const char *path, const char *text, char *host, const char *port_text,
        char **address_out, rps_cluster_error *error)
{
    const size_t length = strlen(host);
    struct rps_quoted quoted;
    char *literal = NULL;
    unsigned port = 0;
    bool fine = false;

    if (length >= 2 && host[0] == '[') {
        host[length - 1] = '\0';
        fine = normalise_ipv6(host + 1, &literal);
        if (fine && literal == NULL) {
            return RPS_E_NOMEM;
        }
    } else {
        fine = normalise_name(host);
    }
    if (!fine) {
        return refuse_syntax(path, text, error);
    }
    if (*port_text == '\0') {
        free(literal);
        return refuse_no_port(path, text, error);
    }
    port = parse_port(port_text);
    if (port == 0) {
        free(literal);
        return rps_cluster_refuse(error, "E_ADDR_PORT",
                "%s: port of %s must be 1..65535", path,
                rps_quote(&quoted, text));
    }
    *address_out = rps_format("%s:%u", literal == NULL ? host : literal, port);
    free(literal);
    return *address_out == NULL ? RPS_E_NOMEM : RPS_OK;
}

/* Where the ':' before the port must stand; NULL if there is none. */
static const char *
find_port(const char *text, bool *readable)
{
    const char *close = NULL;
    const char *colon = NULL;

    *readable = true;
    if (text[0] == '[') {
        close = strchr(text, ']');
        *readable = close != NULL && (close[1] == ':' || close[1] == '\0');
        return *readable && close[1] == ':' ? close + 1 : NULL;
    }
    colon = strchr(text, ':');
    *readable = colon == NULL || strchr(colon + 1, ':') == NULL;
    return colon;
}

static rps_status
refuse_bare(const char *path, const char *text, rps_cluster_error *error)
{
    struct rps_quoted quoted;

    if (text[0] == '\0') {
        return rps_cluster_refuse(error, "E_ADDR_EMPTY",
                "%s: empty address (an empty host flag split on ',' gives "
                "this; leave the role out instead)",
                path);
    }
    if (has_space(text)) {
        return rps_cluster_refuse(error, "E_ADDR_SPACE",
                "%s: white space in address %s (write no space after the "
                "comma)",
                path, rps_quote(&quoted, text));
    }
    if (strstr(text, "://") != NULL) {
        return rps_cluster_refuse(error, "E_ADDR_SCHEME",
                "%s: address %s must be host:port without a scheme", path,
                rps_quote(&quoted, text));
    }
    return RPS_OK;
}

rps_status
rps_address_normalise(const char *path, const char *text, char **address_out,
        rps_cluster_error *error)
{
    rps_status status = refuse_bare(path, text, error);
    const char *colon = NULL;
    bool readable = true;
    char *host = NULL;

    *address_out = NULL;
    if (status != RPS_OK) {
        return status;
    }
    colon = find_port(text, &readable);
    if (!readable) {
        return refuse_syntax(path, text, error);
    }
    host = colon == NULL ? strdup(text) : strndup(text, (size_t)(colon - text));
    if (host == NULL) {
        return RPS_E_NOMEM;
    }
    status = join(path, text, host, colon == NULL ? "" : colon + 1, address_out,
            error);
    free(host);
    return status;
}

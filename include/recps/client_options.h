/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a client is opened with: <recps/client.h> has it all.
 */
#ifndef RPS_CLIENT_OPTIONS_H
#define RPS_CLIENT_OPTIONS_H

#include <recps/cluster.h>
#include <recps/types.h>

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * A thread of the client moves its tickets between the calls, while the program
 * computes: replies are copied to where they belong, more is sent as the
 * sockets take it, deadlines end, lost servers are dialled, whether a call
 * waits or not. Between calls, a client without it stands still. Nothing else
 * changes: one thread at a time makes calls, which move by themselves while
 * they wait, and callbacks run in calls alone. All signals are blocked in the
 * thread; rps_client_close() ends it.
 */
#define RPS_CLIENT_THREAD 1u

/** Filled by rps_client_options_init(), then changed field by field. */
typedef struct rps_client_options {
    uint32_t struct_bytes;      /**< set by _init; tells versions apart */
    const rps_cluster *cluster; /**< NULL: resolve from the environment */
    const char *job_id;         /**< must equal the servers'; "recps" */
    uint64_t job_seed;          /**< must equal the servers' */
    const char *checkpoint_dir; /**< embedded mode only; NULL: none */
    int checkpoint_read_only; /**< embedded: its folder need not be writable */
    uint32_t connect_timeout_ms; /**< whole wait for all PS; 300000 */
    /** Of blocking calls, but not begin, join, step end, save; 0 = no limit. */
    uint32_t request_timeout_ms;
    /** Called with one line of text while waiting; NULL: silent. */
    void (*report)(void *context, const char *line);
    void *report_context;
    /** A file with the servers' token, at least 32 bytes that nobody else can
     * read; NULL: none. Not read in embedded mode. */
    const char *token_file;
    /** PEM files of TLS, or NULL: the CA of the servers' certificates (with it
     * the client speaks TLS only), and the own certificate and key, where the
     * servers ask for one. Not read in embedded mode. */
    const char *tls_ca;
    const char *tls_cert;
    const char *tls_key;
    /** How long a lost server is dialled (while a call waits, or the client has
     * a thread); 60000; 0: never */
    uint32_t reconnect_timeout_ms;
    /** Asked meanwhile, also when a signal interrupts the wait: not 0 gives up
     * at once. NULL: never. */
    int (*give_up)(void *context);
    void *give_up_context;
    /** Not 0: each body has a checksum (XXH3_64), a reply's, too. A request
     * with a wrong one costs the connection, which is dialled again; a reply
     * with one is RPS_E_CORRUPT, and the client stays failed. 0. */
    int body_checksum;
    /** AUTO: without a cluster LOCAL; SHM for a server whose address is this
     * host's and whose Unix socket is there, if no tls_ca is given; else TCP.
     * UNIX and SHM speak no TLS: the kernel says who the peer is. */
    enum rps_transport transport;
    /** Folder of the servers' Unix sockets; NULL: $XDG_RUNTIME_DIR/recps, else
     * /tmp/recps-UID; "off": none is looked for. */
    const char *unix_dir;
    uint32_t known_epoch; /**< of a member that comes back; 0: none */
    uint32_t flags;       /**< RPS_CLIENT_THREAD */
} rps_client_options;

#ifdef __cplusplus
}
#endif

#endif /* RPS_CLIENT_OPTIONS_H */

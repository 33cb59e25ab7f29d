/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of an rps_client and of a table's handle. One thread at a time
 * uses them, whoever has the turn (io_thread.h); nothing here is locked.
 */
#ifndef RPS_CLIENT_HANDLE_H
#define RPS_CLIENT_HANDLE_H

#include "base/secret.h"
#include "base/tls.h"
#include "client/channel.h"
#include "client/error.h"
#include "proto/route.h"

#include <recps/client.h>

#include <poll.h>
#include <sys/types.h>

struct rps_dial;
struct rps_io;
struct rps_ticket_state;
struct rps_watch;

struct rps_embedding_table {
    rps_client *client;
    rps_embedding_table *next; /* rps_client.tables */
    uint64_t id;
    rps_table_spec spec;
    bool retired; /* dropped, or another table has its name now */
};

struct rps_client {
    pid_t pid;           /* that opened it */
    rps_cluster cluster; /* a copy */
    char *job_id;
    char *checkpoint_dir;      /* embedded; NULL: none */
    bool checkpoint_read_only; /* embedded */
    uint64_t job_seed;
    uint64_t client_id;
    struct rps_secret token;      /* length 0: none */
    struct rps_tls_context *tls;  /* NULL: plain */
    enum rps_transport transport; /* as asked for */
    char *unix_dir;               /* NULL: the default */
    bool told_passed_by;          /* that a near server is reached by TCP */
    bool body_checksum;           /* of requests, and asked of replies */
    uint32_t connect_timeout_ms;
    uint32_t request_timeout_ms;
    uint32_t reconnect_timeout_ms; /* 0: a lost connection stays lost */
    int (*give_up)(void *context); /* NULL: never before that */
    void *give_up_context;
    void (*report)(void *context, const char *line);
    void *report_context;

    bool embedded;
    bool member; /* has a rank in the job: chief, worker, embedded */
    uint32_t rank;
    struct rps_route route;        /* of ps_count servers */
    uint32_t ps_count;             /* of the job; 1 when embedded */
    uint32_t channel_count;        /* ps_count; an evaluator has PS 0 alone */
    struct rps_channel **channels; /* [channel_count]; NULL while opening */
    struct pollfd *polls;          /* [channel_count] */
    struct rps_dial *dials;        /* [channel_count]; NULL: embedded */
    bool joined; /* the epoch is the job's, not what HELLO says */
    bool in_job; /* the job has begun: a server without memory is fenced */
    uint32_t known_epoch;    /* as was given */
    struct rps_watch *watch; /* behind rps_client_fd() */
    struct rps_io *io;       /* RPS_CLIENT_THREAD; else NULL */

    uint64_t reconnects; /* connections that went on where one was cut */
    bool has_deadlines;  /* a request may have had one */
    uint64_t last_request;
    uint64_t last_ticket;
    struct rps_ticket_state *tickets;
    struct rps_ticket_state *end_wait; /* of them, for the job's end; or NULL */
    rps_embedding_table *tables;
    uint64_t lookup_step;
    rps_traffic traffic;

    uint8_t *decision; /* of the last step's end; NULL: none */
    size_t decision_bytes;
    bool may_fall_behind; /* the job has backup workers */
    char *alike;          /* JSON, of STEP_END(0); NULL: nothing is said */

    struct rps_save_run *saving; /* save.c; NULL: none was begun */
    uint32_t wishes_kept; /* RPS_WISH_SAVE: when the running save is over */
};

/** The first line of a public function that uses a client (or NULL): until its
 * end the I/O thread leaves it alone. Within another one it does nothing. */
#define RPS_TURN(client)                                                \
    const rps_client *rps_turn __attribute__((cleanup(rps_turn_end))) = \
            rps_turn_begin(client)

/** NULL: there is no thread to take turns with. io_thread.c */
const rps_client *rps_turn_begin(const rps_client *client);
void rps_turn_end(const rps_client **turn);

/** FORKED in a child, INVAL without a handle; begins every call. */
rps_status rps_client_enter(const rps_client *client);

/** The save that was begun is forgotten: nobody asks for it any more. The
 * servers drop it when the job begins again, or this client is gone. */
void rps_save_forget(rps_client *client);

/** A save was begun and is not over. */
bool rps_save_runs(const rps_client *client);

/** UNREACHABLE (with words) if a PS is gone for good. */
rps_status rps_client_all_alive(const rps_client *client);

/** The same, and ROLLED_BACK while a loss was not asked for yet
 * (rps_client_rolled_back): of what reads or changes tables. */
rps_status rps_client_all_whole(const rps_client *client);

/** The same of one PS; INVAL if there is no such PS here. */
rps_status rps_client_one_alive(const rps_client *client, uint32_t ps);

/** INVAL: which servers there are. */
rps_status rps_client_no_such_server(const rps_client *client, uint32_t ps);

/** Every request from now on carries this epoch, the job's; no decision is
 * owed, and what was lost before it is not told any more. */
void rps_client_set_epoch(rps_client *client, uint32_t epoch);

/** Handle of an opened table that is not retired, or NULL. */
rps_embedding_table *rps_client_find_table(
        const rps_client *client, uint64_t id);

/** The same with this spec, or a new one where none is left. NOMEM. */
rps_status rps_client_take_table(rps_client *client, const rps_table_spec *spec,
        rps_embedding_table **table_out);

#endif /* RPS_CLIENT_HANDLE_H */

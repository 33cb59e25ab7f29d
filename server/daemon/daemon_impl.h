/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the daemon's files share. daemon.c has its start, its signals and its
 * life; stopping.c its end; reload.c what HUP does; dump.c what QUIT does.
 * All of it is the main thread's, but for what `view` says.
 */
#ifndef RPS_SERVER_DAEMON_DAEMON_IMPL_H
#define RPS_SERVER_DAEMON_DAEMON_IMPL_H

#include "server/daemon/access.h"
#include "server/daemon/admin.h"
#include "server/daemon/daemon.h"
#include "server/daemon/listener.h"
#include "server/daemon/loop.h"
#include "server/daemon/view.h"
#include "server/figures.h"
#include "server/service.h"

/** How far the end has come. */
enum rps_stopping {
    RPS_STOPPING_NOT,
    RPS_STOPPING_SERVES, /* unready; waits for a save, and for --drain-delay */
    RPS_STOPPING_DRAINS  /* takes nothing new, finishes what it has */
};

struct rps_daemon {
    const struct rps_options *options;
    rps_reread_fn *reread;
    struct rps_service *service;
    struct rps_access access; /* its token and TLS; the loops use it, too */
    struct rps_loops_shared shared;
    struct rps_loop *loops[RPS_LOOPS_MAX];
    uint32_t loop_count;
    struct rps_listener *listener;
    bool loopback;           /* every address it listens on */
    struct rps_admin *admin; /* NULL: none */
    bool admin_off;          /* it is not wanted, or the main port has it */
    bool admin_wanted;       /* somebody has the default one: tried again */
    struct rps_view view;    /* what it sees */
    char listening[RPS_ADDRESS_TEXT_BYTES]; /* "": not yet */
    uint16_t port;

    struct event_base *base;
    struct event *signal_event;
    struct event *shutdown_event;
    struct event *drained_event;
    struct event *deadline; /* of the end */
    struct event *settling; /* polls while it stops and still serves */
    struct event *tick;
    struct event *watchdog;
    int signal_fd;
    int shutdown_fd; /* eventfd: SHUTDOWN was accepted, by any thread */
    uint32_t loops_drained;
    int exit_code;

    enum rps_stopping stopping;
    const char *stop_reason;
    uint64_t stop_since_ms;
    uint64_t delay_ms;            /* new connections are served for so long */
    enum rps_end_wish end_wished; /* of the chief, for this stop */
    bool waits_for_chief;         /* until it has done that */
    bool shutdown_came;           /* the job has ended */
    uint64_t signalled_ms;        /* clock of the first TERM or INT; 0: none */
    bool by_signal;               /* what it stops for is no SHUTDOWN */
    uint64_t cuts_before;         /* it is there when a later cut is saved */

    uint64_t saves_told; /* whose length was compared with drain_timeout */
    bool stands_told;    /* that a loop does not turn */
    enum rps_busy busy_told;
    struct rps_service_figures figures; /* of the last dump */
};

/* stopping.c */

/** Begin the end, once. delay: also serve new connections for a while, and
 * have what is unsaved saved if a chief is there. */
void rps_daemon_stop(struct rps_daemon *daemon, int exit_code,
        const char *reason, bool delay);

/** The chief has made the checkpoint that this stop asked it for: what has
 * changed since is the job's, which was meant to go on. */
bool rps_daemon_is_saved_for_stop(const struct rps_daemon *daemon);

/** Ask the chief for a checkpoint. Errors: INVAL (no folder is set), NOT_FOUND
 * (no chief). */
rps_status rps_daemon_wish_save(
        struct rps_daemon *daemon, struct rps_error *error);

/** Events of the end: SHUTDOWN, settling, a loop that is drained, the time
 * limit. */
void rps_daemon_on_shutdown(evutil_socket_t fd, short what, void *daemon);
void rps_daemon_on_settling(evutil_socket_t fd, short what, void *daemon);
void rps_daemon_on_drained(evutil_socket_t fd, short what, void *daemon);
void rps_daemon_on_deadline(evutil_socket_t fd, short what, void *daemon);

/* daemon.c */

/** NULL: none. */
const char *rps_daemon_checkpoint_dir(const struct rps_options *options);

/** Where to listen; an exit code. */
int rps_daemon_check_address(
        const struct rps_options *options, struct rps_listen_plan *plan);

/* admin_start.c */

/**
 * Can --admin be bound beside this plan? USAGE: it is none, or the same port;
 * AGAIN: its name does not resolve. *off_out: there is to be none, or the
 * default address is the main port's.
 */
int rps_daemon_check_admin(const struct rps_options *options,
        const struct rps_listen_plan *plan, bool *off_out);

/** Open it, or leave it for later; an exit code. */
int rps_daemon_start_admin(struct rps_daemon *daemon);

/** Now and then: the default address may be free by now. */
void rps_daemon_retry_admin(struct rps_daemon *daemon);

/* serve.c */

/** The folder of --serve; NULL: none. */
const char *rps_daemon_serve_dir(const struct rps_options *options);

/** Do the options go together with --serve? An exit code. */
int rps_daemon_check_serve(const struct rps_options *options);

/** After the service is made, before it listens; an exit code. */
int rps_daemon_start_serving(struct rps_daemon *daemon);

/* reload.c */
void rps_daemon_reload(struct rps_daemon *daemon);

/* dump.c */
void rps_daemon_dump(struct rps_daemon *daemon);

#endif /* RPS_SERVER_DAEMON_DAEMON_IMPL_H */

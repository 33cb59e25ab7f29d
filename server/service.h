/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request in, its reply out: at once, or later by callback (STEP_END, SAVE,
 * RESTORE). No sockets here: recpsd's loops and the embedded channel both
 * call it with whole, checked frames.
 *
 * Threads: rps_service_handle from any thread, requests of one session one
 * at a time. A reply may come from another thread than the call.
 */
#ifndef RPS_SERVER_SERVICE_H
#define RPS_SERVER_SERVICE_H

#include "base/error.h"
#include "base/secret.h"
#include "proto/message.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rps_service;
struct json_t;      /* jansson's */
struct rps_session; /* one connection, as the service sees it */

/** Of rows that change while a checkpoint is written. */
#define RPS_SAVE_BUFFER_BYTES (256ull << 20)

struct rps_service_options {
    uint32_t ps_index;
    uint32_t ps_count; /* 1 when embedded */
    const char *job_id;
    uint64_t job_seed;
    uint64_t incarnation;       /* of this process; 0: drawn */
    uint64_t fingerprint;       /* of the cluster; a mismatch only warns */
    const char *checkpoint_dir; /* NULL: no SAVE, no RESTORE of a step */
    /** Go on with a folder that can be read but not written, as an
     * evaluator's may be: RESTORE works, SAVE fails. Else create fails. */
    bool checkpoint_read_only_ok;
    /** Folders, commas between, that a RESTORE may read beside checkpoint_dir
     * and what is below them: "/" is any. NULL or "": none. */
    const char *warm_start_dirs;
    uint64_t step_bytes_max; /* of one replica's contribution */
    uint32_t step_timeout_ms;
    uint64_t client_ttl_ms; /* of one without a connection; 0: no limit */
    /** Keep the tables up (eviction, compaction) on a thread; else whoever
     * pushes does a slice of it. */
    bool background;
    uint64_t memory_limit; /* bytes of all tables; 0: none */
    const char *disk_tier; /* folder for rows beyond the limits; NULL: none */
    uint64_t disk_limit;   /* bytes there; 0: none */
    uint64_t save_buffer;  /* bytes of rows that change during a save; 0:
                              RPS_SAVE_BUFFER_BYTES */
    const char *numa;      /* "off" (or NULL), "interleave", "bind" */
    const struct rps_secret *token; /* that peers must have; NULL: none */
    /** One line for the log; may be NULL. Any thread. */
    void (*event)(
            void *context, int level, const char *event, const char *text);
    /** STAT with {"times":true}: add what the process counts of its requests
     * (PROTOCOL.md) to the object. May be NULL. Any thread. */
    void (*times)(void *context, struct json_t *stat);
    /** SHUTDOWN was accepted: stop the process. May be NULL. Any thread. */
    void (*shutdown)(void *context);
    void *context;
};

/** Copies *options and its strings. Errors: NOMEM, IO, INVAL. */
rps_status rps_service_create(struct rps_service **service_out,
        const struct rps_service_options *options, struct rps_error *error);

/**
 * Ask for this token (a copy) from the next HELLO on; NULL: for none. Who is
 * connected stays. UNSUPPORTED (no OpenSSL), NOMEM. Threads: any.
 */
rps_status rps_service_set_token(struct rps_service *service,
        const struct rps_secret *token, struct rps_error *error);

/**
 * Begin with the newest complete checkpoint of checkpoint_dir, if there is
 * one: its tables, its step and what it knows of clients; epoch 0, async.
 * One that is damaged is passed over for the next older one, with an event.
 * Before the first session. INVAL (no checkpoint_dir), CORRUPT (there are
 * some, and none is usable); as RESTORE. What fails leaves an empty store.
 */
rps_status rps_service_load_newest(
        struct rps_service *service, struct rps_error *error);

/**
 * Serve the newest complete checkpoint of `dir` for reading, and follow the
 * folder: it is looked at every poll_ms. Where there is none yet it is waited
 * for. Before the first session; the service has no checkpoint_dir. CORRUPT
 * (there are some, and none can be served); LIMIT, MISMATCH, UNSUPPORTED, IO,
 * NOMEM as RESTORE.
 */
rps_status rps_service_serve(struct rps_service *service, const char *dir,
        uint64_t poll_ms, struct rps_error *error);

/** Could a service have this checkpoint_dir? IO, as at its creation; nothing is
 * made that stays. Threads: any. */
rps_status rps_service_probe_dir(const char *dir, struct rps_error *error);

/** No session may be open. Waits for a save in progress. */
void rps_service_destroy(struct rps_service *service);

/** `peer` is text for logs ("127.0.0.1:4711"). NULL: no memory. */
struct rps_session *rps_session_open(
        struct rps_service *service, const char *peer);

/** How its peer is reached, for STAT; TCP at first. Threads: the session's. */
void rps_session_set_transport(
        struct rps_session *session, enum rps_transport transport);

/**
 * Where answers with rows may be built while a request of the session is
 * handled; NULL: on the heap. Such a frame is not the taker's to free().
 * Threads: the session's.
 */
void rps_session_set_memory(
        struct rps_session *session, struct rps_frame_memory *memory);

/**
 * Where long answers with rows go while they are made, if it takes them; NULL:
 * they are made whole. The reply callback does not see such an answer. Threads:
 * the session's.
 */
void rps_session_set_sink(
        struct rps_session *session, struct rps_frame_sink *sink);

/** Take bytes of the server's memory limit for something that is no table, or
 * give them back. false: it would be exceeded. Threads: any. */
bool rps_service_take_memory(struct rps_service *service, uint64_t bytes);
void rps_service_give_memory(struct rps_service *service, uint64_t bytes);

/**
 * The connection is gone: parked requests of the session get no reply any
 * more once this returns, and a member without `leave` counts as lost. Waits
 * for a reply callback of this session that another thread is in: hold no
 * lock that it takes, and do not close a session inside its own callback.
 */
void rps_session_close(struct rps_session *session);

/** Bytes of a push whose last frame has not come. Threads: the session's. */
size_t rps_session_held_bytes(const struct rps_session *session);

/** Memory of connections counts in memory_limit: so much more or less.
 * Threads: any. */
void rps_service_count_buffers(struct rps_service *service, int64_t bytes);

/**
 * A newer connection has taken the session's lane over: this one is to be
 * closed. Called under the service's lock, from another session's thread:
 * only note it, and wake who closes. Once the session is closed it is not
 * called any more. Threads: the session's, before its HELLO.
 */
void rps_session_on_superseded(struct rps_session *session,
        void (*superseded)(void *context), void *context);

/**
 * Takes the reply: an owned frame (free()), or NULL when memory ran out:
 * close the connection. Called exactly once a request, unless the session
 * was closed first.
 */
typedef void rps_reply_fn(void *context, uint8_t *frame, size_t frame_bytes);

/**
 * Serve one request. `message` and its frame are borrowed for the call; what
 * must outlive it is copied. A HELLO that takes over a lane waits for the
 * request that its older connection has in hand, which then is superseded.
 *
 * Its deadline counts from came_ns (rps_clock_ns(); 0: from now). Once it has
 * passed the answer is DEADLINE: nothing was done, but a number is used up
 * and the rest of a split push is refused, too, as with any refusal. It is
 * looked at first, after each wait for a lock, between the slices of what is
 * large and before the first change; not afterwards.
 */
void rps_service_handle_since(struct rps_session *session,
        const struct rps_message *message, uint64_t came_ns,
        rps_reply_fn *reply, void *context);
void rps_service_handle(struct rps_session *session,
        const struct rps_message *message, rps_reply_fn *reply, void *context);

/** Answer a header that is not a request we know (from header_decode). */
void rps_service_refuse(const struct rps_header *header, rps_status status,
        const char *why, rps_reply_fn *reply, void *context);

/**
 * Ask the chief for a checkpoint: it sees the wish on this PS's replies and
 * saves at the end of a step. Errors: NOT_FOUND (no chief is connected).
 * Threads: any.
 */
rps_status rps_service_wish_save(
        struct rps_service *service, struct rps_error *error);

/** What the chief is asked for by a PS that is to end. */
enum rps_end_wish {
    RPS_END_WISH_NONE, /* nothing is unsaved, or there is no chief */
    RPS_END_WISH_SAVE, /* a checkpoint, from which the job goes on when this PS
                          is here again */
    RPS_END_WISH_STOP  /* a checkpoint and the job's end: lost processes do not
                          come back in this job (its terms) */
};

/** This process is about to end: ask the chief for what its job needs then.
 * Threads: any. */
enum rps_end_wish rps_service_wish_end(
        struct rps_service *service, struct rps_error *error);

/** From here on STAT says so. Threads: any. */
void rps_service_end_begins(struct rps_service *service);

/** Is the chief connected; is there anything that no checkpoint holds; how
 * many were committed, and how long the last one took (NULL: never mind).
 * Threads: any. */
bool rps_service_chief_connected(struct rps_service *service);
bool rps_service_is_unsaved(struct rps_service *service);
uint64_t rps_service_saves(struct rps_service *service, double *seconds_out);

/** Cuts that were taken so far, and which of them the last checkpoint is of;
 * 0: none. Threads: any. */
uint64_t rps_service_cuts(struct rps_service *service);
uint64_t rps_service_saved_cut(struct rps_service *service);

/**
 * Write this PS's own part of what its tables hold, where a stop leaves it
 * unsaved: no checkpoint, but what `recps restore --orphans` makes one of.
 * *path_out (free()) is where. No session may be open. Errors: INVAL (there is
 * no checkpoint_dir), IO, NONFINITE, NOMEM, …: nothing is left behind.
 */
rps_status rps_service_write_orphan(
        struct rps_service *service, char **path_out, struct rps_error *error);

/** Rows and steps that no complete checkpoint holds, in words for SIGTERM. */
char *rps_service_unsaved(struct rps_service *service);

/** The STAT text; free(). with_digests reads every row. */
char *rps_service_stat(struct rps_service *service, bool with_digests);

#endif /* RPS_SERVER_SERVICE_H */

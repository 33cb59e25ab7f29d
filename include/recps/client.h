/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client: tables of a recps job, looked up and pushed to from a training
 * program. With no parameter server in the cluster the same calls are served
 * inside the process ("embedded").
 *
 * A handle is used by one thread at a time. The caller drives: _start writes
 * what the sockets take, rps_wait and rps_poll move every ticket; between the
 * calls a thread of the client does, where RPS_CLIENT_THREAD asks for one.
 *
 * Errors of every call that takes a handle, said once ("the usual"):
 * RPS_E_INVAL (an argument breaks its rule, or this role may not call it),
 * RPS_E_NOMEM, RPS_E_FORKED (the handle is the parent process's); and where a
 * server is asked, RPS_E_UNREACHABLE (one is gone and was not reached again in
 * reconnect_timeout_ms; the client stays failed), RPS_E_CORRUPT (a reply that
 * does not fit its request: likewise), RPS_E_ROLLED_BACK (the job has begun
 * again, or a server has lost its memory: see rps_client_rolled_back()),
 * RPS_E_TIMEOUT (request_timeout_ms passed; the outcome is unknown).
 *
 * A connection that is cut is no error: it is dialled again, and every request
 * is carried out once. An evaluator's client
 * is connected to PS 0 alone: what needs all servers is RPS_E_UNSUPPORTED.
 */
#ifndef RPS_CLIENT_H
#define RPS_CLIENT_H

#include <recps/client_options.h>
#include <recps/cluster.h>
#include <recps/status.h>
#include <recps/types.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rps_client rps_client;
/** The client's handle of a table; lives as long as its client. */
typedef struct rps_embedding_table rps_embedding_table;
/** A lookup or push on its way. */
typedef struct rps_ticket {
    uint64_t id; /**< 0: none */
} rps_ticket;

/** Flags of lookups and pushes. */
#define RPS_READ_ONLY 1u /**< an absent key answers the default vector */
#define RPS_PADDED    2u /**< padding_key is set: zeros, never sent */
/** With offsets: each server sums what it owns of a bag (lookups), or gets one
 * gradient a bag (pushes). Fewer bytes where there are fewer bags than
 * distinct keys. The client sums else, which depends on no server count. */
#define RPS_POOL_ON_SERVER 4u

/** Bits of a decision's wishes and of what a replica asks for. */
#define RPS_WISH_SAVE  1u
#define RPS_WISH_STOP  2u
#define RPS_WISH_LEAVE 4u

enum rps_mode {
    RPS_MODE_ASYNC = 0,
    RPS_MODE_SYNC = 1,
    /** As async, but step t begins when all ended t - staleness - 1. */
    RPS_MODE_BOUNDED = 2
};

/** What the loss of a replica, or its silence, does to the others. */
enum rps_on_lost {
    RPS_ON_LOST_STOP = 0, /**< their steps end with RPS_E_TIMEOUT */
    RPS_ON_LOST_LEAVE = 1 /**< they go on without it; not without the chief */
};

enum rps_combine {
    RPS_COMBINE_SUM = 0,
    RPS_COMBINE_MEAN = 1
};

/** What a server lost of this client, and what it acknowledged to it. */
typedef struct rps_rollback {
    /** Changing requests to this server, which it numbers 1, 2, 3 …: those
     * from `first` to `last` were answered, and are lost. 0: none. */
    uint64_t first, last;
    /** Of them, acknowledged pushes: the last ones that were. */
    uint64_t pushes;
    /** Pushes that this server has acknowledged since the client was opened,
     * lost ones too, and those whose ticket was canceled, or ended otherwise
     * because of another server. Not set back by asking. */
    uint64_t acknowledged;
    /** Pushes that this server may have carried out or may still carry out:
     * its answer is not here yet, or, where the client has failed, was not. */
    uint64_t unanswered;
} rps_rollback;

/** What a client has sent and received since it was opened: whole frames, of
 * requests after HELLO; in embedded mode, too. */
typedef struct rps_traffic {
    uint64_t requests;
    uint64_t sent_bytes;
    uint64_t received_bytes;
    /** Waits for an answer that could not overlap: what was waited for had been
     * begun after the wait before it ended. What a ticket asks of several
     * servers is one; tickets that are on their way together are one. In
     * embedded mode they are counted, too, though nothing travels. With
     * RPS_CLIENT_THREAD an answer may be there before anybody waits: no trip */
    uint64_t round_trips;
} rps_traffic;

/** One table's part of a fused lookup. */
typedef struct rps_lookup {
    rps_embedding_table *table;
    const uint64_t *keys; /**< [key_count] */
    size_t key_count;
    const uint32_t
            *offsets; /**< [bag_count + 1] into keys; NULL: a row a key */
    size_t bag_count;
    enum rps_pooling pooling;
    uint32_t flags; /**< RPS_READ_ONLY, RPS_PADDED, RPS_POOL_ON_SERVER */
    uint64_t padding_key;
    void *rows;           /**< [key_count or bag_count][dim] */
    size_t row_stride;    /**< bytes from row to row; 0 = dim values */
    enum rps_value value; /**< of rows; only F32 is built */
    /** What travels: F32, F16, BF16, or I8 with a scale a row. Rows (or the
     * servers' sums) are rounded to it there and widened here. */
    enum rps_value wire;
} rps_lookup;

/** One table's part of a fused push; the first fields as in rps_lookup. */
typedef struct rps_push {
    rps_embedding_table *table;
    const uint64_t *keys;
    size_t key_count;
    const uint32_t *offsets;
    size_t bag_count;
    enum rps_pooling pooling;
    uint32_t flags;
    uint64_t padding_key;
    const void *gradients;  /**< [key_count or bag_count][dim] */
    size_t gradient_stride; /**< bytes; 0 = dim values */
    enum rps_value value;
    float learning_rate; /**< NaN: the table's; else >= 0 and finite */
    /** What travels: each key's sum (or bag's gradient) is rounded to it. One
     * beyond the type is infinite there, so refused as not finite. */
    enum rps_value wire;
} rps_push;

/** What a request belongs to. */
typedef struct rps_call {
    uint64_t step; /**< global step of a push; 0 outside a job */
    /** The request's deadline, counted by each server from its arrival there;
     * 0: none. Past it the answer is RPS_E_DEADLINE and that server did
     * nothing; where none comes, RPS_E_TIMEOUT, and what was done is unknown.
     * rps_wait() has a limit of its own. */
    uint32_t timeout_ms;
    uint32_t flags; /**< RPS_READ_ONLY, of every lookup in the call */
} rps_call;

/** Rows as they are: for start values and imports. */
typedef struct rps_assign {
    rps_embedding_table *table;
    const uint64_t *keys;
    size_t key_count;
    const float *rows;    /**< [key_count][dim] */
    const float *slots;   /**< [key_count][slot floats], or NULL: fresh */
    const uint32_t *meta; /**< [key_count] last | uses << 24, or NULL: 0 */
} rps_assign;

/** Terms of a job, fixed by the chief when it begins. */
typedef struct rps_terms {
    enum rps_mode mode;
    enum rps_combine combine;
    uint32_t replica_count;
    uint32_t step_timeout_ms; /**< patience with a replica; 0: 60000 */
    uint64_t step_bytes_max;  /**< a replica's push to a PS; 0: 256 MiB */
    uint32_t staleness;       /**< bounded: steps that one may be ahead */
    uint32_t backup_workers;  /**< sync: a step counts this many fewer */
    enum rps_on_lost on_lost;
    int recover; /**< not 0: who is lost comes back, and the job begins again */
    enum rps_cut_of cut; /**< async, bounded; sync: always the job's */
} rps_terms;

/** Where a job begins (again). */
typedef struct rps_start {
    uint32_t epoch;
    uint64_t step; /**< 0: empty tables */
    rps_terms terms;
    char *data_position; /**< JSON text as it was saved, or NULL; free() */
    char reason[RPS_REASON_BYTES]; /**< why it began again; "": it did not */
} rps_start;

/** The answer of a step's end: in sync the same for every replica. */
typedef struct rps_decision {
    uint64_t step;
    double loss;        /**< combined over the counted ranks; NaN: none */
    uint32_t counted;   /**< ranks counted */
    int included;       /**< this replica's push is one of them */
    uint32_t gone;      /**< ranks of the decision before, not of this one */
    uint32_t gone_rank; /**< the least of them */
    uint32_t wishes;    /**< RPS_WISH_*; SAVE: save save_step */
    uint64_t save_step; /**< async: end this step, then save; 0: none */
} rps_decision;

/** What a pass of eviction did, at one server or summed. */
typedef struct rps_eviction {
    uint64_t examined;     /**< rows looked at: none where no rule evicts */
    uint64_t cold;         /**< rows evicted: idle longer than max_cold_* */
    uint64_t full;         /**< rows evicted: beyond the memory limit */
    uint64_t bytes_before; /**< what the tables took */
    uint64_t bytes_after;
} rps_eviction;

#define RPS_HOT_MAX 512u /**< keys that rps_hot_keys() can tell */

/** A key that is pushed often. */
typedef struct rps_hot {
    uint64_t key;
    uint64_t count; /**< about how often; older pushes fade */
    uint64_t error; /**< count may be too large by this */
} rps_hot;

/**
 * Where a scan is: zeroed, it is at the beginning. Belongs to no process: it
 * may be stored and go on later.
 */
typedef struct rps_scan {
    uint32_t ps;   /**< server that is asked next */
    uint32_t done; /**< not 0: the end */
    uint64_t place, hash, key;
} rps_scan;

/** A row as a scan sees it. */
typedef struct rps_scanned {
    uint64_t key;
    uint32_t uses; /**< pushes, an estimate (18 % standard deviation) */
    uint32_t last; /**< low 24 bits of the tick of its last push */
} rps_scanned;

/**
 * Fill *options with the defaults. NULL is allowed: nothing is done.
 *
 * Threads: any.
 */
RPS_API void rps_client_options_init(rps_client_options *options);

/**
 * Connect to every PS of the cluster, or open the embedded service.
 *
 * Waits for servers that are not there yet, saying why every 10 s through
 * `report`, at most connect_timeout_ms in all.
 *
 * Owns:    copies *options; *client_out is released by rps_client_close().
 *          On error *client_out is NULL and rps_client_error(NULL) says why.
 * Threads: any.
 * Errors:  RPS_E_INVAL (options, or a TF_CONFIG that is refused),
 *          RPS_E_MISMATCH (job id, seed, number of PS), RPS_E_UNREACHABLE
 *          (each missing server and its cause), RPS_E_UNSUPPORTED (another
 *          wire version), RPS_E_IO (embedded: checkpoint_dir), RPS_E_NOMEM.
 */
RPS_API RPS_NODISCARD rps_status rps_client_open(
        rps_client **client_out, const rps_client_options *options);

/**
 * Close; unfinished tickets are canceled. NULL is allowed.
 *
 * Threads: the last user of the client and of its tables.
 */
RPS_API void rps_client_close(rps_client *client);

/**
 * This thread's last failure, in words; "" if there was none.
 *
 * Owns:    valid until this thread's next call. client is not looked at and
 *          may be NULL.
 * Threads: any.
 */
RPS_API const char *rps_client_error(const rps_client *client);

/**
 * A descriptor that is readable when rps_poll has work; -1: embedded, a
 * handle that is not ours, or no descriptor is left. With RPS_CLIENT_THREAD
 * the thread may have done that work before the poll.
 *
 * Owns:    the client's: do not close it.
 *
 * Threads: the client's.
 */
RPS_API int rps_client_fd(const rps_client *client);

/**
 * The cluster this client was opened with.
 *
 * Owns:    valid until rps_client_close().
 * Threads: any.
 */
RPS_API const rps_cluster *rps_client_cluster(const rps_client *client);

/**
 * What went over the wire so far; subtract two to measure.
 *
 * Threads: the client's.
 */
RPS_API void rps_client_traffic(
        const rps_client *client, rps_traffic *traffic_out);

/**
 * Servers that this client asks: those of the job; 1: embedded, or an
 * evaluator's; 0: no client.
 *
 * Threads: any.
 */
RPS_API uint32_t rps_server_count(const rps_client *client);

/**
 * What a server that began anew has lost of this client's changes, since this
 * was asked last: it answers HELLO with the last number in its memory.
 *
 * Until it is asked, every call that reads or changes tables is
 * RPS_E_ROLLED_BACK, and so are the tickets that waited for the server then:
 * what it had not acknowledged it has not done, and is not sent to it again.
 * The other servers of such a push carry it out; each counts what it has
 * acknowledged, whatever became of the tickets. So for each client and server,
 * where out->unanswered is 0 (rps_ping() the server until it is),
 *
 *   pushes applied = out->acknowledged - sum of out->pushes so far
 *
 * and as servers carry a client's pushes out in their order, those that are
 * lost are the last ones that were acknowledged. Not so in a job that began
 * again: it is the epoch that tells there. `pushes` is exact as long as
 * fewer than 256 other changes or refused pushes stand between the client's
 * pushes that are not lost; beyond that it may count some too many.
 *
 * Units:   ps counts from 0 to rps_server_count() - 1.
 * Threads: the client's.
 * Errors:  RPS_E_INVAL (no such server); RPS_E_FORKED.
 */
RPS_API RPS_NODISCARD rps_status rps_client_rolled_back(
        rps_client *client, uint32_t ps, rps_rollback *out);

/**
 * How this client reaches a server: never AUTO, unless there is no such
 * server or client, or its connection is lost.
 *
 * Threads: the client's.
 */
RPS_API enum rps_transport rps_server_transport(
        const rps_client *client, uint32_t ps);

/**
 * "auto", "tcp", "unix", "shm" or "local".
 *
 * Owns:    returns static storage; never NULL, also for unknown values.
 * Threads: any.
 */
RPS_API const char *rps_transport_str(enum rps_transport transport);

/**
 * Open a table, creating it where it is not there yet, on every PS. A name
 * that this client has open answers the same handle.
 *
 * Owns:    copies *spec; the handle lives as long as the client.
 * Threads: the client's.
 * Errors:  RPS_E_INVAL, RPS_E_UNSUPPORTED (see rps_table_spec_check),
 *          RPS_E_MISMATCH (the table exists with another field),
 *          RPS_E_LIMIT (too many tables); the usual.
 */
RPS_API RPS_NODISCARD rps_status rps_get_embedding_table(rps_client *client,
        const rps_table_spec *spec, rps_embedding_table **table_out);

/**
 * Open a table that exists already, by its name alone; nothing is made.
 *
 * Owns:    borrows name for the call; the handle lives as long as the client.
 * Threads: the client's.
 * Errors:  RPS_E_NOT_FOUND (a PS has no such table; named), RPS_E_MISMATCH
 *          (the servers' specs differ); the usual.
 */
RPS_API RPS_NODISCARD rps_status rps_find_embedding_table(
        rps_client *client, const char *name, rps_embedding_table **table_out);

/**
 * Spec that the table was opened with.
 *
 * Owns:    valid as long as the client.
 * Threads: any.
 */
RPS_API const rps_table_spec *rps_embedding_table_spec(
        const rps_embedding_table *table);

/**
 * Begin a fused lookup over `count` tables.
 *
 * Shapes:  lookups[count]; each writes rows[key_count or bag_count][dim].
 * Owns:    borrows keys, offsets and rows until the ticket is done or
 *          canceled. call may be NULL. On error *ticket_out is none.
 * Threads: the client's.
 * Errors:  RPS_E_LIMIT (tables or keys of a call), RPS_E_UNSUPPORTED (a value
 *          type that is not built); the usual.
 */
RPS_API RPS_NODISCARD rps_status rps_lookup_start(rps_client *client,
        const rps_call *call, const rps_lookup *lookups, size_t count,
        rps_ticket *ticket_out);

/**
 * Begin a fused push over `count` tables, to every PS.
 *
 * In a sync job one call carries all tables of a step: (step, replica) names
 * the push. A second call of the same step changes nothing, whatever its
 * tables and keys; it gets the first one's kept result, RPS_OK too.
 *
 * Shapes:  pushes[count]; duplicate keys are summed before they are sent.
 * Owns:    borrows keys, offsets and gradients until the ticket is done or
 *          canceled. call may be NULL. On error *ticket_out is none.
 * Threads: the client's.
 * Errors:  RPS_E_LIMIT (tables or keys of a call), RPS_E_UNSUPPORTED (a value
 *          type that is not built); the usual.
 */
RPS_API RPS_NODISCARD rps_status rps_push_start(rps_client *client,
        const rps_call *call, const rps_push *pushes, size_t count,
        rps_ticket *ticket_out);

/**
 * Move all tickets until this one is done; its status is the result.
 *
 * Units:   timeout_ms in milliseconds, 0 = no limit.
 * Threads: the client's.
 * Errors:  RPS_E_TIMEOUT (not done yet; wait again or cancel; or, the ticket
 *          being gone, the call's timeout_ms passed), RPS_E_DEADLINE,
 *          RPS_E_NOT_FOUND (no such ticket; or the request's: a table that a
 *          restore took away), RPS_E_LIMIT (the request's: step_bytes_max),
 *          RPS_E_DEADLINE (the request's: call.timeout_ms); the usual.
 */
RPS_API RPS_NODISCARD rps_status rps_wait(
        rps_client *client, rps_ticket ticket, uint32_t timeout_ms);

/**
 * Move all tickets without waiting; *done_out says if this one is done,
 * after which its status is the result and the ticket is gone.
 *
 * Threads: the client's.
 * Errors:  as rps_wait, but for RPS_E_TIMEOUT.
 */
RPS_API RPS_NODISCARD rps_status rps_poll(
        rps_client *client, rps_ticket ticket, int *done_out);

/**
 * Forget a ticket. Its buffers are not touched after the return. A lookup's
 * answer is dropped; a push that has begun is not torn: every server that it
 * reaches carries it out as a whole, and nobody is told. Who must know waits.
 *
 * Threads: the client's.
 */
RPS_API void rps_cancel(rps_client *client, rps_ticket ticket);

/**
 * Step that the last finished lookup or refresh was answered from (c); the
 * least, where servers differ. Hand it to rps_refresh().
 *
 * Threads: the client's.
 */
RPS_API uint64_t rps_lookup_step(const rps_client *client);

/**
 * Copy the rows of n keys into `rows`; an absent key yields its first value.
 *
 * Shapes:  keys[n]; rows[n][dim] f32, row-major, contiguous.
 * Owns:    borrows keys and rows for the call; keeps neither.
 * Threads: the client's.
 * Errors:  as rps_lookup_start and rps_wait.
 */
RPS_API RPS_NODISCARD rps_status rps_embedding_lookup(
        rps_embedding_table *table, size_t n, const uint64_t *keys,
        float *rows);

/**
 * Push gradients of n keys; the table's optimizer applies them. In a step of
 * a sync job it is the whole push: for more tables than one use
 * rps_push_start(), as a second push of the step changes nothing.
 *
 * Shapes:  keys[n], duplicates allowed; gradients[n][dim] f32.
 * Owns:    borrows keys and gradients for the call; keeps neither.
 * Threads: the client's.
 * Errors:  as rps_push_start and rps_wait.
 */
RPS_API RPS_NODISCARD rps_status rps_push_gradients(rps_embedding_table *table,
        uint64_t step, size_t n, const uint64_t *keys, const float *gradients,
        float learning_rate);

/**
 * Write rows as they are, creating those that are absent. Of a key that
 * stands twice the last row counts.
 *
 * Shapes:  keys[key_count]; rows[key_count][dim]; slots and meta as
 *          rps_assign says.
 * Owns:    borrows the arrays for the call.
 * Threads: the client's.
 * Errors:  RPS_E_NONFINITE (names table and key), RPS_E_LIMIT (keys of a
 *          call), RPS_E_NOT_FOUND (as rps_wait); the usual.
 */
RPS_API RPS_NODISCARD rps_status rps_assign_rows(
        rps_client *client, const rps_assign *assign);

/**
 * Bring rows that were fetched at step `since` up to date.
 *
 * Shapes:  keys[n]; rows[n][dim] f32: changed ones are overwritten.
 * Units:   *changed_out counts positions of keys, duplicates too.
 * Owns:    borrows keys and rows for the call.
 * Threads: the client's.
 * Errors:  as rps_embedding_lookup.
 */
RPS_API RPS_NODISCARD rps_status rps_refresh(rps_embedding_table *table,
        size_t n, const uint64_t *keys, uint64_t since, float *rows,
        size_t *changed_out);

/**
 * Change policy fields of a table, on every PS: hyper-parameters, clipping,
 * admission, max_cold_*, keep_min_rows, memory_limit, on_full, … The fields
 * that are not named stay. On each PS the change is one cut between two
 * requests; a step of sync that spans it may see it at one PS before another.
 * The handle's spec, where this client has the table open, follows.
 *
 * Shapes:  fields_json is an object of the spec's fields by name,
 *          {"learning_rate": 0.01, "on_full": "evict-lru"}.
 * Owns:    borrows both texts for the call.
 * Threads: the client's.
 * Errors:  RPS_E_INVAL (no such field, a value out of range; named),
 *          RPS_E_MISMATCH (an identity field; or the servers' specs differ),
 *          RPS_E_NOT_FOUND (no such table), RPS_E_RETRY_LATER (an
 *          rps_evict_rows of the table runs), RPS_E_UNSUPPORTED; the usual.
 *          Where some servers have changed it and others have not, the words
 *          name both: repeat the call.
 */
RPS_API RPS_NODISCARD rps_status rps_alter_table(
        rps_client *client, const char *table, const char *fields_json);

/**
 * Erase rows, and what was counted of their keys towards admission. Absent
 * keys are no error. A key that comes back starts fresh.
 *
 * Shapes:  keys[n], duplicates allowed.
 * Units:   *erased_out (may be NULL) counts rows; on error those that are
 *          gone.
 * Owns:    borrows keys for the call.
 * Threads: the client's.
 * Errors:  RPS_E_NOT_FOUND (no such table), RPS_E_INVAL (of a dense variable,
 *          too), RPS_E_LIMIT (keys of a call); the usual. What is done stays
 *          done; repeating it is safe.
 */
RPS_API RPS_NODISCARD rps_status rps_erase_rows(rps_client *client,
        const char *table, size_t n, const uint64_t *keys,
        uint64_t *erased_out);

/**
 * Evict now: one pass over every row, at all servers at once: what is cold,
 * what exceeds the memory limit, then compaction. Without it the servers do
 * the same in slices. Waits for the end of the pass, whatever
 * request_timeout_ms is.
 *
 * Shapes:  each_out[rps_server_count()], or NULL.
 * Owns:    borrows table for the call; NULL: every table.
 * Threads: the client's.
 * Errors:  RPS_E_NOT_FOUND (no such table), RPS_E_INVAL (a dense variable),
 *          RPS_E_RETRY_LATER (too many requests wait); the usual.
 */
RPS_API RPS_NODISCARD rps_status rps_evict_rows(rps_client *client,
        const char *table, rps_eviction *sum_out, rps_eviction *each_out);

/**
 * Drop a table at every PS: its rows, counts and hot keys are gone, its name
 * is free. This client's handle of it is dead, other clients' get
 * RPS_E_NOT_FOUND. Gradients of a sync step that were pushed to it and not
 * applied yet are void.
 *
 * Units:   *rows_out (may be NULL) counts the rows that it had.
 * Threads: the client's.
 * Errors:  RPS_E_NOT_FOUND (no such table), RPS_E_INVAL (a dense variable of
 *          a job, and this is not its chief), RPS_E_RETRY_LATER (an
 *          rps_evict_rows of the table runs); the usual. Where some servers
 *          have dropped it and others have not, the words name both.
 */
RPS_API RPS_NODISCARD rps_status rps_drop_table(
        rps_client *client, const char *table, uint64_t *rows_out);

/**
 * The keys that are pushed most often, the first most, over all servers. From
 * a sample of one key in 64.
 *
 * Shapes:  keys[max]; *count_out of them are filled, at most RPS_HOT_MAX.
 * Threads: the client's.
 * Errors:  RPS_E_NOT_FOUND (no such table); the usual.
 */
RPS_API RPS_NODISCARD rps_status rps_hot_keys(rps_client *client,
        const char *table, size_t max, rps_hot *keys, size_t *count_out);

/**
 * The next keys of a table that have a row; *scan moves on. Begin with a
 * zeroed one and call until scan->done. A key that has a row during the whole
 * scan is seen once, whatever grows or is evicted meanwhile; one that comes
 * or goes is seen once or never.
 *
 * Shapes:  rows[max]; *count_out of them are filled; 0: the end.
 * Threads: the client's.
 * Errors:  RPS_E_NOT_FOUND (no such table), RPS_E_INVAL (a scan of another
 *          cluster); the usual. On error *scan stays where it was.
 */
RPS_API RPS_NODISCARD rps_status rps_scan_rows(rps_client *client,
        const char *table, rps_scan *scan, size_t max, rps_scanned *rows,
        size_t *count_out);

/**
 * Chief only: begin the job (again) on every PS. `step` 0 empties the
 * tables; another step restores ckpt-<step> from the servers' folders. The
 * new epoch is one above the largest known.
 *
 * Owns:    fills *start_out; free its data_position.
 * Threads: the client's.
 * Errors:  RPS_E_NOT_FOUND (no such checkpoint), RPS_E_CORRUPT (of a file,
 *          too), RPS_E_IO, RPS_E_MISMATCH (another job seed),
 *          RPS_E_UNSUPPORTED (another format), RPS_E_RETRY_LATER (the servers'
 *          writers are busy), RPS_E_LIMIT (no epoch is left); the usual. A
 *          server whose restore failed keeps what it had.
 */
RPS_API RPS_NODISCARD rps_status rps_job_begin(rps_client *client,
        uint64_t step, const rps_terms *terms, rps_start *start_out);

/**
 * Every replica, the chief after it has created and assigned: wait until
 * all replicas are here (STEP_END of step 0), then learn where to begin.
 *
 * Owns:    fills *start_out; free its data_position.
 * Threads: the client's.
 * Errors:  RPS_E_TIMEOUT (names the rank), RPS_E_CANCELED (the end); the usual.
 */
RPS_API RPS_NODISCARD rps_status rps_job_join(
        rps_client *client, rps_start *start_out);

/**
 * End a step: waits at PS 0 as the mode asks, answers the decision, which
 * the next request to each PS carries. Its step may be a later one than was
 * ended: the chief's leave is answered with the job's last decision, and with
 * backup workers a replica that is behind with the newest. It goes on from
 * there; what it pushed is dropped (not included).
 *
 * Units:   loss is this replica's part; NaN = none. wishes: RPS_WISH_*.
 * Threads: the client's.
 * Errors:  RPS_E_TIMEOUT (names the rank that is missing; or this one was,
 *          and the others go on without it); the usual.
 */
RPS_API RPS_NODISCARD rps_status rps_step_end(rps_client *client, uint64_t step,
        double loss, uint32_t wishes, rps_decision *decision_out);

/**
 * Carry the last decision to every PS that has not had it yet.
 *
 * Threads: the client's.
 * Errors:  the usual.
 */
RPS_API RPS_NODISCARD rps_status rps_apply(rps_client *client);

/**
 * Chief only: write a full ckpt-<step> on every PS; save.h: beside training.
 *
 * Owns:    borrows data_position, a JSON text, or NULL.
 * Units:   keep counts complete checkpoints that stay.
 * Threads: the client's.
 * Errors:  RPS_E_IO, RPS_E_INVAL (no checkpoint_dir; data_position is no
 *          JSON), RPS_E_RETRY_LATER (another save runs), RPS_E_NONFINITE (a
 *          row that could not be restored; named), RPS_E_MISMATCH (the step
 *          stands already and is another); the usual. The older checkpoints
 *          stay valid.
 */
RPS_API RPS_NODISCARD rps_status rps_save(rps_client *client, uint64_t step,
        const char *data_position, uint32_t keep);

/**
 * Newest step of which every PS has a complete checkpoint; 0: none.
 *
 * Threads: the client's.
 * Errors:  the usual.
 */
RPS_API RPS_NODISCARD rps_status rps_newest_checkpoint(
        rps_client *client, uint64_t *step_out);

/**
 * A PS's STAT as JSON text (docs: PROTOCOL.md), without digests.
 *
 * Owns:    *json_out is the caller's; free().
 * Threads: the client's.
 * Errors:  RPS_E_INVAL (ps: no such server); the usual.
 */
RPS_API RPS_NODISCARD rps_status rps_stat(
        rps_client *client, uint32_t ps, char **json_out);

/**
 * The same with each table's content digest: the PS reads every row.
 *
 * Owns:    *json_out is the caller's; free().
 * Threads: the client's.
 * Errors:  as rps_stat.
 */
RPS_API RPS_NODISCARD rps_status rps_stat_digests(
        rps_client *client, uint32_t ps, char **json_out);

/**
 * The same with the times of requests: for each kind of request how many took
 * how long since the start, in buckets ("times" in PROTOCOL.md), and the bytes
 * that came and went. An embedded server counts neither.
 *
 * Owns:    *json_out is the caller's; free().
 * Threads: the client's.
 * Errors:  as rps_stat.
 */
RPS_API RPS_NODISCARD rps_status rps_stat_times(
        rps_client *client, uint32_t ps, char **json_out);

/**
 * Change the least level of a PS's log until it reads its options again
 * (SIGHUP); NULL only asks. *json_out (may be NULL) gets its answer.
 *
 * Shapes:  level is "debug", "info", "warn" or "error".
 * Owns:    *json_out is the caller's; free().
 * Threads: the client's.
 * Errors:  RPS_E_INVAL (no such level), RPS_E_UNSUPPORTED (an older server);
 *          as rps_stat.
 */
RPS_API RPS_NODISCARD rps_status rps_server_log_level(
        rps_client *client, uint32_t ps, const char *level, char **json_out);

/**
 * Round trip to one PS; *json_out (may be NULL) gets its answer.
 *
 * Owns:    *json_out is the caller's; free().
 * Threads: the client's.
 * Errors:  as rps_stat.
 */
RPS_API RPS_NODISCARD rps_status rps_ping(
        rps_client *client, uint32_t ps, char **json_out);

/**
 * Ask the chief, through PS 0, to save or to stop.
 *
 * Units:   wishes: RPS_WISH_SAVE or RPS_WISH_STOP.
 * Threads: the client's.
 * Errors:  RPS_E_NOT_FOUND (no chief is connected); the usual.
 */
RPS_API RPS_NODISCARD rps_status rps_wish(rps_client *client, uint32_t wishes);

/**
 * End the servers: every PS finishes what it has in hand and exits 0. PS 0
 * is asked first; if it refuses, none ends.
 *
 * Threads: the client's.
 * Errors:  RPS_E_RETRY_LATER (a chief is connected, and this is not it); the
 *          usual.
 */
RPS_API RPS_NODISCARD rps_status rps_shutdown(rps_client *client);

#ifdef __cplusplus
}
#endif

#endif /* RPS_CLIENT_H */

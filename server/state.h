/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the service share, and who guards each field. The locks,
 * in the order in which they may be taken:
 *
 *   a lane's turn (lane.c) -> state_lock -> change_lock -> lock
 *     -> lanes' own lock
 *
 * No lock is held while a reply callback runs. The event callback may be
 * called under state_lock, never under `lock`.
 */
#ifndef RPS_SERVER_STATE_H
#define RPS_SERVER_STATE_H

#include "base/json.h"
#include "embedding/budget.h"
#include "embedding/cut.h"
#include "embedding/region.h"
#include "embedding/store.h"
#include "proto/auth.h"
#include "proto/route.h"
#include "server/figures.h"
#include "server/lane.h"
#include "server/service.h"

#include <pthread.h>
#include <stdatomic.h>

#define RPS_TABLES_MAX 4096u
#define RPS_NO_RANK    UINT32_MAX

enum rps_peer_role {
    RPS_PEER_NONE,
    RPS_PEER_CHIEF,
    RPS_PEER_WORKER,
    RPS_PEER_LOCAL,
    RPS_PEER_EVALUATOR
};

/** A request that is answered later. In service->parked until then. */
struct rps_parked {
    struct rps_parked *previous, *next; /* service->parked; lock */
    struct rps_parked *next_answer;     /* of a list of answers */
    struct rps_session *session;        /* NULL: closed meanwhile; lock */
    struct rps_header request;
    uint64_t until_ns; /* its deadline, on rps_clock_ns(); 0: none */
    rps_reply_fn *reply;
    void *context;
    uint8_t *frame; /* its answer, once there is one; NULL: no memory */
    size_t frame_bytes;
};

/** Answers that wait for the locks to be released. Zeroed is empty. */
struct rps_answers {
    struct rps_parked *first, *last;
};

/** Gradients of one table that did not come as floats, a row a key. */
struct rps_unfolded {
    uint64_t table_id;
    float *rows; /* owned [keys][dim] */
};

/** One frame of a push, copied. */
struct rps_push_frame {
    struct rps_push_frame *next;
    uint8_t *bytes;                /* owned; NULL: the message borrows */
    struct rps_message message;    /* points into bytes */
    struct rps_unfolded *unfolded; /* owned [unfolded_count] */
    size_t unfolded_count;
    uint64_t unfolded_bytes;
};

/** The frames of one push so far, or whole. Zeroed is empty. */
struct rps_pushed {
    struct rps_push_frame *first, *last;
    size_t frame_count;
    uint64_t bytes;
    uint64_t step;
    uint64_t number;
    uint32_t epoch;
    bool open;      /* frames with MORE came, the last did not yet */
    uint64_t drops; /* service->drops when it began */
    bool settled;   /* the rest gets this verdict and is dropped */
    rps_status verdict;
    struct rps_error why;
};

/** What a rank pushed for step c + 1 (sync). */
struct rps_contributed {
    bool stored;
    struct rps_pushed push;
    struct rps_verdicts verdicts; /* by step */
};

/** Row updates of a table that no checkpoint holds. */
struct rps_changes {
    uint64_t table_id;
    uint64_t updates;  /* since the last complete checkpoint */
    uint64_t prepared; /* of them in the cut that is in hand */
    bool nonfinite_told;
    bool full_told;
};

struct rps_session {
    struct rps_service *service;         /* set at open */
    char *peer;                          /* set at open */
    struct rps_session *previous, *next; /* service->sessions; lock */

    enum rps_transport transport; /* lock */
    _Atomic uint64_t heard_ms; /* clock of its last request; of rank 0 alone */

    /* session's own thread only */
    struct rps_frame_memory *memory; /* for answers with rows; NULL: heap */
    struct rps_frame_sink *sink;     /* for long ones; NULL: made whole */
    struct rps_nonces nonces;
    bool challenged; /* AUTH was answered: nonces are drawn */
    bool proven;     /* HELLO brought a proof: its answer brings one, too */

    /* written by HELLO under lock; the session's own thread reads freely */
    bool greeted;
    enum rps_peer_role role;
    uint32_t rank; /* RPS_NO_RANK: no member */
    uint64_t client;
    struct rps_lane *lane; /* NULL: none named */
    uint64_t turn;
    void (*superseded)(void *context); /* set before HELLO; may be NULL */
    void *superseded_context;

    struct rps_pushed push; /* session's own thread only */
    uint32_t replying;      /* reply callbacks in progress; lock */
};

struct rps_job;
struct rps_keeper;
struct rps_serving;
struct rps_writer;

struct rps_counter {
    _Atomic uint64_t count;
    _Atomic uint64_t errors;
};

/** What saves and restores came to. Anyone reads: relaxed, each number is true
 * by itself. */
struct rps_saving_record {
    _Atomic uint32_t busy;          /* enum rps_busy */
    _Atomic uint64_t busy_since_ms; /* rps_clock_ms */
    _Atomic uint64_t saves;
    _Atomic uint64_t save_failures; /* cuts, PREPAREs, COMMITs, ABORTs */
    _Atomic uint64_t saved_unix_s;  /* of the last COMMIT; 0: none */
    _Atomic uint64_t saved_cut;     /* number of its cut; 0: none */
    _Atomic uint64_t save_ns;       /* from its cut to COMMIT's end */
    _Atomic uint64_t save_bytes;
    _Atomic uint64_t save_delta;  /* 1: it is a delta */
    _Atomic uint64_t cuts;        /* taken; the next one's number is one more */
    _Atomic uint64_t pause_ns;    /* of the last cut: nothing changed so long */
    _Atomic uint64_t barrier_ns;  /* PS 0: replicas were held for it */
    _Atomic uint64_t copied;      /* rows, of saves that are over */
    _Atomic uint64_t waits;       /* likewise: for room in the save buffer */
    _Atomic uint64_t buffer_peak; /* bytes, of any save */
    _Atomic uint64_t restores;
    _Atomic uint64_t restore_failures;
    _Atomic uint64_t restore_ns;
    _Atomic uint64_t restore_rows; /* of the one in hand: read so far */
    _Atomic uint64_t restore_rows_total;
};

/** What a delta may stand on: the last checkpoint of these tables. */
struct rps_save_parent {
    char name[32];   /* "ckpt-000000000042"; empty: there is none */
    char digest[33]; /* the manifest's */
    uint32_t chain;  /* deltas between it and its full one, itself too */
};

/** How far a save is. */
enum rps_save_phase {
    RPS_SAVE_NONE,
    RPS_SAVE_CUT,     /* its cut is taken; PREPARE may come */
    RPS_SAVE_PREPARED /* its files are written; COMMIT may come */
};

/** The one save in hand: from its cut to COMMIT or ABORT. */
struct rps_save {
    enum rps_save_phase phase;
    /* The writer's thread is at it: it alone uses or frees the cut */
    bool writing;
    bool abandoned;  /* a task of the writer will drop it */
    bool claimed;    /* somebody asked for it; else a decision had it taken */
    bool asked_cut;  /* by SAVE cut: other servers have theirs, too */
    bool delta;      /* as it was prepared */
    uint64_t number; /* of the cut */
    uint64_t client; /* who claimed it */
    uint64_t step;
    uint32_t epoch;
    struct rps_cut *cut;           /* owned */
    struct rps_lane_record *lanes; /* owned [lane_count]; of the same instant */
    size_t lane_count;
    struct rps_save_parent parent; /* as it was then */
    uint64_t taken_ns;
    uint64_t pause_ns;
    uint64_t alone_ms; /* clock since when its owner is gone; 0: it is here */
    char *part;        /* PREPARE's answer, owned; NULL: not yet */
    uint64_t bytes;    /* of its files */
};

struct rps_service {
    struct rps_service_options options; /* set before start; owns strings */
    struct rps_route route;             /* set before start */
    uint64_t incarnation;               /* set before start */
    uint64_t started_ms;                /* set before start */

    pthread_rwlock_t token_lock; /* of the next line; taken last */
    struct rps_secret token;     /* length 0: none is asked for */

    /* Shared by lookups, pushes, assigns; exclusive for what changes the
     * meaning of a lookup. Prefers writers. */
    pthread_rwlock_t state_lock;
    /* Taken after state_lock shared. Shared by what changes rows at once
     * (ASSIGN, pushes of async, upkeep), exclusive while a cut is taken: so
     * lookups go on meanwhile. */
    pthread_rwlock_t change_lock;
    struct rps_budget budget; /* of all tables, and of those of a RESTORE */
    struct rps_budget disk;   /* of rows on the disk */
    struct rps_region_file disk_file; /* where they are, if `tiered` */
    bool tiered;                      /* set before start */
    _Atomic uint64_t held;            /* of the budget: by what is no table */
    struct rps_store *store;          /* state_lock */
    rps_terms terms;                  /* state_lock */
    /* state_lock exclusive, or shared with `lock`; [terms.replica_count] */
    struct rps_contributed *contributed;
    uint64_t drops;      /* tables dropped so far; state_lock */
    uint64_t begun_by;   /* client of the last RESTORE; state_lock */
    uint64_t begun_step; /* its step; likewise */
    json_t *warm_answer; /* what it took of which checkpoint, or NULL; likewise
                          */
    size_t apply_next;   /* table at which a failed apply goes on; state_lock
                            exclusive */

    /* Written under state_lock (epoch: exclusive), read anywhere: relaxed
     * would do where a lock is held, PING reads them without. */
    _Atomic uint32_t epoch;
    _Atomic uint64_t step;   /* c */
    _Atomic uint32_t wishes; /* RPS_WISH_SAVE, _STOP; written under lock */
    _Atomic bool comes_back; /* terms.recover; written under lock */
    _Atomic bool ending;     /* a signal ends this process */
    atomic_bool begins_soon; /* a RESTORE waits, for which a PREPARE stops;
                                written under lock */
    struct rps_counter requests[RPS_OP_LAST + 1];
    struct rps_saving_record saving;
    _Atomic uint64_t late;          /* pushes that came after their decision */
    _Atomic uint64_t dropped;       /* contributions that no decision counted */
    _Atomic uint64_t auth_failures; /* HELLOs without the token's proof */

    pthread_mutex_t lock;   /* guards everything below */
    pthread_cond_t replied; /* a session's `replying` fell */
    struct rps_session *sessions;
    size_t session_count;
    struct rps_parked *parked;
    json_t *data_position; /* of the restored checkpoint, or NULL */
    struct rps_changes *changes;
    size_t change_count;
    uint64_t saved_step;           /* newest checkpoint of these tables */
    bool saved;                    /* saved_step means something */
    struct rps_save save;          /* see there for what else guards it */
    struct rps_save_parent parent; /* of the next delta */
    uint64_t failed_step;          /* of the last save that failed */
    uint64_t failed_cut;           /* its number */
    char *failed_why;              /* owned; NULL: none did */
    uint32_t known_epoch;          /* largest that a member has told */
    struct rps_job *job;           /* NULL but at PS 0 */
    /* of a pass that the writer makes; it is not altered or destroyed. Set
     * with state_lock held, too */
    const struct rps_table *evicting;

    struct rps_lanes *lanes;   /* its own lock */
    struct rps_writer *writer; /* its own thread; its queue is under lock */
    struct rps_keeper *keeper; /* its own lock, perhaps its own thread */
    /* NULL: not --serve. Set before the first session; its own lock */
    struct rps_serving *serving;
};

/** A request on its way through the service; on the caller's stack. */
struct rps_request {
    struct rps_service *service;
    struct rps_session *session;
    const struct rps_message *message;
    rps_reply_fn *reply;
    void *context;
    uint64_t until_ns;      /* its deadline, on rps_clock_ns(); 0: none */
    struct rps_error error; /* words of a negative status */
    char *text;             /* answer of a handler; owned */
    uint8_t *frame;         /* or a whole answer; owned */
    size_t frame_bytes;
    bool parked;                /* somebody else answers it */
    bool streamed;              /* the session's sink had its answer */
    bool changing;              /* holds change_lock shared */
    struct rps_table *dropped;  /* to be destroyed after the locks */
    struct rps_answers answers; /* of others, sent after the locks */
};

/* reply.c */

/** Header of the answer to a request. */
struct rps_header rps_reply_header(struct rps_service *service,
        struct rps_session *session, const struct rps_header *request,
        rps_status status);
/** A whole answer with an optional text; NULL: no memory. */
uint8_t *rps_reply_build(struct rps_service *service,
        struct rps_session *session, const struct rps_header *request,
        rps_status status, const char *text, size_t *length_out);
/** The object in the text section; INVAL with words. *out new reference. */
rps_status rps_request_json(struct rps_request *request, json_t **out);

/** Has its deadline passed? Asked before anything is changed. */
bool rps_request_is_late(const struct rps_request *request);
/** DEADLINE, in words. */
rps_status rps_request_fail_late(struct rps_request *request);

/** Take the request out of the caller's hands; NULL: no memory. */
struct rps_parked *rps_park_locked(struct rps_request *request);
/** Give a parked request its answer; it is sent by rps_answers_send(). */
void rps_answer_locked(struct rps_service *service, struct rps_answers *answers,
        struct rps_parked *parked, rps_status status, const char *text);
void rps_answer_frame_locked(struct rps_answers *answers,
        struct rps_parked *parked, uint8_t *frame, size_t frame_bytes);
/** Forget a parked request that was given no answer. */
void rps_parked_drop_locked(
        struct rps_service *service, struct rps_parked *parked);
/** Call the callbacks; no lock held. Empties the list. */
void rps_answers_send(struct rps_service *service, struct rps_answers *answers);

/* service.c */

/** A store as the options have it, without tables. */
rps_status rps_service_new_store(struct rps_service *service,
        struct rps_store **store_out, struct rps_error *error);

/* auth.c */

/** OK where no token is asked for, or HELLO brings its proof; else AUTH. */
rps_status rps_auth_check_hello(struct rps_request *request);
/** HELLO's answer (request->text) with the server's proof, if it needs one:
 * request->frame. */
rps_status rps_auth_prove_answer(struct rps_request *request);

void rps_service_event(struct rps_service *service, int level,
        const char *event, const char *format, ...)
        __attribute__((format(printf, 4, 5)));

/* session.c */
rps_status rps_serve_hello(struct rps_request *request);
/** A replica of rank 0 is connected. */
bool rps_chief_connected_locked(const struct rps_service *service);

/* lookup.c, tables.c, push.c */
rps_status rps_serve_lookup(struct rps_request *request);
rps_status rps_serve_refresh(struct rps_request *request);
rps_status rps_serve_get_table(struct rps_request *request);
rps_status rps_serve_assign(struct rps_request *request);
rps_status rps_serve_push(struct rps_request *request);
/** A frame of a push was refused before it came to rps_serve_push(): the
 * rest of the push gets the same answer. */
void rps_push_refuse(struct rps_request *request, rps_status status);
void rps_pushed_clear(struct rps_pushed *push);

/* cancel.c */
rps_status rps_serve_cancel(struct rps_request *request);

/* policy.c */
rps_status rps_serve_alter(struct rps_request *request);
rps_status rps_serve_drop(struct rps_request *request);

/* keys.c */
rps_status rps_serve_erase(struct rps_request *request);
rps_status rps_serve_scan(struct rps_request *request);
rps_status rps_serve_hot_keys(struct rps_request *request);

/* evict.c */
rps_status rps_serve_evict(struct rps_request *request);

/* figures.c */
/** Take state_lock shared; false where that would wait for longer. */
bool rps_state_lock_within(struct rps_service *service, uint32_t wait_ms);

/* keeper.c */
/** What the tables' clocks show: c, and the wall clock. */
struct rps_now rps_service_now(struct rps_service *service);

/** Step c is about to be told: all tables know it. state_lock is held. */
void rps_tables_set_step(struct rps_store *store, uint64_t step);

/* step.c */
rps_status rps_serve_apply(struct rps_request *request);
/** Do what the decision in the request asks, if it is due. The caller holds
 * state_lock as `exclusive` says and gets it back so. */
rps_status rps_decision_carry(struct rps_request *request, bool exclusive);
rps_status rps_apply_frames(struct rps_service *service,
        const struct rps_push_frame *const *frames, size_t count,
        const struct rps_update *update, size_t *next_table,
        struct rps_error *error);
void rps_changes_add(
        struct rps_service *service, uint64_t table_id, uint64_t updates);
struct rps_changes *rps_changes_of_locked(
        struct rps_service *service, uint64_t table_id);
/** Contributions of replica_count ranks; NULL: no memory. */
struct rps_contributed *rps_contributed_create(uint32_t replica_count);
void rps_contributed_destroy(
        struct rps_contributed *contributed, uint32_t replica_count);

/* save.c, restore.c */
rps_status rps_serve_save(struct rps_request *request);
rps_status rps_serve_restore(struct rps_request *request);

/* status.c */
rps_status rps_serve_stat(struct rps_request *request);
rps_status rps_serve_auth(struct rps_request *request);
rps_status rps_serve_ping(struct rps_request *request);
rps_status rps_serve_log_level(struct rps_request *request);
rps_status rps_serve_shutdown(struct rps_request *request);
json_t *rps_wishes_json(uint32_t wishes);
/** Rows have changed that no complete checkpoint holds. */
bool rps_is_unsaved_locked(const struct rps_service *service);

/** Of the memory limit, what tables take. */
uint64_t rps_service_tables_bytes(const struct rps_service *service);

/** Epochs must be equal: ROLLED_BACK naming both. */
rps_status rps_epoch_check(struct rps_service *service,
        const struct rps_header *header, struct rps_error *error);

#endif /* RPS_SERVER_STATE_H */

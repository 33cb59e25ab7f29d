/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the writer share.
 *
 *   begin -> [step -> (before -> after)* -> step_end]* -> end
 *
 * A step lives until it has ended and no operator of it is between before and
 * after: whoever comes last writes its manifest.
 */
#ifndef RPS_PRECISION_DUMP_IMPL_H
#define RPS_PRECISION_DUMP_IMPL_H

#include "base/text.h"
#include "client/precision/dump.h"

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

/* of a name in a file's name: with all other fields below NAME_MAX, 255 */
#define RPS_DUMP_NAME_BYTES_MAX 120u

/** One step that is dumped. All fields: dump->lock, but where it says so. */
struct rps_dump_step_files {
    char *folder;     /* of its files; set before start */
    uint64_t step;    /* set before start */
    uint64_t tasks;   /* operators that came */
    uint32_t open;    /* operators between before and after */
    bool ended;       /* no operator comes any more */
    bool whole;       /* every operator that came was written */
    char **entries;   /* [tasks]: JSON by task; NULL: not written */
    size_t capacity;  /* of entries */
    uint64_t reserve; /* bytes of its manifest so far */
};

/** An operator between before and after. Its thread's alone. */
struct rps_dump_token {
    struct rps_dump_step_files *step;
    uint64_t task;
    json_t *inputs; /* array */
    char *stem;     /* "linear.top_2_linear.12.0" */
};

struct rps_dump {
    struct rps_dump_steps steps; /* set before start, as the next ones */
    bool index_is_step;
    uint64_t bytes_max;
    char *path;
    char *rotated;     /* where PATH was moved to; NULL: nowhere */
    bool made_path;    /* PATH was not there */
    char *base;        /* {time}/{device}/{model}/{model_id} of PATH */
    char *run;         /* JSON text */
    uint64_t start_us; /* wall clock, and the monotonic one of then */
    uint64_t start_ns;
    /* The step that runs is dumped. Relaxed: the lock decides, and who sees it
     * late asks for nothing or misses the first operator of a step that it is
     * not ordered with. */
    _Atomic bool on;
    pthread_mutex_t lock;
    struct rps_dump_step_files *step; /* lock: that runs; NULL */
    uint64_t index;                   /* lock: data_index of the next */
    uint64_t last_us;                 /* lock: timestamp given last */
    struct rps_dump_result result;    /* lock */
    uint64_t reserved;      /* lock: bytes of manifests that are not written */
    rps_status status;      /* lock: of the first failure, with its words */
    struct rps_error error; /* lock */
};

/** The folder of a dump: PATH is moved where it must be, {time} is made. */
rps_status rps_dump_folder_make(struct rps_dump *dump,
        const struct rps_dump_options *options, struct rps_error *error);
/** Take back what was made where nothing was written into it. */
void rps_dump_folder_unmake(struct rps_dump *dump);
/** What the file system of PATH has for us. UINT64_MAX: it does not say. */
uint64_t rps_dump_free_bytes(const char *path);

/**
 * Room for a file of `bytes`, and its timestamp: later than all before.
 *
 * Errors: LIMIT (bytes_max).
 */
rps_status rps_dump_reserve(struct rps_dump *dump, uint64_t bytes,
        uint64_t *timestamp_out, struct rps_error *error);

/**
 * Write one tensor, and say what it is for the manifest.
 *
 * Owns:   *entry_out is a new reference.
 * Errors: IO, LIMIT, NOMEM.
 */
rps_status rps_dump_tensor_write(struct rps_dump *dump,
        const struct rps_dump_token *token, const char *way, uint32_t index,
        const struct rps_dump_tensor *tensor, json_t **entry_out,
        struct rps_error *error);

/** Write `{data_index}.json`; what is missing makes it incomplete. */
rps_status rps_dump_manifest_write(struct rps_dump *dump,
        const struct rps_dump_step_files *step, bool whole, uint64_t *bytes_out,
        struct rps_error *error);
/** All but its operators' entries, at most. */
uint64_t rps_dump_manifest_frame_bytes(const struct rps_dump *dump);

/** PATH itself, `rank` 0, or its name that many moves later. NULL: no memory.
 */
char *rps_dump_rotated_name(const char *path, uint32_t rank);

#endif /* RPS_PRECISION_DUMP_IMPL_H */

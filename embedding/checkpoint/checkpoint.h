/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints of one PS, in the layout of docs/CHECKPOINT.md:
 *
 *   DIR/ckpt-<step, 12 digits>/   written as .tmp-ckpt-<step>-<epoch>
 *     manifest.json  part-<i>-of-<n>.json  table-<name>/<i>-of-<n>.*.npy
 *
 * Several PS may write into one shared folder or each into its own: one code
 * path. Half a checkpoint never loads. Calls for one folder come one at a
 * time from each PS; other PS may call at the same time.
 */
#ifndef RPS_EMBEDDING_CHECKPOINT_H
#define RPS_EMBEDDING_CHECKPOINT_H

#include "base/error.h"
#include "embedding/cut.h"

#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>

struct rps_checkpoint_id {
    const char *dir; /* checkpoint_dir */
    uint64_t step;
    uint32_t epoch;
    uint32_t part; /* this PS */
    uint32_t parts;
    const atomic_bool *unwanted; /* true: a PREPARE ends soon; NULL: never */
};

/** A verdict kept for one lane: saved, so that repeats stay repeats. */
struct rps_lane_record {
    uint64_t client;
    uint32_t lane;
    int32_t status;
    uint64_t number;
};

/**
 * PREPARE: write every table of the cut and the part file into the temporary
 * folder, fsynced. *part_out (new reference) is what PREPARE answers:
 * {"file", "bytes", "xxh3", "part": the part file's content} (PROTOCOL.md).
 * is_delta: only what changed since the checkpoint that the store was last
 * saved to (rps_cut_commit) or read from (rps_store_mark_clean), and whole
 * tables where that is not known. The cut stays the caller's, to be committed
 * or aborted.
 *
 * Threads: any, one PREPARE of a store at a time; rows may change meanwhile.
 * Errors:  IO (names the path; what was written is removed), NONFINITE (a row
 *          could not be restored), WRONG_ROUTE (a row that is not this PS's),
 *          LIMIT (the save buffer was full before this began), INVAL, NOMEM.
 */
rps_status rps_checkpoint_prepare(const struct rps_checkpoint_id *id,
        bool is_delta, struct rps_cut *cut, const struct rps_lane_record *lanes,
        size_t lane_count, json_t **part_out, struct rps_error *error);

/**
 * COMMIT: write the chief's manifest bytes if they are not there, fsync,
 * rename, fsync the folder, prune to the newest `keep` complete steps up to
 * this one (0: keep all). Another manifest in place is MISMATCH, unless its
 * epoch is older: then it is replaced. Done already: OK. OK with words in
 * *error: saved, but something old could not be removed. Other errors:
 * NOT_FOUND (nothing was prepared), INVAL (no manifest of this save), IO.
 */
rps_status rps_checkpoint_commit(const struct rps_checkpoint_id *id,
        const char *manifest, size_t manifest_bytes, uint32_t keep,
        struct rps_error *error);

/** ABORT: remove this PS's files of the temporary folder. */
void rps_checkpoint_abort(const struct rps_checkpoint_id *id);

/**
 * Steps that are complete in dir: the manifest, and every part file that it
 * names, or, where the manifest has as many parts as this job has PS
 * (`parts`), at least this PS's own (`part`): folders on own disks hold one
 * part each. A delta is complete only if all that it stands on is, too.
 * Ascending; *steps_out is free()d by the caller. A folder that is not there
 * has none. Folders that do not count are not an error.
 */
rps_status rps_checkpoint_list(const char *dir, uint32_t part, uint32_t parts,
        uint64_t **steps_out, size_t *count_out, struct rps_error *error);
/**
 * A ckpt-<step> folder that does not count, and why in words: of a delta also
 * that an ancestor of it does not, or was replaced by another.
 */
struct rps_checkpoint_unusable {
    uint64_t step;
    char *why;
    bool abandoned; /* as below */
    bool baseless;  /* a delta: what it stands on is gone, or another now */
};

/** A complete one. */
struct rps_checkpoint_complete {
    uint64_t step;
    uint32_t epoch; /* 0: of a format that this version does not know */
    /** The job went back below it and on in a later epoch: an earlier step
     * was saved since. Still there, and not what to go on from. */
    bool abandoned;
    bool is_delta;            /* all its ancestors are complete, too */
    uint64_t parent;          /* step; of a delta */
    struct rps_digest digest; /* its manifest's */
    bool is_folded;           /* it took the place of a delta */
    struct rps_digest folded; /* that delta's digest */
};

/** All that a checkpoint_dir holds; finish it. */
struct rps_checkpoint_survey {
    struct rps_checkpoint_complete *complete; /* steps ascending */
    size_t count;
    struct rps_checkpoint_unusable *unusable; /* ascending */
    size_t unusable_count;
    uint32_t epoch_max; /* of every manifest that can be read; 0: none */
};

/** As rps_checkpoint_list, with what does not count and the epochs. */
rps_status rps_checkpoint_survey(const char *dir, uint32_t part, uint32_t parts,
        struct rps_checkpoint_survey *survey, struct rps_error *error);
void rps_checkpoint_survey_finish(struct rps_checkpoint_survey *survey);

/**
 * RESTORE: read ckpt-<step> and what it stands on into an empty store: the
 * rows whose slot `owns` answers true for. Checksums are verified as they are
 * read; damage is CORRUPT naming file and block, then the other damaged
 * arrays (eight of them, and how many more), and leaves the store empty.
 * A link of the chain that is missing is NOT_FOUND naming it, one that was
 * replaced MISMATCH. A part that is missing is NOT_FOUND naming it, unless
 * parts equals the manifest's and the own part is there (it then has every
 * row that this PS owns). Another job seed is MISMATCH (but see `begins`),
 * another format UNSUPPORTED.
 *
 * *manifest_out (new reference) is the parsed manifest. *lanes_out (free())
 * has the lanes of this PS; none where the number of PS is another, since a
 * lane is a connection to one PS of so many. Push counts (t of async) are
 * this PS's own, or where the number differs the largest of all parts.
 */
struct rps_restore {
    const char *dir;
    uint64_t step;
    uint32_t part; /* this PS */
    uint32_t parts;
    bool (*owns)(void *context, uint64_t hash);
    void *context;
    /** Rows read so far, those of other PS too, of how many; or NULL. Threads:
     * any, one at a time. */
    void (*progress)(void *context, uint64_t rows, uint64_t rows_total);

    /** What of it; NULL: every table, as it is there. */
    const struct rps_restore_table *tables;
    size_t table_count;
    bool weights_only; /* fresh slots, no counts of keys without a row */
    /** Another job begins from it: no lanes, rows are stamped `now` and not
     * with the ticks of the other job, which may have another job seed. */
    bool begins;
    struct rps_now now; /* of the job that restores */
    /** A table is there, with the slots that were saved or without; or NULL. */
    void (*told)(
            void *context, const char *table, const char *from, bool slots);
};

/**
 * One table of it. With a spec the rows go into a table of that, which may
 * differ in all but dim and dense_elements: values are converted, and where
 * the optimizer is another one slots are fresh.
 */
struct rps_restore_table {
    const char *name;           /* that it gets; not looked at with a spec */
    const char *from;           /* its name there; NULL: the same */
    const rps_table_spec *spec; /* NULL: as it is there */
    bool optional; /* where it is not there, it is left out; else NOT_FOUND */
};
rps_status rps_checkpoint_restore(const struct rps_restore *restore,
        struct rps_store *store, json_t **manifest_out,
        struct rps_lane_record **lanes_out, size_t *lane_count_out,
        struct rps_error *error);

/** What verify and digest say of one checkpoint folder. */
struct rps_checkpoint_table_report {
    char name[RPS_NAME_BYTES_MAX + 1];
    uint64_t rows;
    uint64_t admission;       /* counts of keys without a row: in no digest */
    struct rps_digest digest; /* recomputed: of the rows after all links */
    bool matches;             /* what was read is what the manifests say */
};
/** The checkpoint, or one that it stands on. */
struct rps_checkpoint_link_report {
    uint64_t step;
    uint32_t epoch;
    uint32_t parts;
    bool is_delta;
    uint64_t rows; /* in the folder: of a delta those that changed */
    uint64_t erased;
    uint64_t bytes;
    struct rps_digest digest; /* its manifest's */
};
struct rps_checkpoint_report {
    uint64_t step;
    uint64_t bytes;           /* of all links */
    struct rps_digest digest; /* of the state, recomputed */
    bool matches;
    struct rps_checkpoint_table_report *tables;
    size_t table_count;
    struct rps_checkpoint_link_report *links; /* the full one first */
    size_t link_count;
};

/**
 * Read a checkpoint folder whole (a ckpt-<step> folder, or a checkpoint_dir:
 * then its newest step that was not abandoned) and all that it stands on, and
 * recompute every checksum and digest. All parts must be there. `progress`
 * (bytes) may be NULL. A difference, or a link that is missing, is CORRUPT
 * naming it; the report then has what was read so far. Finish it in
 * any case.
 */
rps_status rps_checkpoint_verify(const char *path,
        void (*progress)(void *context, uint64_t done, uint64_t total),
        void *context, struct rps_checkpoint_report *report,
        struct rps_error *error);
void rps_checkpoint_report_finish(struct rps_checkpoint_report *report);

/** "DIR/ckpt-000000000042", or NULL: no memory; free(). */
char *rps_checkpoint_path(const char *dir, uint64_t step);

/** Writable? Creates it; IO names the path and why not. */
rps_status rps_checkpoint_dir_check(const char *dir, struct rps_error *error);

/** Would that do? Nothing is left behind: a folder that is not there is not
 * made. `dir` is not empty. */
rps_status rps_checkpoint_dir_probe(const char *dir, struct rps_error *error);

#endif /* RPS_EMBEDDING_CHECKPOINT_H */

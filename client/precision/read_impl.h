/* SPDX-License-Identifier: Apache-2.0 */
/* What read*.c share: a folder's files by their names or by its manifest. */
#ifndef RPS_PRECISION_READ_IMPL_H
#define RPS_PRECISION_READ_IMPL_H

#include "base/npy.h"
#include "client/precision/read.h"

#define RPS_DUMPED_NAME_BYTES     512u
#define RPS_DUMPED_FILES_MAX      1000000u /* of a folder */
#define RPS_DUMPED_MANIFEST_BYTES (256u << 20)

/** {type}.{name}.{task}.{stream}.{timestamp}.{input|output}.{i}.npy */
struct rps_dumped_name {
    char text[RPS_DUMPED_NAME_BYTES]; /* that type and name point into */
    const char *type;
    const char *name;
    uint64_t task;
    uint64_t stream;
    uint64_t timestamp;
    bool is_output;
    uint32_t index;
};

/** false: it is no such name. */
bool rps_dumped_name_parse(const char *file, struct rps_dumped_name *name);
bool rps_dumped_is_npy(const char *file);

/** Has it no control characters? It may be printed, then. */
bool rps_dumped_is_plain(const char *text);

/** Add a sentence to dumped->problems. false: no memory. */
bool rps_dumped_problem(struct rps_dumped *dumped, const char *format, ...)
        __attribute__((format(printf, 2, 3)));

/** The path of a step's manifest, free(). NULL: no memory. */
char *rps_dumped_manifest_path(const char *folder);

/** A manifest as JSON, its version checked. Errors: NOT_FOUND, IO, CORRUPT,
 * LIMIT, NOMEM; CORRUPT names the path. */
rps_status rps_dumped_manifest_load(
        const char *path, json_t **manifest_out, struct rps_error *error);

/** The operators of a manifest into `dumped`. Errors: CORRUPT, NOMEM: what was
 * filled is dropped by rps_dumped_drop(). */
rps_status rps_dumped_read_manifest(struct rps_dumped *dumped, const char *path,
        const json_t *manifest, struct rps_error *error);

/** Names of a folder's .npy files, sorted. */
struct rps_dumped_files {
    char **names;
    uint32_t count;
};
rps_status rps_dumped_files_list(const char *folder,
        struct rps_dumped_files *files, struct rps_error *error);
void rps_dumped_files_free(struct rps_dumped_files *files);

/** The operators by files' names alone. */
rps_status rps_dumped_read_names(struct rps_dumped *dumped,
        const struct rps_dumped_files *files, struct rps_error *error);

/** Operators and run, as if nothing had been read. */
void rps_dumped_drop(struct rps_dumped *dumped);

/** The head of a tensor's file; its dtype is one of ours. Shape and dtype
 * are not compared with the tensor's. *fd_out: open, if status is OK. */
rps_status rps_dumped_head(const char *path, struct rps_npy *npy,
        enum rps_dump_dtype *dtype_out, int *fd_out, struct rps_error *error);

#endif /* RPS_PRECISION_READ_IMPL_H */

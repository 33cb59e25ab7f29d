/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files, durable where it says so. Every failure names the path.
 */
#ifndef RPS_BASE_FILE_H
#define RPS_BASE_FILE_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Read a whole file of at most bytes_max; *bytes_out is NUL-terminated. */
rps_status rps_file_read(const char *path, size_t bytes_max, char **bytes_out,
        size_t *length_out, struct rps_error *error);

/** The same, of a pipe, too: "/dev/stdin", a shell's <(COMMAND). It waits for
 * the writer. */
rps_status rps_pipe_read(const char *path, size_t bytes_max, char **bytes_out,
        size_t *length_out, struct rps_error *error);

/** Write, fsync, close. The file must not exist before unless `replace`. */
rps_status rps_file_write(const char *path, const void *bytes, size_t length,
        bool replace, struct rps_error *error);

/** Write it beside, under a name that ends in .tmp, and rename: who reads PATH
 * meets no half of it, and nothing stays where that fails. A link stays one,
 * its target is replaced; permissions stay; a device, a pipe and this process's
 * own stdout are written to. Errors: RPS_E_IO also where it is a folder. */
rps_status rps_file_replace(const char *path, const void *bytes, size_t length,
        struct rps_error *error);

/** mkdir -p, mode 0750. */
rps_status rps_dir_make(const char *path, struct rps_error *error);

/** fsync a folder, so that names in it are durable. */
rps_status rps_dir_sync(const char *path, struct rps_error *error);

/** Remove a folder with the files in it (one level of folders deep). */
rps_status rps_dir_remove(const char *path, struct rps_error *error);

/** write(2) until all is written or an error. */
rps_status rps_fd_write_all(int fd, const void *bytes, size_t length,
        const char *path, struct rps_error *error);

#endif /* RPS_BASE_FILE_H */

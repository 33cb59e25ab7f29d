/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that hold a secret: read into memory that is wiped, and refused where
 * others could read or change them. No words of a failure have the secret.
 */
#ifndef RPS_BASE_SECRET_H
#define RPS_BASE_SECRET_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

#define RPS_SECRET_BYTES_MIN 32u   /* of a token: 256 bits if it is random */
#define RPS_SECRET_BYTES_MAX 4096u /* likewise */

/** Zeroed is none. */
struct rps_secret {
    uint8_t *bytes; /* owned */
    size_t length;
};

/**
 * Read a token: the file's bytes without line ends at their end. `option`
 * ("--token-file") begins the words of a failure. AUTH: as rps_secret_check(),
 * or it is too short or too long. NOMEM.
 */
rps_status rps_secret_read(struct rps_secret *secret, const char *option,
        const char *path, struct rps_error *error);

/** Another one of the same bytes. NOMEM. */
rps_status rps_secret_copy(struct rps_secret *copy,
        const struct rps_secret *secret, struct rps_error *error);

/** Wipe and free; a zeroed one is fine. */
void rps_secret_finish(struct rps_secret *secret);

/**
 * AUTH unless `path` is a file that root or this user owns, which its owner
 * alone can read and write (0600, 0400). Of a file of root's the group may
 * read, too: so Kubernetes and systemd hand a secret to who is not root.
 */
rps_status rps_secret_check(
        const char *option, const char *path, struct rps_error *error);

#endif /* RPS_BASE_SECRET_H */

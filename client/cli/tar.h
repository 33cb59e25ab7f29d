/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The heads of a tar archive's files: POSIX ustar, and GNU's form of a size of
 * 8 GiB or more. A head is a block of 512 bytes; the bytes of a file follow,
 * padded to blocks; two blocks of zeros end the archive.
 */
#ifndef RPS_CLIENT_CLI_TAR_H
#define RPS_CLIENT_CLI_TAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RPS_TAR_BLOCK_BYTES 512u

struct rps_tar_entry {
    char name[257];
    uint64_t bytes;
    bool is_folder;
    bool is_end; /* a block of zeros */
};

/** false: the name is too long (100 bytes, or 155 and 100 around a slash). */
bool rps_tar_write(
        const char *name, uint64_t bytes, char block[RPS_TAR_BLOCK_BYTES]);

/** false: no such head, or of something that is neither file nor folder. */
bool rps_tar_read(
        const char block[RPS_TAR_BLOCK_BYTES], struct rps_tar_entry *entry);

/** Bytes between the end of a file and the next head. */
size_t rps_tar_padding(uint64_t bytes);

#endif /* RPS_CLIENT_CLI_TAR_H */

/* SPDX-License-Identifier: Apache-2.0 */
/* How many rows a table is going to have, before the first one is read. */
#include "embedding/checkpoint/layout.h"
#include "embedding/checkpoint/restore.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* Slots that this PS has, of all. */
static uint32_t
owned_slots(const struct rps_restore *how)
{
    uint32_t count = 0;

    for (uint32_t s = 0; s < RPS_SLOT_COUNT; s++) {
        count += how->owns(how->context, (uint64_t)s << 52);
    }
    return count;
}

/* Of a piece's rows those that come to us: keys spread evenly over slots. */
static double
share_of(const struct rps_ckpt_restoring *r, const struct rps_ckpt_piece *piece)
{
    const struct rps_restore *how = r->how;
    uint32_t all = 0;
    uint32_t ours = 0;

    for (uint32_t s = piece->part->slot_first; s <= piece->part->slot_last;
            s++) {
        all++;
        ours += rps_ckpt_slots_has(&piece->live, s) &&
                (!r->same_seed || how->owns(how->context, (uint64_t)s << 52));
    }
    return (double)ours / all *
           (r->same_seed ? 1.0 : (double)owned_slots(how) / RPS_SLOT_COUNT);
}

/* As many keys as there are blocks of the disk for: a number that a false
 * file makes up, or a file with a hole, is not to take our memory. */
static uint64_t
keys_there(const struct rps_ckpt_piece *piece)
{
    struct rps_ckpt_column columns[RPS_CKPT_COLUMNS_MAX];
    char *name = NULL;
    struct stat stat = {.st_blocks = 0};
    struct rps_error ignored; /* who reads the file says what is wrong */
    uint64_t bytes = 0;
    int fd = -1;

    (void)rps_ckpt_columns(&piece->table->spec, columns); /* keys first */
    name = rps_ckpt_column_name(piece->table->spec.name, piece->part->part,
            piece->part->parts, &columns[0]);
    if (name != NULL && rps_ckpt_folder_file(piece->folder, name, &fd, &bytes,
                                &ignored) == RPS_OK) {
        (void)fstat(fd, &stat);
        close(fd);
    }
    free(name);
    bytes = (uint64_t)stat.st_blocks * 512 < bytes
                    ? (uint64_t)stat.st_blocks * 512
                    : bytes;
    return bytes / sizeof(uint64_t) < piece->table->rows
                   ? bytes / sizeof(uint64_t)
                   : piece->table->rows;
}

/* A delta has rows that are there already, most of them. */
uint64_t
rps_ckpt_rows_expected(const struct rps_ckpt_restoring *r,
        const struct rps_ckpt_piece *pieces, size_t count)
{
    double rows = 0;

    for (size_t i = 0; i < count && pieces[i].link == pieces[0].link; i++) {
        rows += share_of(r, &pieces[i]) * (double)keys_there(&pieces[i]);
    }
    return (uint64_t)rows;
}

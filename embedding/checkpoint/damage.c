/* SPDX-License-Identifier: Apache-2.0 */
#include "embedding/checkpoint/damage.h"

#include "embedding/checkpoint/reader.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECE_BYTES (64u << 10)

struct damaged {
    const struct rps_ckpt_restoring *r;
    struct rps_error first;  /* names one already */
    struct rps_error *error; /* gets the others */
    unsigned char *piece;    /* [PIECE_BYTES] */
    uint32_t count;          /* of the others */
};

/* Every byte against its checksums. */
static rps_status
read_whole(struct damaged *d, const struct rps_ckpt_folder *folder,
        const json_t *files, const char *name)
{
    struct rps_ckpt_reader reader;
    rps_status status =
            rps_ckpt_reader_open(&reader, folder, files, name, NULL);
    uint64_t left =
            status == RPS_OK ? reader.bytes - reader.npy.data_offset : 0;

    while (status == RPS_OK && left > 0) {
        const size_t n = left < PIECE_BYTES ? (size_t)left : PIECE_BYTES;

        status = rps_ckpt_reader_read(&reader, d->piece, n, NULL);
        left -= n;
    }
    if (status == RPS_OK) {
        status = rps_ckpt_reader_check(&reader, NULL);
    }
    rps_ckpt_reader_close(&reader);
    return status;
}

static void
add_words(struct damaged *d, const char *words)
{
    const size_t used = strlen(d->error->text);

    (void)snprintf(
            d->error->text + used, sizeof(d->error->text) - used, "%s", words);
}

static void
name_one(struct damaged *d, const char *folder, const char *name)
{
    const char *slash = strrchr(folder, '/');
    char path[RPS_ERROR_BYTES];

    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    if (strstr(d->first.text, path) != NULL) {
        return;
    }
    if (d->count < RPS_CKPT_DAMAGED_NAMED) {
        (void)snprintf(path, sizeof(path), "%s%s/%s",
                d->count == 0 ? "; damaged, too: " : ", ",
                slash == NULL ? folder : slash + 1, name);
        add_words(d, path);
    }
    d->count++;
}

/* "table-<name>/<file>" of a table that is not asked for is not read. */
static bool
is_asked_for(const struct rps_ckpt_restoring *r, const char *name)
{
    const char *file = strchr(name, '/');

    if (file == NULL || strncmp(name, "table-", 6) != 0) {
        return true;
    }
    for (size_t i = 0; i < r->wanted_count; i++) {
        const char *table = r->wanted[i].entry->spec.name;

        if ((size_t)(file - name) == 6 + strlen(table) &&
                memcmp(name + 6, table, strlen(table)) == 0) {
            return true;
        }
    }
    return false;
}

/* The checksums of an array are a file of their own beside it. */
static bool
is_array(const char *name)
{
    const size_t n = strlen(name);

    return n > 4 && strcmp(name + n - 4, ".npy") == 0;
}

static void
look_at_part(struct damaged *d, const struct rps_ckpt_link *link,
        const struct rps_ckpt_part *part)
{
    const char *name;
    json_t *value;

    json_object_foreach(part->files, name, value)
    {
        (void)value;
        if (is_array(name) && is_asked_for(d->r, name) &&
                read_whole(d, &link->folder, part->files, name) ==
                        RPS_E_CORRUPT) {
            name_one(d, link->folder.path, name);
        }
    }
}

static bool
part_matters(
        const struct rps_ckpt_restoring *r, const struct rps_ckpt_part *part)
{
    const struct rps_restore *how = r->how;

    if (part->root == NULL) {
        return false;
    }
    for (uint32_t s = part->slot_first; s <= part->slot_last; s++) {
        if (!r->same_seed || how->owns(how->context, (uint64_t)s << 52)) {
            return true;
        }
    }
    return false;
}

void
rps_ckpt_name_damaged(
        const struct rps_ckpt_restoring *r, struct rps_error *error)
{
    struct damaged d = {.r = r, .error = error};
    char words[32];

    if (error == NULL) {
        return;
    }
    d.first = *error;
    d.piece = malloc(PIECE_BYTES);
    for (uint32_t i = 0; i < r->chain.count && d.piece != NULL; i++) {
        const struct rps_ckpt_link *link = &r->chain.links[i];

        for (uint32_t p = 0; p < link->manifest.part_count; p++) {
            if (link->parts != NULL && part_matters(r, &link->parts[p])) {
                look_at_part(&d, link, &link->parts[p]);
            }
        }
    }
    free(d.piece);
    if (d.count > RPS_CKPT_DAMAGED_NAMED) {
        (void)snprintf(words, sizeof(words), " and %" PRIu32 " more",
                d.count - RPS_CKPT_DAMAGED_NAMED);
        add_words(&d, words);
    }
}

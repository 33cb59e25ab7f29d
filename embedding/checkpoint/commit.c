/* SPDX-License-Identifier: Apache-2.0 */
/*
 * COMMIT: the temporary folder gets its manifest and its name. Several PS
 * do this at once in one shared folder; each step is an atomic rename, and
 * whoever comes later finds the same bytes and is done.
 */
#include "base/checksum.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "embedding/checkpoint/chain.h"
#include "embedding/checkpoint/checkpoint.h"
#include "embedding/checkpoint/layout.h"
#include "embedding/checkpoint/prune.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define RACES_MAX 4 /* another PS renamed in between: look again */

struct commit {
    const struct rps_checkpoint_id *id;
    const char *text;
    size_t n;
    struct rps_ckpt_manifest manifest;
    char *tmp;
    char *final;
};

/** What stands at ckpt-<step>. */
enum found {
    FOUND_NOTHING,
    FOUND_SAME,
    FOUND_OLDER, /* another manifest, of an older epoch */
    FOUND_OTHER
};

static rps_status
read_manifest(const char *path, char **text_out, size_t *n_out,
        struct rps_error *error)
{
    struct rps_ckpt_folder folder;
    rps_status status = rps_ckpt_folder_open(&folder, path, error);

    *text_out = NULL;
    if (status == RPS_OK) {
        status = rps_ckpt_folder_text(&folder, RPS_CKPT_MANIFEST,
                RPS_CKPT_JSON_BYTES_MAX, text_out, n_out, error);
    }
    rps_ckpt_folder_close(&folder);
    return status;
}

static rps_status
look_at_final(const struct commit *c, enum found *found, uint32_t *old_epoch,
        struct rps_error *error)
{
    struct rps_ckpt_manifest old;
    char *text = NULL;
    size_t n = 0;
    rps_status status;

    *found = FOUND_NOTHING;
    if (access(c->final, F_OK) != 0 && errno == ENOENT) {
        return RPS_OK;
    }
    *found = FOUND_OTHER;
    status = read_manifest(c->final, &text, &n, error);
    if (status == RPS_E_NOMEM || status == RPS_E_IO) {
        return status;
    }
    if (status == RPS_OK && n == c->n && memcmp(text, c->text, n) == 0) {
        *found = FOUND_SAME;
    } else if (status == RPS_OK && rps_ckpt_manifest_parse(&old, text, n,
                                           c->final, NULL) == RPS_OK) {
        *old_epoch = old.epoch;
        if (old.step == c->id->step && old.epoch < c->id->epoch) {
            *found = FOUND_OLDER;
        }
        rps_ckpt_manifest_finish(&old);
    }
    free(text);
    return RPS_OK;
}

/* Written under a name of this PS's own, then renamed: whoever reads it
 * reads all of it. */
static rps_status
put_file(const struct commit *c, const char *name, const void *bytes, size_t n,
        struct rps_error *error)
{
    char *own = rps_format("%s/.%s-%" PRIu32, c->tmp, name, c->id->part);
    char *path = rps_format("%s/%s", c->tmp, name);
    rps_status status = RPS_E_NOMEM;

    if (own == NULL || path == NULL) {
        rps_fail(error, RPS_E_NOMEM, "%s: no memory", c->tmp);
        goto out;
    }
    status = rps_file_write(own, bytes, n, true, error);
    if (status == RPS_OK && rename(own, path) != 0) {
        status = rps_fail(error, RPS_E_IO, "%s: cannot rename to %s: %s", own,
                name, strerror(errno));
    }
    if (status != RPS_OK) {
        unlink(own);
    }
out:
    free(own);
    free(path);
    return status;
}

static rps_status
put_manifest(const struct commit *c, struct rps_error *error)
{
    uint64_t sum = rps_checksum(c->text, c->n);
    char *text = NULL;
    size_t n = 0;
    rps_status status = read_manifest(c->tmp, &text, &n, error);

    if (status == RPS_OK && (n != c->n || memcmp(text, c->text, n) != 0)) {
        status = rps_fail(error, RPS_E_MISMATCH,
                "%s/%s has other bytes than this COMMIT", c->tmp,
                RPS_CKPT_MANIFEST);
    } else if (status == RPS_E_NOT_FOUND) {
        status = put_file(
                c, RPS_CKPT_MANIFEST ".xxh3", &sum, sizeof(sum), error);
        if (status == RPS_OK) {
            status = put_file(c, RPS_CKPT_MANIFEST, c->text, c->n, error);
        }
    }
    free(text);
    return status == RPS_OK ? rps_dir_sync(c->tmp, error) : status;
}

/* This PS's own part must be what the manifest lists. */
static rps_status
check_own_part(const struct commit *c, struct rps_error *error)
{
    struct rps_ckpt_folder folder;
    struct rps_ckpt_part part;
    rps_status status = rps_ckpt_folder_open(&folder, c->tmp, error);

    if (status == RPS_OK) {
        status = rps_ckpt_part_read(
                &part, &folder, &c->manifest, c->id->part, error);
        if (status == RPS_OK) {
            rps_ckpt_part_finish(&part);
        } else if (status == RPS_E_CORRUPT) {
            status = RPS_E_MISMATCH; /* the chief's list is another save's */
        }
    }
    rps_ckpt_folder_close(&folder);
    return status;
}

/* Swap the older checkpoint of this step for the new one. One system call
 * where the file system has it, else two renames with a gap between. */
static rps_status
swap(const struct commit *c, const char *aside, struct rps_error *error)
{
    if (renameat2(AT_FDCWD, c->tmp, AT_FDCWD, c->final, RENAME_EXCHANGE) == 0) {
        if (rename(c->tmp, aside) != 0) {
            return rps_fail(
                    error, RPS_E_IO, "%s: rename: %s", c->tmp, strerror(errno));
        }
        return RPS_OK;
    }
    if (errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP) {
        return rps_fail(error, RPS_E_IO, "%s: cannot replace: %s", c->final,
                strerror(errno));
    }
    if (rename(c->final, aside) != 0) {
        return rps_fail(
                error, RPS_E_IO, "%s: rename: %s", c->final, strerror(errno));
    }
    if (rename(c->tmp, c->final) != 0) {
        rps_fail(error, RPS_E_IO, "%s: rename: %s", c->tmp, strerror(errno));
        if (rename(aside, c->final) != 0 && errno == ENOENT) {
            return rps_fail(error, RPS_E_IO, "%s is lost", c->final);
        }
        return RPS_E_IO;
    }
    return RPS_OK;
}

/* One PS at a time: a second swap would swap the old one back. */
static rps_status
replace_older(const struct commit *c, struct rps_error *error)
{
    char *lock = rps_format("%s/.recps-lock", c->id->dir);
    char *aside = NULL;
    enum found found;
    uint32_t old_epoch = 0;
    rps_status status = RPS_E_NOMEM;
    int fd = -1;

    if (lock == NULL) {
        return rps_fail(error, status, "%s: no memory", c->final);
    }
    fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640);
    if (fd < 0 || flock(fd, LOCK_EX) != 0) {
        status = rps_fail(
                error, RPS_E_IO, "%s: cannot lock: %s", lock, strerror(errno));
        goto out;
    }
    status = look_at_final(c, &found, &old_epoch, error);
    if (status != RPS_OK || found != FOUND_OLDER) {
        goto out; /* somebody was faster: the caller looks again */
    }
    aside = rps_ckpt_old_path(c->id->dir, c->id->step, old_epoch);
    if (aside == NULL) {
        status = rps_fail(error, RPS_E_NOMEM, "%s: no memory", c->final);
        goto out;
    }
    status = rps_dir_remove(aside, error);
    if (status == RPS_OK) {
        status = swap(c, aside, error);
    }
    if (status == RPS_OK) {
        status = rps_dir_sync(c->id->dir, error);
    }
    if (status == RPS_OK) {
        status = rps_dir_remove(aside, error);
    }
out:
    if (fd >= 0) {
        close(fd);
    }
    free(lock);
    free(aside);
    return status;
}

/* put_file() may have lost its folder to another PS's rename in between. */
static void
tidy_final(const struct commit *c)
{
    static const char *const names[] = {
            RPS_CKPT_MANIFEST, RPS_CKPT_MANIFEST ".xxh3"};

    for (size_t i = 0; i < 2; i++) {
        char *path =
                rps_format("%s/.%s-%" PRIu32, c->final, names[i], c->id->part);

        if (path != NULL) {
            unlink(path);
        }
        free(path);
    }
}

static rps_status
mismatch(const struct commit *c, uint32_t old_epoch, struct rps_error *error)
{
    return rps_fail(error, RPS_E_MISMATCH,
            "%s is there already with another manifest (epoch %" PRIu32
            ", this save has epoch %" PRIu32
            "): nothing was replaced; move that folder away to save this step",
            c->final, old_epoch, c->id->epoch);
}

/* One round; *again: another PS moved something in between. */
static rps_status
install(const struct commit *c, bool *again, struct rps_error *error)
{
    enum found found;
    uint32_t old_epoch = 0;
    rps_status status = look_at_final(c, &found, &old_epoch, error);

    *again = false;
    if (status != RPS_OK || found == FOUND_SAME) {
        return status;
    }
    if (found == FOUND_OTHER) {
        return mismatch(c, old_epoch, error);
    }
    status = check_own_part(c, error);
    if (status == RPS_OK) {
        status = put_manifest(c, error);
    }
    if (status != RPS_OK) {
        /* gone: renamed by another PS, or never prepared; where an older one
         * is replaced, what is at tmp may by now be that older one */
        *again = access(c->final, F_OK) == 0 &&
                 (found == FOUND_OLDER || access(c->tmp, F_OK) != 0);
        return status;
    }
    if (found == FOUND_OLDER) {
        *again = true; /* and see that it is the same now */
        return replace_older(c, error);
    }
    if (rename(c->tmp, c->final) == 0) {
        return RPS_OK;
    }
    *again = errno == ENOENT || errno == EEXIST || errno == ENOTEMPTY;
    return rps_fail(error, RPS_E_IO, "%s: cannot rename to %s: %s", c->tmp,
            c->final, strerror(errno));
}

static rps_status
check_manifest(struct commit *c, struct rps_error *error)
{
    const struct rps_checkpoint_id *id = c->id;
    rps_status status;

    if (c->n > RPS_CKPT_JSON_BYTES_MAX) {
        return rps_fail(error, RPS_E_INVAL,
                "the manifest has %zu bytes, at most %u are kept", c->n,
                RPS_CKPT_JSON_BYTES_MAX);
    }
    status = rps_ckpt_manifest_parse(
            &c->manifest, c->text, c->n, "COMMIT's manifest", error);
    if (status == RPS_E_CORRUPT) {
        return RPS_E_INVAL;
    }
    if (status == RPS_OK &&
            (c->manifest.step != id->step || c->manifest.epoch != id->epoch ||
                    c->manifest.part_count != id->parts)) {
        return rps_fail(error, RPS_E_INVAL,
                "COMMIT's manifest has step %" PRIu64 ", epoch %" PRIu32
                " and %" PRIu32 " parts; this save has step %" PRIu64
                ", epoch %" PRIu32 " and %" PRIu32,
                c->manifest.step, c->manifest.epoch, c->manifest.part_count,
                id->step, id->epoch, id->parts);
    }
    return status;
}

/* A delta without what it stands on could never be restored. */
static rps_status
check_parent(const struct commit *c, struct rps_error *error)
{
    const struct rps_ckpt_head child = rps_ckpt_head_of(&c->manifest);
    struct rps_ckpt_chain *chain;
    struct rps_ckpt_head parent;
    rps_status status;

    if (!child.is_delta) {
        return RPS_OK;
    }
    chain = calloc(1, sizeof(*chain));
    if (chain == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "%s: no memory", c->final);
    }
    status = rps_ckpt_chain_open(chain, c->id->dir, child.parent_step, error);
    if (status == RPS_OK && chain->count > RPS_CKPT_DELTAS_MAX) {
        status = rps_fail(error, RPS_E_LIMIT,
                "%s would be delta %" PRIu32
                " behind its full checkpoint, at most %u may follow one",
                c->final, chain->count, RPS_CKPT_DELTAS_MAX);
    }
    if (status == RPS_OK) {
        parent = rps_ckpt_head_of(&rps_ckpt_chain_last(chain)->manifest);
        status = rps_ckpt_head_check(c->id->dir, &child, &parent, error);
    }
    rps_ckpt_chain_close(chain);
    free(chain);
    return status == RPS_E_NOT_FOUND ? RPS_E_MISMATCH : status;
}

rps_status
rps_checkpoint_commit(const struct rps_checkpoint_id *id, const char *manifest,
        size_t manifest_bytes, uint32_t keep, struct rps_error *error)
{
    struct commit c = {.id = id, .text = manifest, .n = manifest_bytes};
    bool again = true;
    rps_status status = rps_ckpt_id_check(id, error);

    if (status == RPS_OK) {
        status = check_manifest(&c, error);
    }
    if (status != RPS_OK) {
        goto out;
    }
    c.tmp = rps_ckpt_tmp_path(id->dir, id->step, id->epoch);
    c.final = rps_checkpoint_path(id->dir, id->step);
    if (c.tmp == NULL || c.final == NULL) {
        status = rps_fail(error, RPS_E_NOMEM, "%s: no memory", id->dir);
        goto out;
    }
    status = check_parent(&c, error);
    if (status != RPS_OK) {
        goto out;
    }
    for (int i = 0; i < RACES_MAX && again; i++) {
        status = install(&c, &again, error);
    }
    if (status != RPS_OK) {
        goto out;
    }
    status = rps_dir_sync(id->dir, error);
    if (status == RPS_OK) {
        if (error != NULL) {
            error->text[0] = '\0';
        }
        tidy_final(&c);
        rps_checkpoint_abort(id); /* files of a second PREPARE, if any */
        rps_ckpt_prune(id, keep, error);
    }
out:
    rps_ckpt_manifest_finish(&c.manifest);
    free(c.tmp);
    free(c.final);
    return status;
}

/* By writing: rights do not tell it of every file system. */
static rps_status
try_file(const char *dir, struct rps_error *error)
{
    char *path =
            rps_format("%s/.recps-write-%016" PRIx64, dir, rps_random_id());
    rps_status status;

    if (path == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "%s: no memory", dir);
    }
    status = rps_file_write(path, "recps\n", 6, false, error);
    if (unlink(path) != 0 && status == RPS_OK) {
        status = rps_fail(error, RPS_E_IO, "%s: cannot remove: %s", path,
                strerror(errno));
    }
    free(path);
    return status;
}

rps_status
rps_checkpoint_dir_check(const char *dir, struct rps_error *error)
{
    const rps_status status = rps_dir_make(dir, error);

    return status == RPS_OK ? try_file(dir, error) : status;
}

/* A folder of another name is made and removed there. */
static rps_status
try_folder(const char *parent, const char *dir, struct rps_error *error)
{
    char *path =
            rps_format("%s/.recps-write-%016" PRIx64, parent, rps_random_id());
    rps_status status = RPS_OK;

    if (path == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "%s: no memory", dir);
    }
    if (mkdir(path, 0700) != 0) {
        status = rps_fail(error, RPS_E_IO, "cannot make folder %s: %s", dir,
                strerror(errno));
    } else if (rmdir(path) != 0) {
        status = rps_fail(error, RPS_E_IO, "%s: cannot remove: %s", path,
                strerror(errno));
    }
    free(path);
    return status;
}

rps_status
rps_checkpoint_dir_probe(const char *dir, struct rps_error *error)
{
    char *parent = strdup(dir);
    struct stat info;
    rps_status status;

    if (parent == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "%s: no memory", dir);
    }
    while (stat(parent, &info) != 0 && errno == ENOENT &&
            strcmp(parent, ".") != 0 && strcmp(parent, "/") != 0) {
        char *end = strrchr(parent, '/');

        if (end == NULL) {
            memcpy(parent, ".", sizeof(".")); /* a name has a byte */
        } else {
            end[end == parent] = '\0';
        }
    }
    status = strcmp(parent, dir) == 0 ? try_file(dir, error)
                                      : try_folder(parent, dir, error);
    free(parent);
    return status;
}

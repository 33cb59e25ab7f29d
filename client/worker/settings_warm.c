/* SPDX-License-Identifier: Apache-2.0 */
/* --warm-start, --restore-tables, --restore-weights-only. */
#include "base/text.h"
#include "client/worker/settings.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STEP_DIGITS 12u /* of a checkpoint's folder, ckpt-000000000042 */

/* DIR:STEP; a path that ends in ":" and digits needs a step behind. */
static rps_status
split_step(char *path, uint64_t *step, struct rps_error *error)
{
    char *colon = strrchr(path, ':');

    if (colon == NULL || !rps_parse_u64(colon + 1, step)) {
        return RPS_OK;
    }
    if (*step == 0) {
        return rps_fail(error, RPS_E_INVAL,
                "--warm-start=%s: its step must be from 1 on; without one "
                "it is the newest complete checkpoint",
                path);
    }
    *colon = '\0';
    return RPS_OK;
}

/* DIR/ckpt-STEP, the folder itself, is DIR:STEP. What is left is a folder. */
static void
split_folder(char *path, uint64_t *step)
{
    size_t n = strlen(path);
    char *name;

    while (n > 1 && path[n - 1] == '/') {
        path[--n] = '\0';
    }
    name = strrchr(path, '/');
    name = name == NULL ? path : name + 1;
    if (*step != 0 || strncmp(name, "ckpt-", 5) != 0 ||
            strlen(name + 5) != STEP_DIGITS || !rps_parse_u64(name + 5, step)) {
        return;
    }
    if (name == path) { /* here */
        *name++ = '.';
    } else if (name - 1 > path) { /* "/" stays */
        name--;
    }
    *name = '\0';
}

/* The servers read it, and need not run where this does: only what has none
 * knows what a name is relative to. */
static rps_status
make_absolute(const struct rps_settings *settings, char **path,
        struct rps_error *error)
{
    char here[PATH_MAX];
    char *whole;

    if ((*path)[0] == '/') {
        return RPS_OK;
    }
    if (settings->options->cluster.ps_count > 0) {
        return rps_fail(error, RPS_E_INVAL,
                "--warm-start=%s: must be a folder from / on: the servers "
                "read it, and need not run where this does",
                settings->options->warm_start);
    }
    whole = getcwd(here, sizeof(here)) != NULL
                    ? rps_format("%s/%s", here, *path)
                    : NULL;
    if (whole == NULL) {
        return rps_fail(error, RPS_E_NOMEM,
                "--warm-start=%s: this folder has no name",
                settings->options->warm_start);
    }
    free(*path);
    *path = whole;
    return RPS_OK;
}

static rps_status
read_folder(struct rps_settings *settings, struct rps_error *error)
{
    struct rps_warm_settings *warm = &settings->warm;
    rps_status status;

    warm->dir = strdup(settings->options->warm_start);
    if (warm->dir == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "no memory");
    }
    status = split_step(warm->dir, &warm->step, error);
    if (status == RPS_OK) {
        split_folder(warm->dir, &warm->step);
        status = make_absolute(settings, &warm->dir, error);
    }
    return status;
}

rps_status
rps_settings_read_warm(struct rps_settings *settings, struct rps_error *error)
{
    const struct rps_options *options = settings->options;
    struct rps_warm_settings *warm = &settings->warm;
    const bool begins = options->warm_start[0] != '\0';

    warm->tables = rps_text_or_null(options->restore_tables);
    warm->weights_only = options->restore_weights_only;
    if (begins && settings->restore) {
        return rps_fail(error, RPS_E_INVAL,
                "--warm-start begins a new job, --restore, --evaluate and "
                "--predict take up this one's: give one of them");
    }
    if (begins && options->init_from[0] != '\0') {
        return rps_fail(error, RPS_E_INVAL,
                "--warm-start and --init-from both give the start values: "
                "give one of them");
    }
    if ((warm->tables != NULL || warm->weights_only) && !begins &&
            (!settings->restore || options->evaluate ||
                    options->predict[0] != '\0')) {
        return rps_fail(error, RPS_E_INVAL,
                "--restore-tables and --restore-weights-only say what "
                "--restore or --warm-start takes: give one of these, too");
    }
    if ((warm->tables != NULL || warm->weights_only || begins) &&
            strcmp(options->dense, "allreduce") == 0) {
        return rps_fail(error, RPS_E_INVAL,
                "--warm-start, --restore-tables and --restore-weights-only do "
                "not go with --dense allreduce");
    }
    return begins ? read_folder(settings, error) : RPS_OK;
}

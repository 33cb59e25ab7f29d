/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job's terms as text: the mode as options and answers name it, and the
 * JSON of RESTORE and STEP_END(0).
 */
#ifndef RPS_BASE_TERMS_H
#define RPS_BASE_TERMS_H

#include "base/error.h"

#include <recps/client.h>

#include <jansson.h>
#include <stdbool.h>

/** Most steps that a replica may be ahead in bounded mode. */
#define RPS_STALENESS_MAX 1000000u

/** A mode in words, ended: "bounded:1000000" is the longest. */
struct rps_mode_text {
    char text[24];
};

/** "sync", "async" or "bounded:2" into mode and staleness. False, nothing
 * changed: it is none. */
bool rps_terms_read_mode(const char *text, rps_terms *terms);

/** The text of a mode, as rps_terms_read_mode() takes it. */
struct rps_mode_text rps_terms_mode(const rps_terms *terms);

const char *rps_terms_combine(const rps_terms *terms);
const char *rps_terms_on_lost(const rps_terms *terms);
const char *rps_terms_cut(const rps_terms *terms);

/** The terms as an object; NULL: no memory. New reference. */
json_t *rps_terms_json(const rps_terms *terms);

/** Fields of an object into *terms; what is absent stays. INVAL with the
 * field's name; *terms then is in part read. */
rps_status rps_terms_read(
        const json_t *object, rps_terms *terms, struct rps_error *error);

/** What no job can have: no replica, more backup workers than leave one, or
 * in a mode that waits for no step. INVAL with words. */
rps_status rps_terms_check(const rps_terms *terms, struct rps_error *error);

#endif /* RPS_BASE_TERMS_H */

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prometheus' text format 0.0.4: families in one piece, each with HELP and
 * TYPE, then its samples. Labels are given as text: rps_label() writes a
 * value that comes from outside.
 */
#ifndef RPS_ADMIN_EXPOSITION_H
#define RPS_ADMIN_EXPOSITION_H

#include "base/text.h"

#include <stddef.h>
#include <stdint.h>

#define RPS_EXPOSITION_TYPE "text/plain; version=0.0.4; charset=utf-8"

/** type: "counter", "gauge" or "histogram". */
void rps_family(struct rps_text *text, const char *name, const char *type,
        const char *help);

/** One sample; labels is "" or `op="PING",code="OK"`. */
void rps_sample(struct rps_text *text, const char *name, const char *labels,
        uint64_t value);
void rps_sample_real(struct rps_text *text, const char *name,
        const char *labels, double value);

/** A family of one sample. */
void rps_gauge(struct rps_text *text, const char *name, const char *help,
        double value);
void rps_counter(struct rps_text *text, const char *name, const char *help,
        uint64_t value);

/** name="value", with \, " and newlines escaped; cut to what fits. */
char *rps_label(
        char *out, size_t out_bytes, const char *name, const char *value);

#endif /* RPS_ADMIN_EXPOSITION_H */

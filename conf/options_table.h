/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of conf/options.h as data, for the reader, the help and the
 * documentation. Beside conf/ only what prints the completion looks here.
 */
#ifndef RPS_CONF_OPTIONS_TABLE_H
#define RPS_CONF_OPTIONS_TABLE_H

#include "conf/options.h"

#include <jansson.h>
#include <stddef.h>
#include <stdio.h>

enum rps_option_type {
    RPS_OPTION_STRING,
    RPS_OPTION_U64,
    RPS_OPTION_F64,
    RPS_OPTION_BOOL,
    RPS_OPTION_BYTES,
    RPS_OPTION_SECONDS,
    RPS_OPTION_CHOICE,
    RPS_OPTION_OPTIONAL
};

struct rps_option_def {
    uint32_t scope;
    enum rps_option_type type;
    const char *name;  /* with underscores */
    const char *value; /* the default, as text */
    const char *unit;
    const char *allowed;
    const char *help;
    size_t offset; /* of its field in struct rps_options */
};

/** A flag that is no option of the table: it finds the cluster, or acts. */
struct rps_flag_def {
    uint32_t scope;
    const char *name;
    const char *argument; /* "" for a switch */
    const char *help;
};

struct rps_program {
    uint32_t scope;
    const char *name;
};

#define RPS_OPTION_NAME_MAX 64u
#define RPS_OPTION_WHY_MAX  512u

extern const struct rps_option_def rps_option_table[];
extern const size_t rps_option_count;
extern const struct rps_flag_def rps_flag_table[];
extern const size_t rps_flag_count;
extern const struct rps_program rps_program_table[];
extern const size_t rps_program_count;

/** By name with underscores; NULL: there is none. */
const struct rps_option_def *rps_option_find(const char *name);
const struct rps_flag_def *rps_flag_find(const char *name);

/** "batch_size" -> "batch-size" or "RECPS_BATCH_SIZE". Returns `out`. */
char *rps_option_flag(const char *name, char out[RPS_OPTION_NAME_MAX]);
char *rps_option_variable(const char *name, char out[RPS_OPTION_NAME_MAX]);

/** The option that was meant by a name with underscores, or NULL. */
const char *rps_option_meant(const char *name, uint32_t scope, bool flags);

/** "recpsd, recps": who takes it. Returns `out`. */
char *rps_scope_str(uint32_t scope, char out[RPS_OPTION_NAME_MAX]);

/**
 * Set a field from text, unless it came from a stronger origin. On false
 * `why` says what is wrong with the value and what is allowed.
 */
bool rps_option_set(struct rps_options *options,
        const struct rps_option_def *def, const char *text,
        enum rps_origin origin, char why[RPS_OPTION_WHY_MAX]);

/** The same from a value of the "recps" object. */
bool rps_option_set_json(struct rps_options *options,
        const struct rps_option_def *def, const json_t *value,
        char why[RPS_OPTION_WHY_MAX]);

/** Every field its default. False: no memory. */
bool rps_options_default(struct rps_options *options);

/** --help. */
void rps_options_help(
        FILE *out, uint32_t scope, const char *program, const char *usage);

/** What is allowed, for people: "0..64 threads", "a, b or c". */
char *rps_option_allowed(
        const struct rps_option_def *def, char out[RPS_OPTION_WHY_MAX]);

/** check_config.c: the verdict of a refusal, on stdout as JSON. */
void rps_check_config_refused(const rps_cluster_error *error);

#endif /* RPS_CONF_OPTIONS_TABLE_H */

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who am I, and who are the others: TF_CONFIG and the flags that stand for
 * it, resolved once. docs/TF_CONFIG.md lists what is accepted and refused.
 */
#ifndef RPS_CLUSTER_H
#define RPS_CLUSTER_H

#include <recps/status.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum rps_role {
    RPS_ROLE_LOCAL = 0, /**< no cluster: everything in this process */
    RPS_ROLE_CHIEF = 1,
    RPS_ROLE_WORKER = 2,
    RPS_ROLE_PS = 3,
    RPS_ROLE_EVALUATOR = 4,
    RPS_ROLE_NONE = 5 /**< a tool: knows the cluster, has no task in it */
};

/** One member's place. `address` is "host:port", normalised. */
typedef struct rps_member {
    uint32_t index;
    char *address;
} rps_member;

/**
 * A resolved cluster. Read-only for callers; made by rps_cluster_resolve()
 * and released by rps_cluster_finish().
 */
typedef struct rps_cluster {
    enum rps_role role;
    uint32_t index;    /**< of this task inside its role */
    uint32_t ps_count; /**< parameter servers of the job; 0 = embedded */
    rps_member *ps;    /**< [ps_count], by index; addresses may be NULL */
    uint32_t worker_count;
    int worker_count_known; /**< 0: "1?", give --num-workers for sync */
    rps_member *workers;    /**< the listed ones */
    uint32_t workers_listed;
    char *chief_address;     /**< NULL: worker 0 is the chief */
    char *evaluator_address; /**< NULL: none listed */
    char *own_address;       /**< NULL: not listed (evaluator, tool, local) */
    uint32_t replica_count;  /**< workers + listed chief; 0 = unknown */
    uint32_t rank;           /**< of a replica: chief 0, then workers */
    int is_chief;            /**< this process is the effective chief */
    int addresses_differ;    /**< members see other lists (dynamic mode) */
    uint64_t fingerprint;    /**< XXH64 over the normalised ps list */
    char *recps_json;        /**< text of the "recps" object, or NULL */
    char *notes;             /**< one line each: what was ignored, aliased */
} rps_cluster;

/** Where a cluster comes from; NULL = not given. See _options_init. */
typedef struct rps_cluster_options {
    uint32_t struct_bytes;      /**< set by _init; tells versions apart */
    const char *tf_config;      /**< JSON, or "@FILE" */
    const char *tf_config_file; /**< TF_CONFIG_FILE; read if no tf_config */
    const char *tf_config_env;  /**< TF_CONFIG's text; "" is an error */
    const char *ps_hosts;       /**< "h:p,h:p": replaces the whole cluster */
    const char *worker_hosts;
    const char *chief_hosts;
    const char *evaluator_hosts;
    const char *job_name;   /**< replaces task.type */
    const char *task_index; /**< replaces task.index; "auto" allowed */
    uint32_t num_ps;        /**< 0 = not given */
    uint32_t num_workers;   /**< 0 = not given */
    int allow_unknown_roles;
    int task_optional; /**< tools: a missing task is RPS_ROLE_NONE */
} rps_cluster_options;

/** Why a TF_CONFIG was refused. */
typedef struct rps_cluster_error {
    char code[16]; /**< "E_JSON", … (docs/TF_CONFIG.md) */
    char *message; /**< "TF_CONFIG: …"; free with rps_cluster_error_finish */
} rps_cluster_error;

/**
 * Start from the environment: TF_CONFIG_FILE and TF_CONFIG as they are. NULL
 * is allowed: nothing is done.
 *
 * Owns:    borrows the environment's strings.
 * Threads: any that may call getenv.
 */
RPS_API void rps_cluster_options_init(rps_cluster_options *options);

/**
 * Resolve. On success *cluster is to be finished by the caller.
 *
 * Owns:    copies what it keeps of *options; what *cluster and *error held
 *          before is not released. On an error *cluster is zeroed, and on
 *          RPS_E_INVAL *error holds the code and the message; finish it. It
 *          may be NULL.
 * Threads: any.
 * Errors:  RPS_E_INVAL (refused, exit 78; cluster or options is NULL),
 *          RPS_E_NOMEM.
 */
RPS_API RPS_NODISCARD rps_status rps_cluster_resolve(rps_cluster *cluster,
        const rps_cluster_options *options, rps_cluster_error *error);

/**
 * Release what *cluster owns; a zeroed one is fine.
 *
 * Threads: the last user of *cluster.
 */
RPS_API void rps_cluster_finish(rps_cluster *cluster);

/**
 * Release an error's message; a zeroed one is fine.
 *
 * Threads: the owner of *error.
 */
RPS_API void rps_cluster_error_finish(rps_cluster_error *error);

/**
 * "local", "chief", "worker", "ps", "evaluator" or "none".
 *
 * Threads: any.
 */
RPS_API const char *rps_role_str(enum rps_role role);

#ifdef __cplusplus
}
#endif

#endif /* RPS_CLUSTER_H */

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RPS_STATUS_H
#define RPS_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__) || defined(__clang__)
#define RPS_NODISCARD __attribute__((warn_unused_result))
#define RPS_API       __attribute__((visibility("default")))
#else
#define RPS_NODISCARD
#define RPS_API
#endif

/**
 * Outcome of every call that can fail. The numbers travel on the wire, so a
 * value is never reused or renumbered; new ones are added at the end.
 */
typedef enum rps_status {
    RPS_OK = 0,              /**< done */
    RPS_E_INVAL = -1,        /**< the request breaks a documented rule */
    RPS_E_NOMEM = -2,        /**< allocation failed; nothing was changed */
    RPS_E_LIMIT = -3,        /**< a configured bound is reached */
    RPS_E_MISMATCH = -4,     /**< both sides know it, with other values */
    RPS_E_NOT_FOUND = -5,    /**< no such table, checkpoint or member */
    RPS_E_WRONG_ROUTE = -6,  /**< this PS does not own the key */
    RPS_E_ROLLED_BACK = -7,  /**< another epoch: what was held is void */
    RPS_E_RETRY_LATER = -8,  /**< not now; the same request may work later */
    RPS_E_DEADLINE = -9,     /**< the deadline passed; nothing was done */
    RPS_E_TIMEOUT = -10,     /**< time passed; the outcome is unknown */
    RPS_E_CANCELED = -11,    /**< the caller took the request back */
    RPS_E_UNSUPPORTED = -12, /**< this build does not know or do it */
    RPS_E_READ_ONLY = -13,   /**< the service refuses changes */
    RPS_E_NONFINITE = -14,   /**< NaN or infinity where none may be */
    RPS_E_AUTH = -15,        /**< not authenticated, or not allowed */
    RPS_E_CORRUPT = -16,     /**< bytes that fail their checksum or form */
    RPS_E_IO = -17,          /**< a file operation failed */
    RPS_E_UNREACHABLE = -18, /**< the peer is gone or was never there */
    RPS_E_FORKED = -19       /**< the handle belongs to the parent process */
} rps_status;

#define RPS_STATUS_LAST RPS_E_FORKED

/**
 * Name a status for logs, e.g. "RPS_E_LIMIT".
 *
 * Owns:    returns static storage; never NULL, also for unknown values.
 * Threads: any.
 */
RPS_API const char *rps_status_str(rps_status status);

#ifdef __cplusplus
}
#endif

#endif /* RPS_STATUS_H */

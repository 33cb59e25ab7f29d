/* SPDX-License-Identifier: Apache-2.0 */
/* Files that say which port was bound: --port-file, --admin-port-file. */
#ifndef RPS_ADMIN_PORT_FILE_H
#define RPS_ADMIN_PORT_FILE_H

#include "base/error.h"

#include <stdint.h>

/** Write "PORT\n" to a file that appears whole; what is no file (a pipe, a
 * terminal) is written to. */
rps_status rps_port_file_write(
        const char *path, uint16_t port, struct rps_error *error);

/** A server that was killed has left it: who waits for this one must not read
 * it. NULL and "" are none. */
void rps_port_file_forget(const char *path);

/** Take it away at the end, unless another server has written its own since. */
void rps_port_file_remove(const char *path, uint16_t port);

#endif /* RPS_ADMIN_PORT_FILE_H */

/* SPDX-License-Identifier: Apache-2.0 */
/* Names as a dump's files have them. */
#ifndef RPS_PRECISION_CLEAN_H
#define RPS_PRECISION_CLEAN_H

/** Dots, slashes, backslashes and spaces become underscores: a dot ends a
 * field of a file's name. */
void rps_dump_clean(char *name);

#endif /* RPS_PRECISION_CLEAN_H */

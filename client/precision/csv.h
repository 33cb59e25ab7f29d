/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RPS_PRECISION_CSV_H
#define RPS_PRECISION_CSV_H

#include "base/text.h"

/** Add a word of a line, quoted where it must be (RFC 4180). */
void rps_csv_word(struct rps_text *text, const char *word);

#endif /* RPS_PRECISION_CSV_H */

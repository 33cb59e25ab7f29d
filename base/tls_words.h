/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a refusal of TLS means to who runs the programs: OpenSSL names it in its
 * own words, which stay in brackets behind these. Of base/tls.c.
 */
#ifndef RPS_BASE_TLS_WORDS_H
#define RPS_BASE_TLS_WORDS_H

#include "base/tls.h"

/** What is wrong with a peer's certificate, and whose matter it is; NULL: not
 * known. `verdict` is an X509_V_ERR_. */
const char *rps_tls_verdict_words(long verdict, enum rps_tls_side side);

/** Of OpenSSL's error code: an alert of the peer's, or what it sent; NULL. */
const char *rps_tls_failure_words(unsigned long code, enum rps_tls_side side);

/** Of one for a file; NULL. */
const char *rps_tls_file_words(unsigned long code);

#endif /* RPS_BASE_TLS_WORDS_H */

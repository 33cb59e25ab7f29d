/* SPDX-License-Identifier: Apache-2.0 */
/* How the benchmarks print what they found. NaN is "not measured":
 * null in JSON (rps_json_real). */
#ifndef RPS_BENCH_PRINT_H
#define RPS_BENCH_PRINT_H

#include <jansson.h>
#include <stdbool.h>

/** null where the text is empty. */
json_t *bench_text_or_null(const char *text);

/** CPU, instruction set, huge pages, version. */
void bench_add_machine(json_t *object);

/** One line on stdout; takes the object. False: it could not be written. */
bool bench_put_json(json_t *object);

/** A line for people; nothing where the value is not finite. */
void bench_print_figure(const char *words, double value);

/** A line on stderr, so that a long run shows that it lives. */
void bench_progress(const char *format, ...)
        __attribute__((format(printf, 1, 2)));

#endif /* RPS_BENCH_PRINT_H */

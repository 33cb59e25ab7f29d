/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/print.h"

#include "bench/memory.h"
#include "embedding/kernels/kernels.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

json_t *
bench_text_or_null(const char *text)
{
    return text[0] != '\0' ? json_string(text) : json_null();
}

void
bench_add_machine(json_t *object)
{
    char text[256];

    bench_cpu_model(text, sizeof(text));
    json_object_set_new(object, "cpu", json_string(text));
    json_object_set_new(
            object, "isa", json_string(rps_isa_str(rps_isa_detect())));
    bench_huge_pages_setting(text, sizeof(text));
    json_object_set_new(object, "huge_pages", json_string(text));
    json_object_set_new(object, "version", json_string(RPS_VERSION));
}

bool
bench_put_json(json_t *object)
{
    char *text = json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(9));
    const bool done = text != NULL && puts(text) != EOF && fflush(stdout) == 0;

    free(text);
    json_decref(object);
    return done;
}

void
bench_print_figure(const char *words, double value)
{
    if (isfinite(value)) {
        printf("  %-42s %14.*f\n", words, fabs(value) < 1e5 ? 2 : 0, value);
    }
}

void
bench_progress(const char *format, ...)
{
    va_list words;

    va_start(words, format);
    fputs("recps-bench: ", stderr);
    vfprintf(stderr, format, words);
    fputc('\n', stderr);
    va_end(words);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "admin/exposition.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void
rps_family(struct rps_text *text, const char *name, const char *type,
        const char *help)
{
    rps_text_add(text, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void
begin_sample(struct rps_text *text, const char *name, const char *labels)
{
    if (labels[0] != '\0') {
        rps_text_add(text, "%s{%s} ", name, labels);
    } else {
        rps_text_add(text, "%s ", name);
    }
}

void
rps_sample(struct rps_text *text, const char *name, const char *labels,
        uint64_t value)
{
    begin_sample(text, name, labels);
    rps_text_add(text, "%" PRIu64 "\n", value);
}

void
rps_sample_real(struct rps_text *text, const char *name, const char *labels,
        double value)
{
    begin_sample(text, name, labels);
    rps_text_add(text, "%.15g\n", value);
}

void
rps_gauge(
        struct rps_text *text, const char *name, const char *help, double value)
{
    rps_family(text, name, "gauge", help);
    rps_sample_real(text, name, "", value);
}

void
rps_counter(struct rps_text *text, const char *name, const char *help,
        uint64_t value)
{
    rps_family(text, name, "counter", help);
    rps_sample(text, name, "", value);
}

char *
rps_label(char *out, size_t out_bytes, const char *name, const char *value)
{
    size_t used = 0;
    const int begun = snprintf(out, out_bytes, "%s=\"", name);

    if (begun < 0 || (size_t)begun + 2 > out_bytes) {
        out[0] = '\0';
        return out;
    }
    used = (size_t)begun;
    for (; *value != '\0' && used + 4 <= out_bytes; value++) {
        if (*value == '\\' || *value == '"' || *value == '\n') {
            out[used++] = '\\';
        }
        out[used++] = *value == '\n' ? 'n' : *value;
    }
    out[used++] = '"';
    out[used] = '\0';
    return out;
}

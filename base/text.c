/* SPDX-License-Identifier: Apache-2.0 */
#include "base/text.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool
text_grow(struct rps_text *text, size_t more)
{
    const size_t need = text->length + more + 1;
    size_t capacity = text->capacity < 64 ? 64 : text->capacity;
    char *bytes = NULL;

    if (text->failed || need <= text->capacity) {
        return !text->failed;
    }
    while (capacity < need) {
        capacity *= 2;
    }
    bytes = realloc(text->bytes, capacity);
    if (bytes == NULL) {
        text->failed = true;
        return false;
    }
    text->bytes = bytes;
    text->capacity = capacity;
    return true;
}

static void __attribute__((format(printf, 2, 0)))
text_add_list(struct rps_text *text, const char *format, va_list args)
{
    va_list again;
    int n = 0;

    va_copy(again, args);
    n = vsnprintf(NULL, 0, format, args);
    if (n >= 0 && text_grow(text, (size_t)n)) {
        vsnprintf(text->bytes + text->length, (size_t)n + 1, format, again);
        text->length += (size_t)n;
    }
    va_end(again);
}

void
rps_text_add(struct rps_text *text, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    text_add_list(text, format, args);
    va_end(args);
}

void
rps_text_add_bytes(struct rps_text *text, const void *bytes, size_t n)
{
    if (!text_grow(text, n)) {
        return;
    }
    if (n > 0) {
        memcpy(text->bytes + text->length, bytes, n);
    }
    text->length += n;
    text->bytes[text->length] = '\0';
}

void
rps_text_finish(struct rps_text *text)
{
    free(text->bytes);
    *text = (struct rps_text){0};
}

char *
rps_format(const char *format, ...)
{
    struct rps_text text = {0};
    va_list args;

    va_start(args, format);
    text_add_list(&text, format, args);
    va_end(args);
    return text.bytes;
}

bool
rps_parse_u64(const char *text, uint64_t *out)
{
    char *end = NULL;
    unsigned long long value = 0;

    if (!isdigit((unsigned char)text[0])) {
        return false;
    }
    errno = 0;
    value = strtoull(text, &end, 10);
    if (errno != 0 || *end != '\0') {
        return false;
    }
    *out = value;
    return true;
}

bool
rps_parse_i64(const char *text, int64_t *out)
{
    const char *digits = text[0] == '-' ? text + 1 : text;
    char *end = NULL;
    long long value = 0;

    if (!isdigit((unsigned char)digits[0])) {
        return false;
    }
    errno = 0;
    value = strtoll(text, &end, 10);
    if (errno != 0 || *end != '\0') {
        return false;
    }
    *out = value;
    return true;
}

bool
rps_parse_double(const char *text, double *out)
{
    char *end = NULL;
    double value = 0;

    /* strtod would take hexadecimal floats, which nobody means here */
    if (text[0] == '\0' || isspace((unsigned char)text[0]) ||
            strpbrk(text, "xX") != NULL) {
        return false;
    }
    errno = 0;
    value = strtod(text, &end);
    if (*end != '\0' || !isfinite(value)) {
        return false;
    }
    *out = value;
    return true;
}

bool
rps_parse_hex64(const char *text, uint64_t *out)
{
    const size_t length = strlen(text);

    if (length == 0 || length > 16 ||
            strspn(text, "0123456789abcdefABCDEF") != length) {
        return false;
    }
    *out = strtoull(text, NULL, 16);
    return true;
}

bool
rps_parse_bytes(const char *text, uint64_t *out)
{
    static const char units[] = "kmgt";
    char *end = NULL;
    unsigned long long value = 0;
    unsigned shift = 0;

    if (!isdigit((unsigned char)text[0])) {
        return false;
    }
    errno = 0;
    value = strtoull(text, &end, 10);
    if (errno != 0) {
        return false;
    }
    if (*end != '\0' && tolower((unsigned char)*end) != 'b') {
        const char *at = strchr(units, tolower((unsigned char)*end));
        if (at == NULL || *at == '\0') {
            return false;
        }
        shift = 10u * (unsigned)(at - units + 1);
        end++;
        if (tolower((unsigned char)*end) == 'i') {
            end++;
        }
    }
    if (strcasecmp(end, "b") != 0 && *end != '\0') {
        return false;
    }
    if (shift > 0 && value > UINT64_MAX >> shift) {
        return false;
    }
    *out = (uint64_t)value << shift;
    return true;
}

char *
rps_format_bytes(uint64_t bytes, char out[32])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    double value = (double)bytes;
    size_t unit = 0;

    while (value >= 1024.0 && unit + 1 < sizeof(units) / sizeof(units[0])) {
        value /= 1024.0;
        unit++;
    }
    snprintf(out, 32, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
    return out;
}

/* Levenshtein over at most 64 characters; longer words are never near. */
static size_t
edit_distance(const char *a, const char *b)
{
    enum {
        WORD_MAX = 64
    };
    const size_t n = strlen(b);
    size_t row[WORD_MAX + 1];

    if (n > WORD_MAX || strlen(a) > WORD_MAX) {
        return SIZE_MAX;
    }
    for (size_t j = 0; j <= n; j++) {
        row[j] = j;
    }
    for (size_t i = 0; a[i] != '\0'; i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < n; j++) {
            const size_t change = diagonal + (a[i] == b[j] ? 0 : 1);
            const size_t step = (row[j] < row[j + 1] ? row[j] : row[j + 1]) + 1;
            diagonal = row[j + 1];
            row[j + 1] = change < step ? change : step;
        }
    }
    return row[n];
}

/* A third of the longer word may differ, so that short or unrelated words
 * are not taken for slips; one letter of a word of two may. */
static size_t
distance_max(size_t a, size_t b)
{
    const size_t third = (a > b ? a : b) / 3;

    return third < 1 ? 1 : third > 3 ? 3 : third;
}

const char *
rps_nearest_name(const char *word, const char *const *names, size_t count)
{
    const size_t length = strlen(word);
    const char *nearest = NULL;
    size_t best = SIZE_MAX;

    for (size_t i = 0; i < count; i++) {
        const size_t distance = edit_distance(word, names[i]);
        const size_t own = strlen(names[i]);
        if (distance < best && distance < own &&
                distance <= distance_max(length, own)) {
            best = distance;
            nearest = names[i];
        }
    }
    return nearest;
}

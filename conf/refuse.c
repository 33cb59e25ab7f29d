/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The words of a refusal. Text that came from outside is cut and loses its
 * control characters, so that a message stays one line.
 */
#include "conf/cluster_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define QUOTED_BYTES_MAX 200u /* of the foreign text; the rest is "..." */

rps_status
rps_cluster_refuse(
        rps_cluster_error *error, const char *code, const char *format, ...)
{
    char words[2048];
    va_list arguments;

    if (error == NULL) {
        return RPS_E_INVAL;
    }
    va_start(arguments, format);
    (void)vsnprintf(words, sizeof(words), format, arguments);
    va_end(arguments);
    (void)snprintf(error->code, sizeof(error->code), "%s", code);
    free(error->message);
    error->message = rps_format("TF_CONFIG: %s", words);
    return error->message == NULL ? RPS_E_NOMEM : RPS_E_INVAL;
}

/* Bytes that `byte` takes in a message: itself, \" or \x1b. */
static size_t
escape(char *out, unsigned char byte, bool quotes)
{
    if (byte == '\n') {
        memcpy(out, "\\n", 2);
        return 2;
    }
    if (byte == '"' && quotes) {
        memcpy(out, "\\\"", 2);
        return 2;
    }
    if (byte < 0x20 || byte == 0x7f) {
        static const char digits[] = "0123456789abcdef";
        memcpy(out, "\\x", 2);
        out[2] = digits[byte >> 4];
        out[3] = digits[byte & 15];
        return 4;
    }
    out[0] = (char)byte;
    return 1;
}

static size_t
print_escaped(char *out, const char *text, bool quotes)
{
    size_t used = 0;
    size_t i = 0;

    for (; text[i] != '\0'; i++) {
        const unsigned char byte = (unsigned char)text[i];
        /* cut before a character, not inside its UTF-8 */
        if (used >= QUOTED_BYTES_MAX && (byte & 0xc0) != 0x80) {
            break;
        }
        if (used >= QUOTED_BYTES_MAX + 8) {
            break;
        }
        used += escape(out + used, byte, quotes);
    }
    if (text[i] != '\0') {
        memcpy(out + used, "...", 3);
        used += 3;
    }
    return used;
}

const char *
rps_quote(struct rps_quoted *quoted, const char *text)
{
    size_t used = 0;

    quoted->text[used++] = '"';
    used += print_escaped(quoted->text + used, text, true);
    quoted->text[used++] = '"';
    quoted->text[used] = '\0';
    return quoted->text;
}

const char *
rps_printable(struct rps_quoted *quoted, const char *text)
{
    quoted->text[print_escaped(quoted->text, text, false)] = '\0';
    return quoted->text;
}

void
rps_cluster_note(struct rps_resolver *resolver, const char *format, ...)
{
    char words[2048];
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(words, sizeof(words), format, arguments);
    va_end(arguments);
    rps_text_add(&resolver->notes, "%s%s",
            resolver->notes.length > 0 ? "\n" : "", words);
}

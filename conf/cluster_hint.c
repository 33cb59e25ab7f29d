/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jansson says where a text stops being JSON; people want to know what they
 * did. The usual ways: a Python dict, quotes that a shell or a container
 * kept or removed, a trailing comma, YAML, a comment, a cut text.
 */
#include "conf/cluster_internal.h"

#include <ctype.h>
#include <string.h>

static bool
is_blank(char byte)
{
    return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r';
}

/* The first byte that is no white space at or after `at`; 0 at the end. */
static char
next_byte(const char *text, size_t length, size_t at)
{
    while (at < length && is_blank(text[at])) {
        at++;
    }
    return at < length ? text[at] : '\0';
}

/* The last byte that is no white space before `at`; 0 at the beginning. */
static char
previous_byte(const char *text, size_t at)
{
    while (at > 0 && is_blank(text[at - 1])) {
        at--;
    }
    return at > 0 ? text[at - 1] : '\0';
}

/* Does jansson's text end with: near 'WORD...? */
static bool
is_near(const json_error_t *at, const char *word)
{
    const char *near = strstr(at->text, "near '");

    return near != NULL && strncmp(near + 6, word, strlen(word)) == 0;
}

static const char *
hint_of_start(const char *text, size_t length)
{
    size_t at = 0;

    if (length >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
        return "starts with a byte order mark; save it as UTF-8 without one";
    }
    while (at < length && is_blank(text[at])) {
        at++;
    }
    if (at == length) {
        return NULL;
    }
    if (text[at] == '\'' || text[at] == '"') {
        return "starts with a quote; remove the outer quotes";
    }
    if (text[at] == '\\') {
        return "the quotes are escaped; write them without backslashes";
    }
    if (text[at] == '@') {
        return "a file is named by --tf-config @FILE or TF_CONFIG_FILE";
    }
    if (text[at] == '/' || text[at] == '#') {
        return "JSON has no comments";
    }
    if (text[at] != '{' && text[at] != '[') {
        return "must start with {; YAML and name=value are not read";
    }
    return NULL;
}

static bool
is_python(const char *text, size_t length, const json_error_t *at)
{
    const char *open = memchr(text, '{', length);
    const size_t after = open == NULL ? length : (size_t)(open - text) + 1;
    const char first = next_byte(text, length, after);

    return first == '\'' || is_near(at, "u'") || is_near(at, "'") ||
           is_near(at, "True") || is_near(at, "False") || is_near(at, "None");
}

const char *
rps_json_hint(const char *text, size_t length, const json_error_t *at)
{
    const enum json_error_code code = json_error_code(at);
    /* bytes read, the offending token among them */
    const size_t read = at->position < 0 || (size_t)at->position > length
                                ? length
                                : (size_t)at->position;
    const char token = read > 0 ? text[read - 1] : '\0';
    const char *hint = hint_of_start(text, length);

    if (hint != NULL) {
        return hint;
    }
    if (code == json_error_numeric_overflow) {
        return "a number too large to be read; write it as a string";
    }
    if (code == json_error_premature_end_of_input) {
        return "the text ends too early; was it cut off?";
    }
    if (code == json_error_end_of_input_expected) {
        return "more text after the object";
    }
    if (is_python(text, length, at)) {
        return "looks like a Python dict; write it with json.dumps";
    }
    if ((token == '}' || token == ']') &&
            previous_byte(text, read - 1) == ',') {
        return "trailing comma";
    }
    if (token == ',' && previous_byte(text, read - 1) == ',') {
        return "two commas";
    }
    if (is_near(at, "NaN") || is_near(at, "Inf") ||
            (token == '-' && read < length && text[read] == 'I')) {
        return "NaN and Infinity are no JSON numbers";
    }
    if (strncmp(at->text, "unexpected newline", 18) == 0) {
        return "a line break inside a text";
    }
    if (token == '/' || token == '#') {
        return "JSON has no comments";
    }
    if (is_near(at, "\\")) {
        return "the quotes are escaped; write them without backslashes";
    }
    if (strncmp(at->text, "string or '}' expected", 22) == 0 ||
            strncmp(at->text, "string expected", 15) == 0 ||
            isalpha((unsigned char)token)) {
        return "names and texts need double quotes; did a shell remove them?";
    }
    return NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The document: found (flag, file, variable) and parsed strictly. jansson
 * reads it; this file adds the limits and the words.
 */
#include "base/file.h"
#include "conf/cluster_internal.h"

#include <stdlib.h>
#include <string.h>

static bool
is_blank_text(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (strchr(" \t\r\n", text[i]) == NULL || text[i] == '\0') {
            return false;
        }
    }
    return true;
}

static rps_status
refuse_json(const char *text, size_t length, const json_error_t *at,
        rps_cluster_error *error)
{
    struct rps_quoted words;
    const char *hint = rps_json_hint(text, length, at);

    return rps_cluster_refuse(error, "E_JSON",
            "not valid JSON at line %d column %d: %s%s%s%s", at->line,
            at->column, rps_printable(&words, at->text),
            hint == NULL ? "" : " (", hint == NULL ? "" : hint,
            hint == NULL ? "" : ")");
}

/* jansson ends with: near '"ps"', the key as it stands in the text. */
static rps_status
refuse_twice(const json_error_t *at, rps_cluster_error *error)
{
    char key[JSON_ERROR_TEXT_LENGTH] = "";
    const char *near = strstr(at->text, "near '\"");
    struct rps_quoted quoted;

    if (near != NULL) {
        size_t length = strlen(near + 7);
        memcpy(key, near + 7, length + 1);
        if (length >= 2 && strcmp(key + length - 2, "\"'") == 0) {
            key[length - 2] = '\0';
        }
    }
    return rps_cluster_refuse(error, "E_DUPKEY",
            "key %s appears twice in one object", rps_quote(&quoted, key));
}

/*
 * An integer beyond 64 bits is JSON all the same. Where it is the task's
 * index it deserves the words about the index.
 */
static bool
is_index_overflow(const char *text, size_t length)
{
    json_t *root = json_loadb(text, length, JSON_DECODE_INT_AS_REAL, NULL);
    const json_t *index =
            json_object_get(json_object_get(root, "task"), "index");
    const double value = json_real_value(index);

    json_decref(root);
    return value > 9.2e18 || value < -9.2e18;
}

/* Called for text that is JSON up to where its depth ends, so that brackets
 * pair up. */
static rps_status
check_depth(const char *text, size_t length, rps_cluster_error *error)
{
    bool in_string = false;
    unsigned depth = 0;
    unsigned line = 1;
    unsigned column = 0;

    for (size_t i = 0; i < length; i++) {
        const char byte = text[i];
        column = byte == '\n' ? 0 : column + 1;
        line += byte == '\n';
        if (in_string) {
            i += byte == '\\'; /* the escaped byte is no end */
            column += byte == '\\';
            in_string = byte != '"';
        } else if (byte == '"') {
            in_string = true;
        } else if (byte == ']' || byte == '}') {
            depth--;
        } else if ((byte == '[' || byte == '{') &&
                   ++depth > RPS_CLUSTER_DEPTH_MAX) {
            return rps_cluster_refuse(error, "E_JSON",
                    "not valid JSON at line %u column %u: nested deeper "
                    "than %u levels",
                    line, column, RPS_CLUSTER_DEPTH_MAX);
        }
    }
    return RPS_OK;
}

static rps_status
parse(const char *text, size_t length, json_t **root_out,
        rps_cluster_error *error)
{
    rps_status status = RPS_OK;
    json_error_t at = {.line = -1};
    json_t *root = json_loadb(
            text, length, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &at);

    if (root == NULL &&
            (at.text[0] == '\0' ||
                    json_error_code(&at) == json_error_out_of_memory)) {
        return RPS_E_NOMEM; /* jansson is silent about its own mallocs */
    }
    if (root == NULL && json_error_code(&at) == json_error_duplicate_key) {
        return refuse_twice(&at, error);
    }
    if (root == NULL && json_error_code(&at) == json_error_numeric_overflow &&
            is_index_overflow(text, length)) {
        return rps_cluster_refuse(error, "E_INDEX",
                "task.index: must be a non-negative integer below 2^32");
    }
    if (root == NULL && json_error_code(&at) != json_error_stack_overflow) {
        return refuse_json(text, length, &at, error);
    }
    /* jansson's own limit is deeper than ours: it never comes to its words */
    status = check_depth(text, length, error);
    if (root == NULL) {
        return status != RPS_OK ? status
                                : refuse_json(text, length, &at, error);
    }
    if (status == RPS_OK && !json_is_object(root)) {
        status = rps_cluster_refuse(error, "E_SHAPE",
                "top level must be an object%s",
                json_is_string(root) ? " (a JSON text inside a string: "
                                       "remove the outer quotes)"
                                     : "");
    }
    if (status != RPS_OK) {
        json_decref(root);
        return status;
    }
    *root_out = root;
    return RPS_OK;
}

static rps_status
parse_text(const char *text, size_t length, json_t **root_out,
        rps_cluster_error *error)
{
    if (is_blank_text(text, length)) {
        return rps_cluster_refuse(error, "E_EMPTY",
                "set but empty; unset it for standalone mode or give the "
                "cluster as JSON");
    }
    if (length > RPS_CLUSTER_BYTES_MAX) {
        return rps_cluster_refuse(error, "E_JSON",
                "not valid JSON: %zu bytes, more than 16 MiB", length);
    }
    return parse(text, length, root_out, error);
}

static rps_status
parse_file(const char *path, json_t **root_out, rps_cluster_error *error)
{
    struct rps_error words = {""};
    struct rps_quoted quoted;
    char *text = NULL;
    size_t length = 0;
    rps_status status = RPS_OK;

    if (*path == '\0') {
        return rps_cluster_refuse(error, "E_EMPTY",
                "the file's name is empty; unset TF_CONFIG_FILE or name a "
                "file");
    }
    status = rps_file_read(path, RPS_CLUSTER_BYTES_MAX, &text, &length, &words);
    if (status == RPS_E_NOMEM) {
        return status;
    }
    if (status != RPS_OK) {
        return rps_cluster_refuse(error,
                status == RPS_E_LIMIT ? "E_JSON" : "E_FILE", "%s",
                rps_printable(&quoted, words.text));
    }
    status = parse_text(text, length, root_out, error);
    free(text);
    return status;
}

rps_status
rps_cluster_load(const rps_cluster_options *options, json_t **root_out,
        rps_cluster_error *error)
{
    const char *text = options->tf_config;

    *root_out = NULL;
    if (text != NULL && text[0] == '@') {
        return parse_file(text + 1, root_out, error);
    }
    if (text == NULL && options->tf_config_file != NULL) {
        return parse_file(options->tf_config_file, root_out, error);
    }
    if (text == NULL) {
        text = options->tf_config_env;
    }
    return text == NULL ? RPS_OK
                        : parse_text(text, strlen(text), root_out, error);
}

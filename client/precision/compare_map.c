/* SPDX-License-Identifier: Apache-2.0 */
/* The mapping file: which operator of another framework is which of ours. */
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "client/precision/clean.h"
#include "client/precision/compare_impl.h"

#include <stdlib.h>
#include <string.h>

#define MAP_BYTES (16u << 20)
#define VERSION   1

struct reading {
    const char *path;
    size_t at; /* pair, from 0 */
    struct rps_error *error;
};

static rps_status
refuse(const struct reading *reading, const char *words)
{
    return rps_fail(reading->error, RPS_E_CORRUPT, "%s: pair %zu: %s",
            reading->path, reading->at, words);
}

/* A field that is text, cleaned; absent: *out stays NULL. */
static rps_status
read_text(const struct reading *reading, const json_t *pair, const char *key,
        char **out)
{
    const json_t *value = json_object_get(pair, key);
    const char *text = json_string_value(value);
    const char *star;

    if (value == NULL) {
        return RPS_OK;
    }
    if (text == NULL) {
        return refuse(reading, "names and types are text");
    }
    star = strchr(text, '*');
    if (star != NULL && strchr(star + 1, '*') != NULL) {
        return refuse(reading, "a name has more than one '*'");
    }
    *out = strdup(text);
    if (*out == NULL) {
        return rps_fail(reading->error, RPS_E_NOMEM, "no memory");
    }
    rps_dump_clean(*out);
    return RPS_OK;
}

static rps_status
read_indexes(const struct reading *reading, const json_t *pair, const char *key,
        json_t **out)
{
    json_t *value = json_object_get(pair, key);
    const char *left;
    json_t *right;
    uint64_t number;

    if (value == NULL) {
        return RPS_OK;
    }
    if (!json_is_object(value)) {
        return refuse(reading, "inputs and outputs are {\"0\": 1}");
    }
    json_object_foreach(value, left, right)
    {
        if (!rps_parse_u64(left, &number) ||
                !(rps_json_count(right, &number) || json_is_null(right)) ||
                number >= UINT32_MAX) {
            return refuse(reading,
                    "inputs and outputs are {\"0\": 1}, null for none");
        }
    }
    *out = value;
    return RPS_OK;
}

static rps_status
read_pair(const struct reading *reading, const json_t *value,
        struct rps_compare_map_pair *pair)
{
    static const char *const known[] = {
            "left", "right", "left_type", "right_type", "inputs", "outputs"};
    const char *key;
    json_t *field;
    rps_status status;

    if (!json_is_object(value)) {
        return refuse(reading, "is no object");
    }
    json_object_foreach((json_t *)(uintptr_t)value, key, field)
    {
        size_t i = 0;

        while (i < 6 && strcmp(key, known[i]) != 0) {
            i++;
        }
        if (i == 6) {
            return refuse(reading, "has another field than left, right, "
                                   "left_type, right_type, inputs, outputs");
        }
    }
    status = read_text(reading, value, "left", &pair->left);
    if (status == RPS_OK) {
        status = read_text(reading, value, "right", &pair->right);
    }
    if (status == RPS_OK) {
        status = read_text(reading, value, "left_type", &pair->left_type);
    }
    if (status == RPS_OK) {
        status = read_text(reading, value, "right_type", &pair->right_type);
    }
    if (status == RPS_OK) {
        status = read_indexes(reading, value, "inputs", &pair->inputs);
    }
    if (status == RPS_OK) {
        status = read_indexes(reading, value, "outputs", &pair->outputs);
    }
    if (status == RPS_OK &&
            (pair->left == NULL || pair->right == NULL ||
                    (strchr(pair->left, '*') == NULL) !=
                            (strchr(pair->right, '*') == NULL))) {
        return refuse(reading,
                "give \"left\" and \"right\", with a '*' in both or in none");
    }
    return status;
}

rps_status
rps_compare_map_load(
        struct rps_compare_map *map, const char *path, struct rps_error *error)
{
    struct reading reading = {.path = path, .error = error};
    json_error_t why;
    const json_t *list;
    char *bytes = NULL;
    size_t length = 0;
    rps_status status = rps_file_read(path, MAP_BYTES, &bytes, &length, error);

    *map = (struct rps_compare_map){.json = NULL};
    if (status != RPS_OK) {
        return status;
    }
    map->json = json_loadb(bytes, length, JSON_REJECT_DUPLICATES, &why);
    free(bytes);
    if (map->json == NULL) {
        return rps_fail(error, RPS_E_CORRUPT, "%s: line %d: %s", path, why.line,
                why.text);
    }
    list = json_object_get(map->json, "pairs");
    if (json_integer_value(json_object_get(map->json, "recps_map")) !=
                    VERSION ||
            !json_is_array(list)) {
        rps_compare_map_finish(map);
        return rps_fail(error, RPS_E_CORRUPT,
                "%s: is no mapping: {\"recps_map\": %d, \"pairs\": []}", path,
                VERSION);
    }
    map->pairs = calloc(json_array_size(list) + 1, sizeof(*map->pairs));
    if (map->pairs == NULL) {
        status = rps_fail(error, RPS_E_NOMEM, "%s: no memory", path);
    }
    for (; status == RPS_OK && reading.at < json_array_size(list);
            reading.at++) {
        status = read_pair(&reading, json_array_get(list, reading.at),
                &map->pairs[map->count++]);
    }
    if (status != RPS_OK) {
        rps_compare_map_finish(map);
    }
    return status;
}

void
rps_compare_map_finish(struct rps_compare_map *map)
{
    for (uint32_t i = 0; i < map->count; i++) {
        free(map->pairs[i].left);
        free(map->pairs[i].right);
        free(map->pairs[i].left_type);
        free(map->pairs[i].right_type);
    }
    free(map->pairs);
    json_decref(map->json);
    *map = (struct rps_compare_map){.json = NULL};
}

/* What the '*' of a name stands for: of *length bytes; NULL: it is another. */
static const char *
star_of(const char *pattern, const char *name, size_t *length)
{
    const char *star = strchr(pattern, '*');
    const size_t whole = strlen(name);
    size_t before;
    size_t after;

    *length = 0;
    if (star == NULL) {
        return strcmp(pattern, name) == 0 ? name : NULL;
    }
    before = (size_t)(star - pattern);
    after = strlen(star + 1);
    if (whole < before + after || strncmp(pattern, name, before) != 0 ||
            strcmp(star + 1, name + whole - after) != 0) {
        return NULL;
    }
    *length = whole - before - after;
    return name + before;
}

const struct rps_compare_map_pair *
rps_compare_map_find(const struct rps_compare_map *map,
        const struct rps_dumped_operator *left,
        const struct rps_dumped_operator *right)
{
    for (uint32_t i = 0; i < map->count; i++) {
        const struct rps_compare_map_pair *pair = &map->pairs[i];
        size_t l_length, r_length;
        const char *l = star_of(pair->left, left->clean, &l_length);
        const char *r = star_of(pair->right, right->clean, &r_length);

        if (l != NULL && r != NULL && l_length == r_length &&
                strncmp(l, r, l_length) == 0 &&
                (pair->left_type == NULL ||
                        strcmp(pair->left_type, left->type) == 0) &&
                (pair->right_type == NULL ||
                        strcmp(pair->right_type, right->type) == 0)) {
            return pair;
        }
    }
    return NULL;
}

uint32_t
rps_compare_map_index(
        const struct rps_compare_map_pair *pair, bool is_output, uint32_t left)
{
    const json_t *list = is_output ? pair->outputs : pair->inputs;
    char key[16];
    const json_t *right;

    if (list == NULL) {
        return left;
    }
    (void)snprintf(key, sizeof(key), "%u", left);
    right = json_object_get(list, key);
    return json_is_integer(right) ? (uint32_t)json_integer_value(right)
                                  : UINT32_MAX;
}

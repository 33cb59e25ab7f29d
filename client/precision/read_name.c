/* SPDX-License-Identifier: Apache-2.0 */
/* The names of a dump's files. */
#include "base/text.h"
#include "client/precision/read_impl.h"

#include <string.h>

#define FIELDS 8

bool
rps_dumped_is_npy(const char *file)
{
    const size_t length = strlen(file);

    return length > 4 && strcmp(file + length - 4, ".npy") == 0;
}

bool
rps_dumped_is_plain(const char *text)
{
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text < ' ' || *text == 0x7f) {
            return false;
        }
    }
    return true;
}

bool
rps_dumped_name_parse(const char *file, struct rps_dumped_name *name)
{
    const char *fields[FIELDS];
    const size_t length = strlen(file);
    char *at = name->text;
    uint64_t index = 0;

    if (length >= sizeof(name->text) || strchr(file, '/') != NULL ||
            !rps_dumped_is_plain(file)) {
        return false;
    }
    memcpy(name->text, file, length + 1);
    for (int i = 0; i < FIELDS; i++) {
        char *end = strchr(at, '.');

        if ((end == NULL) != (i == FIELDS - 1)) {
            return false;
        }
        fields[i] = at;
        if (end != NULL) {
            *end = '\0';
            at = end + 1;
        }
    }
    name->type = fields[0];
    name->name = fields[1];
    name->is_output = strcmp(fields[5], "output") == 0;
    if (name->type[0] == '\0' || !rps_parse_u64(fields[2], &name->task) ||
            !rps_parse_u64(fields[3], &name->stream) ||
            !rps_parse_u64(fields[4], &name->timestamp) ||
            !(name->is_output || strcmp(fields[5], "input") == 0) ||
            !rps_parse_u64(fields[6], &index) || index > UINT32_MAX ||
            strcmp(fields[7], "npy") != 0) {
        return false;
    }
    name->index = (uint32_t)index;
    return true;
}

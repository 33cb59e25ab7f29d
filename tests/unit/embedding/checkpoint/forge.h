/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changing a checkpoint of two parts: as damage does, or as an attacker who
 * also writes the checksums.
 */
#ifndef TESTS_CHECKPOINT_FORGE_H
#define TESTS_CHECKPOINT_FORGE_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

/** One file's bytes, to be put back. */
struct kept {
    char path[700];
    char *bytes;
    size_t n;
};

struct kept keep_file(const char *step_path, const char *name);
void write_file(const char *path, const void *bytes, size_t n);
/** Write the bytes again and free them. */
void put_back(struct kept *kept);

/** A JSON file of the checkpoint (new reference). */
json_t *forge_load(const char *step_path, const char *name);

/** The manifest with its checksum file. */
void forge_manifest(const char *step_path, json_t *manifest);

/** A part file, and what the manifest says of it. */
void forge_part(const char *step_path, uint32_t i, json_t *part);

/** A file of part i of less than 1 MiB, its checksums, and the part file. */
void forge_file(const char *step_path, uint32_t i, const char *name,
        const void *bytes, size_t n);

#endif /* TESTS_CHECKPOINT_FORGE_H */

/* SPDX-License-Identifier: Apache-2.0 */
/* Replays files through a target: as they are, cut at every length, and with
 * MUTATIONS fixed pseudo-random changes each. */
#include "base/file.h"
#include "base/hash.h"
#include "tests/fuzz/fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MUTATIONS 2000u
#define BYTES_MAX (1u << 20)

/* A copy of exactly `length` bytes, so that ASan sees a read past it. */
static void
run(const char *bytes, size_t length)
{
    uint8_t *copy = malloc(length > 0 ? length : 1);

    if (copy == NULL) {
        abort();
    }
    memcpy(copy, bytes, length);
    LLVMFuzzerTestOneInput(copy, length);
    free(copy);
}

static void
run_mutated(char *bytes, size_t length, uint64_t seed)
{
    const uint64_t count = 1 + rps_mix64(seed) % 4;
    char before[4];
    size_t places[4];

    for (uint64_t i = 0; i < count; i++) {
        const uint64_t draw = rps_mix64(seed * 4 + i + 1);
        places[i] = (size_t)(draw % length);
        before[i] = bytes[places[i]];
        bytes[places[i]] = (char)(draw >> 56);
    }
    run(bytes, length);
    for (uint64_t i = count; i-- > 0;) {
        bytes[places[i]] = before[i];
    }
}

static int
replay(const char *path)
{
    char *bytes = NULL;
    size_t length = 0;
    struct rps_error error;

    if (rps_file_read(path, BYTES_MAX, &bytes, &length, &error) != RPS_OK) {
        (void)fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    for (size_t cut = 0; cut <= length; cut++) {
        run(bytes, cut);
    }
    for (uint64_t seed = 0; length > 0 && seed < MUTATIONS; seed++) {
        run_mutated(bytes, length, seed);
    }
    free(bytes);
    return 0;
}

int
main(int argc, char **argv)
{
    DIR *dir = opendir(argc > 1 ? argv[1] : "");
    struct dirent *entry = NULL;
    int files = 0;

    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        char path[4096];
        if (entry->d_name[0] == '.') {
            continue;
        }
        (void)snprintf(path, sizeof(path), "%s/%s", argv[1], entry->d_name);
        if (replay(path) != 0) {
            return EXIT_FAILURE;
        }
        files++;
    }
    if (dir != NULL) {
        closedir(dir);
    }
    printf("%d files replayed\n", files);
    return files > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

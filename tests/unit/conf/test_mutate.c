/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texts that were cut or damaged: each is accepted or refused with a code
 * and one line, and nothing crashes (run under asan). The samples beside the
 * checkout join the seeds here when they are there.
 */
#include "base/file.h"
#include "base/hash.h"
#include "base/text.h"
#include "tests/unit/conf/resolved.h"
#include "tests/unit/suite.h"

#include <dirent.h>
#include <jansson.h>
#include <stdbool.h>

#define SEEDS_MAX     64u
#define MUTATIONS_MAX 400u

static char *seeds[SEEDS_MAX];
static size_t seed_count;

static const char *const own_seeds[] = {
        "{\"cluster\":{\"chief\":[\"a:1\"],\"ps\":{\"0\":\"[::1]:2\"},"
        "\"worker\":{\"1\":\"b.:3\"},\"evaluator\":[\"e:1\"]},\"task\":"
        "{\"type\":\"worker\",\"index\":\"1\"},\"recps\":{\"loops\":1}}",
        "{\"sparseCluster\":{\"worker\":{},\"ps\":[\"a:1\"]},\"job\":[1,"
        "{\"a\":\"\\u00e9\"}],\"task\":{\"type\":\"ps\",\"index\":3}}",
        "{\"cluster\":null,\"task\":{\"type\":\"worker\",\"index\":0}}"};

static void
check_text(const char *text)
{
    rps_cluster_options options = options_of(text);
    struct resolved resolved;

    if (text[0] == '@') {
        return; /* that would name a file */
    }
    for (int way = 0; way < 3; way++) {
        options.num_ps = way == 1 ? 5 : 0;
        options.num_workers = way == 1 ? 7 : 0;
        options.allow_unknown_roles = way == 2;
        options.task_optional = way == 2;
        resolved = resolve_with(&options);
        if (resolved.status == RPS_OK) {
            ck_assert_ptr_null(resolved.error.message);
        } else {
            ck_assert_int_eq(resolved.status, RPS_E_INVAL);
            ck_assert(resolved.error.code[0] == 'E');
            ck_assert(strncmp(resolved.error.message, "TF_CONFIG: ", 11) == 0);
            ck_assert_ptr_null(strchr(resolved.error.message, '\n'));
        }
        finish(&resolved);
    }
}

static void
load_samples(void)
{
    const char *data = getenv("RECPS_TEST_DATA");
    char *folder = data != NULL ? rps_format("%s/../tf_config", data)
                                : rps_format("%s/../shared/tf_config",
                                          RPS_TEST_SOURCE);
    DIR *stream = opendir(folder);
    const struct dirent *entry = NULL;

    for (size_t i = 0; i < sizeof(own_seeds) / sizeof(own_seeds[0]); i++) {
        seeds[seed_count++] = strdup(own_seeds[i]);
    }
    while (stream != NULL && (entry = readdir(stream)) != NULL) {
        char *path = rps_format("%s/%s", folder, entry->d_name);
        size_t length = 0;
        if (strstr(entry->d_name, ".json") != NULL && seed_count < SEEDS_MAX &&
                rps_file_read(path, 1u << 20, &seeds[seed_count], &length,
                        NULL) == RPS_OK) {
            seed_count++;
        }
        free(path);
    }
    if (stream != NULL) {
        (void)closedir(stream);
    }
    free(folder);
}

START_TEST(every_beginning_of_a_sample_gets_a_verdict)
{
    for (size_t i = 0; i < seed_count; i++) {
        char *text = strdup(seeds[i]);
        for (size_t length = strlen(text); length > 0; length--) {
            text[length] = '\0';
            check_text(text);
        }
        free(text);
    }
}
END_TEST

/* Put a byte, a bracket or another piece of the text somewhere. */
static void
mutate(char *text, size_t length, uint64_t draw)
{
    static const char bytes[] = "{}[]\",:0-9.e \n\\u\x01\xff/'abps";
    const size_t at = (size_t)(draw % length);
    const size_t from = (size_t)((draw >> 20) % length);
    const size_t room = length - (at > from ? at : from);

    if (((draw >> 40) & 1) != 0) {
        text[at] = bytes[(draw >> 41) % (sizeof(bytes) - 1)];
    } else {
        memmove(text + at, text + from, (draw >> 41) % (room + 1));
    }
}

START_TEST(a_damaged_sample_gets_a_verdict)
{
    uint64_t counter = 0;

    for (size_t i = 0; i < seed_count; i++) {
        const size_t length = strlen(seeds[i]);
        char *text = malloc(length + 1);
        for (unsigned k = 0; length > 0 && k < MUTATIONS_MAX; k++) {
            memcpy(text, seeds[i], length + 1);
            for (unsigned n = 0; n <= k % 4; n++) {
                mutate(text, length, rps_mix64(counter++));
            }
            check_text(text);
        }
        free(text);
    }
}
END_TEST

/* jansson's mallocs until one fails; SIZE_MAX: none does. */
static size_t mallocs_left = SIZE_MAX;

static void *
malloc_or_fail(size_t bytes)
{
    if (mallocs_left == 0) {
        return NULL;
    }
    mallocs_left--;
    return malloc(bytes);
}

START_TEST(a_failed_malloc_of_json_is_no_crash)
{
    bool ended = false;

    json_set_alloc_funcs(malloc_or_fail, free);
    for (size_t allowed = 0; !ended && allowed < 2000; allowed++) {
        struct resolved resolved;
        mallocs_left = allowed;
        resolved = resolve(own_seeds[0]);
        ended = resolved.status == RPS_OK;
        /* jansson's lexer takes its failed malloc for a bad token */
        ck_assert(ended || resolved.status == RPS_E_NOMEM ||
                  strcmp(resolved.error.code, "E_JSON") == 0);
        finish(&resolved);
    }
    ck_assert(ended);
    ck_assert_uint_eq(mallocs_left, 0);
    json_set_alloc_funcs(malloc, free);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("mutate");
    TCase *tcase = tcase_create("samples");
    int result = EXIT_SUCCESS;

    load_samples();
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, every_beginning_of_a_sample_gets_a_verdict);
    tcase_add_test(tcase, a_damaged_sample_gets_a_verdict);
    tcase_add_test(tcase, a_failed_malloc_of_json_is_no_crash);
    suite_add_tcase(suite, tcase);
    result = run_suite(suite);
    for (size_t i = 0; i < seed_count; i++) {
        free(seeds[i]);
    }
    return result;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The commands that dump once more, as they can be typed: none of a run's
 * options is there twice, nothing is saved into its checkpoints, and the
 * dumps that are compared now stay, one name on.
 */
#include "client/precision/compare_words.h"
#include "client/precision/dump_impl.h"
#include "client/precision/read_impl.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define ROTATED_MAX 20u /* names that a dump may have by now */
#define FLAG_BYTES  64u

enum kind {
    KEPT,
    REPLACED, /* given anew behind the others */
    SAVING    /* of checkpoints: left out, and said */
};

struct option {
    const char *name;
    bool has_value; /* in the next word, where '=' has none */
    enum kind kind;
};

/* --rotate and --dump come anew. */
static const struct option options[] = {
        {"dump", false, REPLACED},
        {"rotate", false, REPLACED},
        {"dump-and-save", false, REPLACED},
        {"checkpoint-dir", true, SAVING},
        {"save-steps", true, SAVING},
        {"save-deltas", true, SAVING},
        {"keep", true, SAVING},
        {"cut", true, SAVING},
        {"restore", false, SAVING},
        {"recover", false, SAVING},
};

/* Given by recps launch, or of no matter to a dump. */
static const char *const not_again[] = {"ps_hosts", "worker_hosts", "json_log",
        "log_format", "admin", "bind", "port_file", "ranktable"};

/* --- words of a command ----------------------------------------------------
 */

/* "--save_steps=5" as "save-steps"; false: it is no flag. */
static bool
flag_name(const char *word, char name[FLAG_BYTES])
{
    size_t length = 0;

    if (strncmp(word, "--", 2) != 0 || word[2] == '\0') {
        return false;
    }
    for (word += 2; *word != '\0' && *word != '=' && length + 1 < FLAG_BYTES;
            word++) {
        name[length++] = *word == '_' ? '-' : *word;
    }
    name[length] = '\0';
    return true;
}

static struct option
option_of(const char *name, const struct rps_compare_again *again)
{
    if (strcmp(name, "fusion") == 0) {
        return (struct option){name, true, again->unfused ? REPLACED : KEPT};
    }
    if (strcmp(name, "dump-step") == 0) {
        return (struct option){
                name, true, again->steps != NULL ? REPLACED : KEPT};
    }
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
        if (strcmp(options[i].name, name) == 0) {
            return options[i];
        }
    }
    return (struct option){name, false, KEPT};
}

/* The value of a flag in a command, or NULL; *found_out: is it there at all?
 */
static const char *
find_flag(const json_t *command, const char *flag, bool *found_out)
{
    const char *value = NULL;

    *found_out = false;
    for (size_t i = 1; i < json_array_size(command); i++) {
        const char *word = json_string_value(json_array_get(command, i));
        char name[FLAG_BYTES];

        if (word != NULL && flag_name(word, name) && strcmp(name, flag) == 0) {
            *found_out = true;
            value = strchr(word, '=') != NULL
                            ? strchr(word, '=') + 1
                            : json_string_value(json_array_get(command, i + 1));
        }
    }
    return value;
}

static void
add_word(struct rps_text *text, const char *word)
{
    rps_compare_words_quote(
            text, word != NULL && rps_dumped_is_plain(word) ? word : "?");
}

/* The words, without what comes anew; those of checkpoints into `left_out`. */
static void
add_words(struct rps_text *text, const json_t *command,
        const struct rps_compare_again *again, struct rps_text *left_out)
{
    const size_t count = json_array_size(command);

    for (size_t i = 0; i < count; i++) {
        const char *word = json_string_value(json_array_get(command, i));
        char name[FLAG_BYTES];
        struct option option = {.kind = KEPT};

        if (i > 0 && word != NULL && flag_name(word, name)) {
            option = option_of(name, again);
        }
        if (option.kind == KEPT) {
            add_word(text, word);
            rps_text_add(text, " ");
            continue;
        }
        if (option.kind == SAVING) {
            rps_text_add(left_out, "%s--%s", left_out->length > 0 ? ", " : "",
                    option.name);
        }
        if (option.has_value && strchr(word, '=') == NULL) {
            i++;
        }
    }
}

/* --- options from elsewhere ------------------------------------------------
 */

static bool
is_again(const json_t *command, const char *key,
        const struct rps_compare_again *again)
{
    char name[FLAG_BYTES] = "";
    struct rps_text flag = {.bytes = NULL};
    bool found = true;

    for (size_t i = 0; i < sizeof(not_again) / sizeof(not_again[0]); i++) {
        if (strcmp(not_again[i], key) == 0) {
            return false;
        }
    }
    rps_text_add(&flag, "--%s", key);
    if (!flag.failed && flag_name(flag.bytes, name) &&
            option_of(name, again).kind == KEPT) {
        (void)find_flag(command, name, &found);
    }
    rps_text_finish(&flag);
    return !found;
}

/* "RECPS_DEVICE=npu " */
static void
add_variable(struct rps_text *text, const char *key, const json_t *value)
{
    const char *string = json_string_value(value);
    char *dumped = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);

    rps_text_add(text, "RECPS_");
    for (; *key != '\0'; key++) {
        rps_text_add(
                text, "%c", *key == '-' ? '_' : toupper((unsigned char)*key));
    }
    rps_text_add(text, "=");
    add_word(text, string != NULL ? string : dumped);
    rps_text_add(text, " ");
    free(dumped);
}

/* What its command has not, but the run had: from variables or a file. */
static void
add_variables(struct rps_text *text, const struct rps_dumped *dumped,
        const json_t *command, const struct rps_compare_again *again)
{
    json_t *given = json_object_get(dumped->run, "options");
    json_t *device = json_object_get(dumped->run, "device");
    const char *name = json_string_value(device);
    const char *key;
    json_t *value;

    if (name != NULL && strcmp(name, "cpu") != 0 &&
            json_object_get(given, "device") == NULL &&
            is_again(command, "device", again)) {
        add_variable(text, "device", device);
    }
    json_object_foreach(given, key, value)
    {
        if (rps_dumped_is_plain(key) && !json_is_object(value) &&
                !json_is_array(value) && is_again(command, key, again)) {
            add_variable(text, key, value);
        }
    }
}

/* --- a run -----------------------------------------------------------------
 */

/* With servers that its command has not: recps launch gave them. */
static bool
is_launched(const struct rps_dumped *dumped, const json_t *command)
{
    const json_t *servers = json_object_get(dumped->run, "ps_count");
    bool found = false;

    (void)find_flag(command, "ps-hosts", &found);
    return json_integer_value(servers) > 0 && !found;
}

static void
add_again(struct rps_text *text, const struct rps_compare_again *again)
{
    rps_text_add(text, "--dump");
    if (again->steps != NULL) {
        rps_text_add(text, " --dump-step '%s'", again->steps);
    }
    rps_text_add(text, "%s --rotate\n", again->unfused ? " --fusion off" : "");
}

static void
add_run(struct rps_text *text, const struct rps_dumped *dumped,
        const struct rps_compare_again *again)
{
    const json_t *command = json_object_get(dumped->run, "command");
    const char *line = json_string_value(command);
    struct rps_text left_out = {.bytes = NULL};

    if (json_is_array(command)) {
        add_variables(text, dumped, command, again);
        add_words(text, command, again, &left_out);
    } else {
        rps_text_add(text, "%s ",
                line != NULL && line[0] != '\0' && rps_dumped_is_plain(line)
                        ? line
                        : "recps-train …");
    }
    add_again(text, again);
    if (left_out.length > 0) {
        rps_text_add(text,
                "         (without %s: it begins at step 0, and leaves the "
                "checkpoints alone)\n",
                left_out.bytes);
    }
    if (json_is_array(command) && is_launched(dumped, command)) {
        rps_text_add(text, "         (within the same recps launch, or with "
                           "servers that begin anew)\n");
    }
    text->failed = text->failed || left_out.failed;
    rps_text_finish(&left_out);
}

/* --- and the comparison of them --------------------------------------------
 */

/* Where a run dumps, as its command says it. NULL: not known. */
static const char *
path_of(const struct rps_dumped *dumped)
{
    const json_t *command = json_object_get(dumped->run, "command");
    const char *device =
            json_string_value(json_object_get(dumped->run, "device"));
    const json_t *given = json_object_get(dumped->run, "options");
    bool found;
    const char *path = find_flag(command, "dump-path", &found);

    if (!json_is_array(command) || device == NULL) {
        return NULL;
    }
    if (path == NULL) {
        path = json_string_value(json_object_get(given, "dump_path"));
    }
    if (path != NULL && path[0] != '\0') {
        return rps_dumped_is_plain(path) ? path : NULL;
    }
    return strcmp(device, "npu") == 0 ? "precision_data/npu/debug_0"
                                      : "precision_data/tf/dump";
}

/* Where a dump is once another was written to `path`: one name on, where it
 * lies there. NULL: no memory, or not known. */
static char *
moved(const struct rps_dumped *dumped, const char *path)
{
    const char *end = NULL;
    char *root = NULL, *result = NULL;

    for (const char *at = dumped->folder; (at = strstr(at, "/dump/")) != NULL;
            at++) {
        end = at;
    }
    if (end == NULL) {
        return NULL;
    }
    root = strndup(dumped->folder, (size_t)(end - dumped->folder));
    for (uint32_t rank = 0;
            root != NULL && result == NULL && rank < ROTATED_MAX; rank++) {
        char *name = rps_dump_rotated_name(path, rank);
        char *next = rps_dump_rotated_name(path, rank + 1);
        const size_t length = name != NULL ? strlen(name) : 0;
        const size_t whole = strlen(root);
        const size_t before = whole >= length ? whole - length : 0;

        if (next != NULL && length > 0 && strcmp(root + before, name) == 0 &&
                (before == 0 || root[before - 1] == '/')) {
            result = rps_format("%.*s%s", (int)before, root, next);
        }
        free(name);
        free(next);
    }
    if (result != NULL) {
        free(root);
        return result;
    }
    return root;
}

static void
add_comparison(const struct rps_compare_words *words, bool left_again,
        bool right_again)
{
    const char *left_path = path_of(words->left);
    const char *right_path = path_of(words->right);
    char *left = NULL, *right = NULL;

    if ((left_again && left_path == NULL) ||
            (right_again && right_path == NULL)) {
        return;
    }
    if (!left_again) {
        left = moved(words->left, right_path);
        right = rps_format("%s", right_path);
    } else if (!right_again) {
        left = rps_format("%s", left_path);
        right = moved(words->right, left_path);
    } else { /* the left one runs first */
        left = strcmp(left_path, right_path) == 0
                       ? rps_dump_rotated_name(left_path, 1)
                       : rps_format("%s", left_path);
        right = rps_format("%s", right_path);
    }
    if (left != NULL && right != NULL) {
        rps_text_add(words->text, "Then: recps precision compare ");
        rps_compare_words_quote(words->text, left);
        rps_text_add(words->text, " ");
        rps_compare_words_quote(words->text, right);
        if (words->options->mapping != NULL) {
            rps_text_add(words->text, " --map ");
            rps_compare_words_quote(words->text, words->options->mapping);
        }
        rps_text_add(words->text, "\n");
    }
    free(left);
    free(right);
}

void
rps_compare_add_runs(const struct rps_compare_words *words, bool left,
        bool right, const struct rps_compare_again *again)
{
    if (left) {
        rps_text_add(words->text, "  left:  ");
        add_run(words->text, words->left, again);
    }
    if (right) {
        rps_text_add(words->text, "  right: ");
        add_run(words->text, words->right, again);
    }
    add_comparison(words, left, right);
}

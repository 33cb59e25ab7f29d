/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Not installed. `options_doc` prints docs/OPTIONS.md from the tables;
 * `options_doc FILE` checks that the "recps" object of a TF_CONFIG has every
 * option, with a value that its program takes (tests/lint/options.sh).
 */
#include "conf/options_table.h"

#include <string.h>

static const char *const type_words[] = {"text", "whole number", "number",
        "true or false", "size", "seconds", "choice", "flag with a step"};

/* A cell: '|' would end it. */
static void
print_cell(const char *text)
{
    for (; *text != '\0'; text++) {
        (void)printf(*text == '|' ? "\\|" : "%c", *text);
    }
}

static void
print_allowed(const struct rps_option_def *def)
{
    char allowed[RPS_OPTION_WHY_MAX];

    print_cell(rps_option_allowed(def, allowed));
}

static void
print_row(const struct rps_option_def *def)
{
    char flag[RPS_OPTION_NAME_MAX];
    char variable[RPS_OPTION_NAME_MAX];
    char programs[RPS_OPTION_NAME_MAX];

    (void)printf("| `--%s` | `%s` | `%s` | %s | ",
            rps_option_flag(def->name, flag),
            rps_option_variable(def->name, variable), def->name,
            type_words[def->type]);
    print_allowed(def);
    (void)printf(" | %s%s%s | %s | ", def->value[0] == '\0' ? "" : "`",
            def->value[0] == '\0' ? "empty" : def->value,
            def->value[0] == '\0' ? "" : "`",
            rps_scope_str(def->scope, programs));
    print_cell(def->help);
    (void)printf(" |\n");
}

static void
print_flags(void)
{
    char flag[RPS_OPTION_NAME_MAX];
    char programs[RPS_OPTION_NAME_MAX];

    (void)printf("| flag | value | programs | what it does |\n"
                 "|---|---|---|---|\n");
    for (size_t i = 0; i < rps_flag_count; i++) {
        const struct rps_flag_def *def = &rps_flag_table[i];
        (void)printf("| `--%s` | ", rps_option_flag(def->name, flag));
        print_cell(def->argument);
        (void)printf(" | %s | ", rps_scope_str(def->scope, programs));
        print_cell(def->help);
        (void)printf(" |\n");
    }
}

static void
print_document(void)
{
    (void)printf(
            "# Options\n\n"
            "Printed from the table in `conf/options.h` by "
            "`build/conf/options_doc`; a lint test holds it equal.\n\n"
            "A flag wins over its variable, the variable over the `recps` "
            "object of TF_CONFIG, that over the\ndefault. Flags are written "
            "with dashes or underscores, `--name value` or `--name=value`; a "
            "true-or-false\nflag stands alone or takes `=true` or `=false`. "
            "An unknown flag or a wrong value of a flag or\nvariable ends the "
            "program with 64; one of the `recps` object with 78 (E_OPTION). "
            "An unknown `RECPS_`\nvariable is warned of (`RECPS_TEST_...` and "
            "`RECPS_BUILD...` belong to the build, `RECPS_PROGRESS` and "
            "`RECPS_RESTART_COUNT` to `recps launch`, `RECPS_RECPSD` to "
            "`recps.serve()` of Python, `RECPS_REQUEST_TIMEOUT` to its "
            "clients). All programs of a\njob "
            "share one `recps` object: each takes its own options and skips "
            "the others'.\n`conf/examples/recpsd.json` has every option with "
            "its default. `recps-bench` has flags of its own:\n`recps-bench "
            "--help`.\n\n"
            "## Flags that find the cluster, and actions\n\n"
            "These have no variable and no JSON key. `TF_CONFIG.md` says how "
            "the cluster is read.\n\n");
    print_flags();
    for (size_t k = 0; k < 2; k++) {
        (void)printf("\n## %s\n\n| flag | variable | `recps` key | type | "
                     "allowed | default | programs | what it sets |\n"
                     "|---|---|---|---|---|---|---|---|\n",
                k == 0 ? "Options of the job and of the servers"
                       : "Options of the training");
        for (size_t i = 0; i < rps_option_count; i++) {
            if ((rps_option_table[i].scope == RPS_SCOPE_TRAIN) == (k == 1)) {
                print_row(&rps_option_table[i]);
            }
        }
    }
}

static int
check_example(const char *path)
{
    json_error_t at;
    struct rps_options options;
    char why[RPS_OPTION_WHY_MAX];
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &at);
    json_t *recps = json_object_get(root, "recps");
    int faults = 0;

    if (recps == NULL || !rps_options_default(&options)) {
        (void)fprintf(stderr, "%s: no \"recps\" object: %s\n", path, at.text);
        json_decref(root);
        return 1;
    }
    for (size_t i = 0; i < rps_option_count; i++) {
        const struct rps_option_def *def = &rps_option_table[i];
        const json_t *value = json_object_get(recps, def->name);
        if (value == NULL) {
            (void)fprintf(stderr, "%s: recps.%s is missing\n", path, def->name);
            faults++;
        } else if (!rps_option_set_json(&options, def, value, why)) {
            (void)fprintf(stderr, "%s: recps.%s: %s\n", path, def->name, why);
            faults++;
        }
    }
    if (json_object_size(recps) != rps_option_count) {
        (void)fprintf(stderr, "%s: recps has %zu members, the table %zu\n",
                path, json_object_size(recps), rps_option_count);
        faults++;
    }
    rps_options_finish(&options);
    json_decref(root);
    return faults > 0;
}

int
main(int argc, char **argv)
{
    if (argc > 1) {
        return check_example(argv[1]);
    }
    print_document();
    return 0;
}

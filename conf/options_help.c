/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --help: usage, the flags that find the cluster, then the table's options,
 * each with default and variable; wrapped for a terminal of 80 columns.
 */
#include "conf/options_table.h"

#include <string.h>

#define HELP_COLUMN 30u
#define HELP_WIDTH  79u

/* `head` at the left, `text` wrapped beside it. */
static void
print_entry(FILE *out, const char *head, const char *text)
{
    size_t column = (size_t)fprintf(out, "  %s", head);

    if (column + 2 > HELP_COLUMN) {
        (void)fputc('\n', out);
        column = 0;
    }
    (void)fprintf(out, "%*s", (int)(HELP_COLUMN - column), "");
    column = HELP_COLUMN;
    while (*text != '\0') {
        const size_t length = strcspn(text, " ");
        if (column > HELP_COLUMN && column + 1 + length > HELP_WIDTH) {
            (void)fprintf(out, "\n%*s", (int)HELP_COLUMN, "");
            column = HELP_COLUMN;
        }
        if (column > HELP_COLUMN) {
            (void)fputc(' ', out);
            column++;
        }
        (void)fwrite(text, 1, length, out);
        column += length;
        text += length;
        text += strspn(text, " ");
    }
    (void)fputc('\n', out);
}

static const char *
argument_of(const struct rps_option_def *def)
{
    switch (def->type) {
    case RPS_OPTION_STRING:
        return "=TEXT";
    case RPS_OPTION_U64:
        return "=N";
    case RPS_OPTION_F64:
        return "=X";
    case RPS_OPTION_BYTES:
        return "=SIZE";
    case RPS_OPTION_SECONDS:
        return "=SECONDS";
    case RPS_OPTION_OPTIONAL:
        return "[=STEP]";
    case RPS_OPTION_CHOICE:
        break;
    case RPS_OPTION_BOOL:
        return "";
    }
    return "=CHOICE";
}

static void
print_option(FILE *out, const struct rps_option_def *def)
{
    char name[RPS_OPTION_NAME_MAX];
    char variable[RPS_OPTION_NAME_MAX];
    char head[RPS_OPTION_NAME_MAX + 16];
    char text[RPS_OPTION_WHY_MAX];
    const bool choice = def->type == RPS_OPTION_CHOICE;
    const char *blank = def->value[0] == '\0' ? "empty" : def->value;
    const bool unit = def->unit[0] != '\0' && def->value[0] != '\0' &&
                      def->type != RPS_OPTION_BYTES &&
                      def->type != RPS_OPTION_STRING;

    (void)snprintf(head, sizeof(head), "--%s%s",
            rps_option_flag(def->name, name), argument_of(def));
    (void)snprintf(text, sizeof(text), "%s%s%s (%s%s%s; %s)", def->help,
            choice ? ": " : "",
            choice ? def->allowed + (def->allowed[0] == '|') : "", blank,
            unit ? " " : "", unit ? def->unit : "",
            rps_option_variable(def->name, variable));
    print_entry(out, head, text);
}

static void
print_flag(FILE *out, const struct rps_flag_def *def)
{
    char name[RPS_OPTION_NAME_MAX];
    char head[RPS_OPTION_NAME_MAX + 32];

    (void)snprintf(head, sizeof(head), "--%s%s%s",
            rps_option_flag(def->name, name), def->argument[0] ? "=" : "",
            def->argument);
    print_entry(out, head, def->help);
}

void
rps_options_help(
        FILE *out, uint32_t scope, const char *program, const char *usage)
{
    const size_t length = usage == NULL ? 0 : strlen(usage);

    if (length > 0) {
        (void)fprintf(
                out, "%s%s\n", usage, usage[length - 1] == '\n' ? "" : "\n");
    }
    (void)fprintf(out, scope == RPS_SCOPE_LAUNCH ? "Flags:\n" : "Cluster:\n");
    for (size_t i = 0; i < rps_flag_count; i++) {
        if ((rps_flag_table[i].scope & scope) != 0) {
            print_flag(out, &rps_flag_table[i]);
        }
    }
    (void)fprintf(out, "\nOptions of %s (default; variable):\n", program);
    for (size_t i = 0; i < rps_option_count; i++) {
        if ((rps_option_table[i].scope & scope) != 0) {
            print_option(out, &rps_option_table[i]);
        }
    }
    (void)fprintf(out,
            "\nA flag wins over its variable%s.\nEverything: docs/OPTIONS.md, "
            "docs/TF_CONFIG.md\n",
            scope == RPS_SCOPE_LAUNCH
                    ? ""
                    : ", that over the \"recps\" object of TF_CONFIG");
}

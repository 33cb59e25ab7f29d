/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Not installed. `recps_completion bash` and `recps_completion zsh` print what
 * completes recps, recpsd and recps-train, from the tables that their --help
 * is made of.
 */
#include "client/cli/tool.h"
#include "conf/options_table.h"

#include <stdio.h>
#include <string.h>

/** What a value may be. */
struct value {
    const char *choices; /* "a|b|c"; NULL: none to offer */
    bool is_file;
    bool is_folder;
};

static bool
ends_with(const char *name, const char *end)
{
    const size_t length = strlen(name);
    const size_t n = strlen(end);

    return length >= n && strcmp(name + length - n, end) == 0;
}

/* Texts that name something on this host; the others are the user's. */
static struct value
value_of(const struct rps_option_def *def)
{
    static const char *const files[] = {
            "_file", "tls_cert", "tls_key", "tls_ca", "json_log", "predict"};
    static const char *const folders[] = {"_dir", "init_from"};
    struct value value = {.choices = NULL};

    if (def->type == RPS_OPTION_CHOICE) {
        value.choices = def->allowed + (def->allowed[0] == '|');
        return value;
    }
    for (size_t i = 0; def->type == RPS_OPTION_STRING &&
                       i < sizeof(files) / sizeof(files[0]);
            i++) {
        value.is_file = value.is_file || ends_with(def->name, files[i]);
    }
    for (size_t i = 0; def->type == RPS_OPTION_STRING &&
                       i < sizeof(folders) / sizeof(folders[0]);
            i++) {
        value.is_folder = value.is_folder || ends_with(def->name, folders[i]);
    }
    return value;
}

static struct value
value_of_own(const struct rps_tool_flag *flag)
{
    const char *argument = flag->argument != NULL ? flag->argument : "";

    return (struct value){.is_file = strcmp(argument, "FILE") == 0,
            .is_folder = strcmp(argument, "DIR") == 0};
}

/* Calls `print` for every tool, and after it for its parts. */
static void
for_tools(void (*print)(const struct rps_tool *tool))
{
    for (size_t i = 0; i < rps_tool_count; i++) {
        print(rps_tools[i]);
        for (size_t k = 0; k < rps_tool_part_count(rps_tools[i]); k++) {
            print(rps_tools[i]->parts[k]);
        }
    }
}

/* "compare|nan", until the next call. */
static const char *
parts_of(const struct rps_tool *tool)
{
    static char words[512];
    size_t used = 0;

    for (size_t i = 0; i < rps_tool_part_count(tool); i++) {
        used += (size_t)snprintf(words + used, sizeof(words) - used, "%s%s",
                i > 0 ? "|" : "", rps_tool_word(tool->parts[i]));
    }
    return words;
}

static struct value
operand_of(const struct rps_tool *tool)
{
    return (struct value){
            .choices = tool->parts != NULL ? parts_of(tool) : tool->words,
            .is_folder = tool->takes_folder};
}

/* "memory", in `recps npu memory FILE`: what follows the first word. */
static bool
has_second(const struct rps_tool *tool)
{
    return tool->takes_file && tool->words != NULL &&
           strchr(tool->words, '|') == NULL;
}

/** Programs without commands, and the scope of their options. */
static const struct rps_program programs[] = {
        {RPS_SCOPE_SERVER, "recpsd"}, {RPS_SCOPE_TRAIN, "recps-train"}};
#define PROGRAM_COUNT (sizeof(programs) / sizeof(programs[0]))

/* ---- bash ---- */

static const char bash_head[] =
        "# SPDX-License-Identifier: Apache-2.0\n"
        "# bash completion of recps, recpsd and recps-train. Made when they "
        "were built.\n"
        "\n";

static const char bash_tail[] =
        "\n"
        "_recps_complete() {\n"
        "    local cur=${COMP_WORDS[COMP_CWORD]}\n"
        "    local prev=${COMP_WORDS[COMP_CWORD-1]}\n"
        "    local place=${COMP_WORDS[0]##*/} command='' kind word i\n"
        "\n"
        "    if [[ $cur == = ]]; then\n"
        "        cur=''\n"
        "    elif [[ $prev == = ]]; then\n"
        "        prev=${COMP_WORDS[COMP_CWORD-2]}\n"
        "    fi\n"
        "    prev=${prev//_/-}\n"
        "    if [[ $place == recps ]]; then\n"
        "        for ((i = 1; i < COMP_CWORD; i++)); do\n"
        "            word=${COMP_WORDS[i]}\n"
        "            if [[ $word == -- ]]; then # what launch runs\n"
        "                mapfile -t COMPREPLY < <(compgen -c -f -- \"$cur\")\n"
        "                return\n"
        "            elif [[ $word == -* ]]; then\n"
        "                if [[ ${COMP_WORDS[i+1]-} == = ]]; then\n"
        "                    ((i += 2))\n"
        "                elif [[ ${_recps_values[$word]+x} ]]; then\n"
        "                    ((i++))\n"
        "                fi\n"
        "            elif [[ ${_recps_flags[recps $command$word]+x} ]]; then\n"
        "                command+=\"$word \"\n"
        "            fi\n"
        "        done\n"
        "        [[ -z $command ]] || place=\"recps ${command% }\"\n"
        "    fi\n"
        "    COMPREPLY=()\n"
        "    if [[ $cur == -* ]]; then\n"
        "        mapfile -t COMPREPLY < <(compgen -W "
        "\"${_recps_flags[$place]-}\" -- "
        "\"$cur\")\n"
        "        [[ ${COMPREPLY[0]-} != *= ]] || compopt -o nospace "
        "2>/dev/null\n"
        "        return\n"
        "    fi\n"
        "    if [[ ${_recps_values[$place $prev]+x} ]]; then\n"
        "        kind=${_recps_values[$place $prev]}\n"
        "    elif [[ $prev == --* && ${_recps_values[$prev]+x} ]]; then\n"
        "        kind=${_recps_values[$prev]}\n"
        "    elif [[ $place == recps ]]; then\n"
        "        kind=\"words ${_recps_commands[*]}\"\n"
        "    else\n"
        "        kind=${_recps_values[$place]-}\n"
        "    fi\n"
        "    case $kind in\n"
        "    words\\ *) mapfile -t COMPREPLY < <(compgen -W \"${kind#words }\" "
        "-- "
        "\"$cur\") ;;\n"
        "    file) mapfile -t COMPREPLY < <(compgen -f -- \"$cur\") ;;\n"
        "    folder) mapfile -t COMPREPLY < <(compgen -d -- \"$cur\") ;;\n"
        "    folder\\ *) mapfile -t COMPREPLY < <(compgen -d -W \"${kind#* }\" "
        "-- "
        "\"$cur\") ;;\n"
        "    esac\n"
        "}\n"
        "complete -F _recps_complete recps recpsd recps-train\n";

/* "a|b" as "a b". */
static void
print_words(const char *choices)
{
    for (; *choices != '\0'; choices++) {
        putchar(*choices == '|' ? ' ' : *choices);
    }
}

static void
bash_value(const char *place, const char *flag, const struct value *value)
{
    printf("    [%s%s%s]='", place,
            place[0] != '\0' && flag[0] != '\0' ? " " : "", flag);
    if (value->choices != NULL) { /* a folder may do, too */
        printf(value->is_folder ? "folder " : "words ");
        print_words(value->choices);
    } else if (value->is_file) {
        printf("file");
    } else if (value->is_folder) {
        printf("folder");
    }
    printf("'\n");
}

/* Flags of a scope, with "=" where a value follows. */
static void
bash_flags_of(uint32_t scope)
{
    char name[RPS_OPTION_NAME_MAX];

    for (size_t i = 0; i < rps_flag_count; i++) {
        if ((rps_flag_table[i].scope & scope) != 0) {
            printf(" --%s%s", rps_option_flag(rps_flag_table[i].name, name),
                    rps_flag_table[i].argument[0] != '\0' ? "=" : "");
        }
    }
    for (size_t i = 0; i < rps_option_count; i++) {
        const struct rps_option_def *def = &rps_option_table[i];
        const bool bare = def->type == RPS_OPTION_BOOL ||
                          def->type == RPS_OPTION_OPTIONAL;

        if ((def->scope & scope) != 0) {
            printf(" --%s%s", rps_option_flag(def->name, name),
                    bare ? "" : "=");
        }
    }
}

static void
bash_tool_flags(const struct rps_tool *tool)
{
    printf("    [recps %s]='", tool->name);
    for (const struct rps_tool_flag *flag = tool->flags;
            flag != NULL && flag->name != NULL; flag++) {
        printf(" --%s%s", flag->name, flag->argument != NULL ? "=" : "");
    }
    bash_flags_of(tool->scope);
    printf("'\n");
}

static void
bash_flags(void)
{
    printf("declare -gA _recps_flags=(\n");
    for (size_t i = 0; i < PROGRAM_COUNT; i++) {
        printf("    [%s]='", programs[i].name);
        bash_flags_of(programs[i].scope);
        printf("'\n");
    }
    printf("    [recps]='");
    bash_flags_of(RPS_SCOPE_TOOL);
    printf("'\n");
    for_tools(bash_tool_flags);
    printf(")\n");
}

static void
bash_tool_values(const struct rps_tool *tool)
{
    const struct value operand = operand_of(tool);
    char place[64];
    char name[RPS_OPTION_NAME_MAX + 2];

    snprintf(place, sizeof(place), "recps %s", tool->name);
    bash_value(place, "", &operand);
    if (has_second(tool)) {
        bash_value(place, tool->words, &(struct value){.is_file = true});
    }
    for (const struct rps_tool_flag *flag = tool->flags;
            flag != NULL && flag->name != NULL; flag++) {
        const struct value value = value_of_own(flag);

        if (flag->argument != NULL) {
            snprintf(name, sizeof(name), "--%s", flag->name);
            bash_value(place, name, &value);
            if (flag->letter != NULL) {
                snprintf(name, sizeof(name), "-%s", flag->letter);
                bash_value(place, name, &value);
            }
        }
    }
}

/* By flag, by command and flag, and by command: its operand. */
static void
bash_values(void)
{
    char name[RPS_OPTION_NAME_MAX + 2] = "--";

    printf("declare -gA _recps_values=(\n");
    for (size_t i = 0; i < rps_flag_count; i++) {
        if (rps_flag_table[i].argument[0] != '\0') {
            rps_option_flag(rps_flag_table[i].name, name + 2);
            bash_value("", name, &(struct value){.choices = NULL});
        }
    }
    for (size_t i = 0; i < rps_option_count; i++) {
        const struct rps_option_def *def = &rps_option_table[i];
        const struct value value = value_of(def);

        if (def->type != RPS_OPTION_BOOL && def->type != RPS_OPTION_OPTIONAL) {
            rps_option_flag(def->name, name + 2);
            bash_value("", name, &value);
        }
    }
    for_tools(bash_tool_values);
    printf(")\n");
}

static void
print_bash(void)
{
    printf("%s_recps_commands=(", bash_head);
    for (size_t i = 0; i < rps_tool_count; i++) {
        printf("%s%s", i > 0 ? " " : "", rps_tools[i]->name);
    }
    printf(")\n");
    bash_flags();
    bash_values();
    printf("%s", bash_tail);
}

/* ---- zsh ---- */

/* In single quotes, within [] of an _arguments specification. */
static void
print_quoted(const char *words)
{
    for (; *words != '\0'; words++) {
        if (*words == '\'') {
            printf("'\\''");
        } else if (*words == '[' || *words == ']' || *words == ':') {
            printf("\\%c", *words);
        } else {
            putchar(*words);
        }
    }
}

static void
zsh_action(const struct value *value)
{
    if (value->choices != NULL) {
        printf("(");
        print_words(value->choices);
        printf(")");
    } else if (value->is_file) {
        printf("_files");
    } else if (value->is_folder) {
        printf("_files -/");
    }
}

/* '--name=[words]:name:action' */
static void
zsh_flag(const char *name, const char *help, bool has_value,
        const struct value *value)
{
    printf("    '--%s%s[", name, has_value ? "=" : "");
    print_quoted(help);
    printf("]");
    if (has_value) {
        printf(":%s:", name);
        zsh_action(value);
    }
    printf("'");
}

static void
zsh_flags_of(uint32_t scope)
{
    char name[RPS_OPTION_NAME_MAX];

    for (size_t i = 0; i < rps_flag_count; i++) {
        const struct rps_flag_def *def = &rps_flag_table[i];

        if ((def->scope & scope) != 0) {
            zsh_flag(rps_option_flag(def->name, name), def->help,
                    def->argument[0] != '\0', &(struct value){.choices = NULL});
            printf("\n");
        }
    }
    for (size_t i = 0; i < rps_option_count; i++) {
        const struct rps_option_def *def = &rps_option_table[i];
        const struct value value = value_of(def);

        if ((def->scope & scope) != 0) {
            zsh_flag(rps_option_flag(def->name, name), def->help,
                    def->type != RPS_OPTION_BOOL &&
                            def->type != RPS_OPTION_OPTIONAL,
                    &value);
            printf("\n");
        }
    }
}

static void
zsh_array(const char *name, uint32_t scope)
{
    printf("local -a %s=(\n", name);
    zsh_flags_of(scope);
    printf(")\n");
}

static void
zsh_describe(const struct rps_tool *tool)
{
    printf("    '%s:", rps_tool_word(tool));
    print_quoted(tool->summary);
    printf("'\n");
}

static void
zsh_command(const struct rps_tool *tool)
{
    struct value operand = operand_of(tool);

    printf("    (%s)\n    _arguments \\\n", rps_tool_word(tool));
    for (const struct rps_tool_flag *flag = tool->flags;
            flag != NULL && flag->name != NULL; flag++) {
        const struct value value = value_of_own(flag);

        printf("    ");
        zsh_flag(flag->name, flag->help, flag->argument != NULL, &value);
        printf(" \\\n");
    }
    printf("        $%s",
            tool->scope == RPS_SCOPE_LAUNCH ? "launch_flags" : "tool_flags");
    if (tool->runs_command) {
        printf(" '*::command:_normal'");
    } else if (tool->operands_max > 0) {
        if (tool->takes_folder && tool->words != NULL) {
            printf(" '1:command:");
            zsh_action(&(struct value){.choices = tool->words});
            printf("'");
            operand.choices = NULL;
        }
        printf(" '%s:%s:", has_second(tool) ? "1" : "*",
                tool->takes_folder ? "folder" : "operand");
        zsh_action(&operand);
        printf("'%s", has_second(tool) ? " '*:file:_files'" : "");
    }
    printf("\n    ;;\n");
}

/* A command of parts: the next word says which. */
static void
zsh_parts(const struct rps_tool *tool)
{
    printf("    (%s)\n    local -a parts=(\n", tool->name);
    for (size_t i = 0; i < rps_tool_part_count(tool); i++) {
        zsh_describe(tool->parts[i]);
    }
    printf("    )\n"
           "    _arguments -C $tool_flags '1: :->part' '*:: :->rest'\n"
           "    case $state in\n"
           "    (part) _describe -t commands command parts ;;\n"
           "    (rest)\n"
           "    case $words[1] in\n");
    for (size_t i = 0; i < rps_tool_part_count(tool); i++) {
        zsh_command(tool->parts[i]);
    }
    printf("    esac\n    ;;\n    esac\n    ;;\n");
}

static void
print_zsh(void)
{
    printf("#compdef recps recpsd recps-train\n"
           "# SPDX-License-Identifier: Apache-2.0\n"
           "# zsh completion of recps, recpsd and recps-train. Made when they "
           "were built.\n\n");
    zsh_array("server_flags", RPS_SCOPE_SERVER);
    zsh_array("train_flags", RPS_SCOPE_TRAIN);
    zsh_array("tool_flags", RPS_SCOPE_TOOL);
    zsh_array("launch_flags", RPS_SCOPE_LAUNCH);
    printf("local -a commands=(\n");
    for (size_t i = 0; i < rps_tool_count; i++) {
        zsh_describe(rps_tools[i]);
    }
    printf(")\n"
           "local context state state_descr line\n"
           "typeset -A opt_args\n\n"
           "case $service in\n"
           "(recpsd) _arguments $server_flags; return ;;\n"
           "(recps-train) _arguments $train_flags; return ;;\n"
           "esac\n"
           "_arguments -C $tool_flags '1: :->command' '*:: :->operand'\n"
           "case $state in\n"
           "(command) _describe -t commands command commands ;;\n"
           "(operand)\n"
           "    case $words[1] in\n");
    for (size_t i = 0; i < rps_tool_count; i++) {
        if (rps_tools[i]->parts != NULL) {
            zsh_parts(rps_tools[i]);
        } else {
            zsh_command(rps_tools[i]);
        }
    }
    printf("    esac\n    ;;\nesac\n");
}

int
main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "bash") == 0) {
        print_bash();
    } else if (argc == 2 && strcmp(argv[1], "zsh") == 0) {
        print_zsh();
    } else {
        fprintf(stderr, "usage: recps_completion bash|zsh\n");
        return RPS_TOOL_USAGE;
    }
    return fflush(stdout) == 0 ? RPS_TOOL_OK : RPS_TOOL_FAILED;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/args.h"

#include "client/cli/key.h"

#include <stddef.h>
#include <string.h>

enum takes {
    TAKES_STRING = 1,
    TAKES_CHOICE = 1,
    TAKES_U64 = 1,
    TAKES_BYTES = 1,
    TAKES_F64 = 1,
    TAKES_SECONDS = 1,
    TAKES_BOOL = 0,
    TAKES_OPTIONAL = 0
};

struct known {
    const char *name;
    int takes;
};

/* The flags beside the table of options that have a value: conf/options.h. */
static const struct known known_flags[] = {{"tf_config", 1}, {"ps_hosts", 1},
        {"worker_hosts", 1}, {"chief_hosts", 1}, {"evaluator_hosts", 1},
        {"job_name", 1}, {"task_index", 1}, {"num_ps", 1}, {"num_workers", 1},
#define KNOWN(scope, name, type, value, unit, allowed, text) \
    {#name, TAKES_##type},
        RPS_OPTIONS(KNOWN)
#undef KNOWN
};

/* "-o" is the flag of the letter "o". */
static bool
is_letter(const char *argument, const char *letter)
{
    return letter != NULL && argument[0] == '-' &&
           strcmp(argument + 1, letter) == 0;
}

/* "--num-ps=3" is the name "num_ps". */
static bool
is_flag(const char *argument, const char *name)
{
    const char *at = argument + 2;

    if (strncmp(argument, "--", 2) != 0) {
        return false;
    }
    for (; *name != '\0'; name++, at++) {
        if (*at != *name && !(*at == '-' && *name == '_')) {
            return false;
        }
    }
    return *at == '\0' || *at == '=';
}

bool
rps_args_takes_value(const char *argument)
{
    if (strchr(argument, '=') != NULL) {
        return false;
    }
    for (size_t i = 0; i < sizeof(known_flags) / sizeof(*known_flags); i++) {
        if (is_flag(argument, known_flags[i].name)) {
            return known_flags[i].takes != 0;
        }
    }
    return false;
}

static struct rps_tool_flag *
own_flag(const struct rps_tool *tool, const char *argument)
{
    for (struct rps_tool_flag *flag = tool->flags;
            flag != NULL && flag->name != NULL; flag++) {
        if (is_flag(argument, flag->name) ||
                is_letter(argument, flag->letter)) {
            return flag;
        }
    }
    return NULL;
}

/* One law for all: stdout has the answer, and nothing else. */
static bool
is_stdout_asked(const struct rps_tool *tool, const struct rps_tool_flag *flag)
{
    if (!flag->is_output || strcmp(flag->value, "-") != 0) {
        return false;
    }
    rps_tool_fail(0, tool->name,
            "--%s -: standard output has the answer; give a file's name (./- "
            "is one, too)",
            flag->name);
    return true;
}

/* Takes the value of an own flag; *index moves past what was used. */
static bool
take_flag(const struct rps_tool *tool, struct rps_tool_flag *flag, int argc,
        char **argv, int *index)
{
    const char *equals = strchr(argv[*index], '=');

    if (flag->argument == NULL) {
        flag->value = "";
        if (equals != NULL) {
            rps_tool_fail(0, tool->name, "--%s takes no value", flag->name);
            return false;
        }
        return true;
    }
    if (equals != NULL) {
        flag->value = equals + 1;
        return !is_stdout_asked(tool, flag);
    }
    if (*index + 1 >= argc) {
        rps_tool_fail(0, tool->name, "--%s needs a value", flag->name);
        return false;
    }
    flag->value = argv[++*index];
    return !is_stdout_asked(tool, flag);
}

static bool
take_operand(const struct rps_tool *tool, struct rps_tool_call *call,
        const char *operand)
{
    if (call->operand_count >= tool->operands_max) {
        rps_tool_fail(0, tool->name,
                "unexpected argument \"%s\" (see recps %s --help)%s", operand,
                tool->name,
                tool->runs_command ? "; the command comes after \"--\"" : "");
        return false;
    }
    call->operands[call->operand_count++] = operand;
    return true;
}

bool
rps_args_sort(const struct rps_tool *tool, int *argc, char **argv,
        struct rps_tool_call *call)
{
    int end = *argc;
    int kept = 1;

    for (int i = 1; i < end; i++) {
        struct rps_tool_flag *flag = own_flag(tool, argv[i]);

        if (strcmp(argv[i], "--") == 0) {
            if (tool->runs_command) {
                call->command = &argv[i + 1];
                break;
            }
            while (++i < end) {
                if (!take_operand(tool, call, argv[i])) {
                    return false;
                }
            }
        } else if (flag != NULL) {
            if (!take_flag(tool, flag, end, argv, &i)) {
                return false;
            }
        } else if (argv[i][0] != '-' ||
                   (tool->takes_keys && rps_key_is_negative(argv[i]))) {
            if (!take_operand(tool, call, argv[i])) {
                return false;
            }
        } else {
            bool pair = rps_args_takes_value(argv[i]) && i + 1 < end;

            argv[kept++] = argv[i];
            if (pair) {
                argv[kept++] = argv[++i];
            }
        }
    }
    /* argv[kept] is in front of the command, if there is one, or its end */
    argv[kept] = NULL;
    *argc = kept;
    return true;
}

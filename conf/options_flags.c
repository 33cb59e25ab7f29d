/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line: options of the table, flags that find the cluster, and
 * the two that answer at once. What is wrong is printed here.
 */
#include "conf/cluster_internal.h"
#include "conf/options_reader.h"

#include <stdlib.h>
#include <string.h>

/* An unknown flag: perhaps another program's, perhaps a slip. */
static int
refuse_flag(
        const struct rps_reader *reader, const char *written, const char *name)
{
    char flag[RPS_OPTION_NAME_MAX];
    char programs[RPS_OPTION_NAME_MAX];
    struct rps_quoted quoted;
    const struct rps_option_def *other = rps_option_find(name);
    const struct rps_flag_def *flag_of_other = rps_flag_find(name);
    const uint32_t scope = other != NULL           ? other->scope
                           : flag_of_other != NULL ? flag_of_other->scope
                                                   : 0;
    const char *meant = rps_option_meant(name, reader->scope, true);

    if (scope != 0) {
        return rps_reader_refuse(reader, RPS_EXIT_USAGE,
                "unknown option %s; it is an option of %s (%s --help lists "
                "all)",
                rps_printable(&quoted, written), rps_scope_str(scope, programs),
                reader->program);
    }
    return rps_reader_refuse(reader, RPS_EXIT_USAGE,
            "unknown option %s%s%s%s (%s --help lists all)",
            rps_printable(&quoted, written),
            meant != NULL ? "; did you mean --" : "",
            meant != NULL ? rps_option_flag(meant, flag) : "",
            meant != NULL ? "?" : "", reader->program);
}

static int
refuse_value(const struct rps_reader *reader, const char *name, const char *why)
{
    char flag[RPS_OPTION_NAME_MAX];

    return rps_reader_refuse(reader, RPS_EXIT_USAGE, "--%s: %s",
            rps_option_flag(name, flag), why);
}

/* "--batch-size=7" -> "batch_size" and "7" (NULL without '='). */
static bool
split_flag(const char *written, char name[RPS_OPTION_NAME_MAX],
        const char **value_out)
{
    const char *body = written + 2;
    const size_t length = strcspn(body, "=");

    *value_out = body[length] == '=' ? body + length + 1 : NULL;
    name[0] = '\0';
    if (length == 0 || length >= RPS_OPTION_NAME_MAX) {
        return false;
    }
    for (size_t i = 0; i < length; i++) {
        name[i] = body[i] == '-' ? '_' : body[i];
    }
    name[length] = '\0';
    return true;
}

/* The value after "=", or the next argument; NULL: there is none. */
static const char *
take_value(struct rps_reader *reader, const char *value)
{
    const char *next = NULL;

    if (value != NULL) {
        return value;
    }
    next = reader->at + 1 < reader->argc ? reader->argv[reader->at + 1] : NULL;
    if (next == NULL || strncmp(next, "--", 2) == 0) {
        return NULL;
    }
    reader->at++;
    return next;
}

static bool
parse_switch(const char *value, bool *out)
{
    *out = value == NULL || strcmp(value, "true") == 0 ||
           strcmp(value, "1") == 0;
    return *out || strcmp(value, "false") == 0 || strcmp(value, "0") == 0;
}

static const char **
find_text(struct rps_reader *reader, const char *name)
{
    rps_cluster_options *cluster = reader->cluster;
    const struct {
        const char *name;
        const char **field;
    } texts[] = {{"tf_config", &cluster->tf_config},
            {"ps_hosts", &cluster->ps_hosts},
            {"worker_hosts", &cluster->worker_hosts},
            {"chief_hosts", &cluster->chief_hosts},
            {"evaluator_hosts", &cluster->evaluator_hosts},
            {"job_name", &cluster->job_name},
            {"task_index", &cluster->task_index}};

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (strcmp(texts[i].name, name) == 0) {
            return texts[i].field;
        }
    }
    return NULL;
}

static int
read_count(const struct rps_reader *reader, const char *name, const char *text)
{
    char why[RPS_OPTION_WHY_MAX];
    struct rps_quoted quoted;
    uint64_t count = 0;

    if (!rps_parse_u64(text, &count) || count == 0 ||
            count > RPS_CLUSTER_MEMBERS_MAX) {
        (void)snprintf(why, sizeof(why),
                "%s is no count of members (allowed: 1..%u)",
                rps_quote(&quoted, text), RPS_CLUSTER_MEMBERS_MAX);
        return refuse_value(reader, name, why);
    }
    if (strcmp(name, "num_ps") == 0) {
        reader->cluster->num_ps = (uint32_t)count;
    } else {
        reader->cluster->num_workers = (uint32_t)count;
    }
    return RPS_EXIT_GO_ON;
}

static int
read_switch(struct rps_reader *reader, const char *name, const char *value)
{
    struct rps_options *options = reader->options;
    bool on = false;

    if (!parse_switch(value, &on)) {
        return refuse_value(reader, name, "is true or false, or stands alone");
    }
    if (strcmp(name, "allow_unknown_roles") == 0) {
        reader->cluster->allow_unknown_roles = on;
    } else if (strcmp(name, "check_config") == 0) {
        options->check_config = on;
    } else if (strcmp(name, "json") == 0) {
        options->json = on;
    } else if (on && strcmp(name, "help") == 0) {
        rps_options_help(stdout, reader->scope, reader->program, reader->usage);
        return 0;
    } else if (on) {
        (void)printf("%s %s\n", reader->program, RPS_VERSION);
        return 0;
    }
    return RPS_EXIT_GO_ON;
}

/* A flag that is no option of the table. */
static int
read_cluster_flag(struct rps_reader *reader, const struct rps_flag_def *def,
        const char *value)
{
    const char **field = find_text(reader, def->name);

    if (def->argument[0] == '\0') {
        return read_switch(reader, def->name, value);
    }
    value = take_value(reader, value);
    if (value == NULL) {
        return refuse_value(reader, def->name, "needs a value");
    }
    if (field == NULL) {
        return read_count(reader, def->name, value);
    }
    *field = value;
    return RPS_EXIT_GO_ON;
}

static int
read_option_flag(struct rps_reader *reader, const struct rps_option_def *def,
        const char *value)
{
    char why[RPS_OPTION_WHY_MAX];

    if (value == NULL && def->type == RPS_OPTION_BOOL) {
        value = "true";
    } else if (value == NULL && def->type == RPS_OPTION_OPTIONAL) {
        value = "";
    }
    value = take_value(reader, value);
    if (value == NULL) {
        return refuse_value(reader, def->name, "needs a value");
    }
    return rps_option_set(reader->options, def, value, RPS_ORIGIN_FLAG, why)
                   ? RPS_EXIT_GO_ON
                   : refuse_value(reader, def->name, why);
}

static int
read_flag(struct rps_reader *reader, const char *written)
{
    char name[RPS_OPTION_NAME_MAX];
    const char *value = NULL;
    const struct rps_option_def *option = NULL;
    const struct rps_flag_def *flag = NULL;

    if (strcmp(written, "-h") == 0) {
        written = "--help";
    }
    if (written[1] != '-' || !split_flag(written, name, &value)) {
        return refuse_flag(reader, written, "");
    }
    option = rps_option_find(name);
    flag = rps_flag_find(name);
    if (option != NULL && (option->scope & reader->scope) != 0) {
        return read_option_flag(reader, option, value);
    }
    if (flag != NULL && (flag->scope & reader->scope) != 0) {
        return read_cluster_flag(reader, flag, value);
    }
    return refuse_flag(reader, written, name);
}

int
rps_flags_read(struct rps_reader *reader)
{
    int code = RPS_EXIT_GO_ON;

    for (reader->at = 1; reader->at < reader->argc; reader->at++) {
        const char *written = reader->argv[reader->at];
        if (strcmp(written, "--") == 0) {
            reader->at++;
            break;
        }
        if (written[0] != '-' || written[1] == '\0') {
            struct rps_quoted quoted;
            if (reader->stop_at_operand) {
                break;
            }
            return rps_reader_refuse(reader, RPS_EXIT_USAGE,
                    "unexpected argument %s; options begin with --",
                    rps_quote(&quoted, written));
        }
        code = read_flag(reader, written);
        if (code != RPS_EXIT_GO_ON) {
            return code;
        }
    }
    if (reader->at < reader->argc) {
        reader->options->argc = reader->argc - reader->at;
        reader->options->argv = reader->argv + reader->at;
    }
    return RPS_EXIT_GO_ON;
}

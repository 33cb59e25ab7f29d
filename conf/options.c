/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading: flags first (they find the cluster), then variables, then the
 * "recps" object of the document that was found. A value never replaces one
 * of a stronger origin, so the order of reading does not matter.
 */
#include "conf/cluster_internal.h"
#include "conf/options_table.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXIT_GO_ON  (-1)
#define EXIT_USAGE  64
#define EXIT_MEMORY 70
#define EXIT_CONFIG 78

/** One reading of one command line. */
struct reader {
    struct rps_options *options;
    rps_cluster_options *cluster;
    uint32_t scope;
    const char *program;
    const char *usage;
    bool stop_at_operand;
    int argc;
    char **argv;
    int at; /* of the argument in hand */
};

bool
rps_option_given(const struct rps_options *options, const char *name)
{
    const struct rps_option_def *def = rps_option_find(name);

    return def != NULL && options->origins != NULL &&
           options->origins[def - rps_option_table] != RPS_ORIGIN_DEFAULT;
}

/* An unknown flag: perhaps another program's, perhaps a slip. */
static int
refuse_flag(const struct reader *reader, const char *written, const char *name)
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

    (void)fprintf(stderr, "%s: unknown option %s", reader->program,
            rps_printable(&quoted, written));
    if (scope != 0) {
        (void)fprintf(stderr, "; it is an option of %s",
                rps_scope_str(scope, programs));
    } else if (meant != NULL) {
        (void)fprintf(
                stderr, "; did you mean --%s?", rps_option_flag(meant, flag));
    }
    (void)fprintf(stderr, " (%s --help lists all)\n", reader->program);
    return EXIT_USAGE;
}

static int
refuse_value(const struct reader *reader, const char *name, const char *why)
{
    char flag[RPS_OPTION_NAME_MAX];

    (void)fprintf(stderr, "%s: --%s: %s\n", reader->program,
            rps_option_flag(name, flag), why);
    return EXIT_USAGE;
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
take_value(struct reader *reader, const char *value)
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
find_text(struct reader *reader, const char *name)
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
read_count(const struct reader *reader, const char *name, const char *text)
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
    return EXIT_GO_ON;
}

static int
read_switch(struct reader *reader, const char *name, const char *value)
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
    return EXIT_GO_ON;
}

/* A flag that is no option of the table. */
static int
read_cluster_flag(struct reader *reader, const struct rps_flag_def *def,
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
    return EXIT_GO_ON;
}

static int
read_option_flag(struct reader *reader, const struct rps_option_def *def,
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
                   ? EXIT_GO_ON
                   : refuse_value(reader, def->name, why);
}

static int
read_flag(struct reader *reader, const char *written)
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

static int
read_flags(struct reader *reader)
{
    int code = EXIT_GO_ON;

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
            (void)fprintf(stderr,
                    "%s: unexpected argument %s; options begin with --\n",
                    reader->program, rps_quote(&quoted, written));
            return EXIT_USAGE;
        }
        code = read_flag(reader, written);
        if (code != EXIT_GO_ON) {
            return code;
        }
    }
    if (reader->at < reader->argc) {
        reader->options->argc = reader->argc - reader->at;
        reader->options->argv = reader->argv + reader->at;
    }
    return EXIT_GO_ON;
}

/* Variables of the test suite, of the build and of recps launch, which tells
 * its chief with RECPS_PROGRESS that a terminal shows its lines. */
static bool
is_foreign_variable(const char *name)
{
    return strncmp(name, "RECPS_TEST_", 11) == 0 ||
           strncmp(name, "RECPS_PROGRESS=", 15) == 0 ||
           strncmp(name, "RECPS_BUILD", 11) == 0 ||
           strncmp(name, "RECPS_SOURCE", 12) == 0;
}

/* A variable that no program takes is a slip: said, not refused. */
static void
warn_of_variable(const struct reader *reader, const char *entry)
{
    char written[RPS_OPTION_NAME_MAX];
    char name[RPS_OPTION_NAME_MAX];
    char variable[RPS_OPTION_NAME_MAX];
    struct rps_quoted quoted;
    const size_t length = strcspn(entry, "=");
    const char *meant = NULL;

    if (length >= sizeof(written) || is_foreign_variable(entry)) {
        return;
    }
    memcpy(written, entry, length);
    written[length] = '\0';
    for (size_t i = 6; i <= length; i++) {
        name[i - 6] = (char)tolower((unsigned char)written[i]);
    }
    if (rps_option_find(name) != NULL &&
            strcmp(rps_option_variable(name, variable), written) == 0) {
        return;
    }
    meant = rps_option_meant(name, RPS_SCOPE_JOB | RPS_SCOPE_BENCH, false);
    (void)fprintf(stderr, "%s: warning: variable %s is no option",
            reader->program, rps_printable(&quoted, written));
    if (meant != NULL) {
        (void)fprintf(stderr, "; did you mean %s?",
                rps_option_variable(meant, variable));
    }
    (void)fputc('\n', stderr);
}

static int
read_variables(const struct reader *reader)
{
    char variable[RPS_OPTION_NAME_MAX];
    char why[RPS_OPTION_WHY_MAX];

    for (char **at = environ; at != NULL && *at != NULL; at++) {
        if (strncmp(*at, "RECPS_", 6) == 0) {
            warn_of_variable(reader, *at);
        }
    }
    for (size_t i = 0; i < rps_option_count; i++) {
        const struct rps_option_def *def = &rps_option_table[i];
        const char *value = getenv(rps_option_variable(def->name, variable));
        if (value == NULL || (def->scope & reader->scope) == 0) {
            continue;
        }
        if (!rps_option_set(reader->options, def, value, RPS_ORIGIN_ENV, why)) {
            (void)fprintf(stderr, "%s: variable %s: %s\n", reader->program,
                    variable, why);
            return EXIT_USAGE;
        }
    }
    return EXIT_GO_ON;
}

/* Another program's option is fine here, a name of none is not. */
static rps_status
read_member(const struct reader *reader, const char *key, const json_t *value,
        rps_cluster_error *error)
{
    char why[RPS_OPTION_WHY_MAX];
    struct rps_quoted quoted;
    const struct rps_option_def *def = rps_option_find(key);

    if (def == NULL) {
        const char *meant =
                rps_option_meant(key, RPS_SCOPE_JOB | RPS_SCOPE_BENCH, false);
        return rps_cluster_refuse(error, "E_OPTION",
                "recps: no option %s%s%s%s", rps_quote(&quoted, key),
                meant == NULL ? "" : "; did you mean \"",
                meant == NULL ? "" : meant, meant == NULL ? "" : "\"?");
    }
    if ((def->scope & reader->scope) != 0 &&
            !rps_option_set_json(reader->options, def, value, why)) {
        return rps_cluster_refuse(
                error, "E_OPTION", "recps.%s: %s", def->name, why);
    }
    return RPS_OK;
}

static rps_status
read_recps(const struct reader *reader, rps_cluster_error *error)
{
    const char *text = reader->options->cluster.recps_json;
    rps_status status = RPS_OK;
    const char *key = NULL;
    json_t *value = NULL;
    json_t *object = NULL;

    if (text == NULL) {
        return RPS_OK;
    }
    object = json_loads(text, 0, NULL);
    if (object == NULL) {
        return RPS_E_NOMEM;
    }
    json_object_foreach(object, key, value)
    {
        status = read_member(reader, key, value, error);
        if (status != RPS_OK) {
            break;
        }
    }
    json_decref(object);
    return status;
}

static int
resolve(const struct reader *reader)
{
    struct rps_options *options = reader->options;
    rps_cluster_error error = {"", NULL};
    rps_status status =
            rps_cluster_resolve(&options->cluster, reader->cluster, &error);

    if (status == RPS_OK) {
        status = read_recps(reader, &error);
    }
    if (status == RPS_OK) {
        return EXIT_GO_ON;
    }
    if (error.message == NULL) {
        (void)fprintf(stderr, "%s: out of memory\n", reader->program);
        return EXIT_MEMORY;
    }
    (void)fprintf(stderr, "%s\n", error.message);
    if (options->check_config && options->json) {
        rps_check_config_refused(&error);
    }
    rps_cluster_error_finish(&error);
    return EXIT_CONFIG;
}

int
rps_options_read(struct rps_options *options, uint32_t scope,
        const char *program, const char *usage, bool stop_at_operand, int argc,
        char **argv)
{
    rps_cluster_options cluster;
    struct reader reader = {.options = options,
            .cluster = &cluster,
            .scope = scope,
            .program = program,
            .usage = usage,
            .stop_at_operand = stop_at_operand,
            .argc = argc,
            .argv = argv};
    int code = EXIT_GO_ON;

    rps_cluster_options_init(&cluster);
    cluster.task_optional = (scope & (RPS_SCOPE_TOOL | RPS_SCOPE_BENCH)) != 0;
    if (!rps_options_default(options)) {
        (void)fprintf(stderr, "%s: out of memory\n", program);
        return EXIT_MEMORY;
    }
    code = read_flags(&reader);
    if (code == EXIT_GO_ON) {
        code = read_variables(&reader);
    }
    if (code == EXIT_GO_ON) {
        code = resolve(&reader);
    }
    return code;
}

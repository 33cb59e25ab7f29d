/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recps launch --mpi: the replicas under one mpirun, rank 0 the chief (worker
 * 0 where there is none), each an application of its own, since each has its
 * TF_CONFIG. Its output comes back with tags, which become our labels.
 */
#include "base/json.h"
#include "client/cli/launch.h"
#include "client/cli/tool.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MPIRUN           "mpirun"
#define BANNER_BYTES_MAX 8192u

/* Words of a command line; NULL-ended once words_add() was called. */
struct words {
    char **list; /* owned, as are its strings */
    size_t count;
    size_t capacity;
    bool failed;
};

static void
words_add(struct words *words, char *word)
{
    if (words->count + 2 > words->capacity) {
        const size_t capacity = words->capacity * 2 + 16;
        char **list = realloc(words->list, capacity * sizeof(*list));

        if (list == NULL) {
            words->failed = true;
            free(word);
            return;
        }
        words->list = list;
        words->capacity = capacity;
    }
    words->failed = words->failed || word == NULL;
    if (word != NULL) {
        words->list[words->count++] = word;
    }
    words->list[words->count] = NULL;
}

static void
words_add_all(struct words *words, const char *const *list)
{
    for (; *list != NULL; list++) {
        words_add(words, strdup(*list));
    }
}

/* Ranks share this machine's cores with each other and with the servers: they
 * are bound to none, and give theirs away while they wait. */
static void
add_mpirun(struct words *words)
{
    static const char *const flags[] = {"--oversubscribe", "--bind-to", "none",
            "--tag-output", "--mca", "mpi_yield_when_idle", "1", NULL};

    words_add(words, strdup(MPIRUN));
    if (geteuid() == 0) {
        words_add(words, strdup("--allow-run-as-root"));
    }
    words_add_all(words, flags);
}

static char *
config_of(const json_t *cluster, json_t *recps, enum rps_role role,
        uint32_t index)
{
    char *text = NULL;
    char *word = NULL;

    if (cluster == NULL) { /* one worker, its tables in process */
        text = rps_json_text(json_pack("{s:O}", "recps", recps));
    } else {
        text = rps_json_text(json_pack("{s:O, s:{s:s, s:i}, s:O}", "cluster",
                cluster, "task", "type", rps_role_str(role), "index",
                (int)index, "recps", recps));
    }
    word = text != NULL ? rps_format("TF_CONFIG=%s", text) : NULL;
    free(text);
    return word;
}

static void
add_rank(struct words *words, const struct rps_launch *launch,
        const json_t *cluster, json_t *recps, uint32_t rank)
{
    static const char *const one[] = {"-np", "1", "env", NULL};
    const bool chief = launch->chief && rank == 0;
    const enum rps_role role = chief ? RPS_ROLE_CHIEF : RPS_ROLE_WORKER;
    const uint32_t index = chief ? 0 : rank - (launch->chief ? 1 : 0);

    if (rank > 0) {
        words_add(words, strdup(":"));
    }
    words_add_all(words, one);
    words_add(words, config_of(cluster, recps, role, index));
    /* mpirun gives each rank a terminal: one line of progress, the chief's,
     * where somebody sees it */
    words_add(words, rps_format("RECPS_PROGRESS=%d",
                             rank == 0 && isatty(STDOUT_FILENO) != 0));
    words_add_all(words, (const char *const *)launch->command);
}

/* mpirun takes a ":" of its own for the border between two applications. */
static int
check_command(const struct rps_launch *launch)
{
    for (char **word = launch->command; *word != NULL; word++) {
        if (strcmp(*word, ":") == 0) {
            return rps_tool_fail(RPS_TOOL_USAGE, "launch",
                    "--mpi: mpirun cannot give a command the argument \":\"");
        }
    }
    return RPS_TOOL_OK;
}

int
rps_launch_mpi_add(struct rps_launch_plan *plan,
        const struct rps_launch *launch, const json_t *cluster, json_t *recps)
{
    const uint32_t ranks = launch->worker_count + (launch->chief ? 1 : 0);
    struct rps_launch_child *child = &plan->children[plan->count];
    struct words words = {.list = NULL};
    int code = check_command(launch);
    int length;

    if (code != RPS_TOOL_OK) {
        return code;
    }
    add_mpirun(&words);
    for (uint32_t rank = 0; rank < ranks; rank++) {
        add_rank(&words, launch, cluster, recps, rank);
    }
    child->role = launch->chief ? RPS_ROLE_CHIEF : RPS_ROLE_WORKER;
    child->ranks = ranks;
    child->rank_0_is_chief = launch->chief;
    child->argv = words.list;
    child->tf_config = strdup("{}"); /* mpirun's own: it is no task */
    child->streams[0] = (struct rps_launch_stream){.fd = -1, .to = 1};
    child->streams[1] = (struct rps_launch_stream){.fd = -1, .to = 2};
    (void)snprintf(child->label, sizeof(child->label), MPIRUN);
    length = snprintf(NULL, 0, "worker:%" PRIu32, ranks);
    plan->label_width = length > plan->label_width ? length : plan->label_width;
    plan->count++;
    return words.failed || child->tf_config == NULL
                   ? rps_tool_fail(RPS_TOOL_FAILED, "launch", "no memory")
                   : RPS_TOOL_OK;
}

/* Length of the tag "[job,RANK]<stdout>:" at `bytes`; 0: there is none. */
static size_t
tag_at(const char *bytes, uint32_t ranks, uint32_t *rank_out)
{
    unsigned job = 0;
    unsigned rank = 0;
    int used = 0;

    if (bytes[0] != '[' ||
            sscanf(bytes, "[%u,%u]<std%*[a-z]>:%n", &job, &rank, &used) != 2 ||
            used == 0 || rank >= ranks) {
        return 0;
    }
    *rank_out = rank;
    return (size_t)used;
}

static void
name_speaker(
        const struct rps_launch_child *child, struct rps_launch_stream *stream)
{
    const bool chief = child->rank_0_is_chief;

    if (chief && stream->rank == 0) {
        (void)snprintf(stream->speaker, sizeof(stream->speaker), "chief:0");
    } else {
        (void)snprintf(stream->speaker, sizeof(stream->speaker),
                "worker:%" PRIu32, stream->rank - (chief ? 1 : 0));
    }
}

/*
 * A tag stands before each piece of output that mpirun read, so also in front
 * of what follows a "\r". What has none is of the rank that spoke last; on
 * stderr it is mpirun itself.
 */
void
rps_launch_mpi_untag(
        const struct rps_launch_child *child, struct rps_launch_stream *stream)
{
    struct rps_text *line = &stream->line;
    size_t kept = 0;
    size_t tag = 0;

    if (child->ranks == 0 || line->length == 0) {
        return;
    }
    tag = tag_at(line->bytes, child->ranks, &stream->rank);
    stream->tagged = stream->tagged || tag > 0;
    stream->speaker[0] = '\0';
    if (tag > 0 || (stream->to == STDOUT_FILENO && stream->tagged)) {
        name_speaker(child, stream);
    }
    for (size_t i = tag; i<line->length; i += tag> 0 ? tag : 1) {
        tag = tag_at(line->bytes + i, child->ranks, &stream->rank);
        if (tag > 0) {
            stream->tagged = true;
        } else {
            line->bytes[kept++] = line->bytes[i];
        }
    }
    line->length = kept;
    line->bytes[kept] = '\0';
}

/* Thirty dashes or more, and nothing else. */
static bool
is_rule(const char *line)
{
    const size_t length = strspn(line, "-");

    return length >= 30 && line[length] == '\0';
}

/* It says the exit code, which we say, or that a rank ended all, which that
 * rank has said. One of a rank's death by a signal is told. */
static bool
says_nothing(const char *banner)
{
    static const char *const words[] = {
            "non-zero exit code", "non-zero status", "MPI_ABORT was invoked"};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strstr(banner, words[i]) != NULL) {
            return true;
        }
    }
    return false;
}

bool
rps_launch_mpi_banner(const struct rps_launch_child *child,
        struct rps_launch_stream *stream, const char *line, char **shown_out)
{
    struct rps_text *banner = &stream->banner;
    const bool begins = !stream->in_banner && line != NULL && is_rule(line);
    bool ends;

    *shown_out = NULL;
    if (child->ranks == 0 || stream->to == STDOUT_FILENO ||
            stream->speaker[0] != '\0' || (!begins && !stream->in_banner)) {
        return false;
    }
    ends = stream->in_banner && (line == NULL || is_rule(line));
    stream->in_banner = !ends;
    if (line != NULL) {
        rps_text_add(banner, "%s\n", line);
    }
    if (ends || banner->length > BANNER_BYTES_MAX) {
        stream->in_banner = false;
        if (banner->bytes != NULL && !says_nothing(banner->bytes)) {
            *shown_out = strdup(banner->bytes);
        }
        rps_text_finish(banner);
    }
    return true;
}

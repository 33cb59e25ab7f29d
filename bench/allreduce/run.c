/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mpirun as a child. The monitor (Open MPI's pml/monitoring) counts messages
 * below the collectives, where they are sends from process to process, and
 * writes a file a rank when MPI ends.
 */
#include "bench/allreduce/run.h"

#include "base/file.h"
#include "base/text.h"
#include "bench/net/tidy.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#define MONITOR_BYTES_MAX ((size_t)16 << 20)
#define NOT_FOUND         127
#define ARGUMENTS_MAX     32u

/* --- the child ----------------------------------------------------------- */

struct command {
    char *words[ARGUMENTS_MAX]; /* owned, NULL-ended */
    size_t count;
    bool failed;
};

static void
command_add(struct command *command, char *word)
{
    if (word == NULL || command->count + 1 >= ARGUMENTS_MAX) {
        command->failed = true;
        free(word);
        return;
    }
    command->words[command->count++] = word;
}

static void
command_add_all(struct command *command, const char *const *words)
{
    for (; *words != NULL; words++) {
        command_add(command, strdup(*words));
    }
}

static void
command_finish(struct command *command)
{
    for (size_t i = 0; i < command->count; i++) {
        free(command->words[i]);
    }
}

static char *
own_path(void)
{
    char self[4096];
    const ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

    self[n > 0 ? n : 0] = '\0';
    return n > 0 ? strdup(self) : NULL;
}

/* Output 3: into files. */
static void
make_command(struct command *command, const struct bench_allreduce_args *args,
        const struct bench_allreduce_run *run, const char *folder)
{
    static const char *const before[] = {"--allow-run-as-root",
            "--oversubscribe", "--mca", "mpi_yield_when_idle", "1", "--mca",
            "pml_monitoring_enable", "1", "--mca",
            "pml_monitoring_enable_output", "3", "--mca",
            "pml_monitoring_filename", NULL};

    command_add(command, strdup(args->mpirun));
    command_add_all(command, before);
    command_add(command, rps_format("%s/sent", folder));
    command_add(command, strdup("-np"));
    command_add(command, rps_format("%" PRIu32, run->ranks));
    command_add(command, own_path());
    command_add(command, strdup("allreduce"));
    command_add(command, rps_format("--as-rank=%s", run->algorithm));
    command_add(command, rps_format("--bytes=%" PRIu64, args->bytes));
    command_add(command, rps_format("--repeat=%" PRIu64, args->repeat));
}

/* In the child, up to exec. Output goes to a file: it is small, and nobody
 * has to read beside the wait. */
static void
become(const struct command *command, const char *folder)
{
    char path[96];
    int fd;
    int code;

    (void)snprintf(path, sizeof(path), "%s/out", folder);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (fd < 0 || dup2(fd, STDOUT_FILENO) < 0) {
        _exit(EX_OSERR);
    }
    execvp(command->words[0], command->words);
    code = errno;
    fprintf(stderr, BENCH_ALLREDUCE_PROGRAM ": cannot run %s: %s\n",
            command->words[0], strerror(code));
    _exit(code == ENOENT ? NOT_FOUND : EX_OSERR);
}

static rps_status
wait_for(pid_t pid, const struct bench_allreduce_run *run,
        struct rps_error *error)
{
    int how = 0;

    while (waitpid(pid, &how, 0) < 0) {
        if (errno != EINTR) {
            return rps_fail(error, RPS_E_IO, "mpirun: %s", strerror(errno));
        }
    }
    if (WIFEXITED(how) && WEXITSTATUS(how) == NOT_FOUND) {
        return rps_fail(error, RPS_E_NOT_FOUND,
                "there is no mpirun: install it (Debian: openmpi-bin), or "
                "name it with --mpirun");
    }
    if (!WIFEXITED(how) || WEXITSTATUS(how) != 0) {
        return rps_fail(error, RPS_E_UNREACHABLE,
                "mpirun with %" PRIu32 " ranks (%s) ended with %s %d; what it "
                "and the ranks said stands above",
                run->ranks, run->algorithm, WIFEXITED(how) ? "code" : "signal",
                WIFEXITED(how) ? WEXITSTATUS(how) : WTERMSIG(how));
    }
    return RPS_OK;
}

static rps_status
run_child(const struct bench_allreduce_args *args,
        const struct bench_allreduce_run *run, const char *folder,
        struct rps_error *error)
{
    struct command command = {.count = 0};
    rps_status status = RPS_OK;
    pid_t pid = -1;

    make_command(&command, args, run, folder);
    if (command.failed) {
        command_finish(&command);
        return rps_fail(error, RPS_E_NOMEM, "no memory for a command");
    }
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        become(&command, folder);
    }
    status = pid < 0 ? rps_fail(error, RPS_E_IO, "fork: %s", strerror(errno))
                     : wait_for(pid, run, error);
    command_finish(&command);
    return status;
}

/* --- what it left -------------------------------------------------------- */

/*
 * "KIND <tab> from <tab> to <tab> N bytes <tab> M msgs sent <tab> …": E what
 * programs sent, I what collectives did.
 */
bool
bench_allreduce_read_line(
        const char *line, uint64_t *bytes_out, uint64_t *messages_out)
{
    unsigned from = 0;
    unsigned to = 0;
    char kind = '\0';

    return sscanf(line, "%c\t%u\t%u\t%" SCNu64 " bytes\t%" SCNu64 " msgs sent",
                   &kind, &from, &to, bytes_out, messages_out) == 5 &&
           (kind == 'E' || kind == 'I');
}

static void
count_lines(char *text, struct bench_allreduce_sent *sent)
{
    uint64_t each[BENCH_ALLREDUCE_RANKS_MAX * 2];
    size_t lines = 0;
    char *rest = NULL;

    for (char *line = strtok_r(text, "\n", &rest); line != NULL;
            line = strtok_r(NULL, "\n", &rest)) {
        uint64_t bytes = 0;
        uint64_t messages = 0;

        if (bench_allreduce_read_line(line, &bytes, &messages) &&
                lines < sizeof(each) / sizeof(each[0])) {
            sent->bytes += bytes;
            sent->messages += messages;
            each[lines++] = bytes;
        }
    }
    for (size_t i = 0; i < lines; i++) {
        sent->peers += each[i] * 100 >= sent->bytes && each[i] > 0;
    }
}

static rps_status
read_rank(const char *folder, uint32_t rank, struct bench_allreduce_sent *sent,
        struct rps_error *error)
{
    char path[96];
    char *text = NULL;
    size_t length = 0;
    rps_status status;

    *sent = (struct bench_allreduce_sent){.bytes = 0};
    (void)snprintf(
            path, sizeof(path), "%s/sent.%" PRIu32 ".prof", folder, rank);
    status = rps_file_read(path, MONITOR_BYTES_MAX, &text, &length, error);
    if (status != RPS_OK) {
        return rps_fail(error, RPS_E_CORRUPT,
                "Open MPI's monitor has left no figures of rank %" PRIu32
                ": this one (mpirun --version) was built without "
                "pml/monitoring, or uses another pml than ob1",
                rank);
    }
    count_lines(text, sent);
    free(text);
    return RPS_OK;
}

static rps_status
read_time(const char *folder, double *milliseconds, struct rps_error *error)
{
    char path[96];
    char *text = NULL;
    size_t length = 0;
    rps_status status;

    (void)snprintf(path, sizeof(path), "%s/out", folder);
    status = rps_file_read(path, MONITOR_BYTES_MAX, &text, &length, error);
    if (status == RPS_OK && sscanf(text, "%lf", milliseconds) != 1) {
        status = rps_fail(
                error, RPS_E_CORRUPT, "rank 0 printed no time: \"%s\"", text);
    }
    free(text);
    return status;
}

rps_status
bench_allreduce_run(const struct bench_allreduce_args *args,
        struct bench_allreduce_run *run, struct rps_error *error)
{
    char folder[64] = "";
    rps_status status = bench_folder_make(folder, error);

    if (status == RPS_OK) {
        status = run_child(args, run, folder, error);
    }
    for (uint32_t r = 0; r < run->ranks && status == RPS_OK; r++) {
        status = read_rank(folder, r, &run->sent[r], error);
    }
    if (status == RPS_OK) {
        status = read_time(folder, &run->milliseconds, error);
    }
    bench_folder_remove(folder);
    return status;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recps-train: options, signals, the task, the exit code.
 */
#include "base/log.h"
#include "client/worker/admin_port.h"
#include "client/worker/group.h"
#include "client/worker/run.h"

#include <cblas.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

static const char usage[] =
        "usage: recps-train --data SPEC [OPTION]...\n"
        "\n"
        "Train a model, or use one that was saved (--evaluate, --predict). "
        "Its\n"
        "variables live at the parameter servers of the cluster, or in this\n"
        "process where there is none. docs/TRAINING.md says what the options\n"
        "do together, docs/DATA.md what SPEC may be.\n";

/* The handlers' thread is the main one; a device's stream asks, too. */
static atomic_int stop_number;
static atomic_int save_wished;
/* What is said if a signal comes now; NULL: this process does not wait. */
static const char *_Atomic waiting_words;

static void
leave(int number, const char *words)
{
    const ssize_t n = write(STDERR_FILENO, words, strlen(words));

    (void)n;
    _exit(128 + number);
}

void
rps_stop_waits(const char *words)
{
    waiting_words = words;
    if (words != NULL && stop_number != 0) { /* it came before */
        leave(stop_number, words);
    }
}

int
rps_stop_signal(void)
{
    return stop_number;
}

/* The first signal: end after this step, or at once where no step is in hand.
 * The second: at once. */
static void
on_stop(int number)
{
    const char *words = waiting_words;

    if (stop_number != 0) {
        _exit(128 + number);
    }
    stop_number = number;
    if (words != NULL) {
        leave(number, words);
    }
}

bool
rps_save_signal(void)
{
    return atomic_exchange(&save_wished, 0) != 0;
}

static void
on_save(int number)
{
    (void)number;
    save_wished = 1;
}

static void
on_no_save(int number)
{
    static const char words[] =
            "recps-train: SIGUSR1: nothing is saved here: it is a wish for a "
            "checkpoint of a job that trains\n";
    const ssize_t n = write(STDERR_FILENO, words, sizeof(words) - 1);

    (void)number;
    (void)n;
}

/* mpirun passes SIGUSR2 on to every rank, and kills what gets its SIGTERM. */
static void
catch_signals(const struct rps_settings *settings)
{
    struct sigaction action = {.sa_flags = SA_RESTART};

    sigemptyset(&action.sa_mask);
    action.sa_handler = on_stop;
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    if (settings->in_group) {
        sigaction(SIGUSR2, &action, NULL);
    }
    action.sa_handler = settings->task == RPS_TASK_TRAIN ? on_save : on_no_save;
    sigaction(SIGUSR1, &action, NULL);
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, NULL);
}

static int
exit_code(const struct rps_run *run, rps_status status)
{
    switch (status) {
    case RPS_OK: /* mpirun takes what is not 0 for a failure */
        return rps_stop_signal() != 0 && rps_stop_signal() != SIGUSR2
                       ? 128 + rps_stop_signal()
                       : EX_OK;
    case RPS_E_NOT_FOUND: /* later: of a table that was dropped */
        return run->running && !run->data_failed ? EX_SOFTWARE : EX_NOINPUT;
    case RPS_E_IO:
        return run->data_failed ? EX_NOINPUT : EX_IOERR;
    case RPS_E_LIMIT:
        if (run->running && !run->data_failed) {
            return EX_SOFTWARE; /* of a server's memory */
        }
        return run->data_failed ? EX_DATAERR : EX_USAGE;
    case RPS_E_INVAL:
        return run->data_failed ? EX_DATAERR : EX_USAGE;
    case RPS_E_READ_ONLY:
        return EX_USAGE;
    case RPS_E_NONFINITE: /* start values */
        return run->data_failed ? EX_DATAERR : EX_SOFTWARE;
    case RPS_E_MISMATCH:
    case RPS_E_CORRUPT:
        return EX_DATAERR;
    case RPS_E_AUTH:
        return EX_NOPERM;
    case RPS_E_NOMEM: /* another start would find it as small */
        return run->device_full ? EX_CONFIG : EX_SOFTWARE;
    case RPS_E_UNREACHABLE:
    case RPS_E_TIMEOUT:
        return EX_UNAVAILABLE;
    default:
        return EX_SOFTWARE;
    }
}

static int
run_task(const struct rps_settings *settings)
{
    struct rps_run run = {.settings = settings};
    rps_status status =
            rps_admin_port_open(&run.admin_port, settings, &run.error);

    if (status == RPS_OK) {
        status = rps_run_open_data(&run);
    }
    if (status == RPS_OK) {
        switch (settings->task) {
        case RPS_TASK_TRAIN:
            status = rps_run_train(&run);
            break;
        case RPS_TASK_INFER:
            status = rps_run_infer(&run);
            break;
        case RPS_TASK_EVALUATOR:
            status = rps_run_evaluator(&run);
            break;
        case RPS_TASK_LEAVE:
            break;
        }
    }
    rps_run_close(&run);
    if (status == RPS_OK) {
        status = rps_group_end(run.group, EX_OK, &run.error);
        run.group = NULL;
    }
    if (status != RPS_OK) {
        rps_log(RPS_LOG_ERROR, "stopped", "%s (%s)", run.error.text,
                rps_status_str(status));
        (void)rps_group_end(run.group, exit_code(&run, status), &run.error);
    }
    rps_admin_port_close(run.admin_port);
    return exit_code(&run, status);
}

static int
refuse(const struct rps_options *options, rps_status status, const char *words)
{
    if (strcmp(options->log_format, "json") == 0) {
        rps_log(RPS_LOG_ERROR, "bad_option", "%s", words);
    } else {
        fprintf(stderr, "recps-train: %s\n", words);
    }
    /* else: the file of --model-config */
    return status == RPS_E_NOT_FOUND || status == RPS_E_IO ? EX_NOINPUT
                                                           : EX_USAGE;
}

static int
start(const struct rps_options *options)
{
    struct rps_settings settings;
    struct rps_error error;
    rps_status status;
    int code = EX_OK;

    rps_log_identity(
            rps_role_str(options->cluster.role), options->cluster.index);
    status = rps_settings_read(&settings, options, &error);
    if (status == RPS_OK && settings.in_group) {
        status = rps_group_check(&settings, &error);
    }
    if (status != RPS_OK) {
        code = refuse(options, status, error.text);
    } else if (settings.task == RPS_TASK_LEAVE) {
        printf("nothing to do here: --evaluate and --predict are the "
               "chief's alone\n");
    } else {
        openblas_set_num_threads((int)options->blas_threads);
        catch_signals(&settings);
        code = run_task(&settings);
    }
    rps_settings_finish(&settings);
    return code;
}

int
main(int argc, char **argv)
{
    struct rps_options options = {0};
    int code = rps_options_read(
            &options, RPS_SCOPE_TRAIN, "recps-train", usage, false, argc, argv);

    if (code < 0) {
        code = start(&options);
    }
    rps_options_finish(&options);
    return code;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which parts run, and where: those that measure resident memory get a
 * process of their own, forked before anything large exists.
 */
#include "bench/table/main.h"

#include "bench/print.h"
#include "bench/table/parts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

typedef rps_status part_function(const struct bench_table_args *args,
        const struct bench_keyset *set, struct bench_report *report);

/* The report is shared with the child. */
static rps_status
in_child(part_function *part, const struct bench_table_args *args,
        const struct bench_keyset *set, struct bench_report *report)
{
    int code = 0;
    pid_t child = 0;

    fflush(NULL);
    child = fork();
    if (child < 0) {
        return rps_fail(&report->error, RPS_E_NOMEM, "cannot fork");
    }
    if (child == 0) {
        const rps_status status = part(args, set, report);
        exit(status == RPS_OK ? EXIT_SUCCESS : -(int)status);
    }
    if (waitpid(child, &code, 0) != child || !WIFEXITED(code)) {
        return rps_fail(&report->error, RPS_E_IO,
                "the process of a part ended by signal %d", WTERMSIG(code));
    }
    return (rps_status)-WEXITSTATUS(code);
}

static rps_status
run_measures(struct bench_fixture *fixture)
{
    const struct bench_table_args *args = fixture->args;
    struct bench_model model = {0};
    rps_status status = bench_part_lookup(fixture);

    if (status == RPS_OK && args->threads > 1) {
        status = bench_part_scaling(fixture);
    }
    if (status == RPS_OK) {
        status = bench_model_init(&model, &fixture->spec, args->batch,
                fixture->set->rows, fixture->hot_places,
                &fixture->report->error);
    }
    if (status == RPS_OK && args->dist.kind == BENCH_DIST_HOT) {
        status = bench_part_hot(fixture);
    }
    if (status == RPS_OK) {
        status = bench_part_push(fixture, &model);
    }
    if (status == RPS_OK) {
        bench_progress("checking every row");
        status = bench_fixture_check_all(fixture, &model);
    }
    bench_model_finish(&model);
    return status;
}

static rps_status
run_on_fixture(const struct bench_table_args *args,
        const struct bench_keyset *set, struct bench_report *report)
{
    struct bench_fixture fixture;
    rps_status status = bench_fixture_init(&fixture, args, set, report);

    if (status == RPS_OK) {
        status = args->mix_text != NULL ? bench_part_mix(&fixture)
                                        : run_measures(&fixture);
    }
    bench_fixture_finish(&fixture);
    return status;
}

static rps_status
run_sweep(const struct bench_table_args *args, const struct bench_keyset *set,
        struct bench_report *report)
{
    rps_status status = RPS_OK;

    for (size_t i = 0; i < args->dim_count && status == RPS_OK; i++) {
        struct bench_table_args one = *args;
        one.dims[0] = args->dims[i];
        status = in_child(bench_part_sweep, &one, set, report);
    }
    return status;
}

static rps_status
run(const struct bench_table_args *args, const struct bench_keyset *set,
        struct bench_report *report)
{
    rps_status status = RPS_OK;

    if (args->sweep.count > 0) {
        return run_sweep(args, set, report);
    }
    if (args->memory) {
        status = in_child(bench_part_evict, args, set, report);
        return status == RPS_OK ? in_child(bench_part_memory, args, set, report)
                                : status;
    }
    if (args->mix_text == NULL) {
        status = in_child(bench_part_insert, args, set, report);
    }
    return status == RPS_OK ? run_on_fixture(args, set, report) : status;
}

int
bench_table_main(int argc, char **argv)
{
    struct bench_table_args args;
    struct bench_keyset set = {0};
    struct bench_report *report = NULL;
    rps_status status = RPS_OK;
    int code = bench_table_args_read(&args, argc, argv);

    if (code != 0) {
        return code;
    }
    report = mmap(NULL, sizeof(*report), PROT_READ | PROT_WRITE,
            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (report == MAP_FAILED) {
        fputs("recps-bench table: out of memory\n", stderr);
        return EXIT_FAILURE;
    }
    bench_report_init(report);
    status = bench_dist_load(&args.dist, &report->error);
    if (status == RPS_OK) {
        status = bench_keyset_init(
                &set, args.rows, bench_dist_trace(&args.dist), &report->error);
    }
    code = status == RPS_OK || status == RPS_E_NOMEM ? EXIT_FAILURE : EX_USAGE;
    if (status == RPS_OK) {
        status = run(&args, &set, report);
    }
    if (status != RPS_OK) {
        fprintf(stderr, "recps-bench table: %s\n",
                report->error.text[0] != '\0' ? report->error.text
                                              : rps_status_str(status));
    } else if (bench_report_print(report, &args,
                       args.sweep.count > 0 ? args.sweep.to : set.rows)) {
        code = EXIT_SUCCESS;
    } else {
        fprintf(stderr, "recps-bench table: writing to stdout: %s\n",
                strerror(errno));
        code = EXIT_FAILURE;
    }
    bench_keyset_finish(&set);
    munmap(report, sizeof(*report));
    return code;
}

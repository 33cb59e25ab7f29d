/* SPDX-License-Identifier: Apache-2.0 */
/* The rounds: the disk and the product take turns in going first. */
#include "bench/checkpoint/main.h"

#include "bench/checkpoint/beside.h"
#include "bench/checkpoint/disk.h"
#include "bench/checkpoint/saves.h"
#include "bench/print.h"
#include "bench/series.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

/** What each round took, seconds, and how much memory. */
struct rounds {
    struct bench_series save;
    struct bench_series disk_write;
    struct bench_series restore;
    struct bench_series disk_read;
    struct bench_series verify;
    double extra_rss;
    double restore_extra_rss;
    uint64_t bytes;
};

/** Of one round: the disk's file has as many bytes as the product's. */
struct turn {
    struct bench_saves *saves;
    struct rounds *rounds;
    uint64_t step;
    char path[300]; /* of the disk's file */
    struct bench_saved saved;
};

static rps_status
write_disk(struct turn *turn)
{
    double seconds = 0;
    rps_status status = bench_disk_write(
            turn->path, turn->rounds->bytes, &seconds, &turn->saves->error);

    bench_series_add(&turn->rounds->disk_write, seconds);
    return status;
}

static rps_status
read_disk(struct turn *turn)
{
    double seconds = 0;
    rps_status status = bench_disk_read(
            turn->path, turn->rounds->bytes, &seconds, &turn->saves->error);

    bench_series_add(&turn->rounds->disk_read, seconds);
    return status;
}

static rps_status
save(struct turn *turn)
{
    rps_status status =
            bench_saves_write(turn->saves, turn->step, false, &turn->saved);

    bench_series_add(&turn->rounds->save, turn->saved.seconds);
    turn->rounds->extra_rss =
            fmax(turn->rounds->extra_rss, turn->saved.extra_rss);
    return status;
}

static rps_status
restore(struct turn *turn)
{
    struct bench_restored restored = {0};
    rps_status status =
            bench_saves_restore(turn->saves, turn->step, true, &restored);

    bench_series_add(&turn->rounds->restore, restored.seconds);
    turn->rounds->restore_extra_rss =
            fmax(turn->rounds->restore_extra_rss, restored.extra_rss);
    return status;
}

static rps_status
both(struct turn *turn, rps_status (*one)(struct turn *turn),
        rps_status (*other)(struct turn *turn))
{
    const bool swapped = turn->step % 2 == 0;
    rps_status status = swapped ? other(turn) : one(turn);

    return status != RPS_OK ? status : swapped ? one(turn) : other(turn);
}

static rps_status
verify(struct turn *turn)
{
    double seconds = 0;
    uint64_t bytes = 0;
    rps_status status =
            bench_saves_verify(turn->saves, turn->step, &seconds, &bytes);

    bench_series_add(&turn->rounds->verify, seconds);
    return status;
}

static rps_status
read_cached(struct turn *turn)
{
    struct bench_checkpoint_report *report = turn->saves->report;
    double seconds = 0;
    rps_status status = bench_disk_read_cached(
            turn->path, turn->rounds->bytes, &seconds, &turn->saves->error);

    report->cached_read_bytes_per_second =
            (double)turn->rounds->bytes / seconds;
    return status;
}

static rps_status
run_round(struct bench_saves *saves, struct rounds *rounds, uint64_t round)
{
    struct turn turn = {.saves = saves, .rounds = rounds, .step = round};
    rps_status status = RPS_OK;

    bench_progress("round %" PRIu64 " of %" PRIu64, round, saves->args->rounds);
    (void)snprintf(turn.path, sizeof(turn.path), "%s/disk", saves->folder);
    status = both(&turn, write_disk, save);
    if (status == RPS_OK) {
        status = both(&turn, read_disk, restore);
    }
    if (status == RPS_OK) {
        status = verify(&turn);
    }
    if (status == RPS_OK && round == saves->args->rounds) {
        status = read_cached(&turn);
    }
    (void)unlink(turn.path);
    if (turn.saved.bytes > 0) {
        const rps_status removed = bench_saves_remove(saves, turn.step);

        status = status == RPS_OK ? removed : status;
    }
    return status;
}

/* One save that does not count says how many bytes there are, and warms up
 * what is to be warm. */
static rps_status
warm_up(struct bench_saves *saves, struct rounds *rounds)
{
    struct bench_saved saved = {0};
    rps_status status = bench_saves_write(saves, 1, false, &saved);

    rounds->bytes = saved.bytes;
    return status == RPS_OK ? bench_saves_remove(saves, 1) : status;
}

static double
rate(const struct rounds *rounds, const struct bench_series *seconds)
{
    return (double)rounds->bytes / bench_series_median(seconds);
}

static void
fill_report(struct bench_checkpoint_report *report, const struct rounds *rounds)
{
    report->save_bytes = (double)rounds->bytes;
    report->save_seconds = bench_series_median(&rounds->save);
    report->save_bytes_per_second = rate(rounds, &rounds->save);
    report->disk_write_bytes_per_second = rate(rounds, &rounds->disk_write);
    report->save_ratio = bench_median_ratio(&rounds->disk_write, &rounds->save);
    report->extra_rss_bytes = rounds->extra_rss;
    report->restore_seconds = bench_series_median(&rounds->restore);
    report->restore_bytes_per_second = rate(rounds, &rounds->restore);
    report->disk_read_bytes_per_second = rate(rounds, &rounds->disk_read);
    report->restore_ratio =
            bench_median_ratio(&rounds->disk_read, &rounds->restore);
    report->restore_extra_rss_bytes = rounds->restore_extra_rss;
    report->verify_seconds = bench_series_median(&rounds->verify);
    report->verify_bytes_per_second = rate(rounds, &rounds->verify);
}

static rps_status
run_rounds(struct bench_saves *saves)
{
    struct rounds rounds = {.bytes = 0};
    rps_status status = warm_up(saves, &rounds);

    for (uint64_t i = 1; i <= saves->args->rounds && status == RPS_OK; i++) {
        status = run_round(saves, &rounds, i);
    }
    if (status == RPS_OK) {
        fill_report(saves->report, &rounds);
    }
    bench_series_finish(&rounds.save);
    bench_series_finish(&rounds.disk_write);
    bench_series_finish(&rounds.restore);
    bench_series_finish(&rounds.disk_read);
    bench_series_finish(&rounds.verify);
    return status;
}

int
bench_checkpoint_main(int argc, char **argv)
{
    struct bench_checkpoint_args args;
    struct bench_checkpoint_report report;
    struct bench_saves saves;
    rps_status status = RPS_OK;
    int code = bench_checkpoint_args_read(&args, argc, argv);

    if (code != 0) {
        return code;
    }
    bench_checkpoint_report_init(&report);
    status = bench_saves_init(&saves, &args, &report);
    if (status == RPS_OK) {
        status = run_rounds(&saves);
    }
    if (status == RPS_OK) {
        status = bench_part_delta(&saves, args.rounds + 1);
    }
    if (status == RPS_OK && args.seconds > 0) {
        status = bench_part_traffic(&saves, args.rounds + 3);
    }
    bench_saves_finish(&saves);
    if (status != RPS_OK) {
        fprintf(stderr, "recps-bench checkpoint: %s\n",
                saves.error.text[0] != '\0' ? saves.error.text
                                            : rps_status_str(status));
        return EXIT_FAILURE;
    }
    if (!bench_checkpoint_report_print(&report, &args)) {
        fprintf(stderr, "recps-bench checkpoint: writing to stdout: %s\n",
                strerror(errno));
        return EXIT_FAILURE;
    }
    return EX_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The csv files of a profile: a line a kind of span, the longest first. */
#include "client/profile/file.h"
#include "client/profile/totals.h"
#include "client/profile/write.h"

#include <inttypes.h>

static const struct {
    const char *name;
    uint32_t classes; /* bits */
} tables[] = {
        {"operators.csv", 1u << RPS_PROFILE_OPERATOR},
        {"communication.csv",
                1u << RPS_PROFILE_COMMUNICATION | 1u << RPS_PROFILE_COPY},
        {"scheduling.csv", 1u << RPS_PROFILE_SCHEDULING},
};

static void
put_total(FILE *stream, const struct rps_total *total, uint64_t of_ns)
{
    const char *const texts[] = {rps_profile_class_name(total->class),
            total->type, total->name, total->holds, total->track,
            total->shapes};
    const uint64_t times[] = {total->ns, total->self_ns,
            total->ns / total->count, total->min_ns, total->max_ns};

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        rps_profile_put_csv(stream, texts[i]);
        putc(',', stream);
    }
    fprintf(stream, "%" PRIu64 ",", total->count);
    for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
        rps_profile_put_us(stream, times[i]);
        putc(',', stream);
    }
    fprintf(stream, "%.6f,%" PRIu64 ",%" PRIu64 "\n",
            of_ns > 0 ? (double)total->self_ns / (double)of_ns : 0.0,
            total->bytes, total->flops);
}

static rps_status
write_table(const char *folder, const char *name, uint32_t classes,
        const struct rps_totals *totals, struct rps_error *error)
{
    const uint64_t steps_ns = rps_totals_steps(totals).ns;
    struct rps_profile_file file;
    const struct rps_total *list;
    size_t count;
    rps_status status = rps_profile_file_open(&file, folder, name, error);

    if (status != RPS_OK) {
        return status;
    }
    fputs("class,type,name,holds,track,shapes,count,total_us,self_us,mean_us,"
          "min_us,max_us,share,bytes,flops\n",
            file.stream);
    list = rps_totals_list(totals, &count);
    for (size_t i = 0; i < count; i++) {
        if ((classes & 1u << list[i].class) != 0) {
            put_total(file.stream, &list[i], steps_ns);
        }
    }
    return rps_profile_file_close(&file, error);
}

static rps_status
write_figures(const char *folder, const struct rps_profile_collected *collected,
        struct rps_error *error)
{
    const uint64_t origin = rps_profile_origin(collected);
    struct rps_profile_file file;
    rps_status status =
            rps_profile_file_open(&file, folder, "memory.csv", error);

    if (status != RPS_OK) {
        return status;
    }
    fputs("time_us,step,name,value\n", file.stream);
    for (size_t i = 0; i < collected->count; i++) {
        const struct rps_profile_record *record = collected->records[i];

        if (record->is_figure) {
            rps_profile_put_us(file.stream, record->span.start_ns - origin);
            fprintf(file.stream, ",%" PRIu64 ",", record->span.step);
            rps_profile_put_csv(file.stream, record->span.name);
            fprintf(file.stream, ",%.15g\n", record->value);
        }
    }
    return rps_profile_file_close(&file, error);
}

static rps_status
add_up(struct rps_totals *totals, const struct rps_profile_collected *collected)
{
    rps_status status = RPS_OK;

    for (size_t i = 0; status == RPS_OK && i < collected->count; i++) {
        if (!collected->records[i]->is_figure) {
            status = rps_totals_add(totals, &collected->records[i]->span);
        }
    }
    for (size_t i = 0; status == RPS_OK && i < collected->step_count; i++) {
        status = rps_totals_step(totals,
                collected->steps[i].end_ns - collected->steps[i].start_ns);
    }
    return status;
}

rps_status
rps_profile_write_tables(const char *folder,
        const struct rps_profile_collected *collected, struct rps_error *error)
{
    struct rps_totals *totals = rps_totals_create();
    rps_status status =
            totals != NULL ? add_up(totals, collected) : RPS_E_NOMEM;

    if (status != RPS_OK) {
        rps_totals_destroy(totals);
        return rps_fail(error, status,
                "profile: %s: its tables are not written: %s", folder,
                status == RPS_E_LIMIT ? "it has too many kinds of spans"
                                      : "no memory");
    }
    rps_totals_work_out(totals);
    for (size_t i = 0;
            status == RPS_OK && i < sizeof(tables) / sizeof(tables[0]); i++) {
        status = write_table(
                folder, tables[i].name, tables[i].classes, totals, error);
    }
    rps_totals_destroy(totals);
    return status == RPS_OK ? write_figures(folder, collected, error) : status;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "client/worker/usage.h"

#include "base/clock.h"
#include "base/process.h"

#include <math.h>

static const char own_groups[] = "/proc/self/cgroup";
static const char groups[] = "/sys/fs/cgroup";

void
rps_usage_machine_read(struct rps_usage_machine *machine)
{
    const uint64_t all = rps_memory_total();
    const uint64_t limit = rps_cgroup_memory_max(own_groups, groups);

    machine->processors = rps_processors(own_groups, groups);
    machine->memory = limit > 0 && (limit < all || all == 0) ? limit : all;
}

void
rps_usage_look(struct rps_usage_look *look)
{
    struct rps_process process;

    rps_process_read(&process);
    *look = (struct rps_usage_look){
            .at_ns = rps_clock_ns(),
            .cpu_seconds = process.cpu_seconds,
            .resident = process.resident_bytes,
    };
    look->has_disk = rps_process_disk(&look->disk_read, &look->disk_written);
}

/* The kernel counts processor time in ticks: a short look may see a whole one.
 */
static double
part(double value)
{
    return value < 0.0 ? 0.0 : value > 1.0 ? 1.0 : value;
}

static double
grown(uint64_t before, uint64_t now)
{
    return now > before ? (double)(now - before) : 0.0;
}

struct rps_usage
rps_usage_between(const struct rps_usage_machine *machine,
        const struct rps_usage_look *before, const struct rps_usage_look *now)
{
    const bool is_first = before->at_ns == 0 || now->at_ns <= before->at_ns;
    const double seconds =
            is_first ? (double)NAN
                     : (double)(now->at_ns - before->at_ns) * 1e-9;
    struct rps_usage usage = {.cpu_usage = NAN,
            .mem_usage = NAN,
            .npu_util = NAN,
            .npu_mem_usage = NAN,
            .disk_read_rate = NAN,
            .disk_write_rate = NAN,
            .samples_rate = grown(before->samples, now->samples) / seconds};

    if (!is_first) {
        usage.cpu_usage = part((now->cpu_seconds - before->cpu_seconds) /
                               seconds / machine->processors);
    }
    if (machine->memory > 0) {
        usage.mem_usage = part((double)now->resident / (double)machine->memory);
    }
    if (now->has_disk && before->has_disk) {
        usage.disk_read_rate =
                grown(before->disk_read, now->disk_read) / seconds;
        usage.disk_write_rate =
                grown(before->disk_written, now->disk_written) / seconds;
    }
    /* one that was opened since did nothing before */
    if (now->has_device && !is_first) {
        usage.npu_util =
                part(grown(before->device.busy_ns, now->device.busy_ns) * 1e-9 /
                        seconds);
    }
    if (now->has_device && now->device.memory_capacity > 0) {
        usage.npu_mem_usage = part((double)now->device.memory_used /
                                   (double)now->device.memory_capacity);
    }
    return usage;
}

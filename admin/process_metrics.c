/* SPDX-License-Identifier: Apache-2.0 */
#include "admin/process_metrics.h"

#include "admin/exposition.h"
#include "base/process.h"

void
rps_process_metrics_add(struct rps_text *text)
{
    struct rps_process process;

    rps_process_read(&process);
    rps_family(text, "process_cpu_seconds_total", "counter",
            "Time on a processor, user and system.");
    rps_sample_real(text, "process_cpu_seconds_total", "", process.cpu_seconds);
    rps_gauge(text, "process_start_time_seconds",
            "Start of the process, Unix time.", process.start_unix_s);
    rps_gauge(text, "process_resident_memory_bytes", "Memory in RAM.",
            (double)process.resident_bytes);
    rps_gauge(text, "process_virtual_memory_bytes", "Address space in use.",
            (double)process.virtual_bytes);
    rps_gauge(text, "process_open_fds", "Open files.",
            (double)process.open_files);
    rps_gauge(text, "process_max_fds", "Their limit; 0: none.",
            (double)process.files_max);
    rps_gauge(text, "process_threads", "Threads.", (double)process.threads);
}

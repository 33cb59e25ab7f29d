/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this worker uses of its machine and of its device: sums that grow, and
 * what they grew by between two looks.
 */
#ifndef RPS_WORKER_USAGE_H
#define RPS_WORKER_USAGE_H

#include <stdbool.h>
#include <stdint.h>

/** Of a device, at a moment. */
struct rps_usage_device {
    uint64_t busy_ns;         /* since it was opened */
    uint64_t memory_used;     /* bytes taken of it */
    uint64_t memory_capacity; /* bytes */
};

/** One look. */
struct rps_usage_look {
    uint64_t at_ns; /* 0: none yet */
    double cpu_seconds;
    uint64_t resident;
    bool has_disk;
    uint64_t disk_read;    /* bytes */
    uint64_t disk_written; /* bytes */
    bool has_device;
    struct rps_usage_device device;
    uint64_t samples; /* trained here */
};

/** What does not change. */
struct rps_usage_machine {
    double processors; /* that this process may use */
    uint64_t memory;   /* bytes that it may use; 0: not known */
};

/** The guide's metrics, under its names; NaN: there is no such thing here. */
struct rps_usage {
    double cpu_usage;       /* 0 to 1, of the processors that it may use */
    double mem_usage;       /* 0 to 1, of the memory that it may use */
    double npu_util;        /* 0 to 1: time in which the device was busy */
    double npu_mem_usage;   /* 0 to 1, of the device's memory */
    double disk_read_rate;  /* bytes a second */
    double disk_write_rate; /* bytes a second */
    double samples_rate;    /* a second */
};

void rps_usage_machine_read(struct rps_usage_machine *machine);

/** What the process can be asked; device and samples are the caller's. */
void rps_usage_look(struct rps_usage_look *look);

/** Between two looks; before->at_ns 0: rates are NaN. */
struct rps_usage rps_usage_between(const struct rps_usage_machine *machine,
        const struct rps_usage_look *before, const struct rps_usage_look *now);

#endif /* RPS_WORKER_USAGE_H */

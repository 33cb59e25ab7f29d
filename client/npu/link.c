/* SPDX-License-Identifier: Apache-2.0 */
#include "client/npu/link.h"

#include "base/clock.h"

void
rps_npu_link_init(struct rps_npu_link *link, uint64_t bytes_per_second,
        uint64_t latency_ns)
{
    *link = (struct rps_npu_link){
            .bytes_per_second = bytes_per_second,
            .latency_ns = latency_ns,
    };
    pthread_mutex_init(&link->lock, NULL);
}

void
rps_npu_link_finish(struct rps_npu_link *link)
{
    pthread_mutex_destroy(&link->lock);
}

static uint64_t
duration(const struct rps_npu_link *link, uint64_t bytes)
{
    return link->bytes_per_second == 0
                   ? 0
                   : (uint64_t)((double)bytes * 1e9 /
                                (double)link->bytes_per_second);
}

uint64_t
rps_npu_link_take(struct rps_npu_link *link, uint64_t bytes)
{
    uint64_t begin = 0;
    uint64_t end = 0;

    if (link->bytes_per_second == 0 && link->latency_ns == 0) {
        return 0;
    }
    begin = rps_clock_ns() + link->latency_ns;
    pthread_mutex_lock(&link->lock);
    if (link->bytes_per_second != 0 && link->free_ns > begin) {
        begin = link->free_ns;
    }
    end = begin + duration(link, bytes);
    link->free_ns = end;
    pthread_mutex_unlock(&link->lock);
    return end;
}

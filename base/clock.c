/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include "base/hash.h"

#include <sys/random.h>
#include <time.h>
#include <unistd.h>

uint64_t
rps_clock_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t
rps_clock_ms(void)
{
    return rps_clock_ns() / 1000000u;
}

uint64_t
rps_clock_unix_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec > 0 ? (uint64_t)now.tv_sec : 0;
}

uint64_t
rps_clock_unix_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec > 0 ? (uint64_t)now.tv_sec * 1000000u +
                                    (uint64_t)now.tv_nsec / 1000u
                          : 0;
}

uint64_t
rps_random_id(void)
{
    uint64_t id = 0;

    /* before the pool is ready (early boot) time and pid must do */
    if (getrandom(&id, sizeof(id), GRND_NONBLOCK) != sizeof(id) || id == 0) {
        id = rps_mix64(rps_clock_ns() ^ ((uint64_t)getpid() << 40));
    }
    return id;
}

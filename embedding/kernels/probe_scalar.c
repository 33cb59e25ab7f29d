/* SPDX-License-Identifier: Apache-2.0 */
#include "embedding/kernels/kernels.h"

static uint8_t
lane_of(const struct rps_index_line *line, uint64_t key)
{
    uint8_t lane = RPS_LANE_BEYOND;

    for (uint8_t i = 0; i < RPS_LINE_KEYS; i++) {
        if (line->rows[i] == 0) {
            lane = RPS_LANE_ABSENT;
        } else if (line->keys[i] == key) {
            return i;
        }
    }
    return lane;
}

static void
probe_scalar(const struct rps_index_line *const *lines, const uint64_t *keys,
        size_t n, uint8_t *lanes)
{
    for (size_t i = 0; i < n; i++) {
        lanes[i] = lane_of(lines[i], keys[i]);
    }
}

static uint64_t
find_scalar(const struct rps_index_line *const *lines, size_t width,
        const uint64_t *keys, size_t n, uint32_t *rows)
{
    uint64_t missing = 0;

    for (size_t i = 0; i < n; i++) {
        rows[i] = 0;
        for (size_t j = 0; j < width; j++) {
            const struct rps_index_line *line = lines[i * width + j];
            const uint8_t lane = lane_of(line, keys[i]);
            rows[i] |= lane < RPS_LINE_KEYS ? line->rows[lane] : 0;
        }
        missing |= (uint64_t)(rows[i] == 0) << i;
    }
    return missing;
}

void
rps_probe_init_scalar(struct rps_kernels *k)
{
    k->probe = probe_scalar;
    k->find = find_scalar;
}

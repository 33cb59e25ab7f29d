/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/message.h"

#include <stdlib.h>
#include <string.h>

struct wire_decision {
    uint64_t step;
    double loss;
    uint64_t save_step;
    uint32_t epoch;
    uint32_t wishes;
    uint32_t rank_count;
    uint32_t zero;
};

_Static_assert(sizeof(struct wire_decision) == 40, "no padding");

uint8_t *
rps_decision_encode(const struct rps_wire_decision *decision, size_t *bytes_out)
{
    const struct wire_decision wire = {
            .step = decision->step,
            .loss = decision->loss,
            .save_step = decision->save_step,
            .epoch = decision->epoch,
            .wishes = decision->wishes,
            .rank_count = decision->rank_count,
    };
    const size_t rank_bytes = decision->rank_count * sizeof(*decision->ranks);
    uint8_t *bytes = malloc(sizeof(wire) + rank_bytes);

    if (bytes == NULL) {
        return NULL;
    }
    memcpy(bytes, &wire, sizeof(wire));
    if (rank_bytes > 0) {
        memcpy(bytes + sizeof(wire), decision->ranks, rank_bytes);
    }
    *bytes_out = sizeof(wire) + rank_bytes;
    return bytes;
}

static rps_status
check_ranks(const uint32_t *ranks, uint32_t count, struct rps_error *error)
{
    for (uint32_t i = 0; i < count; i++) {
        if (ranks[i] >= RPS_REPLICAS_MAX ||
                (i > 0 && ranks[i] <= ranks[i - 1])) {
            return rps_fail(error, RPS_E_CORRUPT,
                    "decision: rank %u at position %u is out of order or "
                    "range",
                    ranks[i], i);
        }
    }
    return RPS_OK;
}

rps_status
rps_decision_decode(const void *bytes, size_t length,
        struct rps_wire_decision *out, struct rps_error *error)
{
    struct wire_decision wire;
    uint32_t *ranks = NULL;
    rps_status status = RPS_OK;

    *out = (struct rps_wire_decision){0};
    if (length < sizeof(wire)) {
        return rps_fail(error, RPS_E_CORRUPT,
                "decision of %zu bytes, at least %zu", length, sizeof(wire));
    }
    memcpy(&wire, bytes, sizeof(wire));
    if (wire.rank_count > RPS_REPLICAS_MAX || wire.zero != 0 ||
            length - sizeof(wire) != wire.rank_count * sizeof(*ranks)) {
        return rps_fail(error, RPS_E_CORRUPT, "decision: %u ranks in %zu bytes",
                wire.rank_count, length);
    }
    ranks = malloc((wire.rank_count + 1u) * sizeof(*ranks));
    if (ranks == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "decision: out of memory");
    }
    memcpy(ranks, (const uint8_t *)bytes + sizeof(wire), length - sizeof(wire));
    status = check_ranks(ranks, wire.rank_count, error);
    if (status != RPS_OK) {
        free(ranks);
        return status;
    }
    *out = (struct rps_wire_decision){
            .step = wire.step,
            .loss = wire.loss,
            .save_step = wire.save_step,
            .epoch = wire.epoch,
            .wishes = wire.wishes,
            .rank_count = wire.rank_count,
            .ranks = ranks,
    };
    return RPS_OK;
}

void
rps_decision_finish(struct rps_wire_decision *decision)
{
    free(decision->ranks);
    *decision = (struct rps_wire_decision){0};
}

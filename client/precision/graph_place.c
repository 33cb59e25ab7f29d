/* SPDX-License-Identifier: Apache-2.0 */
/* Owns nothing; strides come from a manifest, so sums are checked. */
#include "client/precision/graph_place.h"

static uint64_t
size_of(enum rps_dump_dtype dtype)
{
    switch (dtype) {
    case RPS_DUMP_BF16: /* there it was two bytes, the file has four */
        return 2;
    case RPS_DUMP_F64:
    case RPS_DUMP_I64:
    case RPS_DUMP_U64:
        return 8;
    default:
        return 4;
    }
}

/* From the last dimension to the first: false where a number overflows. */
static bool
add_dim(struct rps_place *place, uint64_t size, uint64_t stride)
{
    uint64_t bytes = 0, reach = 0, end = 0;
    const uint64_t step = place->count;

    if (__builtin_mul_overflow(stride, place->size, &bytes) ||
            __builtin_mul_overflow(bytes, size - 1, &reach) ||
            __builtin_add_overflow(place->end, reach, &end) ||
            __builtin_mul_overflow(place->count, size, &place->count)) {
        return false;
    }
    place->end = end;
    if (place->ndim > 0) {
        struct rps_place_dim *inner = &place->dim[place->ndim - 1];

        if (inner->stride * inner->size == bytes &&
                inner->step * inner->size == step) {
            inner->size *= size;
            return true;
        }
    }
    place->dim[place->ndim++] =
            (struct rps_place_dim){.size = size, .stride = bytes, .step = step};
    return true;
}

static void
turn(struct rps_place *place)
{
    for (uint32_t i = 0; i < place->ndim / 2; i++) {
        const struct rps_place_dim dim = place->dim[i];

        place->dim[i] = place->dim[place->ndim - 1 - i];
        place->dim[place->ndim - 1 - i] = dim;
    }
}

struct rps_place
rps_place_of(const struct rps_dumped_tensor *tensor)
{
    struct rps_place place = {.first = tensor->place,
            .end = tensor->place,
            .count = 1,
            .size = size_of(tensor->dtype)};

    if (tensor->place == 0 || tensor->ndim > RPS_DUMP_DIMS_MAX ||
            __builtin_add_overflow(place.end, place.size, &place.end)) {
        return (struct rps_place){0};
    }
    for (uint32_t d = tensor->ndim; d-- > 0;) {
        if (tensor->shape[d] == 0 ||
                (tensor->shape[d] > 1 && !add_dim(&place, tensor->shape[d],
                                                 tensor->strides[d]))) {
            return (struct rps_place){0};
        }
    }
    turn(&place);
    return place.count > RPS_PLACE_ELEMENTS_MAX ? (struct rps_place){0} : place;
}

bool
rps_place_may_meet(const struct rps_place *a, const struct rps_place *b)
{
    return a->count > 0 && b->count > 0 && a->first < b->end &&
           b->first < a->end;
}

uint64_t
rps_place_address(const struct rps_place *place, uint64_t element)
{
    uint64_t address = place->first;

    for (uint32_t d = 0; d < place->ndim; d++) {
        address += element / place->dim[d].step * place->dim[d].stride;
        element %= place->dim[d].step;
    }
    return address;
}

uint64_t
rps_place_run(const struct rps_place *place, uint64_t element)
{
    const struct rps_place_dim *last = NULL;

    if (place->ndim == 0) {
        return 1;
    }
    last = &place->dim[place->ndim - 1];
    return last->stride == place->size ? last->size - element % last->size : 1;
}

/* Dimensions by stride, the longest first: a transposed output's, too. */
static void
sort(struct rps_place *place)
{
    for (uint32_t i = 1; i < place->ndim; i++) {
        const struct rps_place_dim dim = place->dim[i];
        uint32_t at = i;

        for (; at > 0 && place->dim[at - 1].stride < dim.stride; at--) {
            place->dim[at] = place->dim[at - 1];
        }
        place->dim[at] = dim;
    }
}

struct rps_place_found
rps_place_find(const struct rps_place *given, uint64_t address)
{
    struct rps_place_found found = {.bytes = UINT64_MAX};
    struct rps_place place = *given;
    uint64_t left = 0;
    uint64_t run = place.size;

    if (place.count == 0 || address >= place.end) {
        return found;
    }
    if (address < place.first) {
        found.bytes = place.first - address;
        return found;
    }
    sort(&place);
    left = address - place.first;
    for (uint32_t d = 0; d < place.ndim; d++) {
        const struct rps_place_dim *dim = &place.dim[d];
        const uint64_t index = dim->stride > 0 ? left / dim->stride : 0;

        if (index >= dim->size) { /* beyond this one: in the next one outside */
            found.bytes = d > 0 ? place.dim[d - 1].stride - left : UINT64_MAX;
            return found;
        }
        found.element += index * dim->step;
        if (dim->stride == place.size && dim->step == 1) {
            run = (dim->size - index) * dim->stride;
        }
        left -= index * dim->stride;
    }
    if (left >= place.size) { /* behind its last element */
        found.element = 0;
        found.bytes = place.dim[place.ndim - 1].stride - left;
        return found;
    }
    found.is_there = true;
    found.bytes = run - left;
    return found;
}

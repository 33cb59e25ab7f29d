/* SPDX-License-Identifier: Apache-2.0 */
#include "client/npu/kernels/scatter.h"

#include <string.h>

/* How many of the rows that it is told of are wholly there. */
static size_t
rows_there(const struct rps_npu_scatter_args *args)
{
    const size_t first = args->header[0] > 0 ? (size_t)args->header[0] : 0;
    const size_t told = args->header[1] > 0 ? (size_t)args->header[1] : 0;
    size_t count = 0;

    if (args->header[0] >= 0 && first < args->packed_count) {
        count = (args->packed_count - first) / args->dim;
    }
    count = count < args->capacity ? count : args->capacity;
    return count < told ? count : told;
}

void
rps_npu_scatter_kernel(const void *context, void *workspace)
{
    const struct rps_npu_scatter_args *args = context;
    const size_t count = rows_there(args);

    (void)workspace;
    for (size_t i = 0; i < count; i++) {
        const int32_t place = args->places[i];

        if (place >= 0 && (size_t)place < args->row_count) {
            memcpy(args->rows + (size_t)place * args->row_stride,
                    args->packed + (size_t)args->header[0] + i * args->dim,
                    args->dim * sizeof(float));
        }
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Built without hiredis. */
#include "bench/net/versus.h"

const struct bench_rival_ops *
bench_redis_ops(void)
{
    return NULL;
}

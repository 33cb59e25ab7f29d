/* SPDX-License-Identifier: Apache-2.0 */
/* Built without libmemcached. */
#include "bench/net/versus.h"

const struct bench_rival_ops *
bench_memcached_ops(void)
{
    return NULL;
}

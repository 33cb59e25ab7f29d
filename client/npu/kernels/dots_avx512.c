/* SPDX-License-Identifier: Apache-2.0 */
#define RPS_DOTS_SET   rps_dots_avx512
#define RPS_DOTS_ISA   "avx512"
#define RPS_DOTS_BYTES 64u
#include "client/npu/kernels/dots_body.h"

/* SPDX-License-Identifier: Apache-2.0 */
#define RPS_DOTS_SET   rps_dots_avx2
#define RPS_DOTS_ISA   "avx2"
#define RPS_DOTS_BYTES 32u
#include "client/npu/kernels/dots_body.h"

/* SPDX-License-Identifier: Apache-2.0 */
#define RPS_DOTS_SET   rps_dots_scalar
#define RPS_DOTS_ISA   "scalar"
#define RPS_DOTS_BYTES 16u
#include "client/npu/kernels/dots_body.h"

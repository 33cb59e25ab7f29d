/* SPDX-License-Identifier: Apache-2.0 */
#define RPS_NPU_SET   rps_npu_elementwise_avx2
#define RPS_NPU_ISA   "avx2"
#define RPS_NPU_BYTES 32u
#include "client/npu/kernels/elementwise_body.h"

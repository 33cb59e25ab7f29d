/* SPDX-License-Identifier: Apache-2.0 */
#define RPS_NPU_SET   rps_npu_elementwise_scalar
#define RPS_NPU_ISA   "scalar"
#define RPS_NPU_BYTES 16u
#include "client/npu/kernels/elementwise_body.h"

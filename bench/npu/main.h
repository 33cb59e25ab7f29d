/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RPS_BENCH_NPU_MAIN_H
#define RPS_BENCH_NPU_MAIN_H

/** `recps-bench npu`; argv[0] is what getopt calls us. Exit code. */
int bench_npu_main(int argc, char **argv);

#endif /* RPS_BENCH_NPU_MAIN_H */

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RPS_BENCH_CHECKPOINT_MAIN_H
#define RPS_BENCH_CHECKPOINT_MAIN_H

/** `recps-bench checkpoint`; argv[0] is what getopt calls us. Exit code. */
int bench_checkpoint_main(int argc, char **argv);

#endif /* RPS_BENCH_CHECKPOINT_MAIN_H */

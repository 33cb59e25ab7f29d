/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RPS_BENCH_ALLREDUCE_MAIN_H
#define RPS_BENCH_ALLREDUCE_MAIN_H

int bench_allreduce_main(int argc, char **argv);

#endif /* RPS_BENCH_ALLREDUCE_MAIN_H */

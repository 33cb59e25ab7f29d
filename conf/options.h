/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every option of every program, once: flag, RPS_ variable, "recps" object,
 * default, help. Precedence: flag > variable > "recps" > default. The flag
 * is the name with dashes (underscores work, too), the variable RECPS_ in
 * capitals (RECPS_CHECKPOINT_DIR), the JSON key the name as it is.
 * docs/OPTIONS.md is printed from this table (conf/options_doc.c).
 */
#ifndef RPS_CONF_OPTIONS_H
#define RPS_CONF_OPTIONS_H

#include "base/error.h"

#include <recps/cluster.h>

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/** Which program takes an option (bits). */
#define RPS_SCOPE_SERVER 1u /* recpsd */
#define RPS_SCOPE_TRAIN  2u /* recps-train */
#define RPS_SCOPE_TOOL   4u /* recps */
#define RPS_SCOPE_LAUNCH 8u /* recps launch, which makes the cluster */
#define RPS_SCOPE_JOB \
    (RPS_SCOPE_SERVER | RPS_SCOPE_TRAIN | RPS_SCOPE_TOOL | RPS_SCOPE_LAUNCH)

/*
 * Types: STRING char *, U64 uint64_t, F64 double, BOOL bool, BYTES uint64_t
 * ("64k"), SECONDS double, CHOICE char *, OPTIONAL char * (the flag alone is
 * "", --restore=STEP its text, NULL: not given). `allowed` is "LOW..HIGH"
 * for numbers, for the length of a STRING in bytes too, "a|b|c" for a CHOICE,
 * and a word beside the number of an OPTIONAL; "" allows everything of the
 * type.
 */
/* clang-format off */
/*  X(scope, name, type, default as text, unit, allowed, what it sets) */
#define RPS_OPTIONS(X) \
  X(RPS_SCOPE_JOB, checkpoint_dir, STRING, "", "", "", "folder of checkpoints; empty: none") \
  X(RPS_SCOPE_JOB, job_id, STRING, "recps", "", "1..128", "name of the job; members of another are refused") \
  X(RPS_SCOPE_JOB, job_seed, U64, "0", "", "", "routes keys to servers; fixed for a checkpoint's life") \
  X(RPS_SCOPE_JOB, connect_timeout, SECONDS, "300", "s", "0..86400", "how long to wait for unreachable servers") \
  X(RPS_SCOPE_TRAIN | RPS_SCOPE_TOOL, reconnect_timeout, SECONDS, "60", "s", "0..86400", "how long a server whose connection was lost is dialled again; 0: never") \
  X(RPS_SCOPE_JOB, step_timeout, SECONDS, "60", "s", "0.1..86400", "how long a step waits for a replica that is lost or does not end it") \
  X(RPS_SCOPE_JOB, step_bytes_max, BYTES, "256MiB", "bytes", "4KiB..1TiB", "a replica's push of one step to one server") \
  X(RPS_SCOPE_JOB, token_file, STRING, "", "", "", "file with the job's token: 32 bytes at least, for the owner alone to read") \
  X(RPS_SCOPE_JOB, tls_cert, STRING, "", "", "", "PEM file with the own certificate; a server with one speaks TLS only") \
  X(RPS_SCOPE_JOB, tls_key, STRING, "", "", "", "PEM file with its key, for the owner alone to read") \
  X(RPS_SCOPE_JOB, tls_ca, STRING, "", "", "", "PEM file with the CA of the peers' certificates; a client with one speaks TLS only, a server wants certificates") \
  X(RPS_SCOPE_SERVER | RPS_SCOPE_LAUNCH, tls_clients, CHOICE, "verify", "", "verify|any", "verify: a server with tls_ca asks clients for certificates; any: it asks for none, so that one set of options suits all members") \
  X(RPS_SCOPE_JOB, unix_dir, STRING, "", "", "", "folder of the servers' Unix sockets, for the owner alone; empty: $XDG_RUNTIME_DIR/recps, else /tmp/recps-UID; off: none") \
  X(RPS_SCOPE_TRAIN | RPS_SCOPE_TOOL | RPS_SCOPE_LAUNCH, transport, CHOICE, "auto", "", "auto|tcp|unix|shm|local", "how servers are reached; auto: shared memory on this host, else TCP; in process where there is no cluster") \
  X(RPS_SCOPE_JOB, log_level, CHOICE, "info", "", "debug|info|warn|error", "least severe line that is logged") \
  X(RPS_SCOPE_JOB, log_format, CHOICE, "text", "", "text|json", "form of the log lines") \
  X(RPS_SCOPE_SERVER, bind, STRING, "", "", "", "listen on this host:port instead of the own entry") \
  X(RPS_SCOPE_SERVER, port_file, STRING, "", "", "", "write the port that was bound to this file (port 0)") \
  X(RPS_SCOPE_SERVER | RPS_SCOPE_TRAIN | RPS_SCOPE_LAUNCH, admin, STRING, "127.0.0.1:9464", "", "", "host:port of probes and metrics (HTTP); off: none; of recps-train the flag alone counts, without it there is none; entry: at its own entry of the cluster") \
  X(RPS_SCOPE_SERVER | RPS_SCOPE_TRAIN, admin_port_file, STRING, "", "", "", "write the admin port that was bound to this file (port 0)") \
  X(RPS_SCOPE_SERVER | RPS_SCOPE_LAUNCH, live_timeout, SECONDS, "10", "s", "0.5..86400", "/livez fails when an event loop has not turned for so long") \
  X(RPS_SCOPE_SERVER | RPS_SCOPE_LAUNCH, auth, CHOICE, "", "", "|none", "none: serve any peer also on a non-loopback address") \
  X(RPS_SCOPE_SERVER | RPS_SCOPE_LAUNCH, loops, U64, "0", "threads", "0..64", "event loops; 0: one a core, at most 8") \
  X(RPS_SCOPE_SERVER | RPS_SCOPE_LAUNCH, connections_max, U64, "4096", "connections", "1..1000000", "connections served at once") \
  X(RPS_SCOPE_SERVER | RPS_SCOPE_LAUNCH, handshakes_max, U64, "512", "connections", "1..1000000", "of them, those that have not said HELLO yet; the oldest is closed beyond that") \
  X(RPS_SCOPE_SERVER | RPS_SCOPE_LAUNCH, buffers_max, BYTES, "1GiB", "bytes", "64MiB..1TiB", "memory of connections: requests that come in, replies that are not taken yet; nothing large is read beyond that") \
  X(RPS_SCOPE_SERVER | RPS_SCOPE_LAUNCH, client_ttl, SECONDS, "86400", "s", "1..31536000", "a client without a connection is forgotten after this long") \
  X(RPS_SCOPE_SERVER | RPS_SCOPE_LAUNCH, start_from, CHOICE, "empty", "", "empty|newest", "tables at the start: none, or those of the newest complete checkpoint") \
  X(RPS_SCOPE_SERVER | RPS_SCOPE_LAUNCH, warm_start_dirs, STRING, "", "", "", "folders, commas between, that a job may begin from (--warm-start) beside checkpoint_dir, and all below them") \
  X(RPS_SCOPE_SERVER, serve, STRING, "", "", "", "serve the newest checkpoint of this folder for reading, and follow it; empty: no") \
  X(RPS_SCOPE_SERVER, serve_poll, SECONDS, "2", "s", "0.05..86400", "how often the folder of --serve is looked at") \
  X(RPS_SCOPE_SERVER | RPS_SCOPE_LAUNCH, shm_ring, BYTES, "4MiB", "bytes", "64KiB..1GiB", "shared memory of a connection in each direction; rounded up to a power of two") \
  X(RPS_SCOPE_SERVER | RPS_SCOPE_LAUNCH, memory_limit, BYTES, "0", "bytes", "0..1024TiB", "memory of a server's tables together, 8MiB at least; 0: no limit") \
  X(RPS_SCOPE_SERVER | RPS_SCOPE_LAUNCH, disk_tier, STRING, "", "", "", "folder of a scratch file for rows beyond the memory limits; empty: none") \
  X(RPS_SCOPE_SERVER | RPS_SCOPE_LAUNCH, disk_limit, BYTES, "0", "bytes", "0..1024TiB", "of that file; 0: as much as the disk has") \
  X(RPS_SCOPE_SERVER | RPS_SCOPE_LAUNCH, save_buffer, BYTES, "256MiB", "bytes", "64KiB..1TiB", "memory of rows that change while a checkpoint is written; when it is full, pushes to rows that are not written yet wait for the disk") \
  X(RPS_SCOPE_SERVER | RPS_SCOPE_LAUNCH, numa, CHOICE, "off", "", "off|interleave|bind", "where memory of tables lies: off, as it comes; over all nodes; or on that of the asking thread") \
  X(RPS_SCOPE_SERVER | RPS_SCOPE_LAUNCH, drain_delay, SECONDS, "2", "s", "0..3600", "how long new connections are still served after SIGTERM; on the loopback 0, if it is not given") \
  X(RPS_SCOPE_SERVER | RPS_SCOPE_LAUNCH, drain_timeout, SECONDS, "25", "s", "0..86400", "longest time from SIGTERM to exit") \
  X(RPS_SCOPE_TRAIN, model, CHOICE, "dlrm", "", "dlrm|little_demo", "what to train") \
  X(RPS_SCOPE_TRAIN, model_config, STRING, "", "", "", "JSON file that describes the model: its tables, layers and optimizers (docs/TRAINING.md)") \
  X(RPS_SCOPE_TRAIN, data, STRING, "", "", "", "criteo:PATH, ml-100k:DIR, libfm:PATH, feasign:PATH or synthetic:k=v,...") \
  X(RPS_SCOPE_TRAIN, eval_data, STRING, "", "", "", "data of the evaluation, as --data") \
  X(RPS_SCOPE_TRAIN, train_rows, U64, "0", "rows", "", "rows that train, the rest is test; 0: all train") \
  X(RPS_SCOPE_TRAIN, epochs, U64, "1", "epochs", "1..1000000", "passes over the training rows") \
  X(RPS_SCOPE_TRAIN, steps, U64, "0", "steps", "", "steps at most; 0: no limit") \
  X(RPS_SCOPE_TRAIN, batch_size, U64, "128", "rows", "1..16777216", "rows a step of one replica") \
  X(RPS_SCOPE_TRAIN, shuffle, U64, "0", "rows", "0..1073741824", "size of the seeded shuffle buffer; 0: file order") \
  X(RPS_SCOPE_TRAIN, emb_dim, U64, "16", "floats", "1..8192", "floats of an embedding (dlrm)") \
  X(RPS_SCOPE_TRAIN, bottom_mlp, STRING, "64,16", "floats", "1..1024", "layers of the bottom MLP; the last equals --emb-dim") \
  X(RPS_SCOPE_TRAIN, top_mlp, STRING, "64,1", "floats", "1..1024", "layers of the top MLP; the last is 1") \
  X(RPS_SCOPE_TRAIN, sparse_optimizer, CHOICE, "adagrad", "", "sgd|momentum|adagrad|rowwise_adagrad|adam|adamw|adam_catchup|adamw_catchup|ftrl|rmsprop", "optimizer of the embedding table") \
  X(RPS_SCOPE_TRAIN, sparse_lr, F64, "0.02", "", "1e-30..1e6", "its learning rate") \
  X(RPS_SCOPE_TRAIN, sparse_accumulator, F64, "0.1", "", "0..1e6", "initial accumulator of adagrad, rowwise_adagrad and ftrl") \
  X(RPS_SCOPE_TRAIN, sparse_init, STRING, "uniform:-0.05,0.05", "", "1..1024", "zeros, constant:V, uniform:LOW,HIGH, normal:MEAN,DEVIATION or truncated_normal:MEAN,DEVIATION") \
  X(RPS_SCOPE_TRAIN, dense_optimizer, CHOICE, "adam", "", "sgd|momentum|adagrad|rowwise_adagrad|adam|adamw|adam_catchup|adamw_catchup|ftrl|rmsprop", "optimizer of the dense variables") \
  X(RPS_SCOPE_TRAIN, dense_lr, F64, "0.001", "", "1e-30..1e6", "its learning rate") \
  X(RPS_SCOPE_TRAIN, sparse_schedule, STRING, "constant", "", "1..1024", "how it changes with the steps: constant, polynomial:..., exponential:... or piecewise:...; TABLE=SCHEDULE;... a table") \
  X(RPS_SCOPE_TRAIN, dense_schedule, STRING, "constant", "", "1..1024", "the same of --dense-lr") \
  X(RPS_SCOPE_TRAIN, loss_scale, STRING, "1", "", "1..64", "factor of the loss while gradients are computed: a power of two, or dynamic") \
  X(RPS_SCOPE_TRAIN, loss_scale_growth, U64, "2000", "steps", "1..1000000000", "clean steps after which a dynamic loss scale doubles") \
  X(RPS_SCOPE_TRAIN, mode, STRING, "sync", "", "1..32", "what a step waits for: sync, async or bounded:S, in which a replica is at most S steps ahead of the slowest") \
  X(RPS_SCOPE_TRAIN, combine, CHOICE, "sum", "", "sum|mean", "how the replicas' gradients become one (sync)") \
  X(RPS_SCOPE_TRAIN, backup_workers, U64, "0", "replicas", "0..65535", "a step of sync is decided when all but so many ended it; what the slow ones pushed is dropped") \
  X(RPS_SCOPE_TRAIN | RPS_SCOPE_LAUNCH, on_lost, CHOICE, "stop", "", "stop|leave", "what a replica that is lost, or ends no step, for --step-timeout does to the others: stop them; leave: they go on without it") \
  X(RPS_SCOPE_TRAIN, dense, CHOICE, "ps", "", "ps|allreduce", "where dense variables live: at the servers, or in each worker (MPI)") \
  X(RPS_SCOPE_TRAIN, allreduce, CHOICE, "default", "", "default|ring", "how --dense allreduce sums gradients: as MPI chooses, or in a ring") \
  X(RPS_SCOPE_TRAIN, allreduce_bucket, BYTES, "16MiB", "bytes", "4KiB..4GiB", "gradients are summed together up to this size") \
  X(RPS_SCOPE_TRAIN, ring_order, STRING, "", "", "", "file with the ranks in the order of the ring: what recps ranktable plan --json prints") \
  X(RPS_SCOPE_TRAIN, dense_seed, U64, "0", "", "", "of the dense start values; not given: --seed") \
  X(RPS_SCOPE_TRAIN, seed, U64, "1", "", "", "of start values and shuffle") \
  X(RPS_SCOPE_TRAIN, save_steps, U64, "0", "steps", "", "save every so many steps; 0: only at the end") \
  X(RPS_SCOPE_TRAIN, save_deltas, U64, "0", "deltas", "0..16", "how many saves after a full one hold only what changed; 0: every save is full") \
  X(RPS_SCOPE_TRAIN, cut, CHOICE, "job", "", "job|local", "what a save of async and bounded is a state of: job, of one step of all replicas, who wait for it; local, of each server's own moment (docs/TRAINING.md)") \
  X(RPS_SCOPE_TRAIN, keep, U64, "5", "checkpoints", "1..1000000", "complete checkpoints that stay") \
  X(RPS_SCOPE_TRAIN, restore, OPTIONAL, "", "step", "auto", "start from the newest checkpoint, or from =STEP; =auto: from the newest one, if there is any") \
  X(RPS_SCOPE_TRAIN, warm_start, STRING, "", "", "", "DIR, DIR:STEP or DIR/ckpt-STEP: begin a new job with the rows of another one's newest checkpoint there, or of that step") \
  X(RPS_SCOPE_TRAIN, restore_tables, STRING, "", "", "", "tables that --restore and --warm-start take, commas between; NEW=OLD: the checkpoint's OLD as NEW; the others begin fresh; empty: all") \
  X(RPS_SCOPE_TRAIN, restore_weights_only, BOOL, "false", "", "", "--restore and --warm-start take rows without optimizer slots, which begin fresh") \
  X(RPS_SCOPE_TRAIN, recover, BOOL, "false", "", "", "when a process of the job was lost, wait until it is started again, go back to the newest checkpoint and go on") \
  X(RPS_SCOPE_TRAIN, init_from, STRING, "", "", "", "folder with start weights: one .npy a variable, keys.tsv") \
  X(RPS_SCOPE_TRAIN, evaluate, BOOL, "false", "", "", "restore and evaluate only") \
  X(RPS_SCOPE_TRAIN, predict, STRING, "", "", "", "restore, write a probability a test row to this file") \
  X(RPS_SCOPE_TRAIN, blas_threads, U64, "1", "threads", "1..1024", "threads of the dense kernels") \
  X(RPS_SCOPE_TRAIN, pipeline_depth, U64, "3", "batches", "1..64", "batches in hand: one is computed, the others are read and looked up ahead") \
  X(RPS_SCOPE_TRAIN, client_thread, BOOL, "false", "", "", "a thread moves requests and replies while the loop computes (docs/TRAINING.md)") \
  X(RPS_SCOPE_TRAIN, device, CHOICE, "cpu", "", "cpu|npu", "what computes the model: plain calls here, or a simulated NPU of this host (docs/NPU.md)") \
  X(RPS_SCOPE_TRAIN, device_id, STRING, "auto", "", "1..16", "which of the host's NPUs, a number from 0 on; auto: that of the worker's place among those of the host") \
  X(RPS_SCOPE_TRAIN, device_memory, BYTES, "1GiB", "bytes", "1MiB..1TiB", "memory of the NPU") \
  X(RPS_SCOPE_TRAIN, npu_loop_size, U64, "0", "steps", "0..1000000", "steps that the NPU does a launch; 0: what NPU_LOOP_SIZE says, else 1") \
  X(RPS_SCOPE_TRAIN, link_bandwidth, BYTES, "0", "bytes/s", "0..1TiB", "of the NPU's simulated link to the host, each way; 0: as fast as the machine") \
  X(RPS_SCOPE_TRAIN, copy_latency, SECONDS, "0", "s", "0..1", "that each copy over this link takes beside its bytes") \
  X(RPS_SCOPE_TRAIN, launch_latency, SECONDS, "0", "s", "0..1", "that each launch of work on the NPU costs the host") \
  X(RPS_SCOPE_TRAIN, micro_batch, U64, "1", "parts", "1..65536", "parts in which the NPU computes a batch, one after the other: less memory, as many more operators") \
  X(RPS_SCOPE_TRAIN, recompute, BOOL, "false", "", "", "the NPU forgets activations and computes them again for the gradients") \
  X(RPS_SCOPE_TRAIN, offload, BOOL, "false", "", "", "the NPU keeps activations in the host's memory until the gradients need them") \
  X(RPS_SCOPE_TRAIN, dropout, F64, "0", "", "0..0.99", "share of each hidden layer's outputs that the NPU drops in training; 0: there is no dropout") \
  X(RPS_SCOPE_TRAIN, precision_mode, CHOICE, "origin", "", "origin|mixed", "the NPU's products: of float32, or of bfloat16 with float32 sums") \
  X(RPS_SCOPE_TRAIN, implmode, CHOICE, "high_performance", "", "high_performance|high_precision", "the NPU's sums and functions: float32, or float64 with exact exp and tanh") \
  X(RPS_SCOPE_TRAIN, fusion, CHOICE, "on", "", "on|off", "operators of the NPU that have a fused form are one operation") \
  X(RPS_SCOPE_TRAIN, device_cache, STRING, "off", "", "1..16", "rows of each sparse table that stay in the NPU's memory, least recently used out: off; on, its device_vocabulary_size; or a number") \
  X(RPS_SCOPE_TRAIN, cache_staleness, U64, "0", "steps", "0..1000000", "how many steps' pushes a row that stays on the NPU may lack; 0: none, the bits of no cache") \
  X(RPS_SCOPE_TRAIN, deterministic, BOOL, "false", "", "", "refuse what lets losses and tables differ between runs: other modes than sync, more BLAS threads, eviction") \
  X(RPS_SCOPE_TRAIN, log_every, U64, "1", "steps", "1..1000000000", "a report line every so many steps") \
  X(RPS_SCOPE_TRAIN, json_log, STRING, "", "", "", "write a JSON line a report to this file") \
  X(RPS_SCOPE_TRAIN, summary_dir, STRING, "", "", "", "write scalar summaries below this folder") \
  X(RPS_SCOPE_TRAIN, profile, STRING, "", "", "", "write what each step does, and for how long, below this folder (docs/PROFILE.md); empty: no") \
  X(RPS_SCOPE_TRAIN, profile_steps, STRING, "11:20", "steps", "1..64", "FIRST:LAST: the steps that --profile is of") \
  X(RPS_SCOPE_TRAIN, dump, BOOL, "false", "", "", "write what every operator of some steps reads and writes, as .npy files (docs/PRECISION.md)") \
  X(RPS_SCOPE_TRAIN, dump_step, STRING, "0", "steps", "1..256", "the steps of a dump, and --dump with it: 0 is the first of the job; 0|5|10, 0-3|7 or all") \
  X(RPS_SCOPE_TRAIN, dump_path, STRING, "", "", "", "the folder of a dump, and --dump with it; empty: precision_data/npu/debug_0, of --device cpu precision_data/tf/dump") \
  X(RPS_SCOPE_TRAIN, rotate, BOOL, "false", "", "", "--dump moves the dump that is there to the next name, debug_0 to debug_1; else it is refused") \
  X(RPS_SCOPE_TRAIN, dump_limit, BYTES, "8GiB", "bytes", "4KiB..1024TiB", "of a dump's files; what would have more is refused before it begins") \
  X(RPS_SCOPE_TRAIN, dump_rank, U64, "0", "", "0..65535", "the replica that dumps; the others do not") \
  X(RPS_SCOPE_TRAIN, dump_and_save, BOOL, "false", "", "", "--dump goes with --save-steps") \
  X(RPS_SCOPE_TRAIN, on_bad_row, CHOICE, "stop", "", "stop|skip", "what a malformed row does")
/* clang-format on */

struct rps_options {
#define RPS_OPTION_C_STRING   char *
#define RPS_OPTION_C_CHOICE   char *
#define RPS_OPTION_C_OPTIONAL char *
#define RPS_OPTION_C_U64      uint64_t
#define RPS_OPTION_C_BYTES    uint64_t
#define RPS_OPTION_C_F64      double
#define RPS_OPTION_C_SECONDS  double
#define RPS_OPTION_C_BOOL     bool
#define RPS_OPTION_FIELD(scope, name, type, value, unit, allowed, text) \
    RPS_OPTION_C_##type name;
    RPS_OPTIONS(RPS_OPTION_FIELD)
#undef RPS_OPTION_FIELD

    /* where each value came from, by index in the table */
    const uint8_t *origins; /* enum rps_origin */

    /* not from the table */
    rps_cluster cluster;
    bool quiet; /* set before reading: what is refused is kept, not printed */
    bool check_config; /* recpsd --check-config */
    bool json;         /* --json */
    int argc;          /* what is left: subcommands, operands after "--" */
    char **argv;
    char *refusal; /* why reading failed, or NULL */
    void *owned;
};

enum rps_origin {
    RPS_ORIGIN_DEFAULT,
    RPS_ORIGIN_JSON,
    RPS_ORIGIN_ENV,
    RPS_ORIGIN_FLAG
};

/** Was this option given (not its default)? e.g. rps_option_given(&o, "steps")
 */
bool rps_option_given(const struct rps_options *options, const char *name);

/**
 * Read flags (the guide's host flags, --tf-config, --num-ps, --num-workers,
 * --allow-unknown-roles, --check-config, --json, --help, --version, and the
 * table's options of this scope), environment and "recps" object; resolve
 * the cluster. Everything but success prints to stderr, as a line of the log
 * where a daemon's or trainer's --log-format is json (or the answer of
 * --help, --version to stdout) and is an exit code:
 * -1: go on; 0: --help or --version was answered; 64: bad option; 78:
 * TF_CONFIG or "recps" object refused. With check_config set, 78's verdict
 * was printed as --check-config asks. Where it goes on, the log is set up
 * (level, format) and cluster.notes are logged.
 *
 * usage: the first lines of --help, "usage: PROGRAM ..." and what it is for.
 * stop_at_operand: the first argument that is no flag ends the flags (recps:
 * it is the subcommand). Otherwise an operand is refused.
 */
int rps_options_read(struct rps_options *options, uint32_t scope,
        const char *program, const char *usage, bool stop_at_operand, int argc,
        char **argv);

/** Release; a zeroed one is fine. */
void rps_options_finish(struct rps_options *options);

/**
 * {"NAME": {"value": …, "from": "default|recps|variable|flag"}, …} of this
 * scope; a token, password or secret is not shown. New reference.
 */
json_t *rps_options_json(const struct rps_options *options, uint32_t scope);

/**
 * {"NAME": value, …} of this scope: those that are not what they are by
 * default. Without names of files with secrets, keys and certificates. NULL:
 * no memory. New reference.
 */
json_t *rps_options_changed_json(
        const struct rps_options *options, uint32_t scope);

/** {"RECPS_NAME": "text", …}: of those, the ones that came from variables. */
json_t *rps_options_variables_json(
        const struct rps_options *options, uint32_t scope);

/** What the daemon adds to the resolution: where it would listen, whom it would
 * ask for what, its admin port, and the exit code that a start would have at
 * once; 0: it would serve. */
struct rps_check_more {
    const char *listen;
    const char *auth;
    const char *admin;
    int start;
};

/** recpsd --check-config: print the resolution (text or JSON) and what is
 * added, or NULL; returns 0. */
int rps_check_config_print(
        const struct rps_options *options, const struct rps_check_more *more);

/** The same of a refusal that is none of the cluster's: the verdict, as JSON
 * where that was asked for; returns `exit_code`. */
int rps_check_config_refuse(const struct rps_options *options, int exit_code,
        const char *code, const char *words);

#endif /* RPS_CONF_OPTIONS_H */

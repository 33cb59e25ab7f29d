/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recps launch, in five parts: the plan (who there is, on which port, with
 * which TF_CONFIG), the children (start, label and forward their output),
 * the watch (who ended how, and what follows), who is started again, and where
 * programs are found.
 */
#ifndef RPS_CLIENT_CLI_LAUNCH_H
#define RPS_CLIENT_CLI_LAUNCH_H

#include "base/text.h"
#include "conf/options.h"

#include <recps/cluster.h>

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define RPS_LAUNCH_PS_MAX       256u
#define RPS_LAUNCH_WORKERS_MAX  1024u
#define RPS_LAUNCH_RESTARTS_MAX 10000u
#define RPS_LAUNCH_LINE_MAX     (64u << 10) /* a longer line is cut in pieces */

/** What the command line asked for. */
struct rps_launch {
    uint32_t ps_count;
    uint32_t worker_count;
    bool chief;
    bool evaluator;
    bool mpi;              /* the replicas under one mpirun */
    bool restart;          /* who fails is started again */
    uint32_t restarts_max; /* of one process in 10 minutes */
    const struct rps_options *options;
    char **command; /* NULL-ended */
};

/** One of a child's two streams. */
struct rps_launch_stream {
    int fd;                 /* -1: closed */
    int to;                 /* 1 or 2: forwarded there */
    struct rps_text line;   /* begun, not ended */
    char speaker[32];       /* whose line it is; "": the child's */
    uint32_t rank;          /* of mpirun's last tag */
    bool tagged;            /* there was one */
    struct rps_text banner; /* mpirun's, begun and not ended */
    bool in_banner;
};

struct rps_launch_child {
    enum rps_role role;
    uint32_t index;
    char label[32];  /* "worker:0" */
    char *tf_config; /* owned */
    char **argv;     /* owned, NULL: the plan's */
    uint32_t ranks;  /* of mpirun, which starts all replicas; 0: another */
    bool rank_0_is_chief;
    bool progress; /* "\r" ends a line that the next one replaces */
    pid_t pid;     /* also its process group; 0: not started */
    bool told;     /* to stop: how it ends is no failure */
    bool killed;
    uint64_t kill_ms; /* when it is killed, once told */
    bool ended;
    int code;               /* once ended; of a signal's death 128 + n */
    int signal_number;      /* that ended it; 0: none */
    uint64_t ended_ms;      /* clock */
    bool suspect;           /* it failed, and nobody has said why */
    uint32_t restarts;      /* so far */
    uint64_t restart_ms;    /* when it is started again; 0: it is not */
    uint64_t *restarted_ms; /* owned [restarts_max], the newest of them; NULL:
                             * there is none */
    struct rps_launch_stream streams[2];
};

struct rps_launch_plan {
    struct rps_launch_child *children; /* ps first, then replicas, evaluator */
    uint32_t count;
    uint32_t ps_count;
    bool on_lost_leave; /* a worker that fails does not stop the others */
    bool restart;       /* who fails is started again */
    uint32_t restarts_max;
    int label_width;
    int code;          /* of what was refused while it was made */
    uint64_t drain_ms; /* for the replicas, from TERM to KILL */
    const struct rps_options *options; /* borrowed */
    char *ps_hosts; /* "127.0.0.1:p,…", owned; NULL: embedded */
    int *held;      /* [held_count] sockets that keep the servers' ports */
    uint32_t held_count;
    char **server;  /* argv of a ps, owned */
    char **command; /* argv of the others, borrowed */
};

/** Choose ports and write every TF_CONFIG. Returns an exit code. */
int rps_launch_plan_make(
        struct rps_launch_plan *plan, const struct rps_launch *launch);
void rps_launch_plan_finish(struct rps_launch_plan *plan);

/** Add the child that is mpirun, with every replica. Returns an exit code. */
int rps_launch_mpi_add(struct rps_launch_plan *plan,
        const struct rps_launch *launch, const json_t *cluster, json_t *recps);

/** Take mpirun's tags out of the line and say whose it is; nothing where the
 * child is not mpirun. */
void rps_launch_mpi_untag(
        const struct rps_launch_child *child, struct rps_launch_stream *stream);

/** Is the line part of a banner of mpirun's that says no more than the exit
 * code, or may it become that? Lines of another come back in *shown_out, each
 * with its end; free(). `line` NULL: the stream has ended. */
bool rps_launch_mpi_banner(const struct rps_launch_child *child,
        struct rps_launch_stream *stream, const char *line, char **shown_out);

/** true, with a line that says so: the replicas that have not ended are all
 * stopped (SIGSTOP), others have ended, and both for --step-timeout.
 * *since_ms begins with 0 and is kept between the calls. */
bool rps_launch_is_halted(
        const struct rps_launch_plan *plan, uint64_t now, uint64_t *since_ms);

/** Path of recpsd, owned; "recpsd" if only PATH can know it. */
char *rps_launch_find_server(void);

/** Put the folders of our programs first in PATH. */
void rps_launch_extend_path(void);

/** fork and exec. false: errno says why. `terminal`: show progress. */
bool rps_launch_child_start(const struct rps_launch_plan *plan,
        struct rps_launch_child *child, bool terminal);

/** Read what is there and forward whole lines. */
void rps_launch_stream_read(const struct rps_launch_plan *plan,
        struct rps_launch_child *child, struct rps_launch_stream *stream);

/** The child is gone: what there is of a last line, and the pipe's end. */
void rps_launch_stream_close(const struct rps_launch_plan *plan,
        struct rps_launch_child *child, struct rps_launch_stream *stream);

/**
 * Say that the child, which failed, is started again, and when; or false:
 * another start would not help, or there were too many.
 */
bool rps_launch_restart_plan(const struct rps_launch_plan *plan,
        struct rps_launch_child *child, uint64_t now);

/** Start it again. false: errno says why not. */
bool rps_launch_restart(const struct rps_launch_plan *plan,
        struct rps_launch_child *child, bool terminal);

/** A line of the launcher's own, on stderr. */
void rps_launch_say(const struct rps_launch_plan *plan, const char *format, ...)
        __attribute__((format(printf, 2, 3)));

/** What the job is at, as PS 0 has it. */
enum rps_launch_job {
    RPS_LAUNCH_JOB_UNKNOWN, /* PS 0 does not say */
    RPS_LAUNCH_JOB_NOT_STARTED,
    RPS_LAUNCH_JOB_RUNS,
    RPS_LAUNCH_JOB_STOPPED /* no step ends any more */
};

/** Ask it, for 1 s at most. *why_out: why the job stopped, or NULL; free(). */
enum rps_launch_job rps_launch_job_ask(
        const struct rps_launch_plan *plan, char **why_out);

/** Start everything, watch until all have ended. Returns the exit code. */
int rps_launch_run(struct rps_launch_plan *plan);

#endif /* RPS_CLIENT_CLI_LAUNCH_H */

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recps: one subcommand a file. main.c finds the subcommand, takes its own
 * flags and its operands out of the arguments, reads the rest as options of
 * a job (conf/options.h), and calls it.
 */
#ifndef RPS_CLIENT_CLI_TOOL_H
#define RPS_CLIENT_CLI_TOOL_H

#include "base/error.h"
#include "conf/options.h"

#include <recps/client.h>

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/** Exit codes (docs/CLI.md). */
enum rps_tool_exit {
    RPS_TOOL_OK = 0,
    RPS_TOOL_DIFFERS = 1, /* diff: an answer, and no failure */
    RPS_TOOL_USAGE = 64,
    RPS_TOOL_CORRUPT = 65,
    RPS_TOOL_NOINPUT = 66,
    RPS_TOOL_UNAVAILABLE = 69,
    RPS_TOOL_FAILED = 70,
    RPS_TOOL_IO = 74, /* stdout, or a file of the answer, takes no more */
    RPS_TOOL_NOPERM = 77
};

#define RPS_TOOL_OPERANDS_MAX 1024

/** A flag that only one subcommand has. --help, the shells' completion and
 * the manual page are made of it. */
struct rps_tool_flag {
    const char *name;     /* "workers", without dashes; NULL ends a list */
    const char *argument; /* "N" or "FILE", which completes; NULL: bare */
    const char *help;
    const char *value;  /* as given; "" for a bare flag; NULL: not given */
    const char *letter; /* "o": -o is the same; NULL: it has none */
    bool is_output;     /* a file that is written beside the answer */
};

/** What a subcommand gets. */
struct rps_tool_call {
    const struct rps_options *options;
    const struct rps_tool_flag *flags; /* its own, filled in */
    const char *operands[RPS_TOOL_OPERANDS_MAX];
    int operand_count;
    char **command; /* after "--", NULL-ended; launch only */
};

struct rps_tool {
    const char *name;
    const char *usage;           /* of --help, without its flags */
    const char *summary;         /* one line of `recps --help` */
    struct rps_tool_flag *flags; /* NULL: none */
    uint32_t scope;              /* of its options */
    int operands_max;
    const char *words;  /* that the operand may be, "a|b"; NULL: any */
    bool takes_folder;  /* the operand is one */
    bool takes_file;    /* the operands behind the word are */
    bool takes_keys;    /* "-5" is an operand */
    bool runs_command;  /* takes "-- COMMAND" */
    bool makes_cluster; /* TF_CONFIG of the caller is not its business */
    /** Its own subcommands, NULL-ended, their names whole: "precision compare".
     * run() is called where none of them is asked for. NULL: it has none. */
    const struct rps_tool *const *parts;
    int (*run)(const struct rps_tool_call *call);
};

extern const struct rps_tool rps_tool_launch;
extern const struct rps_tool rps_tool_top;
extern const struct rps_tool rps_tool_tables;
extern const struct rps_tool rps_tool_stats;
extern const struct rps_tool rps_tool_ping;
extern const struct rps_tool rps_tool_hot;
extern const struct rps_tool rps_tool_lookup;
extern const struct rps_tool rps_tool_scan;
extern const struct rps_tool rps_tool_assign;
extern const struct rps_tool rps_tool_alter;
extern const struct rps_tool rps_tool_evict;
extern const struct rps_tool rps_tool_erase;
extern const struct rps_tool rps_tool_drop;
extern const struct rps_tool rps_tool_save;
extern const struct rps_tool rps_tool_restore;
extern const struct rps_tool rps_tool_verify;
extern const struct rps_tool rps_tool_digest;
extern const struct rps_tool rps_tool_inspect;
extern const struct rps_tool rps_tool_diff;
extern const struct rps_tool rps_tool_export;
extern const struct rps_tool rps_tool_import;
extern const struct rps_tool rps_tool_compact;
extern const struct rps_tool rps_tool_reshard;
extern const struct rps_tool rps_tool_gather;
extern const struct rps_tool rps_tool_archive;
extern const struct rps_tool rps_tool_unarchive;
extern const struct rps_tool rps_tool_prune;
extern const struct rps_tool rps_tool_profile;
extern const struct rps_tool rps_tool_precision;
extern const struct rps_tool rps_tool_ranktable;
extern const struct rps_tool rps_tool_npu;
extern const struct rps_tool rps_tool_log_level;
extern const struct rps_tool rps_tool_shutdown;

/** Every subcommand, in the order of `recps --help` (tools.c). */
extern const struct rps_tool *const rps_tools[];
extern const size_t rps_tool_count;

/** The last word of its name: "compare". */
const char *rps_tool_word(const struct rps_tool *tool);

/** The one of this word among `count`, or NULL; *near_out: that which was
 * perhaps meant, or NULL. */
const struct rps_tool *rps_tool_find(const struct rps_tool *const *tools,
        size_t count, const char *word, const char **near_out);

/** How many parts. */
size_t rps_tool_part_count(const struct rps_tool *tool);

/** A subcommand's usage, parts and own flags: the first part of its --help.
 * free(); NULL: no memory. */
char *rps_tool_usage(const struct rps_tool *tool);

/** Is --json among the arguments? Asked before options are read: they may be
 * what is wrong. */
bool rps_tool_wants_json(int argc, char **argv);

/** Sort the arguments, read the options, run it; argv[0] is the program's name.
 * Once more is fine. Returns the exit code. */
int rps_tool_run(const struct rps_tool *tool, int argc, char **argv);

/** Nothing was said nor answered yet, and no flag is given. */
void rps_tool_begin(const struct rps_tool *tool);

/** "recps tables: …" on stderr; returns `code`. */
int rps_tool_fail(int code, const char *tool, const char *format, ...)
        __attribute__((format(printf, 3, 4)));

/** The same with the status's own exit code and name. */
int rps_tool_fail_status(const char *tool, rps_status status,
        const char *format, ...) __attribute__((format(printf, 3, 4)));

/** A file that was given cannot be read (NOINPUT), or is none of its kind
 * (CORRUPT): in the error's words. Returns the exit code. */
int rps_tool_fail_input(
        const char *tool, rps_status status, const struct rps_error *error);

/** A file that a flag asks for ("--output") cannot be written: said behind the
 * answer, which is out by then. Returns the exit code, RPS_TOOL_IO mostly. */
int rps_tool_fail_output(const char *tool, const char *what, rps_status status,
        const struct rps_error *error);

/**
 * --json: an object on stdout that says the failure, unless an answer was
 * printed: the first words of rps_tool_fail or, where it had none, `words`.
 */
void rps_tool_print_failure(int code, const char *words);

/** The exit code that says this status. */
int rps_tool_exit_of(rps_status status);

/** Connect to the cluster of the options, or say why not and return a code. */
int rps_tool_open(const struct rps_tool_call *call, const char *tool,
        rps_client **client_out);

/** What rps_tool_open() asks for, to be changed and opened by the caller. */
int rps_tool_settings(const struct rps_tool_call *call, const char *tool,
        rps_client_options *settings);

/** Fail with the words of the client's last error. */
int rps_tool_client_failed(
        rps_client *client, const char *tool, rps_status status);

/**
 * STAT of every PS as a list, in order of index. NULL: *code_out is the exit
 * code, and what was wrong has been said.
 */
json_t *rps_tool_stat_all(rps_client *client, const char *tool,
        uint32_t ps_count, bool digests, int *code_out);

/** stdout has its object, whatever follows. */
void rps_tool_answered(void);

/** Print a JSON value on one line and release it; floats are measurements and
 * settings, of nine digits. Returns an exit code. */
int rps_tool_print_json(json_t *value);

/** Is everything out that was printed? Where not, rps_tool_end() says why. */
bool rps_tool_flush(void);

/** The last thing before the exit: the code, or RPS_TOOL_IO with words on
 * stderr where it was RPS_TOOL_OK and the answer is lost. A closed pipe has no
 * words. */
int rps_tool_end(int code);

#endif /* RPS_CLIENT_CLI_TOOL_H */

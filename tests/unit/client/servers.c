/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/client/servers.h"

#include "base/transport.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *
recpsd_path(void)
{
    const char *path = getenv("RECPSD");

    return path != NULL && access(path, X_OK) == 0 ? path : NULL;
}

/* A port that was free a moment ago. */
static unsigned
free_port(int *fd_out)
{
    struct sockaddr_in address = {
            .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, bytes), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&address, &bytes), 0);
    *fd_out = fd;
    return ntohs(address.sin_port);
}

static void
choose_ports(struct servers *servers)
{
    int fds[SERVERS_MAX];
    size_t length = 0;
    uint32_t i;

    for (i = 0; i < servers->count; i++) {
        length += (size_t)snprintf(servers->ps_hosts + length,
                sizeof(servers->ps_hosts) - length, "%s127.0.0.1:%u",
                i > 0 ? "," : "", free_port(&fds[i]));
    }
    for (i = 0; i < servers->count; i++) {
        (void)close(fds[i]);
    }
}

/* One certificate for all, which signs itself. */
static void
make_access(struct servers *servers)
{
    static const char token[] = "0123456789abcdef0123456789abcdef";
    const char *dir = servers->access_dir;
    char command[512];
    FILE *file = NULL;
    mode_t before = umask(077);

    (void)snprintf(servers->access_dir, sizeof(servers->access_dir),
            "/tmp/recps-access-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(servers->access_dir));
    (void)snprintf(servers->token, sizeof(servers->token), "%s/token", dir);
    (void)snprintf(servers->cert, sizeof(servers->cert), "%s/cert", dir);
    (void)snprintf(servers->key, sizeof(servers->key), "%s/key", dir);
    file = fopen(servers->token, "we");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(token, file), 0);
    ck_assert_int_eq(fclose(file), 0);
    (void)snprintf(command, sizeof(command),
            "openssl req -x509 -newkey ec -pkeyopt "
            "ec_paramgen_curve:prime256v1 -nodes -keyout %s -out %s -days 2 "
            "-subj /CN=recps -addext subjectAltName=IP:127.0.0.1 2>/dev/null",
            servers->key, servers->cert);
    ck_assert_int_eq(system(command), 0); /* NOLINT: names of our own */
    (void)umask(before);
}

static void
add_access(const struct servers *servers, char arguments[4][96])
{
    if (servers->access_dir[0] == '\0') {
        return;
    }
    (void)snprintf(arguments[0], 96, "--token-file=%s", servers->token);
    (void)snprintf(arguments[1], 96, "--tls-cert=%s", servers->cert);
    (void)snprintf(arguments[2], 96, "--tls-key=%s", servers->key);
    (void)snprintf(arguments[3], 96, "--tls-ca=%s", servers->cert);
}

/* Tests say nothing: tcp, so that they mean what they say. */
static const char *
transport_name(void)
{
    const char *name = getenv("RECPS_TEST_TRANSPORT");

    return name != NULL ? name : "tcp";
}

uint32_t
servers_client_flags(void)
{
    return getenv("RECPS_TEST_THREAD") != NULL ? RPS_CLIENT_THREAD : 0;
}

void
servers_set_access(const struct servers *servers, rps_client_options *options)
{
    options->unix_dir = servers->dir;
    options->flags = servers_client_flags();
    if (servers->count > 0) {
        ck_assert(rps_transport_parse(transport_name(), &options->transport));
    }
    if (servers->access_dir[0] != '\0') {
        options->token_file = servers->token;
        options->tls_cert = servers->cert;
        options->tls_key = servers->key;
        options->tls_ca = servers->cert;
    }
}

static pid_t
spawn(const struct servers *servers, uint32_t index)
{
    char hosts[160];
    char task[32];
    char dir[96];
    char sockets[96];
    char ring[32];
    /* "--auth=" is the default: for where nothing is asked */
    char more[4][96] = {"--auth=", "--auth=", "--auth=", "--auth="};
    pid_t parent = getpid();
    pid_t pid;

    (void)snprintf(hosts, sizeof(hosts), "--ps-hosts=%s", servers->ps_hosts);
    (void)snprintf(task, sizeof(task), "--task-index=%u", index);
    (void)snprintf(dir, sizeof(dir), "--checkpoint-dir=%s", servers->dir);
    (void)snprintf(sockets, sizeof(sockets), "--unix-dir=%s", servers->dir);
    (void)snprintf(ring, sizeof(ring), "--shm-ring=%u", SERVERS_RING_BYTES);
    add_access(servers, more);
    pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) {
            _exit(1);
        }
        (void)unsetenv("TF_CONFIG");
        (void)unsetenv("TF_CONFIG_FILE");
        (void)execl(recpsd_path(), "recpsd", hosts, "--job-name=ps", task, dir,
                "--worker-hosts=127.0.0.1:1,127.0.0.1:2", "--log-level=error",
                "--step-timeout=20", "--loops=2", "--admin=off", sockets, ring,
                more[0], more[1], more[2], more[3], (char *)NULL);
        _exit(127);
    }
    return pid;
}

void
servers_restart(struct servers *servers)
{
    uint32_t i;

    for (i = 0; i < servers->count; i++) {
        servers->pids[i] = spawn(servers, i);
    }
}

bool
servers_start(struct servers *servers, uint32_t count)
{
    const char *lean = getenv("RECPS_TEST_LEAN");

    *servers = (struct servers){.count = count};
    if (count > 0 && recpsd_path() == NULL) {
        (void)fprintf(stderr, "skipped: recpsd is not built\n");
        return false;
    }
    if (lean != NULL && strchr(lean, (int)('0' + count)) != NULL) {
        return false; /* the same test runs with more transports than one */
    }
    (void)snprintf(
            servers->dir, sizeof(servers->dir), "/tmp/recps-client-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(servers->dir));
    if (count > 0 && getenv("RECPS_TEST_ACCESS") != NULL) {
        make_access(servers);
    }
    choose_ports(servers);
    servers_restart(servers);
    return true;
}

void
servers_kill_one(struct servers *servers, uint32_t ps)
{
    if (servers->pids[ps] > 0) {
        (void)kill(servers->pids[ps], SIGKILL);
        (void)waitpid(servers->pids[ps], NULL, 0);
        servers->pids[ps] = 0;
    }
}

void
servers_kill(struct servers *servers)
{
    uint32_t i;

    for (i = 0; i < servers->count; i++) {
        servers_kill_one(servers, i);
    }
}

int
servers_wait_exit(struct servers *servers, uint32_t ps)
{
    int state = 0;

    ck_assert_int_eq(waitpid(servers->pids[ps], &state, 0), servers->pids[ps]);
    servers->pids[ps] = 0;
    return WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
}

static int
remove_one(
        const char *path, const struct stat *info, int kind, struct FTW *where)
{
    return remove(path);
}

void
servers_stop(struct servers *servers)
{
    servers_kill(servers);
    (void)nftw(servers->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    if (servers->access_dir[0] != '\0') {
        (void)nftw(servers->access_dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    }
}

static void
worker_hosts(char *text, size_t bytes, uint32_t workers)
{
    size_t length = 0;
    uint32_t i;

    for (i = 0; i < workers; i++) {
        length += (size_t)snprintf(text + length, bytes - length,
                "%s127.0.0.1:%u", i > 0 ? "," : "", i + 1);
    }
}

rps_cluster
servers_cluster(const struct servers *servers, const char *role, uint32_t index,
        uint32_t workers)
{
    rps_cluster cluster = {.role = RPS_ROLE_LOCAL};
    rps_cluster_options options = {0};
    rps_cluster_error error = {0};
    char hosts[64] = "";
    char task[16];

    if (servers->count == 0) {
        return cluster;
    }
    rps_cluster_options_init(&options);
    options.tf_config_file = NULL;
    options.tf_config_env = NULL;
    options.ps_hosts = servers->ps_hosts;
    worker_hosts(hosts, sizeof(hosts), workers);
    options.worker_hosts = hosts;
    (void)snprintf(task, sizeof(task), "%u", index);
    options.task_optional = role == NULL;
    if (role != NULL) {
        options.job_name = role;
        options.task_index = task;
    }
    ck_assert_msg(rps_cluster_resolve(&cluster, &options, &error) == RPS_OK,
            "%s", error.message);
    return cluster;
}

rps_client *
servers_open(const struct servers *servers, const char *role, uint32_t index,
        uint32_t workers)
{
    rps_client_options options;
    rps_cluster cluster = servers_cluster(servers, role, index, workers);
    rps_client *client = NULL;

    rps_client_options_init(&options);
    options.cluster = &cluster;
    options.checkpoint_dir = servers->dir;
    options.connect_timeout_ms = 30000;
    options.reconnect_timeout_ms = servers->reconnect_ms;
    servers_set_access(servers, &options);
    must(rps_client_open(&client, &options));
    rps_cluster_finish(&cluster);
    return client;
}

rps_client *
servers_open_chief(const struct servers *servers)
{
    return servers_open(servers, "worker", 0, 1);
}

rps_table_spec
servers_counter_spec(const char *name, uint32_t dim)
{
    rps_table_spec spec;

    rps_table_spec_init(&spec, name, dim, RPS_OPTIMIZER_SGD);
    spec.initializer = RPS_INITIALIZER_ZEROS;
    spec.learning_rate = 1.0f;
    return spec;
}

rps_embedding_table *
servers_counter(rps_client *client, const char *name, uint32_t dim)
{
    const rps_table_spec spec = servers_counter_spec(name, dim);
    rps_embedding_table *table = NULL;

    must(rps_get_embedding_table(client, &spec, &table));
    return table;
}

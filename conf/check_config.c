/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recpsd --check-config: how the cluster was understood, for people, for an
 * init container and for tests. stdout has the verdict, stderr the words.
 */
#include "conf/options_table.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void
print_object(json_t *object)
{
    if (object == NULL || json_dumpf(object, stdout, 0) != 0) {
        (void)fputs(
                "{\"verdict\": \"reject\", \"code\": \"E_MEMORY\"}", stdout);
    }
    (void)fputc('\n', stdout);
    json_decref(object);
}

/* JSON is UTF-8; foreign bytes that are not become '?'. */
static json_t *
pack_refusal(const char *code, const char *message)
{
    json_t *object = json_pack("{s:s, s:s, s:s}", "verdict", "reject", "code",
            code, "message", message);
    char *plain = NULL;

    if (object != NULL) {
        return object;
    }
    plain = strdup(message);
    for (char *at = plain; at != NULL && *at != '\0'; at++) {
        if ((unsigned char)*at >= 0x80) {
            *at = '?';
        }
    }
    if (plain != NULL) {
        object = json_pack("{s:s, s:s, s:s}", "verdict", "reject", "code", code,
                "message", plain);
    }
    free(plain);
    return object;
}

void
rps_check_config_refused(const rps_cluster_error *error)
{
    print_object(pack_refusal(error->code,
            error->message == NULL ? "TF_CONFIG: refused" : error->message));
}

static const char *
chief_of(const rps_cluster *cluster)
{
    if (cluster->role == RPS_ROLE_LOCAL) {
        return "self";
    }
    return cluster->chief_address != NULL ? "chief:0" : "worker:0";
}

/* 3, or "1?" where one is listed and the total is unknown. */
static json_t *
pack_workers(const rps_cluster *cluster)
{
    return cluster->worker_count_known
                   ? json_integer(cluster->worker_count)
                   : json_sprintf("%u?", cluster->workers_listed);
}

/* JSON is UTF-8; a name in an address need not be. */
static void
add_more(json_t *object, const struct rps_check_more *more)
{
    const struct {
        const char *name;
        const char *text;
    } parts[] = {{"listen", more->listen}, {"auth", more->auth},
            {"admin", more->admin}};

    for (size_t i = 0; object != NULL && i < sizeof(parts) / sizeof(parts[0]);
            i++) {
        json_t *text = json_string(parts[i].text);

        json_object_set_new(object, parts[i].name,
                text != NULL ? text : json_string("(not UTF-8)"));
    }
    json_object_set_new(object, "start", json_integer(more->start));
}

static void
print_json(const rps_cluster *cluster, const char *own, const char *fingerprint,
        const struct rps_check_more *more)
{
    json_t *object = json_pack("{s:s, s:s, s:I, s:I, s:o, s:s, s:s, s:s}",
            "verdict", "accept", "role", rps_role_str(cluster->role), "index",
            (json_int_t)cluster->index, "n_ps", (json_int_t)cluster->ps_count,
            "n_worker", pack_workers(cluster), "chief", chief_of(cluster),
            "own_address", own, "fingerprint", fingerprint);

    if (more != NULL) {
        add_more(object, more);
    }
    print_object(object);
}

static void
print_notes(const char *notes)
{
    while (notes != NULL && *notes != '\0') {
        const size_t length = strcspn(notes, "\n");
        (void)fprintf(stderr, "TF_CONFIG: %.*s\n", (int)length, notes);
        notes += length;
        notes += *notes == '\n';
    }
}

int
rps_check_config_refuse(const struct rps_options *options, int exit_code,
        const char *code, const char *words)
{
    if (options->json) {
        print_object(pack_refusal(code, words));
    }
    return exit_code;
}

int
rps_check_config_print(
        const struct rps_options *options, const struct rps_check_more *more)
{
    const rps_cluster *cluster = &options->cluster;
    const char *own = cluster->own_address == NULL ? "-" : cluster->own_address;
    char fingerprint[17];

    print_notes(cluster->notes);
    (void)snprintf(fingerprint, sizeof(fingerprint), "%016" PRIx64,
            cluster->fingerprint);
    if (options->json) {
        print_json(cluster, own, fingerprint, more);
        return 0;
    }
    (void)printf("role: %s\nindex: %u\nn_ps: %u\n", rps_role_str(cluster->role),
            cluster->index, cluster->ps_count);
    if (cluster->worker_count_known) {
        (void)printf("n_worker: %u\n", cluster->worker_count);
    } else {
        (void)printf("n_worker: %u?\n", cluster->workers_listed);
    }
    (void)printf("chief: %s\nown_address: %s\nfingerprint: %s\n",
            chief_of(cluster), own, fingerprint);
    if (more != NULL) {
        (void)printf("listen: %s\nauth: %s\nadmin: %s\nstart: %d\n",
                more->listen, more->auth, more->admin, more->start);
    }
    return 0;
}

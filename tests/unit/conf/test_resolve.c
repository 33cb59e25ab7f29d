/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is accepted, and what it resolves to; the flags that stand for parts
 * of TF_CONFIG; rank, replicas and fingerprint.
 */
#include "base/file.h"
#include "conf/cluster_internal.h"
#include "tests/unit/conf/resolved.h"
#include "tests/unit/suite.h"

#include <unistd.h>
#include <xxhash.h>

#define PS_TASK "\"task\":{\"type\":\"ps\",\"index\":0}}"

struct answer {
    const char *text;
    enum rps_role role;
    uint32_t index;
    uint32_t n_ps;
    uint32_t n_worker;
    int known;
    const char *own;
    uint32_t replicas;
    uint32_t rank;
    int is_chief;
};

/* clang-format off */
static const struct answer answers[] = {
    {"{}", RPS_ROLE_LOCAL, 0, 0, 0, 1, NULL, 1, 0, 1},
    {" \n{ }\t", RPS_ROLE_LOCAL, 0, 0, 0, 1, NULL, 1, 0, 1},
    {"{\"cluster\":null}", RPS_ROLE_LOCAL, 0, 0, 0, 1, NULL, 1, 0, 1},
    {"{\"cluster\":{},\"task\":null}", RPS_ROLE_LOCAL, 0, 0, 0, 1, NULL, 1, 0, 1},
    {"{\"task\":{}}", RPS_ROLE_LOCAL, 0, 0, 0, 1, NULL, 1, 0, 1},
    {"{\"task\":{\"type\":\"worker\"}}", RPS_ROLE_LOCAL, 0, 0, 0, 1, NULL, 1, 0, 1},
    {"{\"task\":{\"index\":\"0\"}}", RPS_ROLE_LOCAL, 0, 0, 0, 1, NULL, 1, 0, 1},
    /* lists, objects, mixed */
    {"{\"cluster\":{\"ps\":{\"1\":\"b:1\",\"0\":\"a:1\"},\"worker\":[\"w:1\"]},\"task\":{\"type\":\"ps\",\"index\":1}}",
        RPS_ROLE_PS, 1, 2, 1, 1, "b:1", 1, 0, 0},
    {"{\"cluster\":{\"ps\":[\"a:1\"],\"worker\":{\"0\":\"w:1\",\"1\":\"x:1\"}},\"task\":{\"type\":\"worker\",\"index\":1}}",
        RPS_ROLE_WORKER, 1, 1, 2, 0, "x:1", 0, 1, 0},
    /* aliases crosswise */
    {"{\"cluster\":{\"master\":[\"m:1\"],\"ps\":[\"a:1\"]},\"task\":{\"type\":\"chief\",\"index\":0}}",
        RPS_ROLE_CHIEF, 0, 1, 0, 1, "m:1", 1, 0, 1},
    {"{\"cluster\":{\"chief\":[\"m:1\"],\"ps\":[\"a:1\"],\"worker\":[\"w:1\"]},\"task\":{\"type\":\"master\",\"index\":\"0\"}}",
        RPS_ROLE_CHIEF, 0, 1, 1, 1, "m:1", 2, 0, 1},
    {"{\"cluster\":{\"chief\":[\"m:1\"],\"worker\":[\"w:1\",\"x:1\"]},\"task\":{\"type\":\"worker\",\"index\":0}}",
        RPS_ROLE_WORKER, 0, 0, 2, 1, "w:1", 3, 1, 0},
    {"{\"cluster\":{\"chief\":[],\"worker\":[\"w:1\",\"x:1\"]},\"task\":{\"type\":\"worker\",\"index\":0}}",
        RPS_ROLE_WORKER, 0, 0, 2, 1, "w:1", 2, 0, 1},
    /* evaluators */
    {"{\"cluster\":{\"evaluator\":[\"e:1\"],\"ps\":[\"a:1\"]},\"task\":{\"type\":\"evaluator\",\"index\":0}}",
        RPS_ROLE_EVALUATOR, 0, 1, 0, 1, "e:1", 0, 0, 0},
    {"{\"cluster\":{\"ps\":[\"a:1\"]},\"task\":{\"type\":\"evaluator\",\"index\":3}}",
        RPS_ROLE_EVALUATOR, 3, 1, 0, 1, NULL, 0, 0, 0},
    /* sparseCluster */
    {"{\"sparseCluster\":{\"ps\":[\"a:1\"],\"worker\":{\"2\":\"w:1\"}},\"task\":{\"type\":\"worker\",\"index\":2}}",
        RPS_ROLE_WORKER, 2, 1, 1, 0, "w:1", 0, 2, 0},
    {"{\"cluster\":null,\"sparseCluster\":{\"ps\":[\"a:1\"]}," PS_TASK, RPS_ROLE_PS, 0, 1, 0, 1, "a:1", 0, 0, 0},
    /* a server needs no worker list */
    {"{\"cluster\":{\"ps\":[\"a:1\"]}," PS_TASK, RPS_ROLE_PS, 0, 1, 0, 1, "a:1", 0, 0, 0},
    {"{\"cluster\":{\"ps\":[\"a:1\"],\"worker\":[]}," PS_TASK, RPS_ROLE_PS, 0, 1, 0, 1, "a:1", 0, 0, 0},
    /* what is not ours */
    {"{\"cluster\":{\"ps\":[\"a:1\"]},\"job\":\"{}\",\"environment\":5,\"rpc_layer\":null,\"task\":{\"type\":\"ps\",\"index\":0,\"trial\":\"1\",\"cloud\":[]}}",
        RPS_ROLE_PS, 0, 1, 0, 1, "a:1", 0, 0, 0},
    /* addresses in one spelling */
    {"{\"cluster\":{\"ps\":[\"PS-0.Rec.SVC.:02222\"]}," PS_TASK, RPS_ROLE_PS, 0, 1, 0, 1, "ps-0.rec.svc:2222", 0, 0, 0},
    {"{\"cluster\":{\"ps\":[\"[2001:DB8:0:0::11]:65535\"]}," PS_TASK, RPS_ROLE_PS, 0, 1, 0, 1, "[2001:db8::11]:65535", 0, 0, 0},
    {"{\"cluster\":{\"ps\":[\"[FE80::1%eth0]:1\"]}," PS_TASK, RPS_ROLE_PS, 0, 1, 0, 1, "[fe80::1%eth0]:1", 0, 0, 0},
    {"{\"cluster\":{\"ps\":[\"my_ps_1:1\"]}," PS_TASK, RPS_ROLE_PS, 0, 1, 0, 1, "my_ps_1:1", 0, 0, 0},
    {"{\"cluster\":{\"ps\":[\"198.51.100.7:1\"]}," PS_TASK, RPS_ROLE_PS, 0, 1, 0, 1, "198.51.100.7:1", 0, 0, 0},
};
/* clang-format on */

START_TEST(an_accepted_text_resolves_to_its_place)
{
    const struct answer *want = &answers[_i];
    struct resolved got = resolve(want->text);

    ck_assert_msg(
            got.status == RPS_OK, "%s: %s", want->text, got.error.message);
    ck_assert_int_eq(got.cluster.role, want->role);
    ck_assert_uint_eq(got.cluster.index, want->index);
    ck_assert_uint_eq(got.cluster.ps_count, want->n_ps);
    ck_assert_uint_eq(got.cluster.worker_count, want->n_worker);
    ck_assert_int_eq(got.cluster.worker_count_known, want->known);
    ck_assert_pstr_eq(got.cluster.own_address, want->own);
    ck_assert_uint_eq(got.cluster.replica_count, want->replicas);
    ck_assert_uint_eq(got.cluster.rank, want->rank);
    ck_assert_int_eq(got.cluster.is_chief, want->is_chief);
    finish(&got);
}
END_TEST

START_TEST(what_is_ignored_or_read_otherwise_is_named_once)
{
    struct resolved got =
            resolve("{\"sparseCluster\":{\"ps\":[\"a:1\"]},\"Cluster\":{},"
                    "\"environment\":\"cloud\",\"task\":{\"type\":\"ps\","
                    "\"index\":0,\"trial\":\"1\"}}");

    ck_assert_str_eq(got.cluster.notes,
            "sparseCluster read as cluster\n"
            "ignored: Cluster (did you mean \"cluster\"?), environment, "
            "task.trial");
    finish(&got);
    got = resolve(
            "{\"cluster\":{\"ps\":[\"a:1\"]},\"sparseCluster\":{}," PS_TASK);
    ck_assert_str_eq(got.cluster.notes, "ignored: sparseCluster");
    finish(&got);
    got = resolve("{}");
    ck_assert_ptr_null(got.cluster.notes);
    finish(&got);
}
END_TEST

START_TEST(the_recps_object_is_kept_for_the_options)
{
    struct resolved got = resolve("{\"recps\":{\"loops\": 2}}");

    ck_assert_str_eq(got.cluster.recps_json, "{\"loops\":2}");
    finish(&got);
    got = resolve("{\"recps\":null}");
    ck_assert_ptr_null(got.cluster.recps_json);
    finish(&got);
}
END_TEST

START_TEST(members_stand_at_their_index)
{
    struct resolved got =
            resolve("{\"cluster\":{\"ps\":{\"2\":\"c:1\",\"0\":\"a:1\",\"1\":"
                    "\"b:1\"},\"worker\":{\"9\":\"w:1\",\"4\":\"x:1\"},"
                    "\"chief\":[\"m:1\"],\"evaluator\":[\"e:1\"]}," PS_TASK);
    const rps_cluster *cluster = &got.cluster;

    ck_assert_str_eq(cluster->ps[0].address, "a:1");
    ck_assert_str_eq(cluster->ps[2].address, "c:1");
    ck_assert_uint_eq(cluster->ps[2].index, 2);
    ck_assert_uint_eq(cluster->workers_listed, 2);
    ck_assert_uint_eq(cluster->workers[0].index, 4);
    ck_assert_str_eq(cluster->workers[0].address, "x:1");
    ck_assert_str_eq(cluster->chief_address, "m:1");
    ck_assert_str_eq(cluster->evaluator_address, "e:1");
    finish(&got);
}
END_TEST

START_TEST(the_fingerprint_is_xxh64_of_the_ordered_servers)
{
    struct resolved got = resolve("{\"cluster\":{\"ps\":[\"B:1\",\"a.:2\"],"
                                  "\"worker\":[\"w:1\"]}," PS_TASK);

    ck_assert_uint_eq(got.cluster.fingerprint, XXH64("b:1\na:2\n", 8, 0));
    ck_assert_int_eq(got.cluster.addresses_differ, 0);
    finish(&got);
    got = resolve("{}");
    ck_assert_uint_eq(got.cluster.fingerprint, XXH64("", 0, 0));
    finish(&got);
}
END_TEST

START_TEST(members_with_other_lists_fingerprint_only_the_count)
{
    rps_cluster_options options = options_of(
            "{\"cluster\":{\"worker\":{},\"ps\":[\"b:1\"]},\"task\":{\"type\":"
            "\"ps\",\"index\":1}}");
    struct resolved server;
    struct resolved worker;

    options.num_ps = 2;
    server = resolve_with(&options);
    worker = resolve("{\"cluster\":{\"worker\":{\"0\":\"w:1\"},\"ps\":[\"a:1\","
                     "\"b:1\"]},\"task\":{\"type\":\"worker\",\"index\":0}}");
    ck_assert_int_eq(server.status, RPS_OK);
    ck_assert_int_eq(worker.status, RPS_OK);
    ck_assert_int_eq(server.cluster.addresses_differ, 1);
    ck_assert_uint_eq(server.cluster.fingerprint, worker.cluster.fingerprint);
    ck_assert_uint_eq(server.cluster.ps_count, 2);
    ck_assert_ptr_null(server.cluster.ps[0].address);
    ck_assert_str_eq(server.cluster.ps[1].address, "b:1");
    ck_assert_str_eq(server.cluster.own_address, "b:1");
    finish(&server);
    finish(&worker);
}
END_TEST

START_TEST(num_ps_allows_holes_and_must_agree_with_a_list)
{
    rps_cluster_options options = options_of(
            "{\"cluster\":{\"ps\":{\"1\":\"b:1\"}},\"task\":{\"type\":\"ps\","
            "\"index\":1}}");
    struct resolved got;

    options.num_ps = 3;
    got = resolve_with(&options);
    ck_assert_int_eq(got.status, RPS_OK);
    ck_assert_uint_eq(got.cluster.ps_count, 3);
    ck_assert_ptr_null(got.cluster.ps[2].address);
    finish(&got);
    options.num_ps = 1;
    got = resolve_with(&options);
    ck_assert_str_eq(got.error.code, "E_COUNT");
    finish(&got);
    options.tf_config = "{\"cluster\":{\"ps\":[\"a:1\",\"b:1\"]}," PS_TASK;
    options.num_ps = 2;
    got = resolve_with(&options);
    ck_assert_int_eq(got.status, RPS_OK);
    finish(&got);
    options.num_ps = 3;
    got = resolve_with(&options);
    ck_assert_str_eq(got.error.code, "E_COUNT");
    finish(&got);
}
END_TEST

START_TEST(num_workers_makes_the_total_known)
{
    rps_cluster_options options = options_of(
            "{\"cluster\":{\"chief\":[\"m:1\"],\"worker\":{\"1\":\"w:1\"}},"
            "\"task\":{\"type\":\"worker\",\"index\":1}}");
    struct resolved got;

    options.num_workers = 4;
    got = resolve_with(&options);
    ck_assert_int_eq(got.cluster.worker_count_known, 1);
    ck_assert_uint_eq(got.cluster.worker_count, 4);
    ck_assert_uint_eq(got.cluster.replica_count, 5);
    ck_assert_uint_eq(got.cluster.rank, 2);
    finish(&got);
    options.num_workers = 1;
    got = resolve_with(&options);
    ck_assert_str_eq(got.error.code, "E_COUNT");
    finish(&got);
}
END_TEST

START_TEST(host_flags_replace_the_cluster_and_keep_the_task)
{
    rps_cluster_options options = options_of(
            "{\"cluster\":{\"chief\":\"broken\"},\"task\":{\"type\":\"worker\","
            "\"index\":1},\"recps\":{}}");
    struct resolved got;

    options.ps_hosts = "A:1,b:2";
    options.worker_hosts = "w:1,x:1";
    got = resolve_with(&options);
    ck_assert_int_eq(got.status, RPS_OK);
    ck_assert_int_eq(got.cluster.role, RPS_ROLE_WORKER);
    ck_assert_str_eq(got.cluster.own_address, "x:1");
    ck_assert_str_eq(got.cluster.ps[0].address, "a:1");
    ck_assert_ptr_null(got.cluster.chief_address);
    ck_assert_str_eq(got.cluster.notes,
            "the cluster of TF_CONFIG is replaced by --ps-hosts, "
            "--worker-hosts");
    finish(&got);
    options.ps_hosts = "a:1, b:1";
    got = resolve_with(&options);
    ck_assert_str_eq(got.error.code, "E_ADDR_SPACE");
    ck_assert_ptr_nonnull(strstr(got.error.message, ": --ps-hosts[1]: "));
    finish(&got);
    options.ps_hosts = "\xff:1";
    got = resolve_with(&options);
    ck_assert_str_eq(got.error.code, "E_ADDR");
    finish(&got);
}
END_TEST

START_TEST(the_guides_flags_alone_make_a_cluster)
{
    rps_cluster_options options = options_of(NULL);
    struct resolved got;

    options.ps_hosts = "a:1";
    options.worker_hosts = "w:1";
    options.chief_hosts = "m:1";
    options.evaluator_hosts = "e:1";
    options.job_name = "evaluator";
    options.task_index = "0";
    got = resolve_with(&options);
    ck_assert_int_eq(got.cluster.role, RPS_ROLE_EVALUATOR);
    ck_assert_str_eq(got.cluster.own_address, "e:1");
    ck_assert_uint_eq(got.cluster.replica_count, 2);
    ck_assert_ptr_null(got.cluster.notes);
    finish(&got);
    options.job_name = "";
    got = resolve_with(&options);
    ck_assert_str_eq(got.error.code, "E_TASK");
    finish(&got);
    options.job_name = "pss";
    got = resolve_with(&options);
    ck_assert_str_eq(got.error.code, "E_ROLE");
    ck_assert_ptr_nonnull(strstr(got.error.message, ": --job-name: "));
    finish(&got);
    options.job_name = "ps";
    options.task_index = "-1";
    got = resolve_with(&options);
    ck_assert_str_eq(got.error.message,
            "TF_CONFIG: --task-index: must not be negative (-1)");
    finish(&got);
}
END_TEST

START_TEST(task_flags_replace_what_is_wrong_in_the_task)
{
    rps_cluster_options options = options_of(
            "{\"cluster\":{\"ps\":[\"a:1\",\"b:1\"]},\"task\":{\"type\":7,"
            "\"index\":0.5}}");
    struct resolved got;

    options.job_name = "ps";
    options.task_index = "1";
    got = resolve_with(&options);
    ck_assert_str_eq(got.cluster.own_address, "b:1");
    finish(&got);
}
END_TEST

START_TEST(a_tool_needs_no_task)
{
    rps_cluster_options options =
            options_of("{\"cluster\":{\"ps\":[\"a:1\"]}}");
    struct resolved got;

    options.task_optional = 1;
    got = resolve_with(&options);
    ck_assert_int_eq(got.status, RPS_OK);
    ck_assert_int_eq(got.cluster.role, RPS_ROLE_NONE);
    ck_assert_uint_eq(got.cluster.ps_count, 1);
    ck_assert_int_eq(got.cluster.is_chief, 0);
    finish(&got);
    options.tf_config = "{\"cluster\":{\"ps\":[\"a:1\"]}," PS_TASK;
    got = resolve_with(&options);
    ck_assert_int_eq(got.cluster.role, RPS_ROLE_PS);
    finish(&got);
}
END_TEST

START_TEST(unknown_roles_are_ignored_where_allowed)
{
    rps_cluster_options options =
            options_of("{\"cluster\":{\"ps\":[\"a:1\"],\"notebook\":\"any\"},"
                       "\"task\":{\"type\":\"notebook\",\"index\":0}}");
    struct resolved got;

    options.allow_unknown_roles = 1;
    got = resolve_with(&options);
    ck_assert_int_eq(got.status, RPS_OK);
    ck_assert_int_eq(got.cluster.role, RPS_ROLE_NONE);
    ck_assert_str_eq(
            got.cluster.notes, "ignored: role \"notebook\" of the cluster");
    finish(&got);
}
END_TEST

/* A file with `text`; the name is for the caller to unlink and free. */
static char *
make_file(const char *text)
{
    char *path = strdup("/tmp/recps_conf_XXXXXX");
    const int fd = mkstemp(path);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(
            rps_fd_write_all(fd, text, strlen(text), path, NULL), RPS_OK);
    ck_assert_int_eq(close(fd), 0);
    return path;
}

START_TEST(the_first_source_that_is_given_counts)
{
    char *path = make_file("{\"cluster\":{\"ps\":[\"file:1\"]}," PS_TASK);
    char *at_path = rps_format("@%s", path);
    rps_cluster_options options = options_of(NULL);
    struct resolved got;

    options.tf_config_env = "{\"cluster\":{\"ps\":[\"env:1\"]}," PS_TASK;
    got = resolve_with(&options);
    ck_assert_str_eq(got.cluster.own_address, "env:1");
    finish(&got);
    options.tf_config_file = path;
    got = resolve_with(&options);
    ck_assert_str_eq(got.cluster.own_address, "file:1");
    ck_assert_str_eq(got.cluster.notes,
            "ignored: variable TF_CONFIG, TF_CONFIG_FILE is set");
    finish(&got);
    options.tf_config = "{\"cluster\":{\"ps\":[\"flag:1\"]}," PS_TASK;
    got = resolve_with(&options);
    ck_assert_str_eq(got.cluster.own_address, "flag:1");
    finish(&got);
    options.tf_config = at_path;
    options.tf_config_file = "/nowhere";
    got = resolve_with(&options);
    ck_assert_str_eq(got.cluster.own_address, "file:1");
    finish(&got);
    ck_assert_int_eq(unlink(path), 0);
    free(at_path);
    free(path);
}
END_TEST

START_TEST(options_start_from_the_environment)
{
    rps_cluster_options options;

    ck_assert_int_eq(setenv("TF_CONFIG", "", 1), 0);
    ck_assert_int_eq(setenv("TF_CONFIG_FILE", "/f", 1), 0);
    rps_cluster_options_init(&options);
    ck_assert_uint_eq(options.struct_bytes, sizeof(options));
    ck_assert_str_eq(options.tf_config_env, "");
    ck_assert_str_eq(options.tf_config_file, "/f");
    ck_assert_int_eq(unsetenv("TF_CONFIG"), 0);
    ck_assert_int_eq(unsetenv("TF_CONFIG_FILE"), 0);
    rps_cluster_options_init(&options);
    ck_assert_ptr_null(options.tf_config_env);
}
END_TEST

static void
clear_index_variables(void)
{
    (void)unsetenv("JOB_COMPLETION_INDEX");
    (void)unsetenv("VC_TASK_INDEX");
    (void)unsetenv("VK_TASK_INDEX");
    (void)unsetenv("SLURM_PROCID");
}

START_TEST(auto_takes_the_host_name_then_the_schedulers_variables)
{
    uint64_t index = 0;
    const char *source = NULL;

    clear_index_variables();
    ck_assert(rps_task_index_auto("recpsd-12.recpsd.ns", &index, &source));
    ck_assert_uint_eq(index, 12);
    ck_assert(!rps_task_index_auto("node7", &index, &source));
    ck_assert(!rps_task_index_auto("12", &index, &source));
    ck_assert(!rps_task_index_auto("", &index, &source));
    ck_assert_int_eq(setenv("SLURM_PROCID", "3", 1), 0);
    ck_assert(rps_task_index_auto("node7", &index, &source));
    ck_assert_uint_eq(index, 3);
    ck_assert_int_eq(setenv("VC_TASK_INDEX", "4", 1), 0);
    ck_assert(rps_task_index_auto("node7", &index, &source));
    ck_assert_uint_eq(index, 4);
    ck_assert_int_eq(setenv("JOB_COMPLETION_INDEX", "5", 1), 0);
    ck_assert(rps_task_index_auto("node7", &index, &source));
    ck_assert_uint_eq(index, 5);
    ck_assert_str_eq(source, "JOB_COMPLETION_INDEX");
    ck_assert(rps_task_index_auto("recpsd-0", &index, &source));
    ck_assert_uint_eq(index, 0);
    clear_index_variables();
}
END_TEST

START_TEST(two_thousand_members_resolve)
{
    struct rps_text text = {0};
    struct resolved got;

    rps_text_add(&text, "{\"cluster\":{\"ps\":[\"p:1\"],\"worker\":[");
    for (int i = 0; i < 2000; i++) {
        rps_text_add(
                &text, "%s\"job-worker-%d.ns.svc:2222\"", i > 0 ? "," : "", i);
    }
    rps_text_add(
            &text, "]},\"task\":{\"type\":\"worker\",\"index\":%d}}", 1999);
    got = resolve(text.bytes);
    ck_assert_int_eq(got.status, RPS_OK);
    ck_assert_uint_eq(got.cluster.worker_count, 2000);
    ck_assert_str_eq(got.cluster.own_address, "job-worker-1999.ns.svc:2222");
    finish(&got);
    text.bytes[text.length - 6] = '2';
    got = resolve(text.bytes);
    ck_assert_ptr_nonnull(strstr(got.error.message, "(indices 0..1999)"));
    finish(&got);
    rps_text_finish(&text);
}
END_TEST

START_TEST(roles_have_names)
{
    ck_assert_str_eq(rps_role_str(RPS_ROLE_LOCAL), "local");
    ck_assert_str_eq(rps_role_str(RPS_ROLE_CHIEF), "chief");
    ck_assert_str_eq(rps_role_str(RPS_ROLE_WORKER), "worker");
    ck_assert_str_eq(rps_role_str(RPS_ROLE_PS), "ps");
    ck_assert_str_eq(rps_role_str(RPS_ROLE_EVALUATOR), "evaluator");
    ck_assert_str_eq(rps_role_str(RPS_ROLE_NONE), "none");
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("resolve");
    TCase *tcase = tcase_create("cluster");

    tcase_add_loop_test(tcase, an_accepted_text_resolves_to_its_place, 0,
            (int)(sizeof(answers) / sizeof(answers[0])));
    tcase_add_test(tcase, what_is_ignored_or_read_otherwise_is_named_once);
    tcase_add_test(tcase, the_recps_object_is_kept_for_the_options);
    tcase_add_test(tcase, members_stand_at_their_index);
    tcase_add_test(tcase, the_fingerprint_is_xxh64_of_the_ordered_servers);
    tcase_add_test(tcase, members_with_other_lists_fingerprint_only_the_count);
    tcase_add_test(tcase, num_ps_allows_holes_and_must_agree_with_a_list);
    tcase_add_test(tcase, num_workers_makes_the_total_known);
    tcase_add_test(tcase, host_flags_replace_the_cluster_and_keep_the_task);
    tcase_add_test(tcase, the_guides_flags_alone_make_a_cluster);
    tcase_add_test(tcase, task_flags_replace_what_is_wrong_in_the_task);
    tcase_add_test(tcase, a_tool_needs_no_task);
    tcase_add_test(tcase, unknown_roles_are_ignored_where_allowed);
    tcase_add_test(tcase, the_first_source_that_is_given_counts);
    tcase_add_test(tcase, options_start_from_the_environment);
    tcase_add_test(
            tcase, auto_takes_the_host_name_then_the_schedulers_variables);
    tcase_add_test(tcase, two_thousand_members_resolve);
    tcase_add_test(tcase, roles_have_names);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}

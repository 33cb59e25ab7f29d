/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every refusal: its code, and its whole line where the rules fix it
 * (docs/TF_CONFIG.md). A message ending in '*' is a beginning.
 */
#include "tests/unit/conf/resolved.h"
#include "tests/unit/suite.h"

#include <stdio.h>

struct refusal {
    const char *text;
    const char *code;
    const char *message; /* after "TF_CONFIG: " */
};

#define PS_TASK     "\"task\":{\"type\":\"ps\",\"index\":0}}"
#define ONE(member) "{\"cluster\":{\"ps\":[\"" member "\"]}," PS_TASK
#define TWO         "{\"cluster\":{\"ps\":[\"a:1\",\"b:1\"]},\"task\":"

/* clang-format off */
static const struct refusal refusals[] = {
    /* the document */
    {"", "E_EMPTY", "set but empty; unset it for standalone mode or give the cluster as JSON"},
    {" \t\r\n", "E_EMPTY", "set but empty;*"},
    {"@", "E_EMPTY", "the file's name is empty;*"},
    {"@/nowhere/at/all", "E_FILE", "cannot open /nowhere/at/all: *"},
    {"{\"a\":1,}", "E_JSON", "not valid JSON at line 1 column 8: string or '}' expected near '}' (trailing comma)"},
    {"{\"a\":\n [1, 2, ]}", "E_JSON", "not valid JSON at line 2 column 9: *"},
    {"{'a':1}", "E_JSON", "not valid JSON at line 1 column 2: string or '}' expected near ''' (looks like a Python dict; write it with json.dumps)"},
    {"{\"a\": True}", "E_JSON", "not valid JSON at line 1 column 10: invalid token near 'True' (looks like a Python dict; write it with json.dumps)"},
    {"'{\"a\":1}'", "E_JSON", "not valid JSON at line 1 column 1: invalid token near ''' (starts with a quote; remove the outer quotes)"},
    {"\"{\"a\":1}\"", "E_JSON", "*"},
    {"\"{}\"", "E_SHAPE", "top level must be an object (a JSON text inside a string: remove the outer quotes)"},
    {"{\"a\":NaN}", "E_JSON", "not valid JSON at line 1 column 8: invalid token near 'NaN' (NaN and Infinity are no JSON numbers)"},
    {"{\"a\":-Infinity}", "E_JSON", "* (NaN and Infinity are no JSON numbers)"},
    {"{\"a\":-}", "E_JSON", "not valid JSON at line 1 column 6: invalid token near '-'"},
    {"{\"a\":1,,\"b\":2}", "E_JSON", "* (two commas)"},
    {"{\"a\":\"b\nc\"}", "E_JSON", "* (a line break inside a text)"},
    {"{u'a':1}", "E_JSON", "* (looks like a Python dict; write it with json.dumps)"},
    {"{\\\"a\\\":1}", "E_JSON", "* (the quotes are escaped; write them without backslashes)"},
    {"# comment\n{}", "E_JSON", "* (JSON has no comments)"},
    {"{\"a\":\"\\u0000\"}", "E_JSON", "*"},
    {"{} {}", "E_JSON", "not valid JSON at line 1 column 4: end of file expected near '{' (more text after the object)"},
    {"{\"cluster\":{\"ps\":[\"a:1\"", "E_JSON", "* (the text ends too early; was it cut off?)"},
    {"{cluster:{}}", "E_JSON", "* (names and texts need double quotes; did a shell remove them?)"},
    {"{\"a\":1, // b\n}", "E_JSON", "* (JSON has no comments)"},
    {"\xef\xbb\xbf{}", "E_JSON", "* byte order mark; save it as UTF-8 without one)"},
    {"{\"a\":\"\xff\"}", "E_JSON", "*"},
    {"cluster: {}", "E_JSON", "*"},
    {"{\"a\":1e999}", "E_JSON", "*"},
    {"{\"a\":99999999999999999999}", "E_JSON", "*"},
    {"{\"cluster\":{\"ps\":[\"a:1\"],\"ps\":[\"b:1\"]}}", "E_DUPKEY", "key \"ps\" appears twice in one object"},
    {"{\"cluster\":{\"worker\":{\"1\":\"a:1\",\"1\":\"b:1\"}}}", "E_DUPKEY", "key \"1\" appears twice in one object"},
    {"{\"a\":{\"\":1,\"\":2}}", "E_DUPKEY", "key \"\" appears twice in one object"},
    /* shapes */
    {"[]", "E_SHAPE", "top level must be an object"},
    {"null", "E_SHAPE", "top level must be an object"},
    {"5", "E_SHAPE", "top level must be an object"},
    {"{\"cluster\":[]}", "E_SHAPE", "cluster: must be an object *"},
    {"{\"cluster\":\"\"}", "E_SHAPE", "cluster: must be an object *"},
    {"{\"sparseCluster\":5}", "E_SHAPE", "sparseCluster: must be an object *"},
    {"{\"task\":[]}", "E_SHAPE", "task: must be an object *"},
    {"{\"recps\":[]}", "E_SHAPE", "recps: must be an object *"},
    {"{\"task\":{\"type\":5}}", "E_SHAPE", "task.type: must be a string"},
    {"{\"cluster\":{\"ps\":null}," PS_TASK, "E_SHAPE", "cluster.ps: must be a list of \"host:port\" or an object {\"index\": \"host:port\"}"},
    {"{\"cluster\":{\"ps\":\"a:1,b:1\"}," PS_TASK, "E_SHAPE", "cluster.ps: must be a list of \"host:port\" or an object {\"index\": \"host:port\"} (a comma-separated string: split it into a list)"},
    {"{\"cluster\":{\"ps\":\"a:1\"}," PS_TASK, "E_SHAPE", "cluster.ps: * (one address: put it into a list)"},
    {"{\"cluster\":{\"ps\":[1]}," PS_TASK, "E_SHAPE", "cluster.ps[0]: must be a \"host:port\" string"},
    {"{\"cluster\":{\"worker\":{\"3\":null}}," PS_TASK, "E_SHAPE", "cluster.worker[3]: must be a \"host:port\" string"},
    /* roles */
    {"{\"cluster\":{\"ps_hosts\":[]}}", "E_ROLE", "cluster: unknown role \"ps_hosts\" (known: chief, master, worker, ps, evaluator); did you mean \"ps\"?"},
    {"{\"cluster\":{\"Workers\":[]}}", "E_ROLE", "cluster: unknown role \"Workers\" (known: chief, master, worker, ps, evaluator); did you mean \"worker\"?"},
    {"{\"cluster\":{\"PS\":[]}}", "E_ROLE", "* did you mean \"ps\"?"},
    {"{\"cluster\":{\"tensorboard\":[]}}", "E_ROLE", "cluster: unknown role \"tensorboard\" (known: chief, master, worker, ps, evaluator)"},
    {"{\"cluster\":{\"workerpool1\":[]}}", "E_ROLE", "* this looks like CLUSTER_SPEC, not TF_CONFIG"},
    {TWO "{\"type\":\"parameter_server\",\"index\":0}}", "E_ROLE", "task.type: unknown role \"parameter_server\" * did you mean \"ps\"?"},
    {"{\"task\":{\"type\":\"workr\",\"index\":0}}", "E_ROLE", "task.type: unknown role \"workr\" *"},
    {"{\"cluster\":{\"chief\":[\"a:1\"],\"master\":[]}}", "E_CHIEF", "cluster: \"chief\" and \"master\" are two names of one role; keep one"},
    {"{\"cluster\":{\"chief\":[\"a:1\",\"b:1\"]}}", "E_CHIEF", "cluster: at most one chief, found 2"},
    {"{\"cluster\":{\"master\":{\"0\":\"a:1\",\"5\":\"b:1\"}}}", "E_CHIEF", "cluster: at most one chief, found 2"},
    {"{\"cluster\":{\"chief\":{\"1\":\"a:1\"}}}", "E_CHIEF", "cluster.chief: the chief's index must be 0, not 1"},
    {"{\"cluster\":{\"chief\":[\"a:1\"]},\"task\":{\"type\":\"chief\",\"index\":1}}", "E_CHIEF", "task.index: the chief's index must be 0, not 1"},
    {"{\"cluster\":{\"evaluator\":[\"a:1\",\"b:1\"]}}", "E_EVAL", "cluster: at most one evaluator, found 2"},
    /* addresses */
    {ONE(""), "E_ADDR_EMPTY", "cluster.ps[0]: empty address (an empty host flag split on ',' gives this; leave the role out instead)"},
    {ONE(" "), "E_ADDR_SPACE", "*"},
    {ONE("h:1\\n"), "E_ADDR_SPACE", "cluster.ps[0]: white space in address \"h:1\\n\" (write no space after the comma)"},
    {ONE("h :1"), "E_ADDR_SPACE", "*"},
    {ONE("http://h:1"), "E_ADDR_SCHEME", "cluster.ps[0]: address \"http://h:1\" must be host:port without a scheme"},
    {ONE("h"), "E_ADDR_PORT", "cluster.ps[0]: address \"h\" has no port"},
    {ONE("h:"), "E_ADDR_PORT", "cluster.ps[0]: address \"h:\" has no port"},
    {ONE("[::1]"), "E_ADDR_PORT", "cluster.ps[0]: address \"[::1]\" has no port"},
    {ONE("h:0"), "E_ADDR_PORT", "cluster.ps[0]: port of \"h:0\" must be 1..65535"},
    {ONE("h:65536"), "E_ADDR_PORT", "*"},
    {ONE("h:99999999999999999999"), "E_ADDR_PORT", "*"},
    {ONE("h:http"), "E_ADDR_PORT", "*"},
    {ONE("h:-1"), "E_ADDR_PORT", "*"},
    {ONE("h:22.5"), "E_ADDR_PORT", "*"},
    {ONE("2001:db8::1:22"), "E_ADDR", "cluster.ps[0]: cannot read address \"2001:db8::1:22\"; * IPv6 as [addr]:port"},
    {ONE("::1"), "E_ADDR", "*"},
    {ONE("[2001:db8::g]:1"), "E_ADDR", "*"},
    {ONE("[h]:1"), "E_ADDR", "*"},
    {ONE("[]:1"), "E_ADDR", "*"},
    {ONE("[::1:1"), "E_ADDR", "*"},
    {ONE("[::1]x:1"), "E_ADDR", "*"},
    {ONE("[::1%]:1"), "E_ADDR", "*"},
    {ONE(":1"), "E_ADDR", "*"},
    {ONE(".:1"), "E_ADDR", "*"},
    {ONE("a..b:1"), "E_ADDR", "*"},
    {ONE("a..:1"), "E_ADDR", "*"},
    {ONE(".a:1"), "E_ADDR", "*"},
    {ONE("-a:1"), "E_ADDR", "*"},
    {ONE("a/b:1"), "E_ADDR", "*"},
    {ONE("u@h:1"), "E_ADDR", "*"},
    {ONE("h\xc3\xb6:1"), "E_ADDR", "*"},
    {ONE("198.51.100.300:1"), "E_ADDR", "*"},
    {ONE("1.2.3:5"), "E_ADDR", "*"},
    {ONE("0:1"), "E_ADDR", "cluster.ps[0]: cannot read address \"0:1\"; *"},
    {ONE("2130706433:1"), "E_ADDR", "*"},
    {"{\"cluster\":{\"ps\":[\"a:1\"],\"worker\":[\"b:1\",\"\"]}," PS_TASK, "E_ADDR_EMPTY", "cluster.worker[1]: *"},
    {"{\"cluster\":{\"ps\":[\"h1:2222\",\"H1.:2222\"]}," PS_TASK, "E_DUPADDR", "cluster: address h1:2222 is used by ps:0 and ps:1"},
    {"{\"cluster\":{\"master\":[\"h:1\"],\"worker\":{\"7\":\"h:1\"}}}", "E_DUPADDR", "cluster: address h:1 is used by chief:0 and worker:7"},
    {"{\"cluster\":{\"ps\":[\"[::1]:1\"],\"evaluator\":[\"[0:0::1]:1\"]}}", "E_DUPADDR", "cluster: address [::1]:1 is used by ps:0 and evaluator:0"},
    /* sparse */
    {"{\"cluster\":{\"worker\":{\"one\":\"a:1\"}}}", "E_SPARSE_KEY", "cluster.worker: task index \"one\" must be a decimal number without sign or leading zeros"},
    {"{\"cluster\":{\"worker\":{\"01\":\"a:1\"}}}", "E_SPARSE_KEY", "*"},
    {"{\"cluster\":{\"worker\":{\"+1\":\"a:1\"}}}", "E_SPARSE_KEY", "*"},
    {"{\"cluster\":{\"worker\":{\"-1\":\"a:1\"}}}", "E_SPARSE_KEY", "*"},
    {"{\"cluster\":{\"worker\":{\" 1\":\"a:1\"}}}", "E_SPARSE_KEY", "*"},
    {"{\"cluster\":{\"worker\":{\"1_0\":\"a:1\"}}}", "E_SPARSE_KEY", "*"},
    {"{\"cluster\":{\"worker\":{\"\":\"a:1\"}}}", "E_SPARSE_KEY", "*"},
    {"{\"cluster\":{\"worker\":{\"4294967295\":\"a:1\"}}}", "E_SPARSE_KEY", "*"},
    {"{\"cluster\":{\"ps\":{\"0\":\"a:1\",\"2\":\"b:1\"}}," PS_TASK, "E_SPARSE_PS", "cluster.ps: index 1 is missing; every parameter server must be listed"},
    {"{\"cluster\":{\"ps\":{\"1\":\"a:1\"}},\"task\":{\"type\":\"ps\",\"index\":1}}", "E_SPARSE_PS", "cluster.ps: index 0 is missing; *"},
    {"{\"cluster\":{\"worker\":{},\"ps\":[\"a:1\"]}," PS_TASK, "E_SELFONLY", "cluster.ps: lists this task only (TFJob enableDynamicWorker); the number of parameter servers is unknown: give --num-ps"},
    {"{\"sparseCluster\":{\"worker\":{},\"ps\":[\"a:1\"]},\"task\":{\"type\":\"ps\",\"index\":4}}", "E_SELFONLY", "*"},
    /* the task */
    {"{\"task\":{\"type\":\"ps\",\"index\":0}}", "E_NOCLUSTER", "\"cluster\" is not set, so task must be worker 0 or absent, not ps 0"},
    {"{\"cluster\":{},\"task\":{\"type\":\"worker\",\"index\":\"1\"}}", "E_NOCLUSTER", "* not worker 1"},
    {"{\"cluster\":null,\"task\":{\"type\":\"master\",\"index\":0}}", "E_NOCLUSTER", "* not master 0"},
    {"{\"task\":{\"type\":\"evaluator\",\"index\":0}}", "E_NOCLUSTER", "* not evaluator 0"},
    {"{\"task\":{\"index\":2}}", "E_NOCLUSTER", "* not worker 2"},
    {"{\"task\":{\"type\":\"ps\"}}", "E_NOCLUSTER", "* not ps"},
    {TWO "null}", "E_TASK", "\"cluster\" is set, so task.type must be set (or give --job-name)"},
    {TWO "{\"index\":0}}", "E_TASK", "*task.type must be set (or give --job-name)"},
    {TWO "{\"type\":null,\"index\":0}}", "E_TASK", "*task.type must be set (or give --job-name)"},
    {TWO "{\"type\":\"\",\"index\":0}}", "E_TASK", "*task.type must be set (or give --job-name)"},
    {TWO "{\"type\":\"ps\"}}", "E_TASK", "\"cluster\" is set, so task.index must be set (or give --task-index)"},
    {TWO "{\"type\":\"worker\",\"index\":0}}", "E_TASK", "task.type: \"worker\" is not in the cluster (cluster has ps x2)"},
    {TWO "{\"type\":\"master\",\"index\":0}}", "E_TASK", "task.type: \"master\" is not in the cluster (cluster has ps x2)"},
    {"{\"cluster\":{\"ps\":[],\"worker\":[]}," PS_TASK, "E_TASK", "task.type: \"ps\" is not in the cluster (cluster has nothing)"},
    {TWO "{\"type\":\"ps\",\"index\":2}}", "E_INDEX", "task.index: 2 is not a ps of this cluster (indices 0,1)"},
    {TWO "{\"type\":\"ps\",\"index\":4294967296}}", "E_INDEX", "task.index: 4294967296 is not a ps of this cluster (indices 0,1)"},
    {TWO "{\"type\":\"ps\",\"index\":99999999999999999999}}", "E_INDEX", "task.index: *"},
    {TWO "{\"type\":\"ps\",\"index\":-1}}", "E_INDEX", "task.index: must not be negative (-1)"},
    {TWO "{\"type\":\"ps\",\"index\":\"-7\"}}", "E_INDEX", "task.index: must not be negative (-7)"},
    {TWO "{\"type\":\"ps\",\"index\":0.5}}", "E_INDEX", "task.index: must be a non-negative integer"},
    {TWO "{\"type\":\"ps\",\"index\":1.0}}", "E_INDEX", "task.index: must be a non-negative integer"},
    {TWO "{\"type\":\"ps\",\"index\":true}}", "E_INDEX", "task.index: must be a non-negative integer"},
    {TWO "{\"type\":\"ps\",\"index\":null}}", "E_INDEX", "task.index: must be a non-negative integer"},
    {TWO "{\"type\":\"ps\",\"index\":[0]}}", "E_INDEX", "task.index: must be a non-negative integer"},
    {TWO "{\"type\":\"ps\",\"index\":\"\"}}", "E_INDEX", "task.index: must be a non-negative integer"},
    {TWO "{\"type\":\"ps\",\"index\":\"01\"}}", "E_INDEX", "*"},
    {TWO "{\"type\":\"ps\",\"index\":\"1.0\"}}", "E_INDEX", "*"},
    {TWO "{\"type\":\"ps\",\"index\":\" 1\"}}", "E_INDEX", "*"},
    {TWO "{\"type\":\"ps\",\"index\":\"+1\"}}", "E_INDEX", "*"},
    {TWO "{\"type\":\"ps\",\"index\":\"auto\"}}", "E_INDEX", "*"},
    {"{\"cluster\":{\"evaluator\":[\"e:1\"]},\"task\":{\"type\":\"evaluator\",\"index\":1}}", "E_INDEX", "task.index: 1 is not an evaluator of this cluster (indices 0)"},
    {"{\"cluster\":{\"worker\":{\"1\":\"a:1\",\"9\":\"b:1\"}},\"task\":{\"type\":\"worker\",\"index\":2}}", "E_INDEX", "* (indices 1,9)"},
};
/* clang-format on */

/* '*' stands for any text, once. */
static int
matches(const char *pattern, const char *text)
{
    const char *star = strchr(pattern, '*');
    const size_t head = star == NULL ? 0 : (size_t)(star - pattern);
    const size_t tail = star == NULL ? 0 : strlen(star + 1);

    if (star == NULL) {
        return strcmp(pattern, text) == 0;
    }
    return strlen(text) >= head + tail && strncmp(pattern, text, head) == 0 &&
           strstr(text + head, star + 1) != NULL;
}

START_TEST(a_broken_rule_is_refused_by_its_code_and_words)
{
    const struct refusal *refusal = &refusals[_i];
    struct resolved resolved = resolve(refusal->text);

    ck_assert_msg(
            resolved.status == RPS_E_INVAL, "accepted: %s", refusal->text);
    ck_assert_str_eq(resolved.error.code, refusal->code);
    ck_assert(strncmp(resolved.error.message, "TF_CONFIG: ", 11) == 0);
    ck_assert_msg(matches(refusal->message, resolved.error.message + 11),
            "%s gives: %s", refusal->text, resolved.error.message);
    ck_assert_ptr_null(strchr(resolved.error.message, '\n'));
    finish(&resolved);
}
END_TEST

/* Brackets `depth` deep around nothing, in an ignored key. */
static char *
nest(unsigned depth)
{
    char *text = malloc(2 * (size_t)depth + 16);
    size_t at = 0;

    ck_assert_ptr_nonnull(text);
    at += (size_t)sprintf(text, "{\"a\":");
    memset(text + at, '[', depth);
    memset(text + at + depth, ']', depth);
    (void)sprintf(text + at + 2 * (size_t)depth, "}");
    return text;
}

START_TEST(nesting_ends_at_64_levels)
{
    const unsigned depths[] = {63, 64, 5000};

    for (size_t i = 0; i < 3; i++) {
        char *text = nest(depths[i]);
        struct resolved resolved = resolve(text);
        if (i == 0) {
            ck_assert_int_eq(resolved.status, RPS_OK);
        } else {
            ck_assert_str_eq(resolved.error.code, "E_JSON");
        }
        if (i >= 1) { /* 5000: beyond jansson's own limit, the same words */
            ck_assert_str_eq(resolved.error.message,
                    "TF_CONFIG: not valid JSON at line 1 column 69: nested "
                    "deeper than 64 levels");
        }
        finish(&resolved);
        free(text);
    }
}
END_TEST

START_TEST(brackets_in_strings_do_not_count_as_nesting)
{
    char text[512] = "{\"a\":\"\\\"";
    struct resolved resolved;

    memset(text + strlen(text), '[', 100);
    strcat(text, "\\\\\"}");
    resolved = resolve(text);
    ck_assert_int_eq(resolved.status, RPS_OK);
    finish(&resolved);
}
END_TEST

START_TEST(a_text_above_16_mib_is_refused)
{
    const size_t length = 16u * 1024 * 1024 + 1;
    char *text = malloc(length + 1);
    struct resolved resolved;

    ck_assert_ptr_nonnull(text);
    memset(text, ' ', length);
    text[0] = '{';
    text[length - 1] = '}';
    text[length] = '\0';
    resolved = resolve(text);
    ck_assert_str_eq(resolved.error.code, "E_JSON");
    finish(&resolved);
    text[length - 2] = '}';
    text[length - 1] = '\0';
    resolved = resolve(text);
    ck_assert_int_eq(resolved.status, RPS_OK);
    finish(&resolved);
    free(text);
}
END_TEST

START_TEST(foreign_text_is_cut_and_stays_on_one_line)
{
    char text[4096] = "{\"cluster\":{\"a\\u0001\\n";
    struct resolved resolved;

    memset(text + strlen(text), 'x', 3000);
    strcat(text, "\":[]}}");
    resolved = resolve(text);
    ck_assert_str_eq(resolved.error.code, "E_ROLE");
    ck_assert_ptr_nonnull(strstr(resolved.error.message, "\"a\\x01\\nxxx"));
    ck_assert_uint_lt(strlen(resolved.error.message), 400);
    finish(&resolved);
}
END_TEST

START_TEST(a_refusal_needs_no_error_to_fill)
{
    const rps_cluster_options options = options_of("[]");
    rps_cluster cluster;

    ck_assert_int_eq(
            rps_cluster_resolve(&cluster, &options, NULL), RPS_E_INVAL);
    rps_cluster_finish(&cluster);
}
END_TEST

START_TEST(null_arguments_are_refused)
{
    const rps_cluster_options options = options_of("[]");
    rps_cluster_error error = {{0}, NULL};
    rps_cluster cluster;

    rps_cluster_options_init(NULL);
    ck_assert_int_eq(rps_cluster_resolve(NULL, NULL, NULL), RPS_E_INVAL);
    ck_assert_int_eq(rps_cluster_resolve(NULL, &options, NULL), RPS_E_INVAL);
    ck_assert_int_eq(rps_cluster_resolve(&cluster, NULL, &error), RPS_E_INVAL);
    ck_assert_str_eq(error.code, "E_OPTION");
    ck_assert_str_eq(error.message, "TF_CONFIG: options is NULL");
    ck_assert_ptr_null(cluster.ps);
    rps_cluster_error_finish(&error);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("refuse");
    TCase *tcase = tcase_create("rules");

    tcase_add_loop_test(tcase, a_broken_rule_is_refused_by_its_code_and_words,
            0, (int)(sizeof(refusals) / sizeof(refusals[0])));
    tcase_add_test(tcase, nesting_ends_at_64_levels);
    tcase_add_test(tcase, brackets_in_strings_do_not_count_as_nesting);
    tcase_add_test(tcase, a_text_above_16_mib_is_refused);
    tcase_add_test(tcase, foreign_text_is_cut_and_stays_on_one_line);
    tcase_add_test(tcase, a_refusal_needs_no_error_to_fill);
    tcase_add_test(tcase, null_arguments_are_refused);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}

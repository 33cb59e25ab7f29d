/* SPDX-License-Identifier: Apache-2.0 */
#include <recps/client.h>

#include <math.h>
#include <stdio.h>

static int
failed(const char *what)
{
    (void)fprintf(stderr, "%s: %s\n", what, rps_client_error(NULL));
    return 1;
}

static int
train(rps_client *client)
{
    const uint64_t keys[3] = {42, 7, 42};
    const float gradients[3][4] = {{1, 1, 1, 1}, {2, 2, 2, 2}, {3, 3, 3, 3}};
    float rows[3][4];
    rps_table_spec spec;
    rps_embedding_table *table = NULL;

    rps_table_spec_init(&spec, "user", 4, RPS_OPTIMIZER_ADAGRAD);
    if (rps_get_embedding_table(client, &spec, &table) != RPS_OK) {
        return failed("table");
    }
    /* the two gradients of key 42 are summed, then one optimizer step */
    if (rps_push_gradients(table, 0, 3, keys, gradients[0], NAN) != RPS_OK) {
        return failed("push");
    }
    if (rps_embedding_lookup(table, 3, keys, rows[0]) != RPS_OK) {
        return failed("lookup");
    }
    (void)printf(
            "key 42: %g, key 7: %g\n", (double)rows[0][0], (double)rows[1][0]);
    return 0;
}

int
main(void)
{
    rps_client_options options;
    rps_client *client = NULL;
    int code;

    rps_client_options_init(&options);
    if (rps_client_open(&client, &options) != RPS_OK) {
        return failed("open"); /* without a cluster: in process */
    }
    code = train(client);
    rps_client_close(client);
    return code;
}

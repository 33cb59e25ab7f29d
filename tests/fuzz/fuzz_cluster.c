/* SPDX-License-Identifier: Apache-2.0 */
/* TF_CONFIG's text: resolved, or refused with a code and a message. */
#include "tests/fuzz/fuzz.h"

#include <recps/cluster.h>

#include <stdlib.h>
#include <string.h>

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    rps_cluster_options options = {.struct_bytes = sizeof(options)};
    rps_cluster_error error = {.message = NULL};
    rps_cluster cluster;
    char *text = malloc(length + 1);

    if (text == NULL) {
        abort();
    }
    memcpy(text, bytes, length);
    text[length] = '\0';
    options.tf_config_env = text;
    if (rps_cluster_resolve(&cluster, &options, &error) == RPS_OK) {
        fuzz_sink = cluster.ps_count + cluster.fingerprint;
        rps_cluster_finish(&cluster);
    } else if (error.message == NULL || error.code[0] != 'E') {
        abort(); /* refused without a word */
    }
    rps_cluster_error_finish(&error);
    free(text);
    return 0;
}

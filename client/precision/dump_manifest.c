/* SPDX-License-Identifier: Apache-2.0 */
/* A step's manifest: what its files' names cannot say (read.h has its form). */
#include "base/file.h"
#include "client/precision/dump_impl.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* all words of the frame with a step of 20 digits */
#define FRAME_BYTES 128u

uint64_t
rps_dump_manifest_frame_bytes(const struct rps_dump *dump)
{
    return FRAME_BYTES + strlen(dump->run);
}

rps_status
rps_dump_manifest_write(struct rps_dump *dump,
        const struct rps_dump_step_files *step, bool whole, uint64_t *bytes_out,
        struct rps_error *error)
{
    struct rps_text text = {0};
    char *path = rps_format("%s.json", step->folder);
    const char *between = "\n";
    rps_status status = RPS_OK;

    rps_text_add(&text,
            "{\"recps_dump\": 1, \"step\": %" PRIu64
            ", \"complete\": %s,\n\"run\": ",
            step->step, whole ? "true" : "false");
    rps_text_add_bytes(&text, dump->run, strlen(dump->run));
    rps_text_add(&text, ",\n\"operators\": [");
    for (uint64_t i = 0; i < step->tasks && i < step->capacity; i++) {
        if (step->entries[i] != NULL) {
            rps_text_add(&text, "%s", between);
            rps_text_add_bytes(
                    &text, step->entries[i], strlen(step->entries[i]));
            between = ",\n";
        }
    }
    rps_text_add(&text, "]}\n");
    if (path == NULL || text.failed) {
        status = rps_fail(error, RPS_E_NOMEM, "dump: no memory");
    } else {
        status = rps_file_replace(path, text.bytes, text.length, error);
    }
    *bytes_out = status == RPS_OK ? text.length : 0;
    rps_text_finish(&text);
    free(path);
    return status;
}

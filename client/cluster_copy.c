/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cluster_copy.h"

#include <stdlib.h>
#include <string.h>

static bool
copy_text(char **copy, const char *from)
{
    *copy = from != NULL ? strdup(from) : NULL;
    return from == NULL || *copy != NULL;
}

static bool
copy_members(rps_member **copy, const rps_member *from, uint32_t count)
{
    bool good = true;
    uint32_t i;

    if (count == 0 || from == NULL) {
        return true;
    }
    *copy = calloc(count, sizeof(**copy));
    if (*copy == NULL) {
        return false;
    }
    for (i = 0; i < count; i++) {
        (*copy)[i].index = from[i].index;
        good &= copy_text(&(*copy)[i].address, from[i].address);
    }
    return good;
}

bool
rps_cluster_copy(rps_cluster *copy, const rps_cluster *from)
{
    bool good = true;

    *copy = *from;
    copy->ps = NULL;
    copy->workers = NULL;
    good &= copy_text(&copy->chief_address, from->chief_address);
    good &= copy_text(&copy->evaluator_address, from->evaluator_address);
    good &= copy_text(&copy->own_address, from->own_address);
    good &= copy_text(&copy->recps_json, from->recps_json);
    good &= copy_text(&copy->notes, from->notes);
    good &= copy_members(&copy->ps, from->ps, from->ps_count);
    good &= copy_members(&copy->workers, from->workers, from->workers_listed);
    if (copy->ps == NULL) {
        copy->ps_count = 0; /* of nothing, finish frees nothing */
    }
    if (copy->workers == NULL) {
        copy->workers_listed = 0;
    }
    return good;
}

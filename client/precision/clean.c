/* SPDX-License-Identifier: Apache-2.0 */
#include "client/precision/clean.h"

#include <string.h>

void
rps_dump_clean(char *name)
{
    for (; *name != '\0'; name++) {
        if (strchr("./\\ ", *name) != NULL) {
            *name = '_';
        }
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "client/precision/csv.h"

#include <string.h>

void
rps_csv_word(struct rps_text *text, const char *word)
{
    if (strpbrk(word, ",\"\r\n") == NULL) {
        rps_text_add(text, "%s", word);
        return;
    }
    rps_text_add_bytes(text, "\"", 1);
    for (; *word != '\0'; word++) {
        rps_text_add_bytes(
                text, *word == '"' ? "\"\"" : word, *word == '"' ? 2 : 1);
    }
    rps_text_add_bytes(text, "\"", 1);
}

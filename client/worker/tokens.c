/* SPDX-License-Identifier: Apache-2.0 */
#include "client/worker/tokens.h"

#include "base/hash.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* Any constant would do; this one keeps field 0 away from seed 0, which is
 * the seed of everything else that is hashed. */
#define FIELD_SEED UINT64_C(0x72656370735f746b)

#define HASHED_BIT ((uint64_t)1 << 63)

uint64_t
rps_token_pack(uint32_t field, uint64_t token)
{
    return (uint64_t)field << 48 | token;
}

bool
rps_token_integer(const char *text, uint64_t *token_out)
{
    uint64_t value = 0;
    size_t i;

    if (text[0] == '\0' || (text[0] == '0' && text[1] != '\0')) {
        return false;
    }
    for (i = 0; text[i] != '\0'; i++) {
        if (text[i] < '0' || text[i] > '9') {
            return false;
        }
        value = value * 10 + (uint64_t)(text[i] - '0');
        if (value >= RPS_TOKEN_LIMIT) {
            return false;
        }
    }
    *token_out = value;
    return true;
}

static uint64_t
hash_text(const struct rps_tokens *tokens, uint32_t field, const char *text)
{
    uint64_t hash = XXH3_64bits_withSeed(
            text, strlen(text), rps_mix64(FIELD_SEED + field));

    if (tokens->mask != 0) {
        hash &= tokens->mask;
    }
    return hash | HASHED_BIT;
}

/* The place of a key: its entry, or the empty place where it belongs. */
static size_t
find(const struct rps_tokens *tokens, uint64_t key)
{
    size_t place = (size_t)rps_mix64(key) & (tokens->capacity - 1);

    while (tokens->entries[place].key != 0 &&
            tokens->entries[place].key != key) {
        place = (place + 1) & (tokens->capacity - 1);
    }
    return place;
}

static rps_status
grow(struct rps_tokens *tokens)
{
    struct rps_tokens wide = *tokens;
    size_t i;

    if (tokens->count < tokens->capacity / 4 * 3) {
        return RPS_OK;
    }
    wide.capacity = tokens->capacity == 0 ? 64 : tokens->capacity * 2;
    wide.entries = calloc(wide.capacity, sizeof(*wide.entries));
    if (wide.entries == NULL) {
        return RPS_E_NOMEM;
    }
    for (i = 0; i < tokens->capacity; i++) {
        if (tokens->entries[i].key != 0) {
            wide.entries[find(&wide, tokens->entries[i].key)] =
                    tokens->entries[i];
        }
    }
    free(tokens->entries);
    *tokens = wide;
    return RPS_OK;
}

rps_status
rps_tokens_peek(const struct rps_tokens *tokens, uint32_t field,
        const char *text, uint64_t *key_out,
        const struct rps_token_entry **other)
{
    const struct rps_token_entry *entry;
    uint64_t token;

    if (rps_token_integer(text, &token)) {
        *key_out = rps_token_pack(field, token);
        return RPS_OK;
    }
    *key_out = hash_text(tokens, field, text);
    if (tokens->capacity == 0) {
        return RPS_OK;
    }
    entry = &tokens->entries[find(tokens, *key_out)];
    if (entry->key != 0 &&
            (entry->field != field || strcmp(entry->text, text) != 0)) {
        *other = entry;
        return RPS_E_MISMATCH;
    }
    return RPS_OK;
}

rps_status
rps_tokens_key(struct rps_tokens *tokens, uint32_t field, const char *text,
        uint64_t *key_out, const struct rps_token_entry **other)
{
    struct rps_token_entry *entry;
    rps_status status = rps_tokens_peek(tokens, field, text, key_out, other);

    if (status != RPS_OK || (*key_out & HASHED_BIT) == 0) {
        return status;
    }
    status = grow(tokens);
    if (status != RPS_OK) {
        return status;
    }
    entry = &tokens->entries[find(tokens, *key_out)];
    if (entry->key != 0) {
        return RPS_OK;
    }
    entry->text = strdup(text);
    if (entry->text == NULL) {
        return RPS_E_NOMEM;
    }
    entry->key = *key_out;
    entry->field = field;
    tokens->count++;
    return RPS_OK;
}

void
rps_tokens_finish(struct rps_tokens *tokens)
{
    size_t i;

    for (i = 0; i < tokens->capacity; i++) {
        free(tokens->entries[i].text);
    }
    free(tokens->entries);
    *tokens = (struct rps_tokens){0};
}

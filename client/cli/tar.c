/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/tar.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define OCTAL_MAX ((uint64_t)8 << 30) /* 11 octal digits: below 8 GiB */

/** A head, byte by byte. */
struct head {
    char name[100];
    char mode[8];
    char uid[8];
    char gid[8];
    char size[12];
    char mtime[12];
    char sum[8];
    char type;
    char link[100];
    char magic[6];
    char version[2];
    char user[32];
    char group[32];
    char major[8];
    char minor[8];
    char prefix[155];
    char rest[12];
};
_Static_assert(sizeof(struct head) == RPS_TAR_BLOCK_BYTES, "a block");

/* Over all bytes, those of the sum itself as blanks. */
static unsigned
sum_of(const struct head *head)
{
    struct head copy = *head;
    const unsigned char *bytes = (const unsigned char *)&copy;
    unsigned sum = 0;

    memset(copy.sum, ' ', sizeof(copy.sum));
    for (size_t i = 0; i < sizeof(copy); i++) {
        sum += bytes[i];
    }
    return sum;
}

static bool
put_name(struct head *head, const char *name)
{
    const size_t length = strlen(name);
    const char *slash = name;

    if (length <= sizeof(head->name)) {
        memcpy(head->name, name, length);
        return true;
    }
    while ((slash = strchr(slash + 1, '/')) != NULL) {
        const size_t first = (size_t)(slash - name);

        if (first <= sizeof(head->prefix) &&
                length - first - 1 <= sizeof(head->name)) {
            memcpy(head->prefix, name, first);
            memcpy(head->name, slash + 1, length - first - 1);
            return true;
        }
    }
    return false;
}

static void
put_size(struct head *head, uint64_t bytes)
{
    char text[24];

    if (bytes < OCTAL_MAX) {
        snprintf(text, sizeof(text), "%011" PRIo64, bytes);
        memcpy(head->size, text, 11);
        return;
    }
    head->size[0] = (char)0x80; /* the rest is a number, big-endian */
    for (int i = 0; i < 8; i++) {
        head->size[11 - i] = (char)(bytes >> (8 * i) & 0xff);
    }
}

bool
rps_tar_write(const char *name, uint64_t bytes, char block[RPS_TAR_BLOCK_BYTES])
{
    struct head head;
    char text[16];

    memset(&head, 0, sizeof(head));
    if (!put_name(&head, name)) {
        return false;
    }
    memcpy(head.mode, "0000640", 7);
    memcpy(head.uid, "0000000", 7);
    memcpy(head.gid, "0000000", 7);
    memcpy(head.mtime, "00000000000", 11);
    put_size(&head, bytes);
    head.type = '0';
    memcpy(head.magic, "ustar", 5);
    memcpy(head.version, "00", 2);
    snprintf(text, sizeof(text), "%06o", sum_of(&head));
    memcpy(head.sum, text, 7); /* with its NUL, then a blank */
    head.sum[7] = ' ';
    memcpy(block, &head, sizeof(head));
    return true;
}

static bool
parse_octal(const char *text, size_t n, uint64_t *number)
{
    *number = 0;
    while (n > 0 && *text == ' ') {
        text++;
        n--;
    }
    while (n > 0 && *text >= '0' && *text <= '7') {
        *number = *number << 3 | (uint64_t)(*text - '0');
        text++;
        n--;
    }
    return n == 0 || *text == '\0' || *text == ' ';
}

static bool
get_size(const struct head *head, uint64_t *bytes)
{
    if ((unsigned char)head->size[0] != 0x80) {
        return parse_octal(head->size, sizeof(head->size), bytes);
    }
    *bytes = 0;
    for (int i = 4; i < 12; i++) {
        *bytes = *bytes << 8 | (unsigned char)head->size[i];
    }
    return *bytes <= INT64_MAX;
}

bool
rps_tar_read(const char block[RPS_TAR_BLOCK_BYTES], struct rps_tar_entry *entry)
{
    struct head head;
    uint64_t sum = 0;
    size_t used = 0;

    memset(entry, 0, sizeof(*entry));
    memcpy(&head, block, sizeof(head));
    if (head.name[0] == '\0' && sum_of(&head) == 8 * ' ') {
        entry->is_end = true;
        return true;
    }
    if (memcmp(head.magic, "ustar", 5) != 0 ||
            !parse_octal(head.sum, sizeof(head.sum), &sum) ||
            sum != sum_of(&head) || !get_size(&head, &entry->bytes)) {
        return false;
    }
    /* GNU's magic, "ustar ", has other fields where the prefix is */
    if (head.magic[5] == '\0' && head.prefix[0] != '\0') {
        used = (size_t)snprintf(
                entry->name, sizeof(entry->name), "%.155s/", head.prefix);
    }
    snprintf(entry->name + used, sizeof(entry->name) - used, "%.100s",
            head.name);
    entry->is_folder = head.type == '5';
    return head.type == '0' || head.type == '\0' || head.type == '5';
}

size_t
rps_tar_padding(uint64_t bytes)
{
    return (size_t)((RPS_TAR_BLOCK_BYTES - bytes % RPS_TAR_BLOCK_BYTES) %
                    RPS_TAR_BLOCK_BYTES);
}

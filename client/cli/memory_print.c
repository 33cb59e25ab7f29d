/* SPDX-License-Identifier: Apache-2.0 */
/* A snapshot on a terminal: sums, then a bar a segment. */
#include "client/cli/memory_map.h"
#include "client/cli/table_print.h"

#include <inttypes.h>
#include <stdio.h>

#define BAR_CELLS 40u

static const char marks[RPS_MAP_STATES] = {'#', '~', '-', '.'};

static double
percent(uint64_t part, uint64_t whole)
{
    return whole > 0 ? 100.0 * (double)part / (double)whole : 0.0;
}

static void
print_sums(const struct rps_memory_map *map)
{
    static const char *const words[RPS_MAP_STATES] = {"allocated",
            "waits for other streams", "free, a compiled step's", "free"};
    char size[2][32];

    printf("npu %" PRIu64
           ": reserved %s of %s, in %zu segments, %zu blocks\n\n",
            map->device, rps_format_bytes(map->reserved, size[0]),
            rps_format_bytes(map->capacity, size[1]), map->count,
            map->block_count);
    for (int state = 0; state < RPS_MAP_STATES; state++) {
        printf("  %c  %-24s %11s  %5.1f %%\n", marks[state], words[state],
                rps_format_bytes(map->bytes[state], size[0]),
                percent(map->bytes[state], map->reserved));
    }
    printf("     %-24s %11s\n", "largest free block",
            rps_format_bytes(map->largest_free, size[0]));
    printf("     %-24s %20.1f %%\n\n", "fragmentation",
            100.0 * rps_memory_map_fragmentation(map));
}

/* "[##~~....]": cells of equal size, each as most of its bytes are. */
static void
draw_bar(const struct rps_map_segment *segment, char bar[BAR_CELLS + 3])
{
    const uint64_t cells =
            segment->bytes < BAR_CELLS ? segment->bytes : BAR_CELLS;
    const double cell = (double)segment->bytes / (double)cells;
    size_t block = 0;
    size_t at = 0;

    bar[at++] = '[';
    for (uint64_t i = 0; i < cells; i++) {
        const uint64_t from = (uint64_t)((double)i * cell);
        const uint64_t to = i + 1 < cells ? (uint64_t)((double)(i + 1) * cell)
                                          : segment->bytes;

        bar[at++] = marks[rps_map_state_of(segment, from, to, &block)];
    }
    bar[at++] = ']';
    bar[at] = '\0';
}

/* A name of the file's, without what a terminal would take for orders. */
static void
copy_name(const struct rps_map_segment *segment, char name[24])
{
    const char *from = segment->stream != NULL ? segment->stream : "(any)";
    size_t i = 0;

    for (; from[i] != '\0' && i < 23; i++) {
        const unsigned char c = (unsigned char)from[i];

        name[i] = c < ' ' || c >= 0x7f ? '?' : (char)c;
    }
    name[i] = '\0';
}

bool
rps_memory_map_print(const struct rps_memory_map *map)
{
    struct rps_table_print out = {
            .columns = 7,
            .titles = {"address", "bytes", "pool", "stream", "step", "blocks",
                    "map"},
            .right = {false, true, false, false, true, true, false},
    };

    print_sums(map);
    for (size_t i = 0; i < map->count; i++) {
        const struct rps_map_segment *segment = &map->segments[i];
        char bar[BAR_CELLS + 3];
        char size[32];
        char name[24];

        draw_bar(segment, bar);
        copy_name(segment, name);
        rps_table_print_cell(&out, "0x%" PRIx64, segment->address);
        rps_table_print_cell(
                &out, "%s", rps_format_bytes(segment->bytes, size));
        rps_table_print_cell(&out, "%s", segment->pool);
        rps_table_print_cell(&out, "%s", name);
        rps_table_print_cell(
                &out, segment->step != 0 ? "%" PRIu64 : "", segment->step);
        rps_table_print_cell(&out, "%zu", segment->count);
        rps_table_print_cell(&out, "%s", bar);
    }
    return rps_table_print_end(&out);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A snapshot as a picture of its own: no script, no other file, light or dark
 * as the reader's system. On top all of the device's memory to scale, below a
 * bar a segment, each as wide as the page; what lies under the mouse is told.
 */
#include "client/cli/memory_map.h"

#include <inttypes.h>

#define PAGE_WIDTH   960
#define BAR_LEFT     290
#define BAR_WIDTH    650.0
#define BAR_HEIGHT   16
#define ROW_HEIGHT   22
#define HEAD_HEIGHT  150
#define PIECE_MIN_PX 0.75 /* narrower blocks are drawn together */

static const char style[] =
        "<style>\n"
        "svg { color-scheme: light dark; background: #f4f5f7;\n"
        "  font: 12px system-ui, \"Segoe UI\", Roboto, \"DejaVu Sans\", "
        "sans-serif;\n"
        "  font-variant-numeric: tabular-nums; }\n"
        "text { fill: #1a1e26; }\n"
        ".quiet { fill: #596273; }\n"
        ".title { font-size: 15px; font-weight: 600; }\n"
        ".end { text-anchor: end; }\n"
        ".allocated { fill: #2563eb; }\n"
        ".waiting { fill: #c2640a; }\n"
        ".held { fill: #b0218f; }\n"
        ".free { fill: #cbd2dd; }\n"
        ".rest { fill: none; stroke: #98a2b3; }\n"
        "@media (prefers-color-scheme: dark) {\n"
        "  svg { background: #0f1216; }\n"
        "  text { fill: #e4e8ee; }\n"
        "  .quiet { fill: #98a2b3; }\n"
        "  .allocated { fill: #71a7fb; }\n"
        "  .waiting { fill: #f0a94a; }\n"
        "  .held { fill: #ec7fd0; }\n"
        "  .free { fill: #39414e; }\n"
        "  .rest { stroke: #596273; }\n"
        "}\n"
        "</style>\n";

static const char *const words[RPS_MAP_STATES] = {"allocated",
        "waits for other streams", "free, a compiled step's", "free"};

/* Text of the file's, for XML 1.0: it knows no control characters. */
static void
add_escaped(struct rps_text *text, const char *from)
{
    for (; *from != '\0'; from++) {
        switch (*from) {
        case '&':
            rps_text_add(text, "&amp;");
            break;
        case '<':
            rps_text_add(text, "&lt;");
            break;
        case '>':
            rps_text_add(text, "&gt;");
            break;
        default:
            rps_text_add(text, "%c",
                    (unsigned char)*from < ' ' || *from == 0x7f ? '?' : *from);
        }
    }
}

static void
add_rect(
        struct rps_text *text, const char *class, double x, int y, double width)
{
    rps_text_add(text,
            "<rect class=\"%s\" x=\"%.2f\" y=\"%d\" width=\"%.2f\" "
            "height=\"%d\">",
            class, x, y, width, BAR_HEIGHT);
}

/* --- the head
 * ------------------------------------------------------------------ */

static void
add_legend(struct rps_text *text, const struct rps_memory_map *map)
{
    char size[32];

    for (int state = 0; state < RPS_MAP_STATES; state++) {
        const int x = 20 + 235 * state;

        rps_text_add(text,
                "<rect class=\"%s\" x=\"%d\" y=\"58\" width=\"12\" "
                "height=\"12\"/>\n"
                "<text x=\"%d\" y=\"68\">%s</text>\n"
                "<text class=\"quiet\" x=\"%d\" y=\"84\">%s</text>\n",
                rps_map_state_name((enum rps_map_state)state), x, x + 18,
                words[state], x + 18,
                rps_format_bytes(map->bytes[state], size));
    }
}

/* All of the device, to scale; what the pool has not reserved is a frame. */
static void
add_scale(struct rps_text *text, const struct rps_memory_map *map)
{
    const uint64_t whole =
            map->capacity > map->reserved ? map->capacity : map->reserved;
    double x = 20;
    char size[32];

    for (int state = 0; state < RPS_MAP_STATES && whole > 0; state++) {
        const double width =
                (PAGE_WIDTH - 40) * (double)map->bytes[state] / (double)whole;

        if (map->bytes[state] > 0) {
            add_rect(text, rps_map_state_name((enum rps_map_state)state), x,
                    100, width);
            rps_text_add(text, "<title>%s: %s</title></rect>\n", words[state],
                    rps_format_bytes(map->bytes[state], size));
        }
        x += width;
    }
    rps_text_add(text,
            "<rect class=\"rest\" x=\"20\" y=\"100\" width=\"%d\" "
            "height=\"%d\"><title>the device: %s</title></rect>\n",
            PAGE_WIDTH - 40, BAR_HEIGHT, rps_format_bytes(whole, size));
}

static void
add_head(struct rps_text *text, const struct rps_memory_map *map)
{
    const int height = HEAD_HEIGHT + ROW_HEIGHT * (int)map->count + 10;
    char size[3][32];

    rps_text_add(text,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" "
            "height=\"%d\" viewBox=\"0 0 %d %d\" role=\"img\" "
            "aria-labelledby=\"title\">\n"
            "<title id=\"title\">Memory of npu %" PRIu64 "</title>\n%s"
            "<text class=\"title\" x=\"20\" y=\"28\">Memory of npu %" PRIu64
            "</text>\n"
            "<text class=\"quiet\" x=\"20\" y=\"46\">reserved %s of %s, in "
            "%zu segments, %zu blocks; largest free block %s, fragmentation "
            "%.1f %%</text>\n",
            PAGE_WIDTH, height, PAGE_WIDTH, height, map->device, style,
            map->device, rps_format_bytes(map->reserved, size[0]),
            rps_format_bytes(map->capacity, size[1]), map->count,
            map->block_count, rps_format_bytes(map->largest_free, size[2]),
            100.0 * rps_memory_map_fragmentation(map));
    add_legend(text, map);
    add_scale(text, map);
}

/* --- segments
 * -------------------------------------------------------------------- */

/* One block, or neighbours that are too narrow to be seen alone. */
static void
add_piece(struct rps_text *text, const struct rps_map_segment *segment,
        size_t first, size_t count, int y)
{
    const struct rps_map_block *block = &segment->blocks[first];
    const struct rps_map_block *last = &segment->blocks[first + count - 1];
    const uint64_t end = last->at + last->bytes;
    const double px = BAR_WIDTH / (double)segment->bytes;
    const double width = (double)(end - block->at) * px;
    size_t found = first;
    const enum rps_map_state state =
            rps_map_state_of(segment, block->at, end, &found);
    char size[2][32];

    add_rect(text, rps_map_state_name(state), BAR_LEFT + (double)block->at * px,
            y, width > 2 ? width - 0.5 : width);
    rps_text_add(text, "<title>0x%" PRIx64 ": %s", segment->address + block->at,
            rps_format_bytes(end - block->at, size[0]));
    if (count > 1) {
        rps_text_add(text, ", %zu blocks, mostly %s", count, words[state]);
    } else if (block->requested > 0) {
        rps_text_add(text, ", %s, %s asked for", words[state],
                rps_format_bytes(block->requested, size[1]));
    } else {
        rps_text_add(text, ", %s", words[state]);
    }
    rps_text_add(text, "</title></rect>\n");
}

static void
add_blocks(struct rps_text *text, const struct rps_map_segment *segment, int y)
{
    const double px = BAR_WIDTH / (double)segment->bytes;
    size_t first = 0;

    for (size_t i = 0; i < segment->count; i++) {
        const uint64_t end = segment->blocks[i].at + segment->blocks[i].bytes;
        const double width = (double)(end - segment->blocks[first].at) * px;
        const bool next_is_wide =
                i + 1 == segment->count ||
                (double)segment->blocks[i + 1].bytes * px >= PIECE_MIN_PX;

        if (width >= PIECE_MIN_PX || next_is_wide) {
            add_piece(text, segment, first, i + 1 - first, y);
            first = i + 1;
        }
    }
}

static void
add_segment(struct rps_text *text, const struct rps_map_segment *segment, int y)
{
    char size[32];

    rps_text_add(text, "<text x=\"20\" y=\"%d\">", y + 12);
    add_escaped(text, segment->stream != NULL ? segment->stream : "(any)");
    rps_text_add(text, "</text>\n<text class=\"quiet\" x=\"120\" y=\"%d\">%s",
            y + 12, segment->pool);
    if (segment->step != 0) {
        rps_text_add(text, ", step %" PRIu64, segment->step);
    }
    rps_text_add(text,
            "</text>\n<text class=\"end\" x=\"%d\" y=\"%d\">%s"
            "</text>\n",
            BAR_LEFT - 10, y + 12, rps_format_bytes(segment->bytes, size));
    add_blocks(text, segment, y);
}

void
rps_memory_map_svg(const struct rps_memory_map *map, struct rps_text *text)
{
    add_head(text, map);
    for (size_t i = 0; i < map->count && !text->failed; i++) {
        add_segment(text, &map->segments[i], HEAD_HEIGHT + ROW_HEIGHT * (int)i);
    }
    rps_text_add(text, "</svg>\n");
}

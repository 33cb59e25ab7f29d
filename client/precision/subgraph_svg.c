/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drawing in layers. An operator's layer is below those of all its writers; an
 * edge over several layers goes through a bend in each of them, so that it
 * passes beside boxes. Layers are ordered by their neighbours' means, to and
 * fro, and moved apart until nothing overlaps.
 */
#include "client/precision/page.h"
#include "client/precision/subgraph.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SWEEPS       12
#define SPOTS_MAX    60000u
#define CHARACTER    7.2 /* px, of the font below */
#define NAME_MAX_CH  34u
#define BOX_HEIGHT   42.0
#define LAYER_HEIGHT 92.0
#define GAP          26.0
#define BEND_WIDTH   10.0
#define MARGIN       24.0
#define HEAD         58.0
#define NO_BOX       UINT32_MAX

static const char style[] =
        "<style>\n"
        "svg { color-scheme: light dark; background: #f4f5f7;\n"
        "  font: 12px ui-monospace, \"DejaVu Sans Mono\", monospace; }\n"
        "text { fill: #1a1e26; text-anchor: middle; }\n"
        ".title { font-size: 15px; font-weight: 600; text-anchor: start; }\n"
        ".quiet { fill: #596273; }\n"
        ".head { text-anchor: start; }\n"
        ".box { fill: #fff; stroke: #98a2b3; }\n"
        ".centre { fill: #dbe7fe; stroke: #2563eb; stroke-width: 2.5; }\n"
        ".edge { fill: none; stroke: #7b8798; stroke-width: 1.3; }\n"
        ".tip { fill: #7b8798; }\n"
        "g:hover > .edge { stroke: #c2256b; stroke-width: 2.5; }\n"
        "@media (prefers-color-scheme: dark) {\n"
        "  svg { background: #0f1216; }\n"
        "  text { fill: #e4e8ee; }\n"
        "  .quiet { fill: #98a2b3; }\n"
        "  .box { fill: #181c23; stroke: #596273; }\n"
        "  .centre { fill: #1c2b4a; stroke: #71a7fb; }\n"
        "  g:hover > .edge { stroke: #f472b6; }\n"
        "}\n"
        "</style>\n";

/* A box, or a bend of an edge. */
struct spot {
    uint32_t box; /* in subgraph->operators; NO_BOX: a bend */
    uint32_t layer;
    double width;
    double x;    /* its middle */
    double mean; /* of its neighbours */
};

/* From a spot to one of the next layer. */
struct piece {
    uint32_t above, below;
};

struct drawing {
    const struct rps_subgraph *subgraph;
    struct spot *spots; /* boxes first, as in subgraph->operators */
    uint32_t spot_count;
    struct piece *pieces; /* those of a pair one after the other, downwards */
    uint32_t piece_count;
    uint32_t *first_piece; /* [pairs + 1] */
    uint32_t *order;       /* spots, layer after layer, left to right */
    uint32_t *first;       /* [layers + 1], in `order` */
    uint32_t layers;
    double *sums; /* [spots], and how many in `counts` */
    uint32_t *counts;
};

/* --- layers --------------------------------------------------------------- */

static void
find_layers(struct drawing *drawing)
{
    const struct rps_subgraph *subgraph = drawing->subgraph;
    struct spot *spots = drawing->spots;

    /* pairs are by `from`, and boxes in an order in which writers come first */
    for (uint32_t i = 0; i < subgraph->pair_count; i++) {
        const struct rps_subgraph_pair *pair = &subgraph->pairs[i];

        if (spots[pair->to].layer < spots[pair->from].layer + 1) {
            spots[pair->to].layer = spots[pair->from].layer + 1;
        }
    }
    for (uint32_t i = 0; i < subgraph->count; i++) {
        if (spots[i].layer + 1 > drawing->layers) {
            drawing->layers = spots[i].layer + 1;
        }
    }
}

/* Who reads nothing of it stands right above its first reader. */
static void
lower_sources(struct drawing *drawing)
{
    const struct rps_subgraph *subgraph = drawing->subgraph;

    for (uint32_t i = 0; i < subgraph->count; i++) {
        uint32_t next = UINT32_MAX;
        bool reads = false;

        for (uint32_t k = 0; k < subgraph->pair_count; k++) {
            const struct rps_subgraph_pair *pair = &subgraph->pairs[k];

            reads = reads || pair->to == i;
            if (pair->from == i && drawing->spots[pair->to].layer < next) {
                next = drawing->spots[pair->to].layer;
            }
        }
        if (!reads && next != UINT32_MAX) {
            drawing->spots[i].layer = next - 1;
        }
    }
}

static uint32_t
shown_length(const char *text)
{
    uint32_t length = 0;

    for (; *text != '\0'; text++) {
        length += ((unsigned char)*text & 0xc0) != 0x80 ? 1 : 0;
    }
    return length < NAME_MAX_CH ? length : NAME_MAX_CH;
}

static const struct rps_dumped_operator *
operator_of(const struct rps_subgraph *subgraph, uint32_t box)
{
    return &subgraph->graph->dumped->operators[subgraph->operators[box]];
}

static double
box_width(const struct rps_dumped_operator *op)
{
    const uint32_t type = shown_length(op->type);
    const uint32_t name = shown_length(op->name);

    return 20.0 + CHARACTER * (double)(type > name ? type : name);
}

/* How many spots and pieces there are with the bends of all pairs. */
static uint64_t
count_pieces(const struct drawing *drawing)
{
    uint64_t pieces = 0;

    for (uint32_t i = 0; i < drawing->subgraph->pair_count; i++) {
        const struct rps_subgraph_pair *pair = &drawing->subgraph->pairs[i];

        pieces += drawing->spots[pair->to].layer -
                  drawing->spots[pair->from].layer;
    }
    return pieces;
}

static void
bend_pair(struct drawing *drawing, const struct rps_subgraph_pair *pair)
{
    uint32_t above = pair->from;

    for (uint32_t layer = drawing->spots[pair->from].layer + 1;
            layer <= drawing->spots[pair->to].layer; layer++) {
        uint32_t below = pair->to;

        if (layer < drawing->spots[pair->to].layer) {
            below = drawing->spot_count++;
            drawing->spots[below] = (struct spot){
                    .box = NO_BOX, .layer = layer, .width = BEND_WIDTH};
        }
        drawing->pieces[drawing->piece_count++] = (struct piece){above, below};
        above = below;
    }
}

/* Spots of a layer, as they were made. */
static void
first_order(struct drawing *drawing)
{
    for (uint32_t i = 0; i < drawing->spot_count; i++) {
        drawing->first[drawing->spots[i].layer + 1]++;
    }
    for (uint32_t i = 0; i < drawing->layers; i++) {
        drawing->first[i + 1] += drawing->first[i];
    }
    for (uint32_t i = 0; i < drawing->spot_count; i++) {
        const uint32_t layer = drawing->spots[i].layer;

        drawing->order[drawing->first[layer] + drawing->counts[layer]++] = i;
    }
}

/* --- from left to right --------------------------------------------------- */

/* Where a spot is best: in the middle of its neighbours above, or below. */
static void
find_means(struct drawing *drawing, bool above)
{
    memset(drawing->sums, 0, drawing->spot_count * sizeof(*drawing->sums));
    memset(drawing->counts, 0, drawing->spot_count * sizeof(*drawing->counts));
    for (uint32_t i = 0; i < drawing->piece_count; i++) {
        const struct piece *piece = &drawing->pieces[i];
        const uint32_t to = above ? piece->below : piece->above;

        drawing->sums[to] +=
                drawing->spots[above ? piece->above : piece->below].x;
        drawing->counts[to]++;
    }
    for (uint32_t i = 0; i < drawing->spot_count; i++) {
        drawing->spots[i].mean =
                drawing->counts[i] > 0
                        ? drawing->sums[i] / (double)drawing->counts[i]
                        : drawing->spots[i].x;
    }
}

/* Nearly in order already: by insertion. */
static void
sort_layer(struct drawing *drawing, uint32_t layer)
{
    uint32_t *order = drawing->order;

    for (uint32_t i = drawing->first[layer] + 1; i < drawing->first[layer + 1];
            i++) {
        const uint32_t spot = order[i];
        uint32_t at = i;

        while (at > drawing->first[layer] &&
                drawing->spots[order[at - 1]].mean >
                        drawing->spots[spot].mean) {
            order[at] = order[at - 1];
            at--;
        }
        order[at] = spot;
    }
}

/* Each at its mean, pushed right until nothing overlaps, then all of the layer
 * back by what they were pushed on average. */
static void
place_layer(struct drawing *drawing, uint32_t layer)
{
    const uint32_t first = drawing->first[layer];
    const uint32_t end = drawing->first[layer + 1];
    double edge = -1e300, pushed = 0.0;

    for (uint32_t i = first; i < end; i++) {
        struct spot *spot = &drawing->spots[drawing->order[i]];
        const double least = edge + GAP + spot->width / 2.0;

        spot->x = spot->mean > least ? spot->mean : least;
        pushed += spot->x - spot->mean;
        edge = spot->x + spot->width / 2.0;
    }
    for (uint32_t i = first; i < end; i++) {
        drawing->spots[drawing->order[i]].x -= pushed / (double)(end - first);
    }
}

static void
place(struct drawing *drawing)
{
    for (int sweep = 0; sweep < SWEEPS; sweep++) {
        const bool down = sweep % 2 == 0;

        for (uint32_t i = 0; i < drawing->layers; i++) {
            const uint32_t layer = down ? i : drawing->layers - 1 - i;

            /* of one layer alone it would do */
            if (i == 0 || drawing->spot_count < 4000) {
                find_means(drawing, down);
            }
            sort_layer(drawing, layer);
            place_layer(drawing, layer);
        }
    }
}

/* --- a picture -------------------------------------------------------------
 */

static double
top_of(const struct spot *spot)
{
    return HEAD + LAYER_HEIGHT * (double)spot->layer;
}

/* At most NAME_MAX_CH characters. */
static void
add_name(struct rps_text *text, const char *name)
{
    char shown[4 * NAME_MAX_CH + 4];
    size_t length = 0;
    uint32_t characters = 0;

    for (; name[length] != '\0' && length + 4 < sizeof(shown); length++) {
        const bool begins = ((unsigned char)name[length] & 0xc0) != 0x80;

        if (begins && characters == NAME_MAX_CH - 1 &&
                name[length + 1] != '\0') {
            break;
        }
        characters += begins ? 1 : 0;
    }
    memcpy(shown, name, length);
    shown[length] = '\0';
    rps_page_text(text, shown);
    rps_text_add(text, "%s", name[length] != '\0' ? "…" : "");
}

static void
add_box(struct rps_text *text, const struct drawing *drawing, uint32_t box)
{
    const struct spot *spot = &drawing->spots[box];
    const struct rps_dumped_operator *op = operator_of(drawing->subgraph, box);
    const double y = top_of(spot);

    rps_text_add(text,
            "<g><rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
            "height=\"%.1f\" rx=\"6\"/>",
            box == drawing->subgraph->centre ? "centre" : "box",
            spot->x - spot->width / 2.0, y, spot->width, BOX_HEIGHT);
    rps_text_add(text, "<text x=\"%.1f\" y=\"%.1f\">", spot->x, y + 17.0);
    add_name(text, op->type);
    rps_text_add(text, "</text><text class=\"quiet\" x=\"%.1f\" y=\"%.1f\">",
            spot->x, y + 33.0);
    add_name(text, op->name);
    rps_text_add(text, "</text><title>");
    rps_page_text(text, op->type);
    rps_text_add(text, " ");
    rps_page_text(text, op->name);
    if (op->holds != NULL) {
        rps_text_add(text, " (");
        rps_page_text(text, op->holds);
        rps_text_add(text, ")");
    }
    rps_text_add(text, "</title></g>\n");
}

static void
add_pair(struct rps_text *text, const struct drawing *drawing, uint32_t index)
{
    const struct rps_subgraph_pair *pair = &drawing->subgraph->pairs[index];
    const struct spot *end = &drawing->spots[pair->to];
    char *words = rps_subgraph_words(drawing->subgraph, pair);
    double x = drawing->spots[pair->from].x;
    double y = top_of(&drawing->spots[pair->from]) + BOX_HEIGHT;

    rps_text_add(text, "<g><path class=\"edge\" d=\"M%.1f %.1f", x, y);
    for (uint32_t i = drawing->first_piece[index];
            i < drawing->first_piece[index + 1]; i++) {
        const struct spot *to = &drawing->spots[drawing->pieces[i].below];
        const double top = top_of(to);
        const double half = (top - y) / 2.0;

        rps_text_add(text, " C%.1f %.1f %.1f %.1f %.1f %.1f", x, y + half,
                to->x, top - half, to->x, top);
        x = to->x;
        y = top;
        if (to->box == NO_BOX) { /* past the boxes of its layer */
            y += BOX_HEIGHT;
            rps_text_add(text, " L%.1f %.1f", x, y);
        }
    }
    rps_text_add(text,
            "\"/><path class=\"tip\" d=\"M%.1f %.1f l-4 -8 h8 z\"/><title>",
            end->x, top_of(end));
    rps_page_text(text, words != NULL ? words : "");
    rps_text_add(text, "</title></g>\n");
    text->failed = text->failed || words == NULL;
    free(words);
}

static void
add_head(struct rps_text *text, const struct drawing *drawing)
{
    const struct rps_subgraph *subgraph = drawing->subgraph;
    const struct rps_dumped_operator *op =
            operator_of(subgraph, subgraph->centre);

    rps_text_add(text, "<title id=\"title\">Neighbours of ");
    rps_page_text(text, op->name);
    rps_text_add(text,
            "</title>\n%s<text class=\"title\" x=\"%.1f\" "
            "y=\"24\">",
            style, MARGIN);
    rps_page_text(text, op->type);
    rps_text_add(text, " ");
    rps_page_text(text, op->name);
    rps_text_add(text,
            "</text>\n<text class=\"quiet head\" x=\"%.1f\" y=\"43\">step "
            "%" PRIu64 ", %" PRIu32 " operators, %" PRIu32
            " tensors between them</text>\n",
            MARGIN, subgraph->graph->dumped->step, subgraph->count,
            subgraph->edge_count);
}

/* Moves everything to begin at the margin. */
static void
add_picture(struct rps_text *text, struct drawing *drawing)
{
    double left = 1e300, right = -1e300, width;

    for (uint32_t i = 0; i < drawing->spot_count; i++) {
        const struct spot *spot = &drawing->spots[i];

        left = spot->x - spot->width / 2.0 < left ? spot->x - spot->width / 2.0
                                                  : left;
        right = spot->x + spot->width / 2.0 > right
                        ? spot->x + spot->width / 2.0
                        : right;
    }
    for (uint32_t i = 0; i < drawing->spot_count; i++) {
        drawing->spots[i].x += MARGIN - left;
    }
    width = right - left + 2.0 * MARGIN;
    width = width > 480.0 ? width : 480.0;
    rps_text_add(text,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" "
            "height=\"%.0f\" role=\"img\" aria-labelledby=\"title\">\n",
            width, HEAD + LAYER_HEIGHT * (double)drawing->layers);
    add_head(text, drawing);
    for (uint32_t i = 0; i < drawing->subgraph->pair_count; i++) {
        add_pair(text, drawing, i);
    }
    for (uint32_t i = 0; i < drawing->subgraph->count; i++) {
        add_box(text, drawing, i);
    }
    rps_text_add(text, "</svg>\n");
}

/* --- all of it -------------------------------------------------------------
 */

static rps_status
no_memory(struct rps_error *error)
{
    return rps_fail(error, RPS_E_NOMEM, "no memory to draw operators");
}

static rps_status
make_boxes(struct drawing *drawing, struct rps_error *error)
{
    const uint32_t count = drawing->subgraph->count;

    drawing->spots = calloc(SPOTS_MAX, sizeof(*drawing->spots));
    if (drawing->spots == NULL) {
        return no_memory(error);
    }
    for (uint32_t i = 0; i < count; i++) {
        drawing->spots[i] = (struct spot){.box = i,
                .width = box_width(operator_of(drawing->subgraph, i))};
    }
    drawing->spot_count = count;
    find_layers(drawing);
    lower_sources(drawing);
    return RPS_OK;
}

static rps_status
make_bends(struct drawing *drawing, struct rps_error *error)
{
    const uint64_t pieces = count_pieces(drawing);
    const size_t pairs = drawing->subgraph->pair_count;

    if (drawing->spot_count + pieces > SPOTS_MAX) {
        return rps_fail(error, RPS_E_LIMIT,
                "%" PRIu32 " operators of %" PRIu32
                " layers are too many to be drawn: go less deep",
                drawing->spot_count, drawing->layers);
    }
    drawing->pieces = calloc(pieces + 1, sizeof(*drawing->pieces));
    drawing->first_piece = calloc(pairs + 1, sizeof(uint32_t));
    drawing->order = calloc(SPOTS_MAX, sizeof(uint32_t));
    drawing->first = calloc((size_t)drawing->layers + 1, sizeof(uint32_t));
    drawing->sums = calloc(SPOTS_MAX, sizeof(*drawing->sums));
    drawing->counts = calloc(SPOTS_MAX, sizeof(uint32_t));
    if (drawing->pieces == NULL || drawing->first_piece == NULL ||
            drawing->order == NULL || drawing->first == NULL ||
            drawing->sums == NULL || drawing->counts == NULL) {
        return no_memory(error);
    }
    for (uint32_t i = 0; i < pairs; i++) {
        drawing->first_piece[i] = drawing->piece_count;
        bend_pair(drawing, &drawing->subgraph->pairs[i]);
    }
    drawing->first_piece[pairs] = drawing->piece_count;
    return RPS_OK;
}

rps_status
rps_subgraph_svg(const struct rps_subgraph *subgraph, struct rps_text *text,
        struct rps_error *error)
{
    struct drawing drawing = {.subgraph = subgraph};
    rps_status status = make_boxes(&drawing, error);

    if (status == RPS_OK) {
        status = make_bends(&drawing, error);
    }
    if (status == RPS_OK) {
        first_order(&drawing);
        place(&drawing);
        add_picture(text, &drawing);
        status = text->failed ? no_memory(error) : RPS_OK;
    }
    free(drawing.spots);
    free(drawing.pieces);
    free(drawing.first_piece);
    free(drawing.order);
    free(drawing.first);
    free(drawing.sums);
    free(drawing.counts);
    return status;
}

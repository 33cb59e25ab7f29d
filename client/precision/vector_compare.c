/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the folder's names, and what is read of a file: lines, cosines. */
#include "client/precision/vector_compare.h"

#include "base/file.h"
#include "base/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define NAMES_MAX   1000 /* of one second */
#define COLUMNS_MAX 64u
#define COSINES_MAX 1024u /* of a cell */

/* --- names --------------------------------------------------------------- */

static rps_status
no_memory(const char *path, struct rps_error *error)
{
    return rps_fail(error, RPS_E_NOMEM, "%s: no memory", path);
}

rps_status
rps_vector_new(const char *folder, char **path_out, struct rps_error *error)
{
    const time_t now = time(NULL);
    char second[32];
    struct tm parts;
    int fd;
    rps_status status = rps_dir_make(folder, error);

    *path_out = NULL;
    if (status != RPS_OK) {
        return status;
    }
    gmtime_r(&now, &parts);
    (void)strftime(second, sizeof(second), "%Y%m%d%H%M%S", &parts);
    for (int i = 0; i < NAMES_MAX; i++) {
        char *path =
                i == 0 ? rps_format("%s/result_%s.csv", folder, second)
                       : rps_format("%s/result_%s_%03d.csv", folder, second, i);

        if (path == NULL) {
            return no_memory(folder, error);
        }
        /* from now on it is this one's, also beside other processes */
        fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0640);
        if (fd >= 0) {
            close(fd);
            *path_out = path;
            return RPS_OK;
        }
        if (errno != EEXIST) {
            status = rps_fail(error, RPS_E_IO, "cannot create %s: %s", path,
                    strerror(errno));
            free(path);
            return status;
        }
        free(path);
    }
    return rps_fail(error, RPS_E_LIMIT, "%s: has %d files of this second",
            folder, NAMES_MAX);
}

static bool
is_csv(const char *name)
{
    const size_t length = strlen(name);

    return name[0] != '.' && length > 4 &&
           strcmp(name + length - 4, ".csv") == 0;
}

static bool
is_later(const struct stat *a, const char *name, const struct stat *b,
        const char *other)
{
    if (a->st_mtim.tv_sec != b->st_mtim.tv_sec) {
        return a->st_mtim.tv_sec > b->st_mtim.tv_sec;
    }
    if (a->st_mtim.tv_nsec != b->st_mtim.tv_nsec) {
        return a->st_mtim.tv_nsec > b->st_mtim.tv_nsec;
    }
    return strcmp(name, other) > 0;
}

rps_status
rps_vector_newest(const char *folder, char **path_out, struct rps_error *error)
{
    DIR *dir = opendir(folder);
    struct stat newest = {.st_size = 0};
    struct dirent *entry;
    bool good = true;

    *path_out = NULL;
    if (dir == NULL) {
        return rps_fail(error, errno == ENOENT ? RPS_E_NOT_FOUND : RPS_E_IO,
                "cannot open %s: %s: no comparison was made yet (ac -c, vc)",
                folder, strerror(errno));
    }
    while (good && (entry = readdir(dir)) != NULL) {
        struct stat info;

        if (!is_csv(entry->d_name) ||
                fstatat(dirfd(dir), entry->d_name, &info, 0) != 0 ||
                !S_ISREG(info.st_mode) || info.st_size == 0) { /* begun */
            continue;
        }
        if (*path_out == NULL || is_later(&info, entry->d_name, &newest,
                                         strrchr(*path_out, '/') + 1)) {
            newest = info;
            free(*path_out);
            *path_out = rps_format("%s/%s", folder, entry->d_name);
            good = *path_out != NULL;
        }
    }
    closedir(dir);
    if (!good) {
        return no_memory(folder, error);
    }
    return *path_out != NULL
                   ? RPS_OK
                   : rps_fail(error, RPS_E_NOT_FOUND,
                             "%s: has no CSV file: no comparison was made yet "
                             "(ac -c, vc)",
                             folder);
}

/* --- lines ---------------------------------------------------------------- */

enum column {
    LEFT,
    RIGHT,
    TYPE,
    INPUT,
    OUTPUT,
    STEP,
    AGREES,
    COLUMNS
};

/* Those that a file must have come first. */
static const char *const titles[COLUMNS] = {
        "Left", "Right", "type", "Input", "Output", "Step", "Agrees"};

struct reader {
    const char *path;
    char *at; /* cells are ended in place */
    uint64_t line;
    char *cells[COLUMNS_MAX];
    uint32_t cell_count;
    uint32_t place[COLUMNS]; /* in cells; COLUMNS_MAX: there is none */
    struct rps_vector_results *results;
    size_t capacity;
};

static rps_status
corrupt(const struct reader *reader, const char *what, struct rps_error *error)
{
    return rps_fail(error, RPS_E_CORRUPT, "%s: line %" PRIu64 ": %s",
            reader->path, reader->line, what);
}

/* The cell at reader->at, its end overwritten. Returns what ended it: ',',
 * '\n' or, at the end of the file, '\0'; -1: a quote has no end. */
static int
take_cell(struct reader *reader)
{
    char *from = reader->at;
    char *to = from;
    bool quoted = *from == '"';
    char end;

    reader->cells[reader->cell_count++] = to;
    from += quoted ? 1 : 0;
    while (*from != '\0' && (quoted || (*from != ',' && *from != '\n'))) {
        if (quoted && *from == '"') {
            if (from[1] != '"') {
                quoted = false;
                from++;
                continue;
            }
            from++;
        }
        reader->line += *from == '\n' ? 1 : 0;
        *to++ = *from++;
    }
    end = *from;
    if (end == '\n' && to > reader->cells[reader->cell_count - 1] &&
            to[-1] == '\r') {
        to--;
    }
    reader->at = end == '\0' ? from : from + 1;
    *to = '\0';
    return quoted ? -1 : end;
}

static rps_status
take_line(struct reader *reader, struct rps_error *error)
{
    int end;

    reader->line++;
    reader->cell_count = 0;
    do {
        if (reader->cell_count == COLUMNS_MAX) {
            return corrupt(reader, "has too many columns", error);
        }
        end = take_cell(reader);
        if (end < 0) {
            return corrupt(reader, "a quote has no end", error);
        }
    } while (end == ',');
    return RPS_OK;
}

static rps_status
read_head(struct reader *reader, struct rps_error *error)
{
    rps_status status = take_line(reader, error);

    for (uint32_t i = 0; status == RPS_OK && i < COLUMNS; i++) {
        reader->place[i] = COLUMNS_MAX;
        for (uint32_t k = 0; k < reader->cell_count; k++) {
            if (strcmp(reader->cells[k], titles[i]) == 0) {
                reader->place[i] = k;
            }
        }
        if (reader->place[i] == COLUMNS_MAX && i <= OUTPUT) {
            status = rps_fail(error, RPS_E_CORRUPT,
                    "%s: is no comparison's table: it has no column %s",
                    reader->path, titles[i]);
        }
    }
    reader->results->has_steps =
            status == RPS_OK && reader->place[STEP] != COLUMNS_MAX;
    return status;
}

/* NULL: the line has no such cell. */
static char *
cell_of(const struct reader *reader, enum column column)
{
    const uint32_t place = reader->place[column];

    return place < reader->cell_count ? reader->cells[place] : NULL;
}

/* "0:1": an index and its cosine. */
static bool
parse_cosine(char *text, struct rps_vector_cosine *cosine)
{
    char *colon = strchr(text, ':');
    uint64_t index;

    if (colon == NULL) {
        return false;
    }
    *colon = '\0';
    if (!rps_parse_u64(text, &index) || index >= COSINES_MAX) {
        return false;
    }
    cosine->index = (uint32_t)index;
    if (strcmp(colon + 1, "nan") == 0) {
        cosine->cosine = (double)NAN;
        return true;
    }
    return rps_parse_double(colon + 1, &cosine->cosine) &&
           fabs(cosine->cosine) <= 1.0;
}

static uint32_t
count_of(const char *cell)
{
    uint32_t count = cell[0] != '\0' ? 1 : 0;

    for (; *cell != '\0'; cell++) {
        count += *cell == ';' ? 1 : 0;
    }
    return count;
}

static bool
parse_cosines(char *cell, struct rps_vector_cosine *cosines, uint32_t count)
{
    char *next = NULL;

    for (uint32_t i = 0; i < count; i++) {
        char *part = strtok_r(i == 0 ? cell : NULL, ";", &next);

        if (part == NULL || !parse_cosine(part, &cosines[i])) {
            return false;
        }
    }
    return true;
}

static rps_status
give_cosines(struct reader *reader, struct rps_vector_line *line,
        struct rps_error *error)
{
    char *input = cell_of(reader, INPUT), *output = cell_of(reader, OUTPUT);

    line->input_count = count_of(input);
    line->output_count = count_of(output);
    if (line->input_count > COSINES_MAX || line->output_count > COSINES_MAX) {
        return corrupt(reader, "has too many cosines", error);
    }
    line->cosines = calloc((size_t)line->input_count + line->output_count + 1,
            sizeof(*line->cosines));
    if (line->cosines == NULL) {
        return no_memory(reader->path, error);
    }
    if (!parse_cosines(input, line->cosines, line->input_count) ||
            !parse_cosines(output, line->cosines + line->input_count,
                    line->output_count)) {
        return corrupt(reader,
                "Input and Output are no cosines by index (\"0:1;1:0.5\")",
                error);
    }
    return RPS_OK;
}

/* May be printed. */
static char *
plain_copy(const char *text)
{
    char *copy = strdup(text);

    for (char *at = copy; at != NULL && *at != '\0'; at++) {
        *at = (unsigned char)*at < ' ' || *at == 0x7f ? '?' : *at;
    }
    return copy;
}

static rps_status
give_line(struct reader *reader, struct rps_error *error)
{
    struct rps_vector_results *results = reader->results;
    struct rps_vector_line *line = &results->lines[results->count];
    const char *step = cell_of(reader, STEP);
    const char *agrees = cell_of(reader, AGREES);

    for (uint32_t i = 0; i <= OUTPUT; i++) {
        if (cell_of(reader, (enum column)i) == NULL) {
            return corrupt(reader, "has too few columns", error);
        }
    }
    *line = (struct rps_vector_line){.left = plain_copy(cell_of(reader, LEFT)),
            .right = plain_copy(cell_of(reader, RIGHT)),
            .type = plain_copy(cell_of(reader, TYPE)),
            .agrees = agrees == NULL || strcmp(agrees, "no") != 0,
            .unread = agrees != NULL && strcmp(agrees, "not compared") == 0};
    results->count++;
    if (line->left == NULL || line->right == NULL || line->type == NULL) {
        return no_memory(reader->path, error);
    }
    if (step != NULL && !rps_parse_u64(step, &line->step)) {
        return corrupt(reader, "its Step is no number", error);
    }
    return give_cosines(reader, line, error);
}

static rps_status
read_lines(struct reader *reader, struct rps_error *error)
{
    struct rps_vector_results *results = reader->results;
    rps_status status = RPS_OK;

    while (status == RPS_OK && *reader->at != '\0') {
        if (results->count == reader->capacity) {
            const size_t capacity =
                    reader->capacity > 0 ? 2 * reader->capacity : 64;
            struct rps_vector_line *lines =
                    realloc(results->lines, capacity * sizeof(*lines));

            if (lines == NULL) {
                return no_memory(reader->path, error);
            }
            results->lines = lines;
            reader->capacity = capacity;
        }
        status = take_line(reader, error);
        if (status == RPS_OK &&
                (reader->cell_count > 1 || reader->cells[0][0] != '\0')) {
            status = give_line(reader, error);
        }
    }
    return status;
}

rps_status
rps_vector_read(const char *path, struct rps_vector_results *results_out,
        struct rps_error *error)
{
    struct reader reader = {.path = path, .results = results_out};
    char *bytes = NULL;
    size_t length = 0;
    rps_status status =
            rps_file_read(path, RPS_VECTOR_BYTES_MAX, &bytes, &length, error);

    *results_out = (struct rps_vector_results){.lines = NULL};
    if (status != RPS_OK) {
        return status;
    }
    reader.at = bytes;
    status = strlen(bytes) == length
                     ? read_head(&reader, error)
                     : rps_fail(error, RPS_E_CORRUPT, "%s: is no text", path);
    if (status == RPS_OK) {
        status = read_lines(&reader, error);
    }
    free(bytes);
    return status;
}

void
rps_vector_finish(struct rps_vector_results *results)
{
    for (uint32_t i = 0; i < results->count; i++) {
        free(results->lines[i].left);
        free(results->lines[i].right);
        free(results->lines[i].type);
        free(results->lines[i].cosines);
    }
    free(results->lines);
    *results = (struct rps_vector_results){.lines = NULL};
}

/* --- thresholds ----------------------------------------------------------- */

bool
rps_vector_is_below(
        const struct rps_vector_line *line, bool is_output, double threshold)
{
    const uint32_t first = is_output ? line->input_count : 0;
    const uint32_t count = is_output ? line->output_count : line->input_count;

    for (uint32_t i = first; i < first + count; i++) {
        if (!(line->cosines[i].cosine >= threshold)) {
            return true;
        }
    }
    return false;
}

const struct rps_vector_line *
rps_vector_least(const struct rps_vector_results *results, double *cosine_out)
{
    const struct rps_vector_line *least = NULL;

    *cosine_out = 1.0;
    for (uint32_t i = 0; i < results->count; i++) {
        const struct rps_vector_line *line = &results->lines[i];

        for (uint32_t k = 0; k < line->input_count + line->output_count; k++) {
            const double cosine = line->cosines[k].cosine;

            if (least == NULL || !(cosine >= *cosine_out)) {
                least = line;
                *cosine_out = cosine;
            }
            if (isnan(*cosine_out)) {
                return least;
            }
        }
    }
    return least;
}

double
rps_vector_propose(double least)
{
    double scale = 100.0; /* exact: quotients are the nearest numbers */

    if (!(least < 1.0)) {
        return (double)NAN;
    }
    for (; scale <= 1e14; scale *= 10.0) {
        if (least < (scale - 1.0) / scale) {
            return (scale - 1.0) / scale;
        }
        if (least < (10.0 * scale - 5.0) / (10.0 * scale)) {
            return (10.0 * scale - 5.0) / (10.0 * scale);
        }
    }
    return 1.0;
}

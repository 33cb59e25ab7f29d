/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ml-100k: a folder with ml-100k.inter, .user and .item, TAB, one header
 * line each. Rows are sorted by (timestamp, user, item), so all of them are
 * held in memory: about 100 bytes a rating.
 */
#include "base/text.h"
#include "client/worker/dataset_impl.h"
#include "client/worker/entities.h"
#include "client/worker/text_dataset.h"

#include <stdlib.h>
#include <string.h>

#define FIELD_COUNT 7u
#define COLUMNS_MAX 5u

struct rating {
    double timestamp;
    int64_t user;
    int64_t item;
    size_t order; /* in the file: ties keep it */
    float label;
    float dense;
    uint64_t keys[FIELD_COUNT];
};

struct ml100k {
    struct rps_entities users;
    struct rps_entities items;
    struct rating *ratings;
    size_t count;
    size_t capacity;
    size_t next;
};

/* One of the three files: its header, and what is done with a line. */
struct table_file {
    const char *suffix;
    const char *header[COLUMNS_MAX]; /* names, without the ":type" */
    size_t columns;
    rps_status (*take)(struct rps_dataset *dataset, const struct rps_line *line,
            char **columns, struct rps_error *error);
};

static rps_status
column_key(struct rps_dataset *dataset, const struct rps_line *line,
        size_t column, uint32_t field, const char *text, uint64_t *key,
        struct rps_error *error)
{
    const struct rps_token_entry *other = NULL;
    rps_status status =
            rps_tokens_key(&dataset->tokens, field, text, key, &other);

    if (status == RPS_E_MISMATCH) {
        return rps_fail(error, status,
                "%s:%llu: column %zu: token \"%.80s\" of field %u has the "
                "same 64-bit key as token \"%.80s\" of field %u; spell one "
                "of them differently",
                line->path, (unsigned long long)line->number, column, text,
                field, other->text, other->field);
    }
    return status == RPS_OK
                   ? RPS_OK
                   : rps_fail(error, status, "ml-100k: no memory for tokens");
}

static rps_status
take_number(const struct rps_line *line, size_t column, const char *name,
        const char *text, double *out, struct rps_error *error)
{
    if (!rps_parse_double(text, out)) {
        return rps_bad_row(error, line, column,
                "%s \"%.80s\" is not a finite number", name, text);
    }
    return RPS_OK;
}

static rps_status
take_user(struct rps_dataset *dataset, const struct rps_line *line,
        char **columns, struct rps_error *error)
{
    struct ml100k *data = dataset->reader;
    uint64_t keys[RPS_ENTITY_KEYS];
    struct rps_entity *user;
    double age;
    rps_status status = take_number(line, 2, "age", columns[1], &age, error);
    uint32_t i;

    for (i = 0; status == RPS_OK && i < 3; i++) {
        status = column_key(
                dataset, line, i + 3, i + 2, columns[i + 2], &keys[i], error);
    }
    if (status != RPS_OK) {
        return status;
    }
    user = rps_entities_add(&data->users, line, columns[0], error);
    if (user == NULL) {
        return RPS_E_NOMEM;
    }
    user->dense = (float)(age / 50.0);
    memcpy(user->keys, keys, sizeof(keys));
    return RPS_OK;
}

static rps_status
take_item(struct rps_dataset *dataset, const struct rps_line *line,
        char **columns, struct rps_error *error)
{
    struct ml100k *data = dataset->reader;
    char *rest = columns[3];
    uint64_t keys[RPS_ENTITY_KEYS] = {0};
    struct rps_entity *item;
    rps_status status =
            column_key(dataset, line, 3, 5, columns[2], &keys[0], error);

    if (status == RPS_OK) {
        status = column_key(dataset, line, 4, 6, rps_line_column(&rest, ' '),
                &keys[1], error);
    }
    if (status != RPS_OK) {
        return status;
    }
    item = rps_entities_add(&data->items, line, columns[0], error);
    if (item == NULL) {
        return RPS_E_NOMEM;
    }
    memcpy(item->keys, keys, sizeof(keys));
    return RPS_OK;
}

/* A rating's own columns; the user's and the item's are joined after. */
static rps_status
parse_rating(const struct rps_line *line, char **columns, struct rating *rating,
        struct rps_error *error)
{
    double stars = 0.0;
    rps_status status;

    if (!rps_parse_i64(columns[0], &rating->user)) {
        return rps_bad_row(error, line, 1,
                "user_id \"%.80s\" is not an integer", columns[0]);
    }
    if (!rps_parse_i64(columns[1], &rating->item)) {
        return rps_bad_row(error, line, 2,
                "item_id \"%.80s\" is not an integer", columns[1]);
    }
    status = take_number(line, 3, "rating", columns[2], &stars, error);
    if (status == RPS_OK) {
        status = take_number(
                line, 4, "timestamp", columns[3], &rating->timestamp, error);
    }
    rating->label = stars >= 4.0 ? 1.0f : 0.0f;
    return status;
}

static rps_status
join_rating(struct rps_dataset *dataset, const struct rps_line *line,
        char **columns, struct rating *rating, struct rps_error *error)
{
    struct ml100k *data = dataset->reader;
    const struct rps_entity *user = rps_entities_find(&data->users, columns[0]);
    const struct rps_entity *item = rps_entities_find(&data->items, columns[1]);
    rps_status status;

    if (user == NULL) {
        return rps_bad_row(error, line, 1,
                "user \"%.80s\" is not in ml-100k.user", columns[0]);
    }
    if (item == NULL) {
        return rps_bad_row(error, line, 2,
                "item \"%.80s\" is not in ml-100k.item", columns[1]);
    }
    status = column_key(
            dataset, line, 1, 0, columns[0], &rating->keys[0], error);
    if (status == RPS_OK) {
        status = column_key(
                dataset, line, 2, 1, columns[1], &rating->keys[1], error);
    }
    rating->dense = user->dense;
    memcpy(&rating->keys[2], user->keys, 3 * sizeof(user->keys[0]));
    memcpy(&rating->keys[5], item->keys, 2 * sizeof(item->keys[0]));
    return status;
}

static rps_status
take_rating(struct rps_dataset *dataset, const struct rps_line *line,
        char **columns, struct rps_error *error)
{
    struct ml100k *data = dataset->reader;
    struct rating rating = {.order = data->count};
    struct rating *ratings;
    rps_status status = parse_rating(line, columns, &rating, error);

    if (status == RPS_OK) {
        status = join_rating(dataset, line, columns, &rating, error);
    }
    if (status != RPS_OK) {
        return status;
    }
    ratings = rps_grow(
            data->ratings, data->count, &data->capacity, sizeof(*ratings));
    if (ratings == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "ml-100k: no memory");
    }
    data->ratings = ratings;
    data->ratings[data->count++] = rating;
    return RPS_OK;
}

/* Cut into exactly file->columns columns. */
static rps_status
split(const struct table_file *file, const struct rps_line *line,
        char **columns, struct rps_error *error)
{
    char *rest = line->text;
    char *column;
    size_t count = 0;
    rps_status status = rps_line_check_nul(line, '\t', error);

    while (status == RPS_OK &&
            (column = rps_line_column(&rest, '\t')) != NULL) {
        if (count < file->columns) {
            columns[count] = column;
        }
        count++;
    }
    if (status == RPS_OK && count != file->columns) {
        status = rps_bad_row(error, line, count,
                "the row has %zu columns, not %zu", count, file->columns);
    }
    return status;
}

/* A file without its header would lose a row unseen: never skipped. */
static rps_status
check_header(const struct table_file *file, const struct rps_line *line,
        struct rps_error *error)
{
    char *columns[COLUMNS_MAX];
    rps_status status = split(file, line, columns, error);
    size_t i;

    for (i = 0; status == RPS_OK && i < file->columns; i++) {
        size_t length = strcspn(columns[i], ":");

        if (strlen(file->header[i]) != length ||
                strncmp(columns[i], file->header[i], length) != 0) {
            status = rps_bad_row(error, line, i + 1,
                    "the header says \"%.80s\", not \"%s\"", columns[i],
                    file->header[i]);
        }
    }
    return status;
}

static rps_status
read_lines(struct rps_dataset *dataset, const struct table_file *file,
        struct rps_line_reader *lines, struct rps_error *error)
{
    char *columns[COLUMNS_MAX];
    struct rps_line line;
    rps_status status = rps_line_reader_next(lines, &line, error);

    if (status == RPS_OK) {
        status = check_header(file, &line, error);
    }
    if (status != RPS_OK) {
        return status;
    }
    while ((status = rps_line_reader_next(lines, &line, error)) == RPS_OK) {
        status = split(file, &line, columns, error);
        if (status == RPS_OK) {
            status = file->take(dataset, &line, columns, error);
        }
        if (status == RPS_E_INVAL && dataset->options.skip_bad_rows) {
            rps_dataset_note_bad(dataset);
        } else if (status != RPS_OK) {
            return status;
        }
    }
    return status == RPS_E_NOT_FOUND ? RPS_OK : status;
}

static rps_status
read_file(struct rps_dataset *dataset, const char *folder,
        const struct table_file *file, struct rps_error *error)
{
    struct rps_file_list files = {0};
    struct rps_line_reader lines;
    char *path = rps_format("%s/ml-100k.%s", folder, file->suffix);
    rps_status status;

    if (path == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "ml-100k: no memory");
    }
    status = rps_file_list_find(&files, "ml-100k", path, error);
    if (status == RPS_OK) {
        rps_line_reader_init(&lines, &files);
        status = read_lines(dataset, file, &lines, error);
        rps_line_reader_finish(&lines);
    }
    rps_file_list_finish(&files);
    free(path);
    return status;
}

static int
compare_ratings(const void *a, const void *b)
{
    const struct rating *x = a;
    const struct rating *y = b;

    if (x->timestamp != y->timestamp) {
        return x->timestamp < y->timestamp ? -1 : 1;
    }
    if (x->user != y->user) {
        return x->user < y->user ? -1 : 1;
    }
    if (x->item != y->item) {
        return x->item < y->item ? -1 : 1;
    }
    return x->order < y->order ? -1 : x->order > y->order;
}

static rps_status
read_all(struct rps_dataset *dataset, const char *folder,
        struct rps_error *error)
{
    static const struct table_file users = {"user",
            {"user_id", "age", "gender", "occupation", "zip_code"}, 5,
            take_user};
    static const struct table_file items = {"item",
            {"item_id", "movie_title", "release_year", "class"}, 4, take_item};
    static const struct table_file ratings = {"inter",
            {"user_id", "item_id", "rating", "timestamp"}, 4, take_rating};
    struct ml100k *data = dataset->reader;
    rps_status status = read_file(dataset, folder, &users, error);

    if (status == RPS_OK) {
        status = rps_entities_sort(&data->users, folder, "user", error);
    }
    if (status == RPS_OK) {
        status = read_file(dataset, folder, &items, error);
    }
    if (status == RPS_OK) {
        status = rps_entities_sort(&data->items, folder, "item", error);
    }
    if (status == RPS_OK) {
        status = read_file(dataset, folder, &ratings, error);
    }
    if (status == RPS_OK && data->count > 0) {
        qsort(data->ratings, data->count, sizeof(*data->ratings),
                compare_ratings);
    }
    return status;
}

static rps_status
next(struct rps_dataset *dataset, struct rps_error *error)
{
    struct ml100k *data = dataset->reader;
    const struct rating *rating;

    if (data->next == data->count) {
        return RPS_E_NOT_FOUND;
    }
    rating = &data->ratings[data->next++];
    dataset->row.labels[0] = rating->label;
    dataset->row.dense[0] = rating->dense;
    memcpy(dataset->row.keys, rating->keys, sizeof(rating->keys));
    return RPS_OK;
}

static rps_status
rewind_rows(struct rps_dataset *dataset, struct rps_error *error)
{
    struct ml100k *data = dataset->reader;

    data->next = 0;
    return RPS_OK;
}

static rps_status
skip(struct rps_dataset *dataset, uint64_t n, struct rps_error *error)
{
    struct ml100k *data = dataset->reader;
    size_t left = data->count - data->next;

    data->next += n < left ? (size_t)n : left;
    return RPS_OK;
}

static rps_status
key_of(const struct rps_dataset *dataset, uint32_t field, const char *token,
        uint64_t *key_out, struct rps_error *error)
{
    const struct rps_token_entry *other = NULL;
    rps_status status =
            rps_tokens_peek(&dataset->tokens, field, token, key_out, &other);

    if (status == RPS_E_MISMATCH) {
        return rps_fail(error, status,
                "token \"%.80s\" of field %u has the same 64-bit key as "
                "token \"%.80s\" of field %u",
                token, field, other->text, other->field);
    }
    return status;
}

static void
close_data(struct rps_dataset *dataset)
{
    struct ml100k *data = dataset->reader;

    if (data == NULL) {
        return;
    }
    rps_entities_finish(&data->users);
    rps_entities_finish(&data->items);
    free(data->ratings);
    free(data);
    dataset->reader = NULL;
}

static const struct rps_dataset_ops ops = {
        .next = next,
        .rewind = rewind_rows,
        .skip = skip,
        .key = key_of,
        .close = close_data,
};

rps_status
rps_dataset_open_ml100k(
        struct rps_dataset *dataset, const char *path, struct rps_error *error)
{
    struct ml100k *data = calloc(1, sizeof(*data));
    rps_status status;
    uint32_t field;

    if (data == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "ml-100k: no memory");
    }
    dataset->reader = data;
    dataset->ops = &ops;
    dataset->shape = (struct rps_dataset_shape){
            .labels = 1, .dense = 1, .fields = FIELD_COUNT};
    status = rps_row_builder_init(dataset, error);
    for (field = 0; field <= FIELD_COUNT && status == RPS_OK; field++) {
        dataset->row.offsets[field] = field;
    }
    if (status == RPS_OK) {
        status = read_all(dataset, path, error);
    }
    dataset->rows = data->count;
    dataset->rows_known = true;
    return status;
}

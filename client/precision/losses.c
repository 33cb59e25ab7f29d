/* SPDX-License-Identifier: Apache-2.0 */
#include "client/precision/losses.h"

#include "base/json.h"
#include "base/text.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct reading {
    struct rps_losses *losses;
    uint64_t line; /* from 1 on */
    struct rps_error *error;
};

static rps_status
corrupt(const struct reading *reading, const char *words)
{
    return rps_fail(reading->error, RPS_E_CORRUPT, "%s: line %" PRIu64 ": %s",
            reading->losses->path, reading->line, words);
}

static rps_status
no_memory(const struct reading *reading)
{
    return rps_fail(reading->error, RPS_E_NOMEM, "%s: no memory for the losses",
            reading->losses->path);
}

/* Length of Python's word for a number that JSON does not have; 0: none. */
static size_t
foreign_number(const char *at)
{
    static const char *const words[] = {"NaN", "Infinity", "-Infinity"};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strncmp(at, words[i], strlen(words[i])) == 0) {
            return strlen(words[i]);
        }
    }
    return 0;
}

/* The line with null for these, strings as they are; free(). */
static char *
with_nulls(const char *line)
{
    struct rps_text text = {.bytes = NULL};
    bool quoted = false;

    for (const char *at = line; *at != '\0'; at++) {
        const size_t length = quoted ? 0 : foreign_number(at);

        if (length > 0) {
            rps_text_add_bytes(&text, "null", 4);
            at += length - 1;
            continue;
        }
        rps_text_add_bytes(&text, at, 1);
        if (quoted && *at == '\\' && at[1] != '\0') {
            rps_text_add_bytes(&text, ++at, 1);
        } else if (*at == '"') {
            quoted = !quoted;
        }
    }
    if (text.failed) {
        rps_text_finish(&text);
    }
    return text.bytes;
}

static json_t *
parse(const char *line)
{
    json_t *value = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
    char *own;

    if (value != NULL) {
        return value;
    }
    own = with_nulls(line);
    value = own != NULL ? json_loads(own, JSON_REJECT_DUPLICATES, NULL) : NULL;
    free(own);
    return value;
}

/* --- a step ----------------------------------------------------------------
 */

/* What stands there of this step and of later ones is void. */
static void
forget_from(struct rps_losses *losses, uint64_t step)
{
    while (losses->count > 0 && losses->list[losses->count - 1].step >= step) {
        losses->count--;
    }
}

static rps_status
add(const struct reading *reading, uint64_t step, double value)
{
    struct rps_losses *losses = reading->losses;

    forget_from(losses, step);
    if (losses->count == losses->room) {
        const size_t room = losses->room == 0 ? 256 : losses->room * 2;
        struct rps_loss *list =
                reallocarray(losses->list, room, sizeof(*losses->list));

        if (list == NULL) {
            return no_memory(reading);
        }
        losses->list = list;
        losses->room = room;
    }
    losses->list[losses->count++] =
            (struct rps_loss){.step = step, .value = value};
    return RPS_OK;
}

/* The loss of a step's line: its bits, where it has them. */
static rps_status
read_loss(const struct reading *reading, const json_t *object, double *out)
{
    const json_t *loss = json_object_get(object, "loss");
    const char *text = json_string_value(json_object_get(object, "loss_bits"));
    uint64_t bits;

    if (text != NULL) {
        if (!rps_parse_hex64(text, &bits)) {
            return corrupt(reading, "\"loss_bits\" are no 16 hex digits");
        }
        memcpy(out, &bits, sizeof(*out));
    } else if (json_is_number(loss)) {
        *out = json_number_value(loss);
    } else if (json_is_null(loss)) {
        *out = (double)NAN;
    } else {
        return corrupt(reading, "\"loss\" is no number");
    }
    reading->losses->exact = reading->losses->exact && text != NULL;
    return RPS_OK;
}

static rps_status
take_step(const struct reading *reading, const json_t *object)
{
    uint64_t step;
    double loss;
    rps_status status;

    if (!rps_json_count(json_object_get(object, "step"), &step)) {
        return corrupt(reading, "\"step\" is no whole number from 0 on");
    }
    status = read_loss(reading, object, &loss);
    return status == RPS_OK ? add(reading, step, loss) : status;
}

/* --- lines -----------------------------------------------------------------
 */

static void
take_event(const struct reading *reading, json_t *object, const char *event)
{
    struct rps_losses *losses = reading->losses;
    uint64_t to;

    if (strcmp(event, "done") == 0) {
        json_decref(losses->done);
        losses->done = json_incref(object);
    } else if (strcmp(event, "rolled_back") == 0 &&
               rps_json_count(json_object_get(object, "to"), &to)) {
        losses->backs++;
        forget_from(losses, to + 1);
    }
}

static rps_status
take_line(const struct reading *reading, const char *line)
{
    json_t *object;
    const char *event;
    rps_status status = RPS_OK;

    if (line[strspn(line, " \t\r\n")] == '\0') {
        return RPS_OK;
    }
    object = parse(line);
    if (!json_is_object(object)) {
        json_decref(object);
        return corrupt(reading, "is no JSON object, as each line of a "
                                "recps-train --json-log is");
    }
    event = json_string_value(json_object_get(object, "event"));
    if (event != NULL) {
        take_event(reading, object, event);
    } else if (json_object_get(object, "step") != NULL &&
               json_object_get(object, "loss") != NULL) {
        status = take_step(reading, object);
    }
    json_decref(object);
    return status;
}

/* A line, or what is wrong with it. `text` has RPS_LOSSES_LINE_BYTES_MAX + 2
 * bytes, so that a whole one has its line end, or the file ends with it. */
static rps_status
check_line(const struct reading *reading, const char *text, FILE *file)
{
    const size_t length = strlen(text);

    if (length > RPS_LOSSES_LINE_BYTES_MAX) {
        return rps_fail(reading->error, RPS_E_LIMIT,
                "%s: line %" PRIu64 " has more than %u bytes",
                reading->losses->path, reading->line,
                RPS_LOSSES_LINE_BYTES_MAX);
    }
    if (length == 0 || (text[length - 1] != '\n' && feof(file) == 0)) {
        return corrupt(reading, "has a NUL byte");
    }
    return RPS_OK;
}

static rps_status
take_lines(struct reading *reading, FILE *file)
{
    const size_t bytes = RPS_LOSSES_LINE_BYTES_MAX + 2;
    char *text = malloc(bytes);
    rps_status status = text == NULL ? no_memory(reading) : RPS_OK;

    while (status == RPS_OK && fgets(text, (int)bytes, file) != NULL) {
        reading->line++;
        status = check_line(reading, text, file);
        if (status == RPS_OK) {
            status = take_line(reading, text);
        }
    }
    if (status == RPS_OK && ferror(file) != 0) {
        status = rps_fail(reading->error, RPS_E_IO, "%s: %s",
                reading->losses->path, strerror(errno));
    }
    free(text);
    return status;
}

rps_status
rps_losses_read(
        struct rps_losses *losses, const char *path, struct rps_error *error)
{
    struct reading reading = {.losses = losses, .error = error};
    rps_status status;
    FILE *file;

    *losses = (struct rps_losses){.path = strdup(path), .exact = true};
    if (losses->path == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "no memory for the losses");
    }
    file = fopen(path, "re");
    if (file == NULL) {
        status = rps_fail(error, errno == ENOENT ? RPS_E_NOT_FOUND : RPS_E_IO,
                "%s: %s", path, strerror(errno));
    } else {
        status = take_lines(&reading, file);
        (void)fclose(file);
    }
    losses->exact = losses->exact && losses->count > 0;
    if (status != RPS_OK) {
        rps_losses_finish(losses);
    }
    return status;
}

void
rps_losses_finish(struct rps_losses *losses)
{
    free(losses->path);
    free(losses->list);
    json_decref(losses->done);
    *losses = (struct rps_losses){.count = 0};
}

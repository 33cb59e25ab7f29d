/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the writer thread and its queue. Leaves what a task does to save.c,
 * restore.c, evict.c and status.c.
 */
#include "server/writer.h"

#include "base/clock.h"
#include "server/warm.h"

#include <stdlib.h>

struct rps_writer {
    struct rps_service *service; /* set before start */
    pthread_t thread;            /* set before start */
    pthread_cond_t woken;        /* with service->lock, which guards: */
    struct rps_task *first, *last;
    size_t waiting;
    bool running; /* a task is in hand */
    bool stop;
};

/* Its turn may come after its deadline. */
static rps_status
run_in_time(struct rps_service *service, struct rps_task *task, char **text_out,
        struct rps_error *error)
{
    const uint64_t until_ns = task->parked != NULL ? task->parked->until_ns : 0;

    if (until_ns != 0 && rps_clock_ns() >= until_ns) {
        return rps_fail(error, RPS_E_DEADLINE,
                "its deadline has passed while it waited for the writer; "
                "nothing was done");
    }
    return task->run(service, task, text_out, error);
}

static void
free_task(struct rps_task *task)
{
    rps_warm_destroy(task->warm);
    free(task->manifest);
    free(task->why);
    free(task);
}

static void
run_task(struct rps_writer *writer, struct rps_task *task)
{
    struct rps_service *service = writer->service;
    struct rps_error error = {{0}};
    char *text = NULL;
    rps_status status = run_in_time(service, task, &text, &error);

    pthread_mutex_lock(&service->lock);
    if (task->parked != NULL) {
        rps_answer_locked(service, &task->answers, task->parked, status,
                status == RPS_OK ? text : error.text);
    }
    pthread_mutex_unlock(&service->lock);
    rps_answers_send(service, &task->answers);
    free(text);
    free_task(task);
}

/* It waits no longer. */
static void
taken_out_locked(struct rps_writer *writer, const struct rps_task *task)
{
    writer->waiting--;
    if (task->begins) {
        atomic_store(&writer->service->begins_soon, false);
    }
}

static void *
writer_main(void *context)
{
    struct rps_writer *writer = context;
    struct rps_service *service = writer->service;

    pthread_mutex_lock(&service->lock);
    for (;;) {
        struct rps_task *task = writer->first;

        if (task == NULL && writer->stop) {
            break;
        }
        if (task == NULL) {
            pthread_cond_wait(&writer->woken, &service->lock);
            continue;
        }
        writer->first = task->next;
        writer->last = task->next != NULL ? writer->last : NULL;
        taken_out_locked(writer, task);
        writer->running = true;
        pthread_mutex_unlock(&service->lock);
        run_task(writer, task);
        pthread_mutex_lock(&service->lock);
        writer->running = false;
    }
    pthread_mutex_unlock(&service->lock);
    return NULL;
}

struct rps_writer *
rps_writer_create(struct rps_service *service)
{
    struct rps_writer *writer = calloc(1, sizeof(*writer));

    if (writer == NULL) {
        return NULL;
    }
    writer->service = service;
    pthread_cond_init(&writer->woken, NULL);
    if (pthread_create(&writer->thread, NULL, writer_main, writer) != 0) {
        pthread_cond_destroy(&writer->woken);
        free(writer);
        return NULL;
    }
    return writer;
}

void
rps_writer_destroy(struct rps_writer *writer)
{
    if (writer == NULL) {
        return;
    }
    pthread_mutex_lock(&writer->service->lock);
    writer->stop = true;
    pthread_cond_signal(&writer->woken);
    pthread_mutex_unlock(&writer->service->lock);
    pthread_join(writer->thread, NULL);
    pthread_cond_destroy(&writer->woken);
    free(writer);
}

bool
rps_writer_withdraw_locked(
        struct rps_writer *writer, const struct rps_parked *parked)
{
    struct rps_task *before = NULL;
    struct rps_task *task = writer->first;

    while (task != NULL && task->parked != parked) {
        before = task;
        task = task->next;
    }
    if (task == NULL) {
        return false;
    }
    if (before != NULL) {
        before->next = task->next;
    } else {
        writer->first = task->next;
    }
    writer->last = writer->last == task ? before : writer->last;
    taken_out_locked(writer, task);
    free_task(task);
    return true;
}

bool
rps_writer_is_idle_locked(const struct rps_writer *writer)
{
    return writer->first == NULL && !writer->running;
}

size_t
rps_writer_waiting_locked(const struct rps_writer *writer)
{
    return writer->waiting;
}

static void
put_in_locked(struct rps_writer *writer, struct rps_task *copy)
{
    copy->next = copy->urgent ? writer->first : NULL;
    if (copy->urgent || writer->first == NULL) {
        writer->first = copy;
    } else {
        writer->last->next = copy;
    }
    if (copy->next == NULL) {
        writer->last = copy;
    }
    writer->waiting++;
    if (copy->begins) {
        atomic_store(&writer->service->begins_soon, true);
    }
    pthread_cond_signal(&writer->woken);
}

static rps_status
submit_locked(struct rps_request *request, struct rps_task *copy)
{
    struct rps_writer *writer = request->service->writer;

    if (writer->waiting >= RPS_TASKS_MAX) {
        return rps_fail(&request->error, RPS_E_RETRY_LATER,
                "%u requests wait for the writer thread", RPS_TASKS_MAX);
    }
    copy->parked = rps_park_locked(request);
    if (copy->parked == NULL) {
        return rps_fail(&request->error, RPS_E_NOMEM, "no memory to wait");
    }
    put_in_locked(writer, copy);
    return RPS_OK;
}

bool
rps_writer_post(struct rps_writer *writer, const struct rps_task *task)
{
    struct rps_task *copy = malloc(sizeof(*copy));

    if (copy == NULL) {
        return false;
    }
    *copy = *task;
    pthread_mutex_lock(&writer->service->lock);
    put_in_locked(writer, copy);
    pthread_mutex_unlock(&writer->service->lock);
    return true;
}

rps_status
rps_writer_submit(struct rps_request *request, const struct rps_task *task)
{
    struct rps_task *copy = malloc(sizeof(*copy));
    rps_status status;

    if (copy == NULL) {
        rps_warm_destroy(task->warm);
        free(task->manifest);
        free(task->why);
        return rps_fail(&request->error, RPS_E_NOMEM, "no memory to wait");
    }
    *copy = *task;
    pthread_mutex_lock(&request->service->lock);
    status = submit_locked(request, copy);
    pthread_mutex_unlock(&request->service->lock);
    if (status != RPS_OK) {
        free_task(copy);
    }
    return status;
}

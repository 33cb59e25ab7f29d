/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames through memory that the server shares (proto/ring.h). Owns the
 * mapping, the Unix socket that it was agreed on (its end is ours), our bell (a
 * pipe, whose end is the server's) and the server's bell. Rows of a lookup are
 * given where they lie in the ring; everything else is copied before it is
 * opened.
 */
#include "client/channel_shm.h"

#include "base/spin.h"
#include "client/call.h"
#include "client/out_frames.h"
#include "client/refusal.h"
#include "proto/ring.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define FRAMES_PER_MOVE 64 /* as channel_stream.c */
#define SPIN_ROUNDS     32u
#define BELLS           64 /* read at once */

struct shm {
    struct rps_channel base;
    struct rps_ring ring;
    int socket_fd;
    int bell_fd;   /* ours, a pipe */
    int server_fd; /* the server's, an eventfd */
    bool asleep;   /* we said that we sleep: the pipe may have a byte */
    bool ended;    /* the pipe's end; what lies in the ring is the last */
    struct rps_spin spin;
    struct rps_out_frames out; /* do not fit the ring yet */
    struct rps_header header;  /* of the frame that comes */
    bool open;                 /* it is read */
    size_t received;           /* bytes of it in `frame`: it exceeds the ring */
    uint8_t *frame;            /* [capacity] */
    size_t capacity;
    struct rps_section table[RPS_SECTIONS_MAX];
};

static struct shm *
shm_of(struct rps_channel *channel)
{
    return (struct shm *)channel;
}

/* An eventfd that is full is readable: a lost write loses nothing. */
static void
wake(struct shm *shm, uint32_t reason)
{
    const uint64_t one = 1;

    if (rps_ring_wakes(&shm->ring, reason)) {
        (void)!write(shm->server_fd, &one, sizeof(one));
    }
}

/* --- sending ------------------------------------------------------------- */

static rps_status
write_some(struct shm *shm, struct rps_error *error)
{
    rps_status status = RPS_OK;
    bool any = false;

    while (status == RPS_OK && shm->out.first != NULL) {
        const struct rps_out_frame *first = shm->out.first;
        size_t n = 0;

        status = rps_ring_room(&shm->ring, &n, error);
        if (status != RPS_OK || n == 0) {
            break;
        }
        if (n > first->length - first->written) {
            n = first->length - first->written;
        }
        memcpy(rps_ring_back(&shm->ring), first->bytes + first->written, n);
        rps_ring_publish(&shm->ring, n);
        any = true;
        rps_out_frames_wrote(&shm->out, n);
    }
    if (any) {
        wake(shm, RPS_RING_FOR_DATA);
    }
    return status;
}

static rps_status
shm_send(struct rps_channel *channel, const uint8_t *frame, size_t frame_bytes,
        struct rps_error *error)
{
    struct shm *shm = shm_of(channel);
    rps_status status =
            rps_out_frames_add(&shm->out, frame, frame_bytes, error);

    return status == RPS_OK ? write_some(shm, error) : status;
}

/* --- receiving ----------------------------------------------------------- */

static size_t
frame_bytes_of(const struct shm *shm)
{
    return RPS_HEADER_BYTES + (size_t)shm->header.body_bytes;
}

static rps_status
make_room(struct shm *shm, struct rps_error *error)
{
    const size_t need = frame_bytes_of(shm);
    uint8_t *grown;

    if (need <= shm->capacity) {
        return RPS_OK;
    }
    grown = realloc(shm->frame, need);
    if (grown == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "no memory for a reply");
    }
    shm->frame = grown;
    shm->capacity = need;
    return RPS_OK;
}

/* The header is copied and read once; it stays in the ring until its frame is
 * taken. */
static rps_status
open_frame(struct shm *shm, struct rps_error *error)
{
    uint8_t head[RPS_HEADER_BYTES];
    rps_status status;

    memcpy(head, rps_ring_front(&shm->ring), sizeof(head));
    atomic_signal_fence(memory_order_seq_cst);
    status = rps_header_decode(head, &shm->header, error);
    shm->open = status == RPS_OK;
    shm->received = 0;
    return status;
}

/* Only rows are read where they lie. */
static bool
stays_in_ring(const struct shm *shm)
{
    return shm->header.opcode == RPS_OP_EMBEDDING_LOOKUP &&
           shm->header.status == RPS_OK &&
           frame_bytes_of(shm) <= shm->ring.bytes;
}

static void
give_back(struct shm *shm)
{
    shm->open = false;
    rps_ring_release(&shm->ring);
    wake(shm, RPS_RING_FOR_ROOM);
}

/* The whole frame lies in the ring, or in `frame`. */
static rps_status
give(struct shm *shm, const uint8_t *frame, rps_reply_take_fn *take,
        void *context, struct rps_error *error)
{
    struct rps_message reply;
    rps_status status = rps_out_frames_check_reply(
            &shm->out, shm->header.request_id, error);

    if (status == RPS_OK) {
        status = rps_message_open_shared(&reply, &shm->header, frame,
                frame_bytes_of(shm), shm->table, error);
    }
    return status == RPS_OK ? take(context, &shm->base, &reply, error) : status;
}

static rps_status
give_in_ring(struct shm *shm, rps_reply_take_fn *take, void *context,
        struct rps_error *error)
{
    rps_status status =
            give(shm, rps_ring_front(&shm->ring), take, context, error);

    rps_ring_take(&shm->ring, NULL, frame_bytes_of(shm));
    give_back(shm);
    return status;
}

/* Copy what is there; *whole_out: that was its end. */
static rps_status
copy_some(
        struct shm *shm, size_t there, bool *whole_out, struct rps_error *error)
{
    const size_t left = frame_bytes_of(shm) - shm->received;
    const size_t n = there < left ? there : left;
    rps_status status = make_room(shm, error);

    if (status != RPS_OK) {
        return status;
    }
    rps_ring_take(&shm->ring, shm->frame + shm->received, n);
    shm->received += n;
    *whole_out = n == left;
    rps_ring_release(&shm->ring);
    wake(shm, RPS_RING_FOR_ROOM);
    return RPS_OK;
}

/* One frame, or a part of it; *more_out: there may be another. */
static rps_status
read_frame(struct shm *shm, bool *more_out, rps_reply_take_fn *take,
        void *context, struct rps_error *error)
{
    size_t there = 0;
    bool whole = false;
    rps_status status = rps_ring_has(&shm->ring, &there, error);

    *more_out = false;
    if (status == RPS_OK && there > 0 && !shm->open) {
        status = open_frame(shm, error);
    }
    if (status != RPS_OK || there == 0) {
        return status;
    }
    if (stays_in_ring(shm)) {
        *more_out = there >= frame_bytes_of(shm);
        return *more_out ? give_in_ring(shm, take, context, error) : RPS_OK;
    }
    status = copy_some(shm, there, &whole, error);
    *more_out = true; /* the writer may fill the room already */
    if (status == RPS_OK && whole) {
        shm->open = false;
        status = give(shm, shm->frame, take, context, error);
    }
    return status;
}

/* Bells are counted by nobody; their end is the server's. */
static void
hear_bells(struct shm *shm)
{
    char bells[BELLS];
    ssize_t n = read(shm->bell_fd, bells, sizeof(bells));

    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
        shm->ended = true;
    }
}

static rps_status
shm_move(struct rps_channel *channel, rps_reply_take_fn *take, void *context,
        struct rps_error *error)
{
    struct shm *shm = shm_of(channel);
    rps_status status;
    bool more = true;
    int i;

    if (shm->asleep) {
        shm->asleep = false;
        rps_ring_sleep(&shm->ring, 0);
        hear_bells(shm);
    }
    status = write_some(shm, error);
    for (i = 0; status == RPS_OK && more && i < FRAMES_PER_MOVE; i++) {
        status = read_frame(shm, &more, take, context, error);
    }
    if (status == RPS_OK && shm->ended && !more) {
        status = rps_fail(
                error, RPS_E_UNREACHABLE, "the server closed the connection");
    }
    return status;
}

/* --- waiting ------------------------------------------------------------- */

/* Is there something to read, or room for what waits? Rubbish is told by who
 * moves. */
static bool
has_work(const struct shm *shm)
{
    struct rps_error ignored;
    size_t n = 0;
    size_t room = 0;

    if (shm->ended || rps_ring_has(&shm->ring, &n, &ignored) != RPS_OK) {
        return true;
    }
    if (shm->open && stays_in_ring(shm) && n < frame_bytes_of(shm)) {
        n = 0; /* its rest is on the way */
    }
    return n > 0 || (shm->out.first != NULL && (rps_ring_room(&shm->ring, &room,
                                                        &ignored) != RPS_OK ||
                                                       room > 0));
}

static bool
look(void *context)
{
    const struct shm *shm = context;

    return rps_ring_spin(&shm->ring, SPIN_ROUNDS);
}

static bool
shm_arm(struct rps_channel *channel, bool waits)
{
    struct shm *shm = shm_of(channel);

    if (has_work(shm)) {
        return true;
    }
    if (waits && !shm->asleep && shm->out.first == NULL && !shm->open &&
            channel->waiting != NULL && rps_spin(&shm->spin, look, shm)) {
        return true;
    }
    rps_ring_sleep(&shm->ring,
            RPS_RING_FOR_DATA |
                    (shm->out.first != NULL ? RPS_RING_FOR_ROOM : 0));
    shm->asleep = true;
    return has_work(shm);
}

static int
shm_watch(const struct rps_channel *channel, short *events_out)
{
    const struct shm *shm = (const struct shm *)channel;

    *events_out = POLLIN;
    return shm->bell_fd;
}

/* --- its end ------------------------------------------------------------- */

static void
close_fd(int *fd)
{
    if (*fd >= 0) {
        (void)close(*fd);
    }
    *fd = -1;
}

static void
shm_hang_up(struct rps_channel *channel)
{
    struct shm *shm = shm_of(channel);

    rps_out_frames_clear(&shm->out);
    close_fd(&shm->socket_fd);
    close_fd(&shm->bell_fd);
    close_fd(&shm->server_fd);
    rps_ring_unmap(&shm->ring);
}

static void
shm_destroy(struct rps_channel *channel, bool forked)
{
    struct shm *shm = shm_of(channel);

    shm_hang_up(channel); /* a child's copies are its own */
    free(shm->frame);
    free(shm->base.address);
    free(shm);
}

static const struct rps_channel_ops shm_ops = {
        .send = shm_send,
        .move = shm_move,
        .arm = shm_arm,
        .watch = shm_watch,
        .hang_up = shm_hang_up,
        .destroy = shm_destroy,
};

/* --- its beginning ------------------------------------------------------- */

rps_status
rps_attach_begin(struct rps_attach *attach, rps_client *client,
        struct rps_channel *channel, struct rps_error *error)
{
    struct rps_builder builder;
    size_t bytes = 0;
    rps_status status;
    const struct rps_header header = {
            .version = RPS_WIRE_VERSION,
            .opcode = RPS_OP_SHM_ATTACH,
            .request_id = ++client->last_request,
            .route_version = client->route.version,
    };

    *attach =
            (struct rps_attach){.begun = true, .request_id = header.request_id};
    rps_builder_begin(&builder, &header, 0);
    status = rps_builder_end(&builder, &attach->frame, &bytes);
    if (status != RPS_OK) {
        return rps_fail(error, status, "out of memory");
    }
    rps_channel_stream_expect(channel);
    return channel->ops->send(channel, attach->frame, bytes, error);
}

rps_status
rps_attach_take(struct rps_attach *attach, const struct rps_message *reply,
        struct rps_error *error)
{
    char *text;
    json_t *object;

    if ((reply->header.flags & RPS_FLAG_REPLY) == 0 ||
            reply->header.opcode != RPS_OP_SHM_ATTACH ||
            reply->header.request_id != attach->request_id ||
            reply->header.status > 0) {
        return rps_fail(error, RPS_E_CORRUPT, "answers SHM_ATTACH with %s",
                rps_opcode_str(reply->header.opcode));
    }
    if (reply->header.status < 0) {
        return rps_refusal_fail(reply, error);
    }
    text = rps_message_text(reply);
    object = text != NULL ? json_loads(text, 0, NULL) : NULL;
    free(text);
    attach->answered =
            rps_answer_u64(object, "ring_bytes", &attach->ring_bytes);
    json_decref(object);
    return attach->answered
                   ? RPS_OK
                   : rps_fail(error, RPS_E_CORRUPT,
                             "its answer to SHM_ATTACH has no ring_bytes");
}

/* Memory that the server could cut off under us would kill us. */
static rps_status
check_memory(int fd, uint64_t ring_bytes, struct rps_error *error)
{
    const int seals = fcntl(fd, F_GET_SEALS);
    struct stat info;

    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
        return rps_fail(error, RPS_E_CORRUPT,
                "the shared memory is not sealed against shrinking");
    }
    if (ring_bytes > RPS_RING_BYTES_MAX || fstat(fd, &info) != 0 ||
            (uint64_t)info.st_size < rps_ring_file_bytes(ring_bytes)) {
        return rps_fail(error, RPS_E_CORRUPT,
                "the shared memory is smaller than rings of %llu bytes",
                (unsigned long long)ring_bytes);
    }
    return RPS_OK;
}

rps_status
rps_attach_finish(struct rps_attach *attach, struct rps_channel **channel,
        struct rps_error *error)
{
    struct shm *shm = calloc(1, sizeof(*shm));
    int fds[RPS_RING_FDS] = {-1, -1, -1};
    rps_status status;

    if (shm == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "out of memory");
    }
    rps_channel_stream_take(*channel, &shm->socket_fd, fds);
    shm->server_fd = fds[1];
    shm->bell_fd = fds[2];
    rps_out_frames_init(&shm->out);
    rps_spin_init(&shm->spin);
    status = fds[0] >= 0 ? check_memory(fds[0], attach->ring_bytes, error)
                         : rps_fail(error, RPS_E_CORRUPT,
                                   "its answer to SHM_ATTACH brought no "
                                   "descriptors");
    if (status == RPS_OK) {
        status = rps_ring_map(
                &shm->ring, fds[0], attach->ring_bytes, RPS_RING_CLIENT, error);
    }
    close_fd(&fds[0]);
    if (status != RPS_OK) {
        shm_destroy(&shm->base, false);
        return status;
    }
    shm->base = **channel; /* what HELLO told, too */
    shm->base.ops = &shm_ops;
    shm->base.transport = RPS_TRANSPORT_SHM;
    (*channel)->address = NULL;
    rps_channel_destroy(*channel, false);
    *channel = &shm->base;
    return RPS_OK;
}

void
rps_attach_clear(struct rps_attach *attach)
{
    free(attach->frame);
    *attach = (struct rps_attach){0};
}

/* SPDX-License-Identifier: BSD-3-Clause */

#include "shadow.h"

enum { CHANGES = 3 };

/* One of at least half a buffer, and so of several chunks, to a buffer of that kind. */
static bool long_message(buffer_kind_t from, buffer_kind_t to, struct message *message)
{
    const int sender = any_rank(), receiver = any_rank_but(sender);

    for (int b = WINDOWS; b < BUFFERS; b++) {
        for (int c = WINDOWS; c < BUFFERS; c++) {
            const struct model *here = model_of(sender, b), *there = model_of(receiver, c);
            const size_t most = here->size < there->size ? here->size : there->size;

            if (most > LARGEST / 4 && (from == BUFFER_KINDS || here->kind == from) &&
                (to == BUFFER_KINDS || there->kind == to)) {
                message->length = most / 2 + below(most / 2);
                message->from = any_part(sender, b, message->length);
                message->to = any_part(receiver, c, message->length);
                return true;
            }
        }
    }
    return false;
}

/* The bytes from `offset` of the message on have come, as many as never come by chance. */
static bool has_come(const struct message *message, size_t offset, const unsigned char *memory)
{
    const size_t left = message->length - offset;

    return memcmp(memory + message->to.offset + offset, bytes_of(message->from) + offset,
                  left < 64 ? left : 64) == 0;
}

static bool is_done(MPI_Request *request)
{
    int done;

    MPI_Test(request, &done, MPI_STATUS_IGNORE);
    return done != 0;
}

/* The sender's or the receiver's buffer is unmapped when the first bytes have come: munmap is to
 * wait until all have. The receiver does nothing more before the sender is about to do that, or to
 * wait for the end: so without further grants the message is not through. */
void unmap_under_way(void)
{
    const bool senders = below(2) == 0;
    struct message message;
    MPI_Request request;

    if (!long_message(senders ? BUFFER_PRIVATE : BUFFER_KINDS, BUFFER_SHARED, &message)) {
        return;
    }
    struct buffer *from = &buffers[message.from.buffer], *to = &buffers[message.to.buffer];
    renew_bytes(message.from, message.length);
    start(&message, 0, &request);
    if (rank == message.from.rank) {
        bool done = false;
        while (!shared->landed && !done) {
            done = is_done(&request);
        }
        shared->going = true;
        if (senders) {
            buffer_take_away(from);
        }
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else if (rank == message.to.rank) {
        while (!has_come(&message, 0, to->seen) && !is_done(&request)) {
        }
        shared->landed = true;
        await(shared->going);
        if (!senders) {
            buffer_take_away(to);
            copy(message.to, message.from, message.length);
            compare(to->seen, (struct part){rank, message.to.buffer, 0}, to->size, "unmapped");
        }
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        if (!senders) {
            to->memory = buffer_map(to->file, to->size);
        }
    }
    copy(message.to, message.from, message.length);
    check(message.to, message.length, "received while it was unmapped");
    MPI_Barrier(MPI_COMM_WORLD);
    shared->landed = shared->going = false;
    if (senders) { /* its memory is gone already */
        if (rank == message.from.rank) {
            buffer_forget(from);
        }
        make_buffer(message.from.rank, message.from.buffer);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static void send_step_by_step(MPI_Request *request)
{
    while (!shared->over) {
        is_done(request);
        mapping_give_turn(&shared->receivers_turn, true);
    }
}

/* Other pages come under some of the `length` bytes from `offset` on. Chance is this rank's own. */
static void replace_some(const struct buffer *buffer, size_t offset, size_t length, uint64_t *own)
{
    const size_t first = (offset + BUFFER_PAGE - 1) / BUFFER_PAGE;
    const size_t pages = (offset + length) / BUFFER_PAGE - first;
    const size_t at = first + chance_next(own) % pages;
    const size_t count = 1 + chance_next(own) % (first + pages - at);

    buffer_replace(buffer, (buffer_change_t)(chance_next(own) % BUFFER_CHANGES), at * BUFFER_PAGE,
                   count * BUFFER_PAGE);
}

static bool is_whole(const struct message *message)
{
    return memcmp(memory_of(message->to), bytes_of(message->from), message->length) == 0;
}

/* As the sender stands still, what has not come whole is not through. */
static void replace_step_by_step(const struct message *message, MPI_Request *request, uint64_t own)
{
    const struct buffer *buffer = &buffers[message->to.buffer];
    bool done = false;

    for (int n = 0; n < CHANGES && !done; n++) {
        do {
            mapping_give_turn(&shared->receivers_turn, false);
            done = is_done(request);
        } while (!done && !has_come(message, 0, buffer->memory) && chance_next(&own) % 8 > 0);
        done = done || is_whole(message);
        if (!done) {
            replace_some(buffer, message->to.offset, message->length, &own);
        }
    }
    shared->over = true;
    shared->receivers_turn = false;
}

/* All has come to the pages that are there at the end. */
void replace_under_way(void)
{
    struct message message;
    MPI_Request request;

    if (!long_message(BUFFER_KINDS, BUFFER_PRIVATE, &message)) {
        return;
    }
    const uint64_t own = below(UINT64_MAX);
    renew_bytes(message.from, message.length);
    start(&message, 0, &request);
    if (rank == message.from.rank) {
        send_step_by_step(&request);
    } else if (rank == message.to.rank) {
        replace_step_by_step(&message, &request, own);
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    copy(message.to, message.from, message.length);
    check(message.to, message.length, "received while its pages were replaced");
    MPI_Barrier(MPI_COMM_WORLD);
    shared->over = shared->receivers_turn = false;
    MPI_Barrier(MPI_COMM_WORLD);
}

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The receiving side of shared memory, and what drives it.
 */
#include <stdlib.h>

#include "transport/shm/shm_internal.h"

/* Frames received from one neighbour before the next one's turn. */
#define BATCH 16

static void pass_up(const regx_shm_t *shm, const regx_shm_inbound_t *inbound,
                    const regx_frame_t *frame)
{
    const regx_transport_events_t *events = &shm->config.events;

    events->deliver(events->context, inbound->sender, frame->tag, frame->data, frame->length);
}

typedef enum taken { TAKEN_NONE, TAKEN_ONE, TAKEN_LAST } taken_t;

/* Takes a frame of any kind. */
static __attribute__((noinline)) taken_t take_any(regx_shm_t *shm, regx_shm_inbound_t *inbound)
{
    const regx_transport_events_t *events = &shm->config.events;
    regx_frame_t frame;
    const regx_status_t status = regx_mailbox_peek(&inbound->in, &frame);
    const regx_mailbox_lent_t *lent = &frame.lent;

    if (status == REGX_AGAIN) {
        return TAKEN_NONE;
    }
    if (status != REGX_OK) {
        regx_count_malformed(shm->config.counters);
        regx_mailbox_free_until(&inbound->in, regx_mailbox_line(&inbound->in) + 1);
        return TAKEN_ONE;
    }
    if (frame.kind == REGX_FRAME_LAST) {
        return TAKEN_LAST;
    }
    /* Fetches the line behind this frame, at which take_frames looks next. Else that look would wait for
     * the line, and hold up what the frame has begun: the kernel's copy, if it is an RTS. */
    if (frame.lines > 2 && !regx_cpu_is_amd()) {
        regx_mailbox_fetch_ahead(inbound->in.next, frame.lines);
    }
    if (frame.kind == REGX_FRAME_ZCOPY) {
        if (regx_shm_neighbour_map(shm, &inbound->peer) != REGX_OK) {
            events->broken(events->context, inbound->sender, regx_vm_gone(&inbound->peer.vm),
                           "its pool cannot be mapped");
        } else if (!regx_within(lent->offset, lent->length, inbound->peer.address.pool_size)) {
            regx_count_malformed(shm->config.counters);
        } else {
            events->deliver(events->context, inbound->sender, frame.tag,
                            inbound->peer.pool + lent->offset, lent->length);
        }
        regx_mailbox_return(&inbound->in, lent);
    } else if (frame.kind == REGX_FRAME_SHARED_COPY) {
        /* The neighbour asks for help with a get. Without its main segment it gets none. */
        if (regx_shm_neighbour_map(shm, &inbound->peer) != REGX_OK) {
            regx_transport_fall_back(&shm->config, REGX_TRACE_PATH,
                                     "shm: a peer's get cannot be assisted");
        } else if (regx_shared_copy_take(shm, inbound, frame.data, frame.length) != REGX_OK) {
            regx_count_malformed(shm->config.counters);
        }
    } else {
        pass_up(shm, inbound, &frame);
    }
    regx_mailbox_pop(&inbound->in, &frame);
    return TAKEN_ONE;
}

/* Takes the frame of that line, if it has the line for itself. */
static inline bool take_short(const regx_shm_t *shm, regx_shm_inbound_t *inbound,
                              const regx_mailbox_line_t *line, size_t ahead)
{
    regx_frame_t frame;

    if (!regx_mailbox_peek_short(&inbound->in, line, &frame)) {
        return false;
    }
    regx_mailbox_fetch_ahead(line, ahead);
    pass_up(shm, inbound, &frame);
    regx_mailbox_pop_short(&inbound->in, line);
    return true;
}

/* Takes such frames in a row, if there are any. Returns how many. */
static inline int take_row(const regx_shm_t *shm, regx_shm_inbound_t *inbound, int most,
                           size_t ahead)
{
    const regx_mailbox_line_t *const first = inbound->in.next;
    const regx_mailbox_line_t *const end = regx_mailbox_row_end(&inbound->in, (size_t)most);
    const regx_mailbox_line_t *line = first;

    if (!take_short(shm, inbound, line, ahead)) {
        return 0;
    }
    do {
        line++;
    } while (line < end && take_short(shm, inbound, line, REGX_MAILBOX_AHEAD));
    regx_mailbox_end_row(&inbound->in);
    return (int)(line - first);
}

/* Takes what one neighbour has posted, up to a batch. */
static __attribute__((noinline)) int take_frames(regx_shm_t *shm, size_t i)
{
    regx_shm_inbound_t *inbound = shm->inbound[i];
    size_t ahead = 1; /* lines: more when several frames were there (regx_mailbox_fetch_ahead) */
    int events = 0;

    shm->delivering = inbound;
    while (events < BATCH) {
        events += take_row(shm, inbound, BATCH - events, ahead);
        if (events == BATCH || !regx_mailbox_has(&inbound->in)) {
            break;
        }
        /* A frame of another kind, or of several lines; or one that has come since the row ended, or that
         * lies behind a 64th line of the ring. */
        const taken_t taken = take_any(shm, inbound);

        if (taken == TAKEN_NONE) {
            break;
        }
        events++;
        if (taken == TAKEN_LAST) { /* the neighbour posts nothing more */
            shm->delivering = NULL;
            shm->inbound[i] = shm->inbound[--shm->inbound_count];
            regx_shm_drop_inbound(shm, inbound);
            break;
        }
        ahead = REGX_MAILBOX_AHEAD;
    }
    return events;
}

bool regx_shm_has_next(const regx_transport_t *transport)
{
    const regx_shm_t *shm = REGX_CONTAINER_OF(transport, const regx_shm_t, super);

    return regx_mailbox_has_second(&shm->delivering->in);
}

/* Completes the zcopies whose memory came back. */
static __attribute__((noinline)) int poll_zcopies(regx_shm_t *shm)
{
    regx_link_t back = {&back, &back};
    int events = 0;

    regx_lock(&shm->lock);
    for (regx_link_t *link = shm->zcopies.next, *next; link != &shm->zcopies; link = next) {
        const regx_pending_t *op = regx_pending_of(link);
        regx_shm_conn_t *conn = regx_shm_conn_of(op->conn);

        next = link->next;
        if (atomic_load_explicit(&conn->out.memory->returned[op->token], memory_order_acquire) ==
            op->use) {
            atomic_fetch_and(&conn->zcopies, ~(UINT32_C(1) << op->token));
            regx_list_shift(&back, link);
            atomic_fetch_sub(&shm->zcopy_count, 1);
            events++;
        }
    }
    regx_unlock(&shm->lock);
    regx_pending_end_all(&back, REGX_OK);
    return events;
}

/* Whether a request was made since this process has looked at all. */
static inline bool has_request(const regx_shm_t *shm)
{
    return atomic_load_explicit(&shm->queue->requests, memory_order_acquire) != shm->requests_seen;
}

/* The first neighbour, from number `i` on, whose next line is full; inbound_count: none has one. */
static inline size_t next_full(const regx_shm_t *shm, size_t i)
{
    while (i < shm->inbound_count && !regx_mailbox_has(&shm->inbound[i]->in)) {
        i++;
    }
    return i;
}

/* Whether there is nothing to do but to take frames. */
static inline bool is_idle(const regx_shm_t *shm)
{
    return !has_request(shm) && (atomic_load_explicit(&shm->zcopy_count, memory_order_relaxed) |
                                 atomic_load_explicit(&shm->copy_count, memory_order_relaxed)) == 0;
}

/* `full`: the first neighbour whose next line is full, as next_full says. */
static __attribute__((noinline)) int progress_busy(regx_shm_t *shm, size_t full)
{
    int events = 0;

    if (has_request(shm)) {
        events += regx_shm_accept_neighbours(shm);
    }
    for (size_t i = full; i < shm->inbound_count; i = next_full(shm, i + 1)) {
        events += take_frames(shm, i);
    }
    atomic_store_explicit(&shm->received, shm->received + (uint32_t)events, memory_order_relaxed);
    if (atomic_load_explicit(&shm->zcopy_count, memory_order_relaxed) > 0) {
        events += poll_zcopies(shm);
    }
    if (atomic_load_explicit(&shm->copy_count, memory_order_relaxed) > 0) {
        events += regx_shm_report_refused(shm);
        events += regx_cico_progress(shm);
        events += regx_shm_poll_copies(shm);
        regx_shm_reap(shm);
        regx_shm_sweep(shm);
    }
    return events;
}

/* Nearly all calls find nothing: those take a few instructions per neighbour. */
int regx_shm_progress(regx_transport_t *transport)
{
    regx_shm_t *shm = regx_shm_of(transport);
    const size_t full = next_full(shm, 0);

    return full == shm->inbound_count && is_idle(shm) ? 0 : progress_busy(shm, full);
}

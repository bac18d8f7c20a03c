/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Copy in, copy out: the path staged. The sender copies a message to a staging buffer, which is a part
 * of its main segment, and the receiver copies from there what is ready. Two cores copy in user space,
 * one behind the other, and no CTS is needed for it. Each process touches only its own user buffer, and
 * only the staging buffer's cache lines move between cores. This is faster where the program writes the
 * data before and reads it after (64 KiB in both directions: 16 us; copied by the kernel: 22 us).
 *
 *   sender: the offer's state          words that are written          receiver: its get
 *
 *   FREE
 *     │ regx_shm_stage           copied_in = 0; the key, with the RTS ─▶
 *   OFFERED, or AHEAD        ◀─ copied_out = 0, then requests + 1         regx_cico_ask_locked
 *     │
 *   ASKED
 *     │ copy_in                               row, then copied_in = n ─▶
 *     │                      ◀─ copied_out = n, if longer than these      copy_out
 *     │ and so on                                 copied_in = length ─▶
 *   COPIED                                                      the get ends, and the MPI sends FIN
 *     │ regx_shm_unstage, after FIN
 *   FREE
 *
 * copied_in, row and copied_out are words of a *cell* in the sender's main segment, each with one
 * writer. The key (transport.h) names the cell, and the number of its use, which both counts of bytes
 * carry. A longer message has several buffers in a row, if there are, and goes round in them: copied_in
 * is never further ahead of copied_out than they are long.
 *
 * A sender copies what its receiver has asked for. One that has asked for REGX_CICO_STANDING messages of a
 * size in a row makes that a *standing request*, in its own main segment: messages of that size are then
 * copied at once (AHEAD). The receiver ends a standing request when it gets a message
 * another way, as in a trial of `auto`. A sender that has copied one in vain copies none of that size
 * ahead until a receiver asks for one.
 *
 * Each side copies in progress, at most REGX_CICO_STEP bytes in before it copies out what there is of
 * the peer's. The sender goes first where both have something to copy: in an exchange both fill a
 * step of their buffers, then both empty the peer's. If nothing comes the kernel copies the rest from
 * the sender's memory, so the receiver does not wait for a sender that computes, or that waits for
 * something outside MPI. The kernel also copies the rest if the receiver itself looks seldom: by way of the
 * staging buffers it would get no more than their length at each look. The kernel never copies while the
 * sender copies a step of that message: pages that the program itself fills, in a handler of SIGSEGV, may
 * be readable before they are filled. So the sender claims the cell's word `reader` for each step, and the
 * receiver claims it for the kernel, once; from then on the sender leaves the message alone. (Messages do
 * not know of one another: of one buffer that is sent to two receivers the kernel may copy for one while
 * the sender copies for the other.)
 *
 * If another thread copies at unstage, it is waited for: at most two steps. From then on the program
 * may write to its buffer, or free it.
 *
 * The staging buffers are used in turn. A line that is written anew comes faster if it has left both
 * second-level caches than if it lies in the other core's. So a stream of messages goes round in
 * 32 buffers: near cores of Zen 4 then stream 64 KiB at 21 to 25 GB/s, with four or sixteen buffers at
 * 9 to 11. For the same reason a longer message has several of them then. It begins with four, since a
 * page that is touched for the first time costs up to 16 us in a virtual machine: with eight at once an
 * allreduce took half as long again. Either side's pages of a buffer are brought in by one call, as many
 * as the message needs: page by page, the first messages would pay more for it, and `auto` judges by
 * these.
 *
 * To a receiver that shares no cache with this core a message is written past the caches (mailbox.c
 * tells why), as soon as frames have told that it does not. On a Zen 4 a stream of 64 KiB to 1 MiB has
 * 9 to 11 GB/s so between far cores, and 2.1 to 2.7 by plain stores.
 *
 * Any thread may call stage, unstage, ask, note and claim_for_kernel. All others are called by progress
 * alone. (Disconnect, which never runs at the same time, takes gets out of the list.) The lists, the
 * states, `used` and `next_...` are under the transport's lock.
 */
#include <sys/mman.h>
#include <time.h>

#include "transport/shm/shm_internal.h"

/* Bytes that are copied before the receiver is notified. With 4 KiB a lone message takes a little
 * less time, and an exchange more. */
#define PIECE 8192u
/* Nanoseconds without anything coming, before the kernel copies; some 1,024 looks of a program that
 * waits take less. */
#define PATIENCE 200000

/* In a key's handle, where nothing that is registered has its number. */
#define FIRST_ID (UINT32_MAX - REGX_CICO_OFFERS)

static uint64_t pack(uint32_t number, size_t bytes)
{
    return (uint64_t)number << 32 | (uint32_t)bytes;
}

static unsigned size_of(size_t length)
{
    return 63u - (unsigned)__builtin_clzll(length | 1);
}

static uint32_t size_bit(size_t length)
{
    return UINT32_C(1) << size_of(length);
}

/* main: where a main segment is mapped, this process's or a peer's. */
static char *memory_of(const regx_shm_t *shm, char *main, unsigned buffer)
{
    return main + shm->cico_offset + (size_t)buffer * REGX_CICO_SIZE;
}

/* Bytes of the buffers that a message goes round in. */
static size_t size_of_row(regx_cico_row_t row)
{
    return (size_t)row.count * REGX_CICO_SIZE;
}

/* In which of these a byte of the message lies. */
static unsigned buffer_at(regx_cico_row_t row, size_t at)
{
    return row.first + (unsigned)(at / REGX_CICO_SIZE % row.count);
}

/* ---- the sender ---- */

static regx_cico_cell_t *cell_of(const regx_shm_t *shm, const regx_cico_offer_t *offer)
{
    return &regx_shm_main(shm)->cico.cells[offer - shm->cico.offers];
}

static void unqueue_locked(regx_shm_t *shm, regx_cico_offer_t *offer)
{
    regx_list_remove(&offer->queued);
    shm->cico.queue_length--;
    regx_shm_count_copies(shm, -1);
}

bool regx_shm_stage(regx_conn_t *super, const void *base, size_t length, regx_key_t *key)
{
    regx_shm_conn_t *conn = regx_shm_conn_of(super);
    regx_shm_t *shm = regx_shm_of(super->transport);

    if (length > REGX_CICO_MAX) {
        return false;
    }
    regx_lock(&conn->lock);
    const uint32_t standing =
        conn->state == REGX_SHM_ATTACHED
            ? atomic_load_explicit(&conn->peer.main->cico.standing, memory_order_relaxed)
            : 0;
    const bool past = regx_mailbox_is_far(&conn->out);
    regx_unlock(&conn->lock);
    regx_lock(&shm->lock);
    regx_cico_offer_t *offer = NULL;
    for (unsigned i = 0; i < REGX_CICO_OFFERS && offer == NULL; i++) {
        regx_cico_offer_t *next = &shm->cico.offers[shm->cico.next_offer++ % REGX_CICO_OFFERS];

        offer = next->state == REGX_CICO_FREE ? next : NULL;
    }
    if (offer != NULL) {
        const bool ahead = (standing & ~shm->cico.sizes_not_taken & size_bit(length)) != 0;

        *offer = (regx_cico_offer_t){.state = ahead ? REGX_CICO_AHEAD : REGX_CICO_OFFERED,
                                     .number = offer->number + 1,
                                     .past = past,
                                     .from = base,
                                     .length = length};
        atomic_store_explicit(&cell_of(shm, offer)->reader, pack(offer->number, REGX_CICO_NOBODY),
                              memory_order_relaxed);
        atomic_store_explicit(&cell_of(shm, offer)->copied_in, pack(offer->number, 0),
                              memory_order_release);
        regx_list_append(&shm->cico.queue, &offer->queued);
        shm->cico.queue_length++;
        shm->cico.due |= ahead;
        regx_shm_count_copies(shm, 1);
        regx_shm_key_t named = regx_shm_key_unpack(key);
        named.offer =
            (regx_handle_t){FIRST_ID + (uint32_t)(offer - shm->cico.offers), offer->number};
        regx_shm_key_pack(named, key);
    }
    regx_unlock(&shm->lock);
    return offer != NULL;
}

/* Whether the receiver has asked for it, and bytes that it has copied out since. */
static bool is_asked_for(const regx_shm_t *shm, const regx_cico_offer_t *offer, size_t *copied_out)
{
    const uint64_t seen =
        atomic_load_explicit(&cell_of(shm, offer)->copied_out, memory_order_acquire);
    const bool asked = seen >> 32 == offer->number;

    *copied_out = asked ? regx_min((size_t)(uint32_t)seen, offer->copied) : 0;
    return asked;
}

/* One bit for each. */
static uint32_t bits_of(regx_cico_row_t row)
{
    return (uint32_t)(((UINT64_C(1) << row.count) - 1) << row.first);
}

/* If it has any. */
static void give_buffers_locked(regx_cico_t *cico, regx_cico_offer_t *offer)
{
    if (offer->row.count > 0) {
        cico->used &= ~bits_of(offer->row);
        cico->occupied -= offer->row.count;
        cico->going_round -= offer->length > size_of_row(offer->row);
        offer->row.count = 0;
    }
}

void regx_shm_unstage(regx_transport_t *transport, const regx_key_t *key)
{
    regx_shm_t *shm = regx_shm_of(transport);
    regx_cico_offer_t *offer = &shm->cico.offers[regx_shm_key_unpack(key).offer.id - FIRST_ID];
    const struct timespec pause = {.tv_nsec = 5000};
    size_t copied_out;

    regx_lock(&shm->lock);
    /* In another thread, which may have a lower priority. (Without threads the program has left that
     * step by siglongjmp.) */
    while (offer == shm->cico.copying && shm->config.threads) {
        regx_unlock(&shm->lock);
        nanosleep(&pause, NULL);
        regx_lock(&shm->lock);
    }
    if (offer == shm->cico.copying) {
        shm->cico.copying = NULL;
    }
    if (offer->state != REGX_CICO_COPIED) {
        unqueue_locked(shm, offer);
    }
    if (is_asked_for(shm, offer, &copied_out)) {
        shm->cico.sizes_not_taken &= ~size_bit(offer->length);
    } else if (offer->state != REGX_CICO_OFFERED) { /* it was copied ahead, or was going to be */
        shm->cico.sizes_not_taken |= size_bit(offer->length);
    }
    give_buffers_locked(&shm->cico, offer);
    offer->state = REGX_CICO_FREE;
    regx_unlock(&shm->lock);
}

/* The next so many in a row that are free; `count` is 0: there are none. */
static regx_cico_row_t find_row_locked(regx_cico_t *cico, unsigned count)
{
    for (unsigned tried = 0; tried < cico->buffers; tried += count) {
        const size_t first = regx_align_up(cico->next_buffer, count) % cico->buffers;
        const regx_cico_row_t row = {.first = (uint16_t)first, .count = (uint16_t)count};

        cico->next_buffer = row.first + count;
        if ((cico->used & bits_of(row)) == 0) {
            return row;
        }
    }
    return (regx_cico_row_t){0};
}

/* Gives it staging buffers, unless it has some. false: none are free. The last is for a message that is
 * asked for, which takes fewer than it would have, too. A row of several leaves as many free as a process
 * begins with, so that short messages to other processes find some. Of messages that go round in theirs
 * only a few begin: the sender can end one no sooner if it has begun others. */
static bool take_buffers_locked(regx_shm_t *shm, regx_cico_offer_t *offer)
{
    regx_cico_t *cico = &shm->cico;
    const bool asked = offer->state == REGX_CICO_ASKED;
    const unsigned kept = asked ? 0 : 1;
    /* How many it would have: one while the process has few, so that few pages are touched. */
    unsigned most = 1;

    while (cico->buffers == REGX_CICO_BUFFERS && most < REGX_CICO_ROW &&
           offer->length > most * REGX_CICO_SIZE) {
        most *= 2;
    }
    const unsigned least = asked ? 1 : most;
    for (unsigned count = most; offer->row.count == 0 && count >= least; count /= 2) {
        const bool goes_round = offer->length > count * REGX_CICO_SIZE;

        if (cico->occupied + count + (count > 1 ? REGX_CICO_FIRST : kept) > cico->buffers ||
            (goes_round && cico->going_round + kept >= REGX_CICO_FIRST)) {
            continue;
        }
        offer->row = find_row_locked(cico, count);
        if (offer->row.count > 0) {
            cico->used |= bits_of(offer->row);
            cico->occupied += count;
            cico->going_round += goes_round;
            atomic_store_explicit(&cell_of(shm, offer)->row, offer->row, memory_order_relaxed);
            /* Messages that stream go through more buffers. The new one is the next, so that soon the
             * pages of all are there. (Where few are under way new pages would cost more than they gain,
             * and `auto` would judge by that.) */
            if (cico->queue_length > REGX_CICO_FIRST && cico->buffers < cico->buffers_max &&
                ++cico->messages == REGX_CICO_GROWTH) {
                cico->messages = 0;
                cico->next_buffer = cico->buffers++;
            }
        }
    }
    return offer->row.count > 0;
}

/* Changes who reads the message's memory, if that is `from`. Returns whether it was. From NOBODY to
 * SENDER it is claimed: nobody else reads it until that is undone. */
static bool set_reader(const regx_shm_t *shm, const regx_cico_offer_t *offer,
                       regx_cico_reader_t from, regx_cico_reader_t to)
{
    uint64_t seen = pack(offer->number, from);

    return atomic_compare_exchange_strong_explicit(&cell_of(shm, offer)->reader, &seen,
                                                   pack(offer->number, to), memory_order_acq_rel,
                                                   memory_order_relaxed);
}

/* The oldest offer of which something can be copied, and up to where; NULL: there is none. The offers
 * are looked through only while one of them is AHEAD or ASKED, or a receiver has asked since. */
static regx_cico_offer_t *find_due_locked(regx_shm_t *shm, size_t *end)
{
    regx_cico_t *cico = &shm->cico;
    const uint32_t requests =
        atomic_load_explicit(&regx_shm_main(shm)->cico.requests, memory_order_acquire);

    if (!cico->due && requests == cico->requests_seen) {
        return NULL;
    }
    cico->requests_seen = requests;
    cico->due = false;
    for (regx_link_t *link = cico->queue.next; link != &cico->queue; link = link->next) {
        regx_cico_offer_t *offer = REGX_CONTAINER_OF(link, regx_cico_offer_t, queued);
        size_t copied_out;

        if (is_asked_for(shm, offer, &copied_out)) {
            offer->state = REGX_CICO_ASKED;
        }
        if (offer->state == REGX_CICO_OFFERED) {
            continue;
        }
        cico->due = true;
        if (take_buffers_locked(shm, offer)) {
            *end = regx_min(offer->length, copied_out + size_of_row(offer->row));
            if (*end > offer->copied) {
                return offer;
            }
        }
    }
    return NULL;
}

/* Copies the next bytes of a message, a step and not beyond `end`, to one staging buffer. */
static void copy_in(regx_shm_t *shm, regx_cico_offer_t *offer, size_t end)
{
    const unsigned buffer = buffer_at(offer->row, offer->copied);
    const size_t begin =
        offer->copied - offer->copied % REGX_CICO_SIZE; /* what lies in this buffer */
    char *to = memory_of(shm, shm->main.base, buffer);

    regx_shm_bring_in(to, regx_min(offer->length - begin, REGX_CICO_SIZE),
                      &shm->cico.brought_in[buffer], MADV_POPULATE_WRITE);
    end = regx_min(regx_min(end, offer->copied + REGX_CICO_STEP), begin + REGX_CICO_SIZE);
    while (offer->copied < end) {
        const size_t piece = regx_min(end - offer->copied, PIECE);

        (offer->past ? regx_copy_past_caches : regx_copy)(to + (offer->copied - begin),
                                                          offer->from + offer->copied, piece);
        offer->copied += piece;
        atomic_store_explicit(&cell_of(shm, offer)->copied_in, pack(offer->number, offer->copied),
                              memory_order_release);
    }
}

/* Copies in of the oldest offer that is due. Returns whether there was one. */
static bool copy_in_next(regx_shm_t *shm)
{
    regx_cico_t *cico = &shm->cico;
    size_t end;

    regx_lock(&shm->lock);
    if (cico->copying != NULL) { /* the program has left that step by siglongjmp, claimed or not */
        set_reader(shm, cico->copying, REGX_CICO_SENDER, REGX_CICO_NOBODY);
    }
    regx_cico_offer_t *offer = find_due_locked(shm, &end);
    cico->copying = offer;
    regx_unlock(&shm->lock);
    if (offer == NULL) {
        return false;
    }
    const size_t before = offer->copied;
    const bool mine = set_reader(shm, offer, REGX_CICO_NOBODY, REGX_CICO_SENDER);
    if (mine) {
        copy_in(shm, offer, end);
        set_reader(shm, offer, REGX_CICO_SENDER, REGX_CICO_NOBODY);
    }
    regx_lock(&shm->lock);
    cico->copying = NULL;
    if (!mine || offer->copied == offer->length) {
        offer->state = REGX_CICO_COPIED;
        unqueue_locked(shm, offer);
        if (!mine) {
            give_buffers_locked(cico, offer);
        }
    } else if (offer->copied / REGX_SHM_TURN > before / REGX_SHM_TURN) {
        regx_list_shift(&cico->queue, &offer->queued);
    }
    regx_unlock(&shm->lock);
    return true;
}

/* ---- the receiver ---- */

/* Of the offer that its key names; not below REGX_CICO_OFFERS: of none. */
static unsigned index_of(const regx_get_t *get)
{
    return regx_shm_key_unpack(&get->key).offer.id - FIRST_ID;
}

void regx_cico_note(regx_shm_t *shm, const regx_get_t *get)
{
    const unsigned size = size_of(get->length);

    if (get->length > REGX_CICO_MAX || index_of(get) >= REGX_CICO_OFFERS ||
        (!get->staged &&
         atomic_load_explicit(&shm->cico.in_a_row[size], memory_order_relaxed) == 0)) {
        return;
    }
    const uint32_t bit = size_bit(get->length);
    regx_lock(&shm->lock);
    _Atomic uint8_t *in_a_row = &shm->cico.in_a_row[size];
    if (!get->staged) {
        *in_a_row = 0;
        atomic_fetch_and(&regx_shm_main(shm)->cico.standing, ~bit);
    } else if (*in_a_row < REGX_CICO_STANDING && ++*in_a_row == REGX_CICO_STANDING) {
        atomic_fetch_or(&regx_shm_main(shm)->cico.standing, bit);
    }
    regx_unlock(&shm->lock);
}

static regx_cico_cell_t *peers_cell(const regx_get_t *get)
{
    return &regx_shm_conn_of(get->pending.conn)->peer.main->cico.cells[index_of(get)];
}

/* 0: asks for it. */
static void tell_copied_out(const regx_get_t *get, size_t bytes)
{
    const uint32_t number = regx_shm_key_unpack(&get->key).offer.generation;

    atomic_store_explicit(&peers_cell(get)->copied_out, pack(number, bytes), memory_order_release);
}

regx_status_t regx_cico_ask_locked(regx_shm_conn_t *conn, regx_get_t *get)
{
    regx_shm_t *shm = regx_shm_of(conn->super.transport);

    if (index_of(get) >= REGX_CICO_OFFERS || get->offset != 0 || get->length > REGX_CICO_MAX) {
        return REGX_AGAIN;
    }
    regx_cico_note(shm, get); /* before it is listed: then another thread may end it */
    get->staged = true;       /* from now on, if it was not */
    tell_copied_out(get, 0);
    atomic_fetch_add_explicit(&conn->peer.main->cico.requests, 1, memory_order_release);
    regx_lock(&shm->lock);
    regx_list_append(&shm->cico.gets, &get->pending.link);
    regx_shm_count_copies(shm, 1);
    regx_unlock(&shm->lock);
    return REGX_PENDING;
}

/* The message's buffers, as the sender has written them; `count` is 0: the sender has no such ones. It
 * has not more than there are, whatever its address says. */
static regx_cico_row_t row_of(const regx_get_t *get)
{
    const regx_cico_row_t row = atomic_load_explicit(&peers_cell(get)->row, memory_order_relaxed);
    const regx_shm_conn_t *conn = regx_shm_conn_of(get->pending.conn);
    const size_t bytes =
        conn->peer.address.pool_offset - regx_shm_of(conn->super.transport)->cico_offset;
    const uint32_t buffers = (uint32_t)regx_min(bytes / REGX_CICO_SIZE, REGX_CICO_BUFFERS);

    return row.first < buffers && row.count <= buffers - row.first ? row : (regx_cico_row_t){0};
}

/* Bytes that the sender has copied in of what the get's key names. None if it says that it went
 * further than its buffers go: what was not copied out would be overwritten. */
static size_t ready_of(const regx_get_t *get)
{
    const uint64_t seen = atomic_load_explicit(&peers_cell(get)->copied_in, memory_order_acquire);
    const bool valid = seen >> 32 == regx_shm_key_unpack(&get->key).offer.generation &&
                       (uint32_t)seen <= get->pending.moved + size_of_row(row_of(get));

    return valid ? regx_min((size_t)(uint32_t)seen, get->length) : 0;
}

bool regx_cico_claim_for_kernel(const regx_get_t *get)
{
    const uint32_t number = regx_shm_key_unpack(&get->key).offer.generation;
    uint64_t seen = pack(number, REGX_CICO_NOBODY);

    return index_of(get) >= REGX_CICO_OFFERS ||
           atomic_compare_exchange_strong_explicit(&peers_cell(get)->reader, &seen,
                                                   pack(number, REGX_CICO_KERNEL),
                                                   memory_order_acq_rel, memory_order_relaxed) ||
           seen != pack(number, REGX_CICO_SENDER) ||
           regx_vm_gone(&regx_shm_conn_of(get->pending.conn)->peer.vm);
}

/* Copies out what is ready in one buffer. */
static void copy_out(const regx_shm_t *shm, regx_get_t *get)
{
    regx_shm_conn_t *conn = regx_shm_conn_of(get->pending.conn);
    const regx_cico_row_t row = row_of(get); /* read anew: a peer may change it */
    size_t *moved = &get->pending.moved, ready;
    const size_t begin = *moved - *moved % REGX_CICO_SIZE; /* what lies in this buffer */
    const size_t end = regx_min(get->length, begin + REGX_CICO_SIZE);

    if (row.count == 0) {
        return;
    }
    const unsigned buffer = buffer_at(row, begin);
    const char *from = memory_of(shm, (char *)conn->peer.main, buffer);
    regx_shm_bring_in(from, end - begin, &conn->brought_in[buffer], MADV_POPULATE_READ);
    while (*moved < end && (ready = ready_of(get)) > *moved) {
        const size_t piece = regx_min(ready, end) - *moved;

        regx_copy((char *)get->local + *moved, from + (*moved - begin), piece);
        *moved += piece;
        if (get->length > size_of_row(row)) {
            tell_copied_out(get, *moved);
        }
    }
}

/* Takes a get out of its list, and counts what it copied out. */
static void remove_get(regx_shm_t *shm, regx_get_t *get)
{
    regx_lock(&shm->lock);
    regx_list_remove(&get->pending.link);
    regx_shm_count_copies(shm, -1);
    regx_unlock(&shm->lock);
    shm->cico.part_at = 0;
    regx_count(shm->config.counters, &shm->config.counters->bytes_shm, get->pending.moved);
}

/* The kernel copies the rest. No fallback from what was asked for: it happens wherever the sender
 * computes, or has no core for a while. `stages_taken` does not count it. */
static void give_up(regx_shm_t *shm, regx_get_t *get)
{
    regx_trace(shm->config.trace, REGX_TRACE_PATH,
               "shm: what comes to a staging buffer comes late, the kernel copies the rest");
    remove_get(shm, get);
    regx_shm_queue_copy(regx_shm_conn_of(get->pending.conn), &get->pending);
    get->pending.from_end = false; /* it goes on with the first byte that is not there */
}

/* Whether nothing comes to the oldest get, though something may come to `ready`. The clock is read at
 * looks 1, 2, 4, 8 and so on, so that it costs little; a program that looks seldom has to look twice. */
static bool is_late(regx_cico_t *cico, const regx_get_t *oldest, const regx_get_t *ready)
{
    if (oldest == NULL || ready == oldest) {
        cico->looks = 0;
        return false;
    }
    bool late = ++cico->looks == REGX_CICO_LOOKS;
    if ((cico->looks & (cico->looks - 1)) == 0) {
        const int64_t now = regx_now_ns();

        if (cico->looks == 1) {
            cico->looks_since = now;
        }
        late |= now - cico->looks_since > PATIENCE;
    }
    if (late) {
        cico->looks = 0;
    }
    return late;
}

/* Gives up the gets of the oldest one's connection to which nothing has come; not `ready`, whatever its
 * sender says by now. Those that their senders copy right now stay. If the oldest is one of these it goes
 * to the end of the list, so that the others are looked at first. */
static void give_up_all(regx_shm_t *shm, regx_get_t *oldest, const regx_get_t *ready)
{
    const regx_conn_t *conn = oldest->pending.conn;
    regx_link_t *gets = &shm->cico.gets;
    regx_get_t *late;

    do {
        late = NULL;
        regx_lock(&shm->lock);
        for (regx_link_t *link = gets->next; link != gets && late == NULL; link = link->next) {
            regx_get_t *get = regx_get_of(regx_pending_of(link));

            if (get->pending.conn == conn && get != ready && ready_of(get) <= get->pending.moved &&
                regx_cico_claim_for_kernel(get)) {
                late = get;
            }
        }
        regx_unlock(&shm->lock);
        if (late != NULL) {
            give_up(shm, late);
        }
    } while (late != NULL);
    regx_lock(&shm->lock);
    if (gets->next == &oldest->pending.link) {
        regx_list_shift(gets, &oldest->pending.link);
    }
    regx_unlock(&shm->lock);
}

/* Copies out what is ready of one get. Returns whether there was anything. */
static bool copy_out_next(regx_shm_t *shm)
{
    regx_cico_t *cico = &shm->cico;
    regx_link_t *const gets = &cico->gets;
    regx_get_t *oldest = NULL; /* of all */
    regx_get_t *get = NULL;    /* of which something is ready */

    regx_lock(&shm->lock);
    for (regx_link_t *link = gets->next; link != gets && get == NULL; link = link->next) {
        regx_get_t *next = regx_get_of(regx_pending_of(link));

        oldest = oldest == NULL ? next : oldest;
        get = ready_of(next) > next->pending.moved ? next : NULL;
    }
    regx_unlock(&shm->lock);
    if (is_late(cico, oldest, get)) {
        give_up_all(shm, oldest, get);
    }
    if (get == NULL) {
        return false;
    }
    const size_t before = get->pending.moved;
    copy_out(shm, get);
    if (get->pending.moved == get->length) {
        remove_get(shm, get);
        regx_count(shm->config.counters, &shm->config.counters->stages_taken, 1);
        get->done(get, REGX_OK);
        return true;
    }
    const int64_t part_at = cico->part_at, now = regx_now_ns();
    cico->part_at = now;
    if (part_at != 0 && now - part_at > REGX_SHM_SELDOM && regx_cico_claim_for_kernel(get)) {
        give_up(shm, get);
    } else if (get->pending.moved / REGX_SHM_TURN > before / REGX_SHM_TURN) {
        regx_lock(&shm->lock);
        regx_list_shift(&cico->gets, &get->pending.link);
        regx_unlock(&shm->lock);
    }
    return true;
}

int regx_cico_progress(regx_shm_t *shm)
{
    const bool copied = copy_in_next(shm);

    return copied + copy_out_next(shm);
}

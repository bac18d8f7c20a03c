/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Copy in, copy out. The sender copies a message to a stage, which is a part of its main segment,
 * and the receiver takes from there what is ready. Two cores copy in user space, one behind the
 * other, and no CTS is needed for it. Each process touches only its own user buffer, and only the
 * stage's cache lines move between cores. This is faster where the program writes the data before and
 * reads it after (64 KiB in both directions: 16 us; copied by the kernel: 22 us).
 *
 * What is exposed is offered so, too: its key (transport.h) names a cell in the sender's main
 * segment, with the number of its use. The receiver asks in the cell, if it wants the message so:
 * nothing is copied in vain. The sender then takes a stage for it. A message that is longer than a
 * stage goes round in it: the receiver says in the cell how much it has taken, and the sender is
 * never further ahead of that than the stage is long.
 *
 * A receiver that has taken REGX_CICO_ROW messages of a size in a row says in its own main segment
 * that it will go on so (`awaited`), and the sender begins at once. If the receiver then takes one
 * another way, as in a trial of `auto`, the sender no more begins unasked, until a receiver asks.
 *
 * Each side copies in progress, at most REGX_CICO_STEP bytes to a stage before it takes what the
 * peer has copied. The sender goes first where both have something to copy: in an exchange both
 * fill a step of their stages, then both empty the peer's. If nothing comes the kernel copies the
 * rest from the sender's buffer, so the receiver does not wait for a sender that computes, or that
 * waits for something outside MPI. The sender frees cell and stage when the MPI ends the exposure,
 * after the receiver's FIN. If another thread copies at that moment, because the receiver gave it up,
 * that copy is waited for: at most two steps. From then on the program may write to its buffer, or
 * free it.
 *
 * Stages are used in turn. Lines that have left both second-level caches come faster than those that
 * lie in the other core's: in a ping-pong of 64 KiB a message takes 5.0 us, not 6.3, and of 128 KiB
 * 8.1, not 9.8; with touched buffers 34.9, not 37.4, and 69.3, not 70.4 (near cores of Zen 3; between
 * far ones all are level). With eight stages a ping-pong would take 4.5 and 7.9, and an allreduce up
 * to half as long again. Either side's pages of a stage are brought in by one call, as many as the
 * message needs: page by page, the first messages would pay more for it, and `auto` judges by these.
 * (A page that is touched for the first time costs up to 16 us in a virtual machine.)
 *
 * stage, unstage and take may be called by any thread; all others are called by progress, or by
 * disconnect, which never run at the same time. The lists, `in` and `next_...` are under the
 * transport's lock.
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
/* Nanoseconds between two looks of a program that looks seldom. */
#define SELDOM 1000000
/* Bytes of one message before the turn of the next one. */
#define TURN (2048u * 1024u)

/* In a key's handle, where nothing that is registered has its number. */
#define FIRST_ID (UINT32_MAX - REGX_CICO_OFFERS)
#define NO_STAGE REGX_CICO_STAGES

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
static char *memory_of(const regx_shm_t *shm, char *main, unsigned stage)
{
    return main + shm->stage_offset + (size_t)stage * REGX_CICO_SIZE;
}

/* The others have their turn. */
static void move_behind_locked(regx_link_t *list, regx_link_t *link)
{
    regx_list_remove(link);
    regx_list_append(list, link);
}

/* ---- the sender ---- */

static regx_cico_cell_t *cell_of(const regx_shm_t *shm, const regx_cico_offer_t *offer)
{
    return &regx_shm_main(shm)->cico.cells[offer - shm->cico.offers];
}

/* NULL: there is none. */
static regx_cico_offer_t *find_free_locked(regx_cico_t *cico)
{
    for (unsigned i = 0; i < REGX_CICO_OFFERS; i++) {
        regx_cico_offer_t *offer = &cico->offers[cico->next_offer++ % REGX_CICO_OFFERS];

        if (!offer->used) {
            return offer;
        }
    }
    return NULL;
}

static bool awaits(const regx_shm_conn_t *conn, size_t length)
{
    const uint32_t awaited =
        atomic_load_explicit(&conn->peer.main->cico.awaited, memory_order_relaxed);

    return (awaited & size_bit(length)) != 0;
}

/* The offer is queued no more. */
static void unqueue_locked(regx_shm_t *shm, regx_cico_offer_t *offer)
{
    regx_list_remove(&offer->queued);
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
    const bool awaited = conn->state == REGX_SHM_ATTACHED && awaits(conn, length);
    regx_unlock(&conn->lock);
    regx_lock(&shm->lock);
    regx_cico_offer_t *offer = find_free_locked(&shm->cico);
    if (offer != NULL) {
        *offer = (regx_cico_offer_t){.used = true,
                                     .number = offer->number + 1,
                                     .awaited = awaited && (shm->cico.vain & size_bit(length)) == 0,
                                     .stage = NO_STAGE,
                                     .from = base,
                                     .length = length};
        atomic_store_explicit(&cell_of(shm, offer)->ready, pack(offer->number, 0),
                              memory_order_release);
        regx_list_append(&shm->cico.queue, &offer->queued);
        shm->cico.wanted |= offer->awaited;
        regx_shm_count_copies(shm, 1);
        regx_shm_key_t named = regx_shm_key_unpack(key);
        named.offer =
            (regx_handle_t){FIRST_ID + (uint32_t)(offer - shm->cico.offers), offer->number};
        regx_shm_key_pack(named, key);
    }
    regx_unlock(&shm->lock);
    return offer != NULL;
}

/* Whether the receiver has asked for it, and bytes that it has taken since. */
static bool is_asked_for(const regx_shm_t *shm, const regx_cico_offer_t *offer, size_t *taken)
{
    const uint64_t seen = atomic_load_explicit(&cell_of(shm, offer)->taken, memory_order_acquire);
    const bool asked = seen >> 32 == offer->number;

    *taken = asked ? regx_min((size_t)(uint32_t)seen, offer->copied) : 0;
    return asked;
}

void regx_shm_unstage(regx_transport_t *transport, const regx_key_t *key)
{
    regx_shm_t *shm = regx_shm_of(transport);
    regx_cico_offer_t *offer = &shm->cico.offers[regx_shm_key_unpack(key).offer.id - FIRST_ID];
    const struct timespec pause = {.tv_nsec = 5000};
    size_t taken;

    regx_lock(&shm->lock);
    while (offer == shm->cico.copying) { /* in another thread, which may have a lower priority */
        regx_unlock(&shm->lock);
        nanosleep(&pause, NULL);
        regx_lock(&shm->lock);
    }
    if (regx_list_has(&offer->queued)) {
        unqueue_locked(shm, offer);
    }
    if (is_asked_for(shm, offer, &taken)) {
        shm->cico.vain &= ~size_bit(offer->length);
    } else if (offer->awaited) {
        shm->cico.vain |= size_bit(offer->length);
    }
    if (offer->stage != NO_STAGE) {
        shm->cico.in[offer->stage] = NULL;
    }
    offer->used = false;
    regx_unlock(&shm->lock);
}

/* Gives it a stage. false: none is free. One stays free for a message that is asked for. */
static bool take_stage_locked(regx_shm_t *shm, regx_cico_offer_t *offer, bool asked)
{
    regx_cico_t *cico = &shm->cico;
    unsigned unused = 0;

    for (unsigned i = 0; i < REGX_CICO_STAGES; i++) {
        unused += cico->in[i] == NULL;
    }
    while (offer->stage == NO_STAGE && unused > (asked ? 0 : 1)) {
        const unsigned stage = cico->next_stage++ % REGX_CICO_STAGES;

        if (cico->in[stage] == NULL) {
            cico->in[stage] = offer;
            offer->stage = stage;
            atomic_store_explicit(&cell_of(shm, offer)->stage, stage, memory_order_relaxed);
        }
    }
    return offer->stage != NO_STAGE;
}

/* The oldest offer of which something can be copied, and up to where; NULL: there is none. The offers
 * are looked through only while one of them is wanted, or a receiver has asked since. */
static regx_cico_offer_t *find_due_locked(regx_shm_t *shm, size_t *end)
{
    regx_cico_t *cico = &shm->cico;
    const uint32_t asks =
        atomic_load_explicit(&regx_shm_main(shm)->cico.asks, memory_order_acquire);

    if (!cico->wanted && asks == cico->asks) {
        return NULL;
    }
    cico->asks = asks;
    cico->wanted = false;
    for (regx_link_t *link = cico->queue.next; link != &cico->queue; link = link->next) {
        regx_cico_offer_t *offer = REGX_CONTAINER_OF(link, regx_cico_offer_t, queued);
        size_t taken;
        const bool asked = is_asked_for(shm, offer, &taken);

        if (!asked && !offer->awaited) {
            continue;
        }
        cico->wanted = true;
        *end = regx_min(offer->length, taken + REGX_CICO_SIZE);
        if (*end > offer->copied && take_stage_locked(shm, offer, asked)) {
            return offer;
        }
    }
    return NULL;
}

/* Copies the next bytes of a message, as far as `end`, to its stage. */
static void copy_in(regx_shm_t *shm, regx_cico_offer_t *offer, size_t end)
{
    char *to = memory_of(shm, shm->main.base, offer->stage);

    regx_shm_bring_in(to, regx_min(offer->length, REGX_CICO_SIZE),
                      &shm->cico.brought_in[offer->stage], MADV_POPULATE_WRITE);
    end = regx_min(end, offer->copied + REGX_CICO_STEP);
    while (offer->copied < end) {
        const size_t at = offer->copied % REGX_CICO_SIZE;
        const size_t piece = regx_min(regx_min(end - offer->copied, PIECE), REGX_CICO_SIZE - at);

        regx_copy(to + at, offer->from + offer->copied, piece);
        offer->copied += piece;
        atomic_store_explicit(&cell_of(shm, offer)->ready, pack(offer->number, offer->copied),
                              memory_order_release);
    }
}

/* Copies of the oldest offer that is due. Returns whether there was one. */
static bool fill(regx_shm_t *shm)
{
    regx_cico_t *cico = &shm->cico;
    size_t end;

    regx_lock(&shm->lock);
    regx_cico_offer_t *offer = find_due_locked(shm, &end);
    cico->copying = offer;
    regx_unlock(&shm->lock);
    if (offer == NULL) {
        return false;
    }
    const size_t before = offer->copied;
    copy_in(shm, offer, end);
    regx_lock(&shm->lock);
    cico->copying = NULL;
    if (offer->copied == offer->length) {
        unqueue_locked(shm, offer);
    } else if (offer->copied / TURN > before / TURN) {
        move_behind_locked(&cico->queue, &offer->queued);
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
        (!get->staged && atomic_load_explicit(&shm->cico.row[size], memory_order_relaxed) == 0)) {
        return;
    }
    const uint32_t bit = size_bit(get->length);
    regx_lock(&shm->lock);
    _Atomic uint8_t *row = &shm->cico.row[size];
    if (!get->staged) {
        *row = 0;
        atomic_fetch_and(&regx_shm_main(shm)->cico.awaited, ~bit);
    } else if (*row < REGX_CICO_ROW && ++*row == REGX_CICO_ROW) {
        atomic_fetch_or(&regx_shm_main(shm)->cico.awaited, bit);
    }
    regx_unlock(&shm->lock);
}

static regx_cico_cell_t *peers_cell(const regx_get_t *get)
{
    return &regx_shm_conn_of(get->pending.conn)->peer.main->cico.cells[index_of(get)];
}

/* So many bytes are taken; 0: it is asked for. */
static void tell_taken(const regx_get_t *get, size_t bytes)
{
    const uint32_t number = regx_shm_key_unpack(&get->key).offer.generation;

    atomic_store_explicit(&peers_cell(get)->taken, pack(number, bytes), memory_order_release);
}

regx_status_t regx_cico_take_locked(regx_shm_conn_t *conn, regx_get_t *get)
{
    regx_shm_t *shm = regx_shm_of(conn->super.transport);

    if (index_of(get) >= REGX_CICO_OFFERS || get->offset != 0 || get->length > REGX_CICO_MAX) {
        return REGX_AGAIN;
    }
    regx_cico_note(shm, get); /* before it is listed: then another thread may end it */
    get->pending = (regx_pending_t){.kind = REGX_PENDING_GET, .conn = &conn->super};
    tell_taken(get, 0);
    atomic_fetch_add_explicit(&conn->peer.main->cico.asks, 1, memory_order_release);
    regx_lock(&shm->lock);
    regx_list_append(&shm->cico.taking, &get->pending.link);
    regx_shm_count_copies(shm, 1);
    regx_unlock(&shm->lock);
    return REGX_PENDING;
}

/* The number of the stage that the sender has written; an honest one's is below REGX_CICO_STAGES. */
static uint32_t stage_of(const regx_get_t *get)
{
    return atomic_load_explicit(&peers_cell(get)->stage, memory_order_relaxed);
}

/* Bytes that the sender has copied of what the get's key names, to a stage. None if it says that it
 * went further than its stage goes: what was not taken would be overwritten. */
static size_t ready_of(const regx_get_t *get)
{
    const uint64_t seen = atomic_load_explicit(&peers_cell(get)->ready, memory_order_acquire);
    const bool valid = seen >> 32 == regx_shm_key_unpack(&get->key).offer.generation &&
                       stage_of(get) < REGX_CICO_STAGES &&
                       (uint32_t)seen <= get->pending.moved + REGX_CICO_SIZE;

    return valid ? regx_min((size_t)(uint32_t)seen, get->length) : 0;
}

/* The first get of which something is ready; NULL: there is none. */
static regx_get_t *find_ready_locked(regx_shm_t *shm)
{
    regx_link_t *taking = &shm->cico.taking;

    for (regx_link_t *link = taking->next; link != taking; link = link->next) {
        regx_get_t *get = regx_get_of(regx_pending_of(link));

        if (ready_of(get) > get->pending.moved) {
            return get;
        }
    }
    return NULL;
}

/* Takes what is ready, of a stage's length at most. */
static void take_ready(const regx_shm_t *shm, regx_get_t *get)
{
    regx_shm_conn_t *conn = regx_shm_conn_of(get->pending.conn);
    const uint32_t stage = stage_of(get) % REGX_CICO_STAGES; /* read anew: a peer may change it */
    const char *from = memory_of(shm, (char *)conn->peer.main, stage);
    size_t *moved = &get->pending.moved, ready;
    const size_t end = regx_min(get->length, *moved + REGX_CICO_SIZE);

    regx_shm_bring_in(from, regx_min(get->length, REGX_CICO_SIZE), &conn->brought_in[stage],
                      MADV_POPULATE_READ);
    while (*moved < end && (ready = ready_of(get)) > *moved) {
        const size_t at = *moved % REGX_CICO_SIZE;
        const size_t piece = regx_min(regx_min(ready, end) - *moved, REGX_CICO_SIZE - at);

        regx_copy((char *)get->local + *moved, from + at, piece);
        *moved += piece;
        if (get->length > REGX_CICO_SIZE) {
            tell_taken(get, *moved);
        }
    }
}

/* Takes a get out of its line, and counts what it took from its stage. */
static void remove_get(regx_shm_t *shm, regx_get_t *get)
{
    regx_lock(&shm->lock);
    regx_list_remove(&get->pending.link);
    regx_shm_count_copies(shm, -1);
    regx_unlock(&shm->lock);
    shm->cico.taken_at = 0;
    regx_count(shm->config.counters, &shm->config.counters->bytes_shm, get->pending.moved);
}

/* The kernel copies the rest. No fallback from what was asked for: it happens wherever the sender
 * computes, or has no core for a while. `stages_taken` does not count it. */
static void give_up(regx_shm_t *shm, regx_get_t *get)
{
    const size_t taken = get->pending.moved;

    regx_trace(shm->config.trace, REGX_TRACE_PATH,
               "shm: what comes to a stage comes late, the kernel copies the rest");
    remove_get(shm, get);
    regx_shm_queue_get(regx_shm_conn_of(get->pending.conn), get, NULL);
    /* It goes on with the first byte that is not there. Only progress looks at these two. */
    get->pending.moved = taken;
    get->pending.from_end = false;
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
            cico->since = now;
        }
        late |= now - cico->since > PATIENCE;
    }
    if (late) {
        cico->looks = 0;
    }
    return late;
}

/* Of that connection's gets those are given up to which nothing has come. */
static void give_up_all(regx_shm_t *shm, const regx_conn_t *conn)
{
    regx_get_t *get;

    do {
        get = NULL;
        regx_lock(&shm->lock);
        for (regx_link_t *link = shm->cico.taking.next; link != &shm->cico.taking;
             link = link->next) {
            regx_get_t *other = regx_get_of(regx_pending_of(link));

            if (other->pending.conn == conn && ready_of(other) <= other->pending.moved) {
                get = other;
                break;
            }
        }
        regx_unlock(&shm->lock);
        if (get != NULL) {
            give_up(shm, get);
        }
    } while (get != NULL);
}

/* Whether so much time has gone by since the last part of a message was taken that a stage's length for
 * each look would be slow: the kernel copies more at a look. */
static bool looks_seldom(regx_cico_t *cico)
{
    const int64_t before = cico->taken_at;

    cico->taken_at = regx_now_ns();
    return before != 0 && cico->taken_at - before > SELDOM;
}

/* Takes what is ready of one get. Returns whether there was anything. */
static bool take(regx_shm_t *shm)
{
    regx_cico_t *cico = &shm->cico;

    regx_lock(&shm->lock);
    regx_get_t *oldest =
        regx_list_empty(&cico->taking) ? NULL : regx_get_of(regx_pending_of(cico->taking.next));
    regx_get_t *get = find_ready_locked(shm);
    regx_unlock(&shm->lock);
    if (is_late(cico, oldest, get)) {
        give_up_all(shm, oldest->pending.conn); /* `get` is not among them */
    }
    if (get == NULL) {
        return false;
    }
    const size_t before = get->pending.moved;
    take_ready(shm, get);
    if (get->pending.moved == get->length) {
        remove_get(shm, get);
        regx_count(shm->config.counters, &shm->config.counters->stages_taken, 1);
        get->done(get, REGX_OK);
    } else if (looks_seldom(cico)) {
        give_up(shm, get);
    } else if (get->pending.moved / TURN > before / TURN) {
        regx_lock(&shm->lock);
        move_behind_locked(&cico->taking, &get->pending.link);
        regx_unlock(&shm->lock);
    }
    return true;
}

int regx_cico_progress(regx_shm_t *shm)
{
    const bool filled = fill(shm);

    return filled + take(shm);
}

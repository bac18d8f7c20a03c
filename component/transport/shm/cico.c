/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Copy in, copy out. The sender copies a message to a stage, which is a part of its main segment,
 * and the receiver takes from there what is ready. Two cores copy in user space, one behind the
 * other, and no CTS is needed for it. Each process touches only its own user buffer, and only the
 * stage's cache lines move between cores. This is faster where the program writes the data before and
 * reads it after (64 KiB in both directions: 16 us; copied by the kernel: 22 us).
 *
 * The key of what is exposed (transport.h) names the stage, with the number of its use. The
 * receiver asks for it in the stage's cell, if it wants the message so: nothing is copied in vain.
 * A receiver that has taken REGX_CICO_ROW messages of a size in a row says in its own main segment
 * that it will go on so (`awaited`), and the sender begins at once. If the receiver then takes one
 * another way, as in a trial of `auto`, the sender no more begins unasked, until a receiver asks.
 *
 * Each side copies in progress, at most REGX_CICO_STEP bytes to a stage before it takes what the
 * peer has copied. The sender goes first where both have something to copy: in an exchange both
 * fill a step of their stages, then both empty the peer's. If nothing comes the kernel copies the
 * rest from the sender's buffer, so the receiver does not wait for a sender that computes. The
 * sender frees the stage when the MPI ends the exposure, after the receiver's FIN. If another
 * thread copies to it at that moment, because the receiver gave it up, that copy is waited for: at
 * most 64 KiB. From then on the program may write to its buffer, or free it.
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
 * disconnect, which never run at the same time. The lists and `next` are under the transport's
 * lock.
 */
#include <sys/mman.h>
#include <time.h>

#include "transport/shm/shm_internal.h"

/* Bytes that are copied before the receiver is notified. With 4 KiB a lone message takes a little
 * less time, and an exchange more. */
#define PIECE 8192u

/* In a key's handle, where nothing that is registered has its number. */
#define FIRST_ID (UINT32_MAX - REGX_CICO_STAGES)

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
static char *memory_of(const regx_shm_t *shm, char *main, unsigned index)
{
    return main + shm->stage_offset + (size_t)index * REGX_STAGE_SIZE;
}

/* ---- the sender ---- */

static regx_cico_cell_t *cell_of(const regx_shm_t *shm, const regx_cico_stage_t *stage)
{
    return &regx_shm_main(shm)->cico.cells[stage - shm->cico.stages];
}

/* NULL: there is none. */
static regx_cico_stage_t *find_free_locked(regx_cico_t *cico)
{
    for (unsigned i = 0; i < REGX_CICO_STAGES; i++) {
        regx_cico_stage_t *stage = &cico->stages[cico->next++ % REGX_CICO_STAGES];

        if (!stage->used) {
            return stage;
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

static bool is_asked_for(const regx_shm_t *shm, const regx_cico_stage_t *stage)
{
    return atomic_load_explicit(&cell_of(shm, stage)->asked, memory_order_relaxed) == stage->number;
}

/* The stage is queued no more. */
static void unqueue_locked(regx_shm_t *shm, regx_cico_stage_t *stage)
{
    regx_list_remove(&stage->queued);
    regx_shm_count_copies(shm, -1);
}

bool regx_shm_stage(regx_conn_t *super, const void *base, size_t length, regx_key_t *key)
{
    regx_shm_conn_t *conn = regx_shm_conn_of(super);
    regx_shm_t *shm = regx_shm_of(super->transport);

    regx_lock(&conn->lock);
    const bool possible = length <= REGX_STAGE_SIZE && conn->state == REGX_SHM_ATTACHED;
    const bool awaited = possible && awaits(conn, length);
    regx_unlock(&conn->lock);
    if (!possible) {
        return false;
    }
    regx_lock(&shm->lock);
    regx_cico_stage_t *stage = find_free_locked(&shm->cico);
    if (stage != NULL) {
        *stage = (regx_cico_stage_t){.used = true,
                                     .number = stage->number + 1,
                                     .awaited = awaited && (shm->cico.vain & size_bit(length)) == 0,
                                     .from = base,
                                     .length = length};
        atomic_store_explicit(&cell_of(shm, stage)->ready, pack(stage->number, 0),
                              memory_order_release);
        regx_list_append(&shm->cico.queue, &stage->queued);
        regx_shm_count_copies(shm, 1);
        regx_shm_key_t named = regx_shm_key_unpack(key);
        named.stage =
            (regx_handle_t){FIRST_ID + (uint32_t)(stage - shm->cico.stages), stage->number};
        regx_shm_key_pack(named, key);
    }
    regx_unlock(&shm->lock);
    return stage != NULL;
}

void regx_shm_unstage(regx_transport_t *transport, const regx_key_t *key)
{
    regx_shm_t *shm = regx_shm_of(transport);
    regx_cico_stage_t *stage = &shm->cico.stages[regx_shm_key_unpack(key).stage.id - FIRST_ID];
    const struct timespec pause = {.tv_nsec = 5000};

    regx_lock(&shm->lock);
    while (stage == shm->cico.copying) { /* in another thread, which may have a lower priority */
        regx_unlock(&shm->lock);
        nanosleep(&pause, NULL);
        regx_lock(&shm->lock);
    }
    if (regx_list_has(&stage->queued)) {
        unqueue_locked(shm, stage);
    }
    if (is_asked_for(shm, stage)) {
        shm->cico.vain &= ~size_bit(stage->length);
    } else if (stage->awaited) {
        shm->cico.vain |= size_bit(stage->length);
    }
    stage->used = false;
    regx_unlock(&shm->lock);
}

/* The oldest stage that is to be copied to; NULL: there is none. */
static regx_cico_stage_t *find_due_locked(regx_shm_t *shm)
{
    regx_link_t *queue = &shm->cico.queue;

    for (regx_link_t *link = queue->next; link != queue; link = link->next) {
        regx_cico_stage_t *stage = REGX_CONTAINER_OF(link, regx_cico_stage_t, queued);

        if (stage->awaited || is_asked_for(shm, stage)) {
            return stage;
        }
    }
    return NULL;
}

/* Copies the next bytes of a message to its stage. */
static void copy_in(regx_shm_t *shm, regx_cico_stage_t *stage)
{
    const unsigned index = (unsigned)(stage - shm->cico.stages);
    char *to = memory_of(shm, shm->main.base, index);
    const size_t end = regx_min(stage->length, stage->copied + REGX_CICO_STEP);

    regx_shm_bring_in(to, stage->length, &shm->cico.brought_in[index], MADV_POPULATE_WRITE);
    while (stage->copied < end) {
        const size_t piece = regx_min(end - stage->copied, PIECE);

        regx_copy(to + stage->copied, stage->from + stage->copied, piece);
        stage->copied += piece;
        atomic_store_explicit(&cell_of(shm, stage)->ready, pack(stage->number, stage->copied),
                              memory_order_release);
    }
}

/* Copies to the oldest stage that is due. Returns whether there was one. */
static bool fill(regx_shm_t *shm)
{
    regx_cico_t *cico = &shm->cico;

    regx_lock(&shm->lock);
    regx_cico_stage_t *stage = find_due_locked(shm);
    cico->copying = stage;
    regx_unlock(&shm->lock);
    if (stage == NULL) {
        return false;
    }
    copy_in(shm, stage);
    regx_lock(&shm->lock);
    cico->copying = NULL;
    if (stage->copied == stage->length) {
        unqueue_locked(shm, stage);
    }
    regx_unlock(&shm->lock);
    return true;
}

/* ---- the receiver ---- */

void regx_cico_note(regx_shm_t *shm, const regx_get_t *get)
{
    const unsigned size = size_of(get->length);

    if (get->length > REGX_STAGE_SIZE ||
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

static unsigned index_of(const regx_get_t *get)
{
    return regx_shm_key_unpack(&get->key).stage.id - FIRST_ID;
}

static regx_cico_cell_t *peers_cell(const regx_get_t *get)
{
    return &regx_shm_conn_of(get->pending.conn)->peer.main->cico.cells[index_of(get)];
}

regx_status_t regx_cico_take_locked(regx_shm_conn_t *conn, regx_get_t *get)
{
    regx_shm_t *shm = regx_shm_of(conn->super.transport);
    const unsigned index = index_of(get);

    if (index >= REGX_CICO_STAGES || get->offset != 0 || get->length > REGX_STAGE_SIZE) {
        return REGX_AGAIN;
    }
    regx_cico_note(shm, get); /* before it is listed: then another thread may end it */
    get->pending = (regx_pending_t){.kind = REGX_PENDING_GET, .conn = &conn->super};
    atomic_store_explicit(&peers_cell(get)->asked, regx_shm_key_unpack(&get->key).stage.generation,
                          memory_order_relaxed);
    regx_shm_bring_in(memory_of(shm, (char *)conn->peer.main, index), get->length,
                      &conn->brought_in[index], MADV_POPULATE_READ);
    regx_lock(&shm->lock);
    regx_list_append(&shm->cico.taking, &get->pending.link);
    regx_shm_count_copies(shm, 1);
    regx_unlock(&shm->lock);
    return REGX_PENDING;
}

/* Bytes that the sender has copied, of the get's use of the stage. */
static size_t ready_of(const regx_get_t *get)
{
    const uint64_t seen = atomic_load_explicit(&peers_cell(get)->ready, memory_order_acquire);

    return seen >> 32 == regx_shm_key_unpack(&get->key).stage.generation
               ? regx_min((size_t)(uint32_t)seen, get->length)
               : 0;
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

/* Takes what is ready. */
static void take_ready(const regx_shm_t *shm, regx_get_t *get)
{
    const regx_shm_conn_t *conn = regx_shm_conn_of(get->pending.conn);
    const char *from = memory_of(shm, (char *)conn->peer.main, index_of(get));
    size_t *moved = &get->pending.moved, ready;

    while ((ready = ready_of(get)) > *moved) {
        regx_copy((char *)get->local + *moved, from + *moved, ready - *moved);
        *moved = ready;
    }
}

/* Takes a get out of its line, and counts what it took from its stage. */
static void remove_get(regx_shm_t *shm, regx_get_t *get)
{
    regx_lock(&shm->lock);
    regx_list_remove(&get->pending.link);
    regx_shm_count_copies(shm, -1);
    regx_unlock(&shm->lock);
    regx_count(shm->config.counters, &shm->config.counters->bytes_shm, get->pending.moved);
}

/* The kernel copies the rest. No fallback from what was asked for: it happens wherever the sender
 * computes, or has no core for a while. `stages_taken` does not count it. */
static void give_up(regx_shm_t *shm, regx_get_t *get)
{
    const size_t taken = get->pending.moved;

    regx_trace(shm->config.trace, REGX_TRACE_PATH,
               "shm: nothing came to a stage, the kernel copies the rest");
    remove_get(shm, get);
    regx_shm_queue_get(regx_shm_conn_of(get->pending.conn), get, NULL);
    /* A get as short as a stage is one piece: it begins with the first byte. */
    get->pending.moved = taken; /* only progress looks at it */
}

/* Whether nothing comes to the oldest get, though something may come to `ready`. */
static bool is_late(regx_cico_t *cico, const regx_get_t *oldest, const regx_get_t *ready)
{
    if (oldest == NULL || ready == oldest) {
        cico->looks = 0;
        return false;
    }
    cico->looks = (cico->looks + 1) % REGX_CICO_LOOKS;
    return cico->looks == 0;
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
        give_up(shm, oldest); /* which is not `get` */
    }
    if (get == NULL) {
        return false;
    }
    take_ready(shm, get);
    if (get->pending.moved == get->length) {
        remove_get(shm, get);
        regx_count(shm->config.counters, &shm->config.counters->stages_taken, 1);
        get->done(get, REGX_OK);
    }
    return true;
}

int regx_cico_progress(regx_shm_t *shm)
{
    const bool filled = fill(shm);

    return filled + take(shm);
}

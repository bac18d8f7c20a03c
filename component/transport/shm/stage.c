/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "transport/shm/stage.h"

#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/copy.h"
#include "base/util.h"
#include "transport/shm/key.h"
#include "transport/shm/shm_internal.h"

/* Bytes that are copied before the receiver is notified. With 4 KiB a lone message takes a little
 * less time, and an exchange more. */
#define PIECE 8192u

/* In a key's handle, where nothing that is registered has its number. */
#define FIRST_ID (UINT32_MAX - REGX_STAGES)

static uint64_t pack(uint32_t number, size_t bytes)
{
    return (uint64_t)number << 32 | (uint32_t)bytes;
}

static unsigned size_of(size_t length)
{
    return 63u - (unsigned)__builtin_clzll(length | 1);
}

/* main: where a main segment is mapped, this process's or a peer's. */
static char *memory_of(const regx_shm_t *shm, char *main, unsigned index)
{
    return main + shm->stage_offset + (size_t)index * REGX_STAGE_SIZE;
}

static void bring_in(const regx_shm_t *shm, unsigned first, unsigned count)
{
#if defined(MADV_POPULATE_WRITE)
    madvise(memory_of(shm, shm->main.base, first), count * REGX_STAGE_SIZE, MADV_POPULATE_WRITE);
#else
    (void)shm, (void)first, (void)count;
#endif
}

void regx_stages_init(regx_shm_t *shm)
{
    bring_in(shm, 0, REGX_STAGES_WARM);
    shm->stages.brought_in = (1u << REGX_STAGES_WARM) - 1;
}

void regx_stages_attach_locked(const regx_shm_conn_t *conn)
{
#if defined(MADV_POPULATE_READ)
    madvise(memory_of(regx_shm_of(conn->super.transport), conn->main.base, 0),
            REGX_STAGES_WARM * REGX_STAGE_SIZE, MADV_POPULATE_READ);
#else
    (void)conn;
#endif
}

/* ---- the sender ---- */

static regx_stage_cell_t *cell_of(const regx_shm_t *shm, const regx_stage_t *stage)
{
    return &regx_shm_main(shm)->stage.cells[stage - shm->stages.stages];
}

/* One of the first few, in turn, or else any other. NULL: there is none. */
static regx_stage_t *find_free_locked(regx_stages_t *stages)
{
    unsigned i = 0;

    while (i < REGX_STAGES_WARM &&
           stages->stages[(stages->next + i) % REGX_STAGES_WARM].state != REGX_STAGE_FREE) {
        i++;
    }
    if (i < REGX_STAGES_WARM) {
        stages->next = (stages->next + i + 1) % REGX_STAGES_WARM;
        return &stages->stages[(stages->next + REGX_STAGES_WARM - 1) % REGX_STAGES_WARM];
    }
    while (i < REGX_STAGES && stages->stages[i].state != REGX_STAGE_FREE) {
        i++;
    }
    return i < REGX_STAGES ? &stages->stages[i] : NULL;
}

static bool awaits(const regx_shm_conn_t *conn, size_t length)
{
    const uint32_t awaited =
        atomic_load_explicit(&regx_shm_main_at(&conn->main)->stage.awaited, memory_order_relaxed);

    return (awaited & UINT32_C(1) << size_of(length)) != 0;
}

static void queue_locked(regx_shm_t *shm, regx_stage_t *stage)
{
    regx_stage_t **at = &shm->stages.first;

    while (*at != NULL) {
        at = &(*at)->next;
    }
    *at = stage;
    atomic_fetch_add(&shm->copy_count, 1);
}

static void unqueue_locked(regx_shm_t *shm, regx_stage_t *stage)
{
    regx_stage_t **at = &shm->stages.first;

    while (*at != stage) {
        at = &(*at)->next;
    }
    *at = stage->next;
    atomic_fetch_sub(&shm->copy_count, 1);
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
    regx_stage_t *stage = find_free_locked(&shm->stages);
    if (stage != NULL) {
        *stage = (regx_stage_t){.state = REGX_STAGE_QUEUED,
                                .number = stage->number + 1,
                                .awaited = awaited,
                                .from = base,
                                .length = length};
        atomic_store_explicit(&cell_of(shm, stage)->ready, pack(stage->number, 0),
                              memory_order_release);
        queue_locked(shm, stage);
        regx_shm_key_t named = regx_shm_key_unpack(key);
        named.stage =
            (regx_handle_t){FIRST_ID + (uint32_t)(stage - shm->stages.stages), stage->number};
        regx_shm_key_pack(named, key);
    }
    regx_unlock(&shm->lock);
    return stage != NULL;
}

void regx_shm_unstage(regx_transport_t *transport, const regx_key_t *key)
{
    regx_shm_t *shm = regx_shm_of(transport);
    regx_stage_t *stage = &shm->stages.stages[regx_shm_key_unpack(key).stage.id - FIRST_ID];
    const struct timespec pause = {.tv_nsec = 5000};

    regx_lock(&shm->lock);
    while (stage == shm->stages.copying) { /* in another thread, which may have a lower priority */
        regx_unlock(&shm->lock);
        nanosleep(&pause, NULL);
        regx_lock(&shm->lock);
    }
    if (stage->state == REGX_STAGE_QUEUED) {
        unqueue_locked(shm, stage);
    }
    stage->state = REGX_STAGE_FREE;
    regx_unlock(&shm->lock);
}

/* The oldest stage that is to be copied to; NULL: there is none. */
static regx_stage_t *find_due_locked(const regx_shm_t *shm)
{
    regx_stage_t *stage = shm->stages.first;

    while (stage != NULL && !stage->awaited &&
           atomic_load_explicit(&cell_of(shm, stage)->asked, memory_order_relaxed) !=
               stage->number) {
        stage = stage->next;
    }
    return stage;
}

/* Copies the next bytes of a message to its stage. */
static void copy_in(regx_shm_t *shm, regx_stage_t *stage)
{
    const unsigned index = (unsigned)(stage - shm->stages.stages);
    char *to = memory_of(shm, shm->main.base, index);
    const size_t end = regx_min(stage->length, stage->copied + REGX_STAGE_STEP);

    if ((shm->stages.brought_in & 1u << index) == 0) {
        shm->stages.brought_in |= 1u << index;
        bring_in(shm, index, 1);
    }
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
    regx_stages_t *stages = &shm->stages;

    regx_lock(&shm->lock);
    regx_stage_t *stage = find_due_locked(shm);
    stages->copying = stage;
    regx_unlock(&shm->lock);
    if (stage == NULL) {
        return false;
    }
    copy_in(shm, stage);
    regx_lock(&shm->lock);
    stages->copying = NULL;
    if (stage->copied == stage->length) {
        unqueue_locked(shm, stage);
        stage->state = REGX_STAGE_COPIED;
    }
    regx_unlock(&shm->lock);
    return true;
}

/* ---- the receiver ---- */

void regx_stage_note(regx_shm_t *shm, const regx_get_t *get)
{
    const unsigned size = size_of(get->length);

    if (get->length > REGX_STAGE_SIZE ||
        (!get->staged && atomic_load_explicit(&shm->stages.row[size], memory_order_relaxed) == 0)) {
        return;
    }
    const uint32_t bit = UINT32_C(1) << size;
    regx_lock(&shm->lock);
    _Atomic uint8_t *row = &shm->stages.row[size];
    if (!get->staged) {
        *row = 0;
        atomic_fetch_and(&regx_shm_main(shm)->stage.awaited, ~bit);
    } else if (*row < REGX_STAGE_ROW && ++*row == REGX_STAGE_ROW) {
        atomic_fetch_or(&regx_shm_main(shm)->stage.awaited, bit);
    }
    regx_unlock(&shm->lock);
}

static unsigned index_of(const regx_get_t *get)
{
    return regx_shm_key_unpack(&get->key).stage.id - FIRST_ID;
}

static regx_stage_cell_t *peers_cell(const regx_shm_conn_t *conn, const regx_get_t *get)
{
    return &regx_shm_main_at(&conn->main)->stage.cells[index_of(get)];
}

static size_t taken_of(void *const *scratch)
{
    return (uintptr_t)scratch[REGX_SCRATCH_DONE];
}

regx_status_t regx_stage_take(regx_shm_conn_t *conn, regx_get_t *get)
{
    regx_shm_t *shm = regx_shm_of(conn->super.transport);
    void **last = (void **)&shm->stages.taking;

    if (index_of(get) >= REGX_STAGES || get->offset != 0 || get->length > REGX_STAGE_SIZE) {
        return REGX_AGAIN;
    }
    atomic_store_explicit(&peers_cell(conn, get)->asked,
                          regx_shm_key_unpack(&get->key).stage.generation, memory_order_relaxed);
    get->scratch[REGX_SCRATCH_NEXT] = NULL;
    get->scratch[REGX_SCRATCH_CONN] = conn;
    get->scratch[REGX_SCRATCH_DONE] = NULL;
    regx_lock(&shm->lock);
    while (*last != NULL) {
        last = &((void **)*last)[REGX_SCRATCH_NEXT];
    }
    *last = get->scratch;
    atomic_fetch_add(&shm->copy_count, 1);
    regx_unlock(&shm->lock);
    return REGX_PENDING;
}

/* Bytes that the sender has copied, of the get's use of the stage. */
static size_t ready_of(const regx_stage_cell_t *cell, const regx_get_t *get)
{
    const uint64_t seen = atomic_load_explicit(&cell->ready, memory_order_acquire);

    return seen >> 32 == regx_shm_key_unpack(&get->key).stage.generation
               ? regx_min((size_t)(uint32_t)seen, get->length)
               : 0;
}

static regx_get_t *get_of(void **scratch)
{
    return REGX_CONTAINER_OF(scratch, regx_get_t, scratch);
}

/* The first get of which something is ready; NULL: there is none. */
static regx_get_t *find_ready_locked(const regx_shm_t *shm)
{
    for (void **at = shm->stages.taking; at != NULL; at = at[REGX_SCRATCH_NEXT]) {
        if (ready_of(peers_cell(at[REGX_SCRATCH_CONN], get_of(at)), get_of(at)) > taken_of(at)) {
            return get_of(at);
        }
    }
    return NULL;
}

/* Takes what is ready. */
static void take_ready(const regx_shm_t *shm, regx_get_t *get)
{
    const regx_shm_conn_t *conn = get->scratch[REGX_SCRATCH_CONN];
    const char *from = memory_of(shm, conn->main.base, index_of(get));
    size_t taken = taken_of(get->scratch), ready;

    while ((ready = ready_of(peers_cell(conn, get), get)) > taken) {
        regx_copy((char *)get->local + taken, from + taken, ready - taken);
        taken = ready;
    }
    get->scratch[REGX_SCRATCH_DONE] = (void *)(uintptr_t)taken;
}

/* Takes a get off the list. */
static void remove_get(regx_shm_t *shm, const regx_get_t *get)
{
    void **at = (void **)&shm->stages.taking;

    regx_lock(&shm->lock);
    while (*at != get->scratch) {
        at = &((void **)*at)[REGX_SCRATCH_NEXT];
    }
    *at = get->scratch[REGX_SCRATCH_NEXT];
    regx_unlock(&shm->lock);
    atomic_fetch_sub(&shm->copy_count, 1);
}

static void end(regx_shm_t *shm, regx_get_t *get)
{
    regx_counters_t *counters = shm->config.counters;

    remove_get(shm, get);
    regx_count_transport(counters, REGX_COUNTER_stages_taken, 1);
    regx_count_transport(counters, REGX_COUNTER_bytes_shm, get->length);
    get->done(get, REGX_OK);
}

/* The kernel copies the rest. */
static void give_up(regx_shm_t *shm, regx_get_t *get)
{
    const size_t taken = taken_of(get->scratch);

    remove_get(shm, get);
    regx_count_transport(shm->config.counters, REGX_COUNTER_stages_late, 1);
    regx_count_transport(shm->config.counters, REGX_COUNTER_bytes_shm, taken);
    regx_shm_queue_get(get->scratch[REGX_SCRATCH_CONN], get, NULL);
    get->scratch[REGX_SCRATCH_DONE] = (void *)(uintptr_t)taken;
}

/* Whether nothing comes to the oldest get, though something may come to `get`. */
static bool is_late(regx_stages_t *stages, void **oldest, const regx_get_t *get)
{
    if (oldest == NULL || (get != NULL && get->scratch == oldest)) {
        stages->looks = 0;
        return false;
    }
    stages->looks = (stages->looks + 1) % REGX_STAGE_LOOKS;
    return stages->looks == 0;
}

/* Takes what is ready of one get. Returns whether there was anything. */
static bool take(regx_shm_t *shm)
{
    regx_stages_t *stages = &shm->stages;

    regx_lock(&shm->lock);
    void **oldest = stages->taking;
    regx_get_t *get = find_ready_locked(shm);
    regx_unlock(&shm->lock);
    if (is_late(stages, oldest, get)) {
        give_up(shm, get_of(oldest)); /* which is not `get` */
    }
    if (get == NULL) {
        return false;
    }
    take_ready(shm, get);
    if (taken_of(get->scratch) == get->length) {
        end(shm, get);
    }
    return true;
}

int regx_stage_progress(regx_shm_t *shm)
{
    const bool filled = fill(shm);

    return filled + take(shm);
}

void regx_stage_drop(regx_shm_conn_t *conn)
{
    regx_shm_t *shm = regx_shm_of(conn->super.transport);
    void **all = NULL;

    regx_lock(&shm->lock);
    shm->stages.looks = 0; /* another may be the oldest now */
    for (void **at = (void **)&shm->stages.taking; *at != NULL;) {
        void **scratch = *at;

        if (scratch[REGX_SCRATCH_CONN] != conn) {
            at = &scratch[REGX_SCRATCH_NEXT];
            continue;
        }
        *at = scratch[REGX_SCRATCH_NEXT];
        scratch[REGX_SCRATCH_NEXT] = all;
        all = scratch;
        atomic_fetch_sub(&shm->copy_count, 1);
    }
    regx_unlock(&shm->lock);
    while (all != NULL) {
        regx_get_t *get = get_of(all);

        all = all[REGX_SCRATCH_NEXT];
        get->done(get, REGX_FAILED);
    }
}

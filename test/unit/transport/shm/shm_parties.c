/* SPDX-License-Identifier: BSD-3-Clause */
#include "shm_parties.h"

#include "../../process.h"

uint8_t *source, *sink;

static const conformance_t late = {.name = "shm", .ops = &regx_shm_ops};
static const conformance_t early = {.name = "shm", .ops = &regx_shm_ops, .neighbours = 1};

void shm_parties_open(bool threads)
{
    tested = &late;
    parties_open(threads);
    parties_exchange();
}

void shm_parties_open_early(void)
{
    tested = &early;
    parties_open(false);
}

regx_shm_t *shm_of(const party_t *party)
{
    return regx_shm_of(party->transport);
}

regx_shm_conn_t *conn_of(const party_t *party)
{
    return regx_shm_conn_of(party->conn);
}

uint64_t fallbacks(const party_t *party)
{
    uint64_t count = 0;

    for (unsigned i = 0; i < REGX_REASONS_MAX; i++) {
        count += party->counters.fallbacks[i].count;
    }
    return count;
}

bool fell_back(const party_t *party, const char *reason)
{
    return strcmp(party->counters.fallbacks[0].reason, reason) == 0;
}

int step(const party_t *party)
{
    return regx_shm_progress(party->transport);
}

void work(const party_t *party)
{
    while (step(party) > 0) {
    }
}

void step_to_end(const party_t *party, const op_t *op)
{
    until(op->ended != 0, step(party));
}

void zones_new(void)
{
    source = malloc(SHM_ZONE);
    sink = guarded_new(SHM_ZONE);
    unit_fill(source, SHM_ZONE, 1, 0);
    memset(sink, 0xee, SHM_ZONE);
}

void zones_free(void)
{
    guarded_free(sink, SHM_ZONE);
    free(source);
}

void get_start(const party_t *party, op_t *op, size_t at, size_t length, bool assisted)
{
    regx_mr_t remote = {.base = source};

    regx_shm_expose(party->transport, source, SHM_ZONE, &remote.key);
    op_get(op, sink + at, length, NULL, &remote, at);
    op->get.assisted = assisted;
    op_start_get(party, op);
}

void get_check(const op_t *op)
{
    assert_true(op->ended == 1 && op->status == REGX_OK);
    assert_memory_equal(op->get.local, source + op->get.offset, op->get.length);
    memset(op->get.local, 0xee, op->get.length);
}

int shm_setup(void **state)
{
    shm_parties_open(false);
    zones_new();
    return 0;
}

int shm_teardown(void **state)
{
    zones_free();
    parties_close();
    return 0;
}

void in_child_process(void (*run)(void))
{
    if (process_in_child()) {
        run();
        _exit(0);
    }
}

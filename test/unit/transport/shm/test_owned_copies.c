/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Copies to and from owned memory, between two processes: they need no system call.
 */
#include "sides.h"

#include <sys/mman.h>

#include "transport/counters.h"
#include "transport/shm/key.h"

enum { PIECE = REGX_CLAIM_PIECE, ZONE = 3 * PIECE, PLACES = 2, TAG = 9 };

/* Memory of this process, and the key of the other's. */
typedef struct zone {
    uint8_t *bytes;
    regx_key_t key, its;
} zone_t;

static zone_t zones[PLACES]; /* what is got, and what is put to */

static void deliver(void *context, uint64_t sender, uint8_t tag, const void *data, size_t length)
{
    side_t *side = context;

    (void)sender, (void)data, (void)length;
    side->delivered++;
    if (tag == TAG) { /* what was put is there */
        REQUIRE(unit_is_filled(zones[1].bytes, ZONE, 77));
    }
}

static void begin(side_t *side, bool owned)
{
    for (unsigned i = 0; i < PLACES; i++) {
        zones[i].bytes = owned ? regx_shm_ops.allocate(side->transport, ZONE) : malloc(ZONE);
        REQUIRE(zones[i].bytes != NULL);
        unit_fill(zones[i].bytes, ZONE, side->config.self + i, 0);
        regx_shm_expose(zones[i].bytes, ZONE, &zones[i].key);
        pair_tell(side->socket, &zones[i].key, sizeof(regx_key_t));
        pair_hear(side->socket, &zones[i].its, sizeof(regx_key_t));
    }
    attach(side);
    side->shm->config.events.deliver = deliver;
}

static void finish(side_t *side, bool owned)
{
    meet(side);
    for (unsigned i = 0; i < PLACES; i++) {
        if (owned) {
            regx_shm_ops.release(side->transport, zones[i].bytes);
        } else {
            free(zones[i].bytes);
        }
    }
}

static unsigned ended;

static void got(regx_get_t *get, regx_status_t status)
{
    (void)get;
    REQUIRE(status == REGX_OK);
    ended++;
}

static void was_put(regx_put_t *put, regx_status_t status)
{
    (void)put;
    REQUIRE(status == REGX_OK);
    ended++;
}

static void get_zone(side_t *side, void *to, bool assisted)
{
    regx_get_t get = {
        .local = to, .length = ZONE, .key = zones[0].its, .assisted = assisted, .done = got};

    ended = 0;
    memset(to, 0xee, ZONE);
    REQUIRE(regx_shm_get(side->conn, &get) == REGX_PENDING);
    while (ended == 0) {
        progress(side);
    }
    REQUIRE(unit_is_filled(to, ZONE, side->conn->peer));
}

static void put_zone(side_t *side)
{
    uint8_t *from = malloc(ZONE);
    regx_put_t put = {.local = from,
                      .length = ZONE,
                      .target = REGX_TARGET_REGION,
                      .key = zones[1].its,
                      .tag = TAG,
                      .done = was_put};
    const unsigned before = side->delivered;

    REQUIRE(from != NULL);
    unit_fill(from, ZONE, 77, 0);
    ended = 0;
    REQUIRE(regx_shm_put(side->conn, &put) == REGX_PENDING);
    while (ended == 0 || side->delivered == before) { /* the other puts, too */
        progress(side);
    }
    free(from);
}

static uint64_t pieces_owned(const side_t *side)
{
    return side->counters.transport[REGX_COUNTER_pieces_owned];
}

static void move_owned(side_t *side)
{
    uint8_t *to = malloc(ZONE);

    REQUIRE(to != NULL);
    begin(side, true);
    get_zone(side, to, false);
    REQUIRE(pieces_owned(side) == ZONE / PIECE);
    put_zone(side);
    REQUIRE(pieces_owned(side) == 2 * ZONE / PIECE);
    get_zone(side, zones[1].bytes, false);
    REQUIRE(pieces_owned(side) == 3 * ZONE / PIECE);
    REQUIRE(side->counters.transport[REGX_COUNTER_copies_overlapped] == 0);
    finish(side, true);
    free(to);
}

static void owned_memory_is_copied_in_user_space(void **state)
{
    (void)state;
    run_pair(false, move_owned, move_owned);
}

static void move_ordinary(side_t *side)
{
    uint8_t *to = malloc(ZONE);

    REQUIRE(to != NULL);
    begin(side, false);
    get_zone(side, to, false);
    put_zone(side);
    REQUIRE(pieces_owned(side) == 0);
    finish(side, false);
    free(to);
}

static void other_memory_is_copied_by_the_kernel(void **state)
{
    (void)state;
    run_pair(false, move_ordinary, move_ordinary);
}

/* The child's part of an assisted get: the kernel writes to the parent's owned memory. */
static void assist(side_t *side)
{
    begin(side, true);
    while (side->counters.chunks_sender == 0) {
        progress(side);
    }
    REQUIRE(pieces_owned(side) == 0);
    pair_tell(side->socket, &side->counters.chunks_sender, sizeof(uint64_t));
    finish(side, true);
}

static void get_until_assisted(side_t *side)
{
    uint64_t written = 0;
    char byte = 0;

    begin(side, true);
    do {
        get_zone(side, zones[1].bytes, true);
        REQUIRE(pieces_owned(side) > 0);
    } while (recv(side->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0);
    pair_hear(side->socket, &written, sizeof(written));
    REQUIRE(written > 0);
    finish(side, true);
}

static void the_kernel_copies_for_who_assists(void **state)
{
    (void)state;
    run_pair(false, get_until_assisted, assist);
}

static void not_got(regx_get_t *get, regx_status_t status)
{
    (void)get;
    REQUIRE(status == REGX_FAILED);
    ended++;
}

static void get_what_may_not_be_read(side_t *side)
{
    begin(side, true);
    regx_get_t get = {.local = zones[1].bytes,
                      .length = ZONE,
                      .key = zones[0].its,
                      .assisted = true,
                      .done = not_got};

    ended = 0;
    meet(side); /* it is protected */
    REQUIRE(regx_shm_get(side->conn, &get) == REGX_PENDING);
    meet(side); /* the other claims all that it may */
    meet(side);
    while (ended == 0) {
        progress(side);
    }
    meet(side);
    finish(side, true);
}

/* The program's mistake, or a neighbour's lie, must not end this process. */
static void protect_and_assist(side_t *side)
{
    begin(side, false);
    void *middle = (void *)regx_align_up((uintptr_t)zones[0].bytes + ZONE / 2, regx_page_size());

    REQUIRE(mprotect(middle, ZONE / 4, PROT_NONE) == 0);
    meet(side);
    meet(side);
    while (regx_shm_progress(side->transport) > 0) {
    }
    REQUIRE(side->counters.chunks_sender == 0);
    meet(side);
    meet(side);
    REQUIRE(mprotect(middle, ZONE / 4, PROT_READ | PROT_WRITE) == 0);
    finish(side, false);
}

static void what_may_not_be_read_fails_for_both(void **state)
{
    (void)state;
    run_pair(false, get_what_may_not_be_read, protect_and_assist);
}

static void die_owning(side_t *side)
{
    begin(side, true);
    for (;;) {
        progress(side);
    }
}

/* What is mapped stays when its owner is dead. */
static void get_from_the_dead(side_t *side)
{
    uint8_t *to = malloc(ZONE);
    siginfo_t info;

    REQUIRE(to != NULL);
    begin(side, true);
    get_zone(side, to, false);
    kill(side->shm->config.self == PARENT ? regx_shm_conn_of(side->conn)->vm.pid : 0, SIGKILL);
    REQUIRE(waitid(P_PID, (id_t)regx_shm_conn_of(side->conn)->vm.pid, &info, WEXITED | WNOWAIT) ==
            0);
    get_zone(side, to, false);
    REQUIRE(pieces_owned(side) == 2 * ZONE / PIECE);
    for (unsigned i = 0; i < PLACES; i++) {
        regx_shm_ops.release(side->transport, zones[i].bytes);
    }
    free(to);
}

static void a_dead_peer_does_no_harm(void **state)
{
    (void)state;
    run_killed(get_from_the_dead, die_owning);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(owned_memory_is_copied_in_user_space),
        cmocka_unit_test(other_memory_is_copied_by_the_kernel),
        cmocka_unit_test(the_kernel_copies_for_who_assists),
        cmocka_unit_test(what_may_not_be_read_fails_for_both),
        cmocka_unit_test(a_dead_peer_does_no_harm),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

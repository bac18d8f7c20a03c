/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Shared memory: puts into another process, every byte checked.
 */
#include "sides.h"

enum { PUTS = 64, PUT_LENGTH = 40000, PUT_GUARD = 64, PUT_TAG = 9 };

typedef struct landing_zone { /* what the peer writes: guard, PUTS pieces, guard */
    uint8_t bytes[PUT_GUARD + PUTS * PUT_LENGTH + PUT_GUARD];
} landing_zone_t;

static landing_zone_t *zone;
static unsigned noticed, put_dones;

/* Frame n says that piece n was written; it must be there by now. */
static void notice_of_piece(void *context, uint64_t sender, uint8_t tag, const void *data,
                            size_t length)
{
    unsigned n;

    (void)context;
    REQUIRE(tag == PUT_TAG && length == sizeof(n));
    memcpy(&n, data, sizeof(n));
    REQUIRE(n == noticed);
    REQUIRE(unit_is_filled(zone->bytes + PUT_GUARD + n * PUT_LENGTH, PUT_LENGTH, sender + n));
    noticed++;
}

static void put_done(regx_put_t *put, regx_status_t status)
{
    (void)put;
    REQUIRE(status == REGX_OK);
    put_dones++;
}

static void put_pieces(side_t *side, regx_target_t target, const regx_key_t *key)
{
    static uint8_t from[PUT_LENGTH];
    unsigned sent = 0, pending = 0;

    side->config.events.deliver = side->shm->config.events.deliver = notice_of_piece;
    meet(side);
    while (sent < PUTS || noticed < PUTS || put_dones < pending) {
        if (sent < PUTS && put_dones == pending) { /* `from` is free */
            static regx_put_t put;

            unit_fill(from, sizeof(from), side->config.self + sent, 0);
            put = (regx_put_t){.local = from,
                               .length = PUT_LENGTH,
                               .target = target,
                               .offset = PUT_GUARD + (uint64_t)sent * PUT_LENGTH,
                               .key = *key,
                               .tag = PUT_TAG,
                               .notice_length = sizeof(sent),
                               .done = put_done};
            memcpy(put.notice, &sent, sizeof(sent));
            const regx_status_t status = regx_shm_put(side->conn, &put);
            REQUIRE(status == REGX_OK || status == REGX_AGAIN ||
                    (status == REGX_PENDING && target == REGX_TARGET_REGION));
            sent += status != REGX_AGAIN;
            pending += status == REGX_PENDING;
        }
        progress(side);
    }
    REQUIRE(target == REGX_TARGET_POOL || pending == PUTS);
    for (size_t i = 0; i < PUT_GUARD; i++) { /* beside the pieces nothing was written */
        REQUIRE(zone->bytes[i] == 0 && zone->bytes[sizeof(*zone) - 1 - i] == 0);
    }
}

/* A put that would end behind what the peer published is refused before a byte is written. */
static void overlong_put_is_refused(side_t *side, regx_target_t target, const regx_key_t *key,
                                    uint64_t size)
{
    const uint64_t offsets[] = {size - 3, size, size + 1, UINT64_MAX, UINT64_MAX - 3};

    for (size_t i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++) {
        regx_put_t put = {.local = "good",
                          .length = 4,
                          .target = target,
                          .offset = offsets[i],
                          .key = *key,
                          .tag = PUT_TAG,
                          .done = put_done};

        REQUIRE(regx_shm_put(side->conn, &put) == REGX_INVALID);
    }
}

static void put_into_pools(side_t *side)
{
    const regx_key_t none = {{0}};

    zone = (landing_zone_t *)side->pool;
    noticed = put_dones = 0;
    attach(side);
    overlong_put_is_refused(side, REGX_TARGET_POOL, &none, POOL);
    put_pieces(side, REGX_TARGET_POOL, &none);
    meet(side);
}

static void put_into_regions(side_t *side)
{
    regx_mr_t mr;
    regx_key_t key;

    zone = calloc(1, sizeof(*zone));
    REQUIRE(zone != NULL);
    noticed = put_dones = 0;
    REQUIRE(regx_shm_ops.reg(side->transport, zone, sizeof(*zone), REGX_ACCESS_REMOTE_WRITE, &mr) ==
            REGX_OK);
    REQUIRE(write(side->socket, &mr.key, sizeof(mr.key)) == sizeof(mr.key));
    REQUIRE(recv(side->socket, &key, sizeof(key), MSG_WAITALL) == sizeof(key));
    attach(side);
    overlong_put_is_refused(side, REGX_TARGET_REGION, &key, sizeof(*zone));
    put_pieces(side, REGX_TARGET_REGION, &key);
    meet(side);
    regx_shm_ops.dereg(side->transport, &mr);
    free(zone);
}

static void puts_into_the_pool_arrive_before_their_notices(void **state)
{
    (void)state;
    run_pair(false, put_into_pools, put_into_pools);
}

static void puts_into_regions_arrive_before_their_notices(void **state)
{
    (void)state;
    run_pair(false, put_into_regions, put_into_regions);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(puts_into_the_pool_arrive_before_their_notices),
        cmocka_unit_test(puts_into_regions_arrive_before_their_notices),
    };

    return cmocka_run_group_tests_name("shm_puts", tests, NULL, NULL);
}

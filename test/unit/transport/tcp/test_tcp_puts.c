/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Puts over the tcp wire: they land before their notice, wait in line, and write nothing that is
 * not granted; every byte checked.
 */
#include "sides.h"

#include "transport/counters.h"

enum { REGION = 9 * MIB };

static const struct put_case {
    regx_target_t target;
    uint64_t offset;
    size_t length;
} put_cases[] = {
    {REGX_TARGET_REGION, 0, 0},
    {REGX_TARGET_REGION, 0, 1},
    {REGX_TARGET_REGION, 1, DATA_MAX - 1},
    {REGX_TARGET_REGION, 4097, DATA_MAX},
    {REGX_TARGET_REGION, 3, DATA_MAX + 1},
    {REGX_TARGET_REGION, 2, REGX_TCP_PIECE_MAX},
    {REGX_TARGET_REGION, 2, REGX_TCP_PIECE_MAX + 1},
    {REGX_TARGET_REGION, 0, 3 * REGX_TCP_PIECE_MAX - 1},
    {REGX_TARGET_REGION, 0, REGION},
    {REGX_TARGET_REGION, REGION, 0},
    {REGX_TARGET_REGION, REGION - 1, 1},
    {REGX_TARGET_POOL, 0, POOL},
    {REGX_TARGET_POOL, POOL - 1, 1},
    {REGX_TARGET_POOL, POOL, 0},
    {REGX_TARGET_POOL, 12345, 3 * DATA_MAX},
    {REGX_TARGET_REGION, 5, 8 * MIB + 1},
};
enum { PUT_CASES = sizeof(put_cases) / sizeof(put_cases[0]), PUTS = 3 * PUT_CASES };

static uint8_t *region; /* of the child: REGION bytes between guards of a page */
enum { GUARD = 4096 };

static void check_put(side_t *side, uint8_t tag, const uint8_t *data, size_t length)
{
    const unsigned n = side->delivered / 2;
    const struct put_case *put = &put_cases[n % PUT_CASES];
    const uint8_t *to = (put->target == REGX_TARGET_POOL ? side->pool : region + GUARD);

    /* Each put is followed by a frame, which comes after the notice. */
    if (side->delivered % 2 == 1) {
        REQUIRE(tag == TAG_AFTER && length == sizeof(n) && memcmp(data, &n, length) == 0);
        return;
    }
    REQUIRE(tag == TAG_PUT);
    REQUIRE(length == n % (REGX_NOTICE_MAX + 1));
    REQUIRE(unit_is_filled(data, length, 7000 + n));
    REQUIRE(unit_is_filled(to + put->offset, put->length, n));
    REQUIRE(unit_is_filled(region, GUARD, 1) && unit_is_filled(region + GUARD + REGION, GUARD, 2));
}

static void receive_puts(side_t *side)
{
    regx_key_t key;
    void *handle;

    region = malloc(GUARD + REGION + GUARD);
    REQUIRE(region != NULL);
    unit_fill(region, GUARD, 1, 0);
    unit_fill(region + GUARD + REGION, GUARD, 2, 0);
    REQUIRE(regx_rkey_table_add(&side->rkeys, region + GUARD, REGION, REGX_ACCESS_REMOTE_WRITE,
                                &key, &handle) == REGX_OK);
    tell(side, &key, sizeof(key));
    side->deliver = check_put;
    while (side->delivered < 2 * PUTS) {
        progress(side);
    }
    REQUIRE(side->counters.malformed == 0);
    regx_rkey_table_remove(&side->rkeys, handle);
    free(region);
    meet(side);
}

static void fill_put(regx_put_t *put, side_t *side, unsigned n, const regx_key_t *key,
                     uint8_t *data)
{
    const struct put_case *test = &put_cases[n % PUT_CASES];

    *put = (regx_put_t){.local = data,
                        .length = test->length,
                        .target = test->target,
                        .offset = test->offset,
                        .tag = TAG_PUT,
                        .notice_length = (uint8_t)(n % (REGX_NOTICE_MAX + 1)),
                        .done = done,
                        .context = side};
    if (test->target == REGX_TARGET_REGION) {
        put->key = *key;
    }
    unit_fill(put->notice, put->notice_length, 7000 + n, 0);
    unit_fill(data, put->length, n, 0);
}

static void send_puts(side_t *side)
{
    uint8_t *data = malloc(REGION);
    uint64_t bytes = 0;
    regx_key_t key;

    REQUIRE(data != NULL);
    hear(side, &key, sizeof(key));
    for (unsigned n = 0; n < PUTS; n++) {
        const unsigned done_before = side->done;
        regx_status_t status;
        regx_put_t put;

        fill_put(&put, side, n, &key, data);
        while ((status = regx_tcp_put(side->conn, &put)) == REGX_AGAIN) {
            progress(side);
        }
        REQUIRE(status == REGX_OK || status == REGX_PENDING);
        /* Accepted at once or after the put, the frame comes behind the notice. */
        while (regx_tcp_send(side->conn, TAG_AFTER, &n, sizeof(n), NULL, NULL, 0) != REGX_OK) {
            progress(side);
        }
        /* It can only have been accepted when the put had left. */
        while (side->done == done_before && status == REGX_PENDING) {
            progress(side);
        }
        REQUIRE(side->done - done_before == (status == REGX_PENDING));
        REQUIRE(status == REGX_OK || side->done_status == REGX_OK);
        memset(data, 0, put.length); /* it is ours again */
        bytes += put.length + sizeof(n);
    }
    REQUIRE(side->counters.transport[REGX_COUNTER_bytes_tcp] == bytes);
    REQUIRE(side->broken == 0);
    free(data);
    meet(side);
}

static void puts_land_before_their_notice(void **state)
{
    (void)state;
    run_pair(false, send_puts, receive_puts);
}

/* Many puts at once: they wait in line, are done in order, and each is done once. */
enum { LINE = 64, LINE_PUT = 3 * DATA_MAX - 5 };

static void check_line(side_t *side, uint8_t tag, const uint8_t *data, size_t length)
{
    const unsigned n = side->delivered;

    REQUIRE(tag == TAG_PUT && length == sizeof(n) && memcmp(data, &n, length) == 0);
    REQUIRE(unit_is_filled(region + (size_t)n * LINE_PUT, LINE_PUT, n));
}

static void receive_line(side_t *side)
{
    regx_key_t key;
    void *handle;

    region = calloc(LINE, LINE_PUT);
    REQUIRE(region != NULL);
    REQUIRE(regx_rkey_table_add(&side->rkeys, region, (size_t)LINE * LINE_PUT,
                                REGX_ACCESS_REMOTE_WRITE, &key, &handle) == REGX_OK);
    tell(side, &key, sizeof(key));
    side->deliver = check_line;
    while (side->delivered < LINE) {
        progress(side);
    }
    free(region);
    meet(side);
}

static void done_in_line(regx_put_t *put, regx_status_t status)
{
    side_t *side = put->context;
    unsigned n;

    memcpy(&n, put->notice, sizeof(n));
    REQUIRE(status == REGX_OK);
    REQUIRE(n >= side->done); /* those between were done at once */
    side->done = n + 1;
    memset((void *)(uintptr_t)put->local, 0, put->length); /* it is ours again */
}

static void send_line(side_t *side)
{
    static regx_put_t puts[LINE];
    uint8_t *data = malloc((size_t)LINE * LINE_PUT);
    unsigned pending = 0;
    regx_key_t key;

    REQUIRE(data != NULL);
    hear(side, &key, sizeof(key));
    for (unsigned n = 0; n < LINE; n++) {
        uint8_t *local = data + (size_t)n * LINE_PUT;
        regx_status_t status;

        unit_fill(local, LINE_PUT, n, 0);
        puts[n] = (regx_put_t){.local = local,
                               .length = LINE_PUT,
                               .target = REGX_TARGET_REGION,
                               .offset = (uint64_t)n * LINE_PUT,
                               .key = key,
                               .tag = TAG_PUT,
                               .notice_length = sizeof(n),
                               .done = done_in_line,
                               .context = side};
        memcpy(puts[n].notice, &n, sizeof(n));
        status = regx_tcp_put(side->conn, &puts[n]);
        REQUIRE(status == REGX_OK || status == REGX_PENDING);
        if (status == REGX_PENDING) {
            pending = n + 1;
        } else {
            memset(local, 0, LINE_PUT);
        }
    }
    REQUIRE(pending > 0); /* there was a line */
    while (side->done < pending) {
        progress(side);
    }
    free(data);
    meet(side);
}

static void queued_puts_arrive_in_order(void **state)
{
    (void)state;
    run_pair(false, send_line, receive_line);
}

/* ---- grants that do not hold ---- */

static void revoke_at_once(side_t *side)
{
    uint8_t *memory = malloc(MIB);
    regx_key_t key;
    void *handle;

    REQUIRE(memory != NULL);
    unit_fill(memory, MIB, 3, 0);
    REQUIRE(regx_rkey_table_add(&side->rkeys, memory, MIB, REGX_ACCESS_REMOTE_WRITE, &key,
                                &handle) == REGX_OK);
    regx_rkey_table_remove(&side->rkeys, handle);
    tell(side, &key, sizeof(key));
    side->deliver = check_end;
    while (side->delivered == 0) {
        progress(side);
    }
    /* Every piece was refused, and the notice with the last. No piece is longer than what the
     * kernel sends at once, and there are no more of them than that takes. */
    REQUIRE(side->counters.malformed == (MIB + REGX_TCP_PIECE_MAX - 1) / REGX_TCP_PIECE_MAX);
    REQUIRE(unit_is_filled(memory, MIB, 3));
    free(memory);
    meet(side);
}

static void put_to_revoked(side_t *side)
{
    regx_put_t put = {.local = calloc(1, MIB),
                      .length = MIB,
                      .target = REGX_TARGET_REGION,
                      .tag = TAG_PUT,
                      .done = done,
                      .context = side};

    REQUIRE(put.local != NULL);
    hear(side, &put.key, sizeof(put.key));
    /* Beyond what the key says is not even tried. */
    put.offset = 1;
    REQUIRE(regx_tcp_put(side->conn, &put) == REGX_INVALID);
    put.offset = UINT64_MAX;
    REQUIRE(regx_tcp_put(side->conn, &put) == REGX_INVALID);
    put.target = REGX_TARGET_POOL;
    put.offset = POOL - MIB + 1;
    REQUIRE(regx_tcp_put(side->conn, &put) == REGX_INVALID);

    put.target = REGX_TARGET_REGION;
    put.offset = 0;
    if (regx_tcp_put(side->conn, &put) == REGX_PENDING) {
        while (side->done == 0) {
            progress(side);
        }
    }
    while (regx_tcp_send(side->conn, TAG_END, NULL, 0, NULL, NULL, 0) != REGX_OK) {
        progress(side);
    }
    free((void *)(uintptr_t)put.local);
    meet(side);
}

static void revoked_grants_are_not_written(void **state)
{
    (void)state;
    run_pair(false, put_to_revoked, revoke_at_once);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(puts_land_before_their_notice),
        cmocka_unit_test(queued_puts_arrive_in_order),
        cmocka_unit_test(revoked_grants_are_not_written),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Windows: only what a key opens can be written, and only while it is open.
 */
#include "../unit.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "transport/rkey_table.h"

enum { SIZE = 4096, GUARD = 64 };

/* A buffer between two guards; what was not to be written still holds its stamp. */
static uint8_t memory[GUARD + SIZE + GUARD];
static uint8_t data[SIZE];

static void fill(void)
{
    unit_fill(memory, sizeof(memory), 1, 0);
    unit_fill(data, sizeof(data), 2, 0);
}

/* Checks that [offset, offset + length) of the window has data's first bytes and the rest its
 * stamp. */
static void check(size_t offset, size_t length)
{
    for (size_t i = 0; i < sizeof(memory); i++) {
        const bool written = i >= GUARD + offset && i < GUARD + offset + length;

        assert_int_equal(memory[i], written ? data[i - GUARD - offset] : unit_stamp(1, i));
    }
}

/* All of the buffer that lies between the guards. */
static void *add_window(regx_rkey_table_t *rkeys, unsigned access, regx_key_t *key)
{
    void *handle;

    assert_int_equal(regx_rkey_table_add(rkeys, memory + GUARD, SIZE, access, key, &handle),
                     REGX_OK);
    return handle;
}

static void copy(void *from, void *to, size_t length)
{
    memcpy(to, from, length);
}

static regx_status_t write_by(regx_rkey_table_t *rkeys, const regx_key_t *key, uint64_t offset,
                              void *from, size_t length)
{
    return regx_rkey_table_fill(rkeys, key, offset, length, copy, from);
}

static void a_write_lands_where_it_should(void **state)
{
    static const struct {
        size_t offset;
        size_t length;
    } good[] = {{0, 0}, {0, 1}, {0, SIZE}, {1, SIZE - 1}, {SIZE - 1, 1}, {SIZE, 0}, {100, 200}};
    regx_rkey_table_t rkeys;
    regx_key_t key;
    void *handle;

    (void)state;
    regx_rkey_table_init(&rkeys, false);
    handle = add_window(&rkeys, REGX_ACCESS_REMOTE_WRITE, &key);
    assert_int_equal(regx_key_address(&key), (uintptr_t)(memory + GUARD));
    assert_int_equal(regx_key_length(&key), SIZE);
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        fill();
        assert_int_equal(write_by(&rkeys, &key, good[i].offset, data, good[i].length), REGX_OK);
        check(good[i].offset, good[i].length);
    }
    regx_rkey_table_remove(&rkeys, handle);
    regx_rkey_table_fini(&rkeys);
}

static void nothing_lands_outside(void **state)
{
    static const struct {
        uint64_t offset;
        size_t length;
    } bad[] = {{0, SIZE + 1},        {1, SIZE},       {SIZE, 1},
               {SIZE + 1, 0},        {UINT64_MAX, 1}, {UINT64_MAX, 2},
               {UINT64_MAX - 9, 10}, {0, SIZE_MAX},   {1, SIZE_MAX},
               {16, SIZE_MAX - 15}};
    regx_rkey_table_t rkeys;
    regx_key_t key;
    void *handle;

    (void)state;
    regx_rkey_table_init(&rkeys, false);
    handle = add_window(&rkeys, REGX_ACCESS_REMOTE_WRITE, &key);
    fill();
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(write_by(&rkeys, &key, bad[i].offset, data, bad[i].length), REGX_INVALID);
    }
    check(0, 0);
    regx_rkey_table_remove(&rkeys, handle);
    regx_rkey_table_fini(&rkeys);
}

static void every_bit_of_the_key_counts(void **state)
{
    regx_rkey_table_t rkeys;
    regx_key_t key;
    void *handle;

    (void)state;
    regx_rkey_table_init(&rkeys, false);
    handle = add_window(&rkeys, REGX_ACCESS_REMOTE_WRITE, &key);
    fill();
    for (size_t bit = 0; bit < 8 * sizeof(key.bytes); bit++) {
        regx_key_t forged = key;

        forged.bytes[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        assert_int_equal(write_by(&rkeys, &forged, 0, data, 1), REGX_INVALID);
    }
    check(0, 0);
    assert_int_equal(write_by(&rkeys, &key, 0, data, 1), REGX_OK);
    check(0, 1);
    regx_rkey_table_remove(&rkeys, handle);
    regx_rkey_table_fini(&rkeys);
}

static void access_is_asked_for(void **state)
{
    regx_rkey_table_t rkeys;
    regx_key_t key;
    void *handle;

    (void)state;
    regx_rkey_table_init(&rkeys, false);
    fill();
    for (unsigned access = 0; access < 8; access++) {
        const bool writable = (access & REGX_ACCESS_REMOTE_WRITE) != 0;

        handle = add_window(&rkeys, access, &key);
        assert_int_equal(write_by(&rkeys, &key, 0, data, 1), writable ? REGX_OK : REGX_INVALID);
        regx_rkey_table_remove(&rkeys, handle);
    }
    regx_rkey_table_fini(&rkeys);
}

static void a_closed_window_never_opens_again(void **state)
{
    enum { ROUNDS = 1000 };
    static regx_key_t old[ROUNDS];
    regx_rkey_table_t rkeys;
    regx_key_t key;
    void *handle;

    (void)state;
    regx_rkey_table_init(&rkeys, false);
    fill();
    /* A slot is reused at once, at the same address and length: only the generation differs. */
    for (size_t round = 0; round < ROUNDS; round++) {
        handle = add_window(&rkeys, REGX_ACCESS_REMOTE_WRITE, &old[round]);
        regx_rkey_table_remove(&rkeys, handle);
        assert_int_equal(write_by(&rkeys, &old[round], 0, data, 1), REGX_INVALID);
    }
    handle = add_window(&rkeys, REGX_ACCESS_REMOTE_WRITE, &key);
    for (size_t round = 0; round < ROUNDS; round++) {
        assert_int_equal(write_by(&rkeys, &old[round], 0, data, 1), REGX_INVALID);
    }
    check(0, 0);
    assert_int_equal(rkeys.regions.count, 64); /* the table has not grown */
    regx_rkey_table_remove(&rkeys, handle);
    regx_rkey_table_fini(&rkeys);
}

static void the_table_grows_to_its_bound(void **state)
{
    static regx_key_t keys[REGX_RKEY_TABLE_MAX];
    static void *handles[REGX_RKEY_TABLE_MAX];
    static uint8_t bytes[REGX_RKEY_TABLE_MAX];
    uint8_t mark = 0x5a;
    regx_rkey_table_t rkeys;
    regx_key_t key;
    void *handle;

    (void)state;
    regx_rkey_table_init(&rkeys, false);
    for (size_t i = 0; i < REGX_RKEY_TABLE_MAX; i++) {
        assert_int_equal(regx_rkey_table_add(&rkeys, &bytes[i], 1, REGX_ACCESS_REMOTE_WRITE,
                                             &keys[i], &handles[i]),
                         REGX_OK);
    }
    assert_int_equal(regx_rkey_table_add(&rkeys, bytes, 1, REGX_ACCESS_REMOTE_WRITE, &key, &handle),
                     REGX_NO_MEMORY);
    /* Every window is still the one it was before the table moved. */
    for (size_t i = 0; i < REGX_RKEY_TABLE_MAX; i++) {
        assert_int_equal(bytes[i], 0);
        assert_int_equal(write_by(&rkeys, &keys[i], 0, &mark, 1), REGX_OK);
        assert_int_equal(bytes[i], mark);
    }
    /* Room for one is room for one. */
    regx_rkey_table_remove(&rkeys, handles[12345]);
    assert_int_equal(
        regx_rkey_table_add(&rkeys, bytes, 1, REGX_ACCESS_REMOTE_WRITE, &key, &handles[12345]),
        REGX_OK);
    assert_int_equal(regx_rkey_table_add(&rkeys, bytes, 1, REGX_ACCESS_REMOTE_WRITE, &key, &handle),
                     REGX_NO_MEMORY);
    for (size_t i = 0; i < REGX_RKEY_TABLE_MAX; i++) {
        regx_rkey_table_remove(&rkeys, handles[i]);
    }
    regx_rkey_table_fini(&rkeys);
}

/* A thread that writes to whatever window it is shown. */
typedef struct writer {
    regx_rkey_table_t rkeys;
    pthread_mutex_t mutex; /* of key */
    regx_key_t key;
    _Atomic uint64_t attempts;
    _Atomic uint64_t landed;
    _Atomic bool stop;
} writer_t;

static void *write_for_ever(void *argument)
{
    writer_t *writer = argument;

    while (!atomic_load(&writer->stop)) {
        regx_key_t key;

        pthread_mutex_lock(&writer->mutex);
        key = writer->key;
        pthread_mutex_unlock(&writer->mutex);
        if (write_by(&writer->rkeys, &key, 0, data, SIZE) == REGX_OK) {
            atomic_fetch_add(&writer->landed, 1);
        }
        atomic_fetch_add(&writer->attempts, 1);
    }
    return NULL;
}

static void wait_beyond(const _Atomic uint64_t *counter, uint64_t value)
{
    while (atomic_load(counter) <= value) {
        sched_yield();
    }
}

static void when_remove_returns_nothing_lands(void **state)
{
    static writer_t writer;
    pthread_t thread;

    (void)state;
    fill();
    regx_rkey_table_init(&writer.rkeys, true);
    pthread_mutex_init(&writer.mutex, NULL);
    assert_int_equal(pthread_create(&thread, NULL, write_for_ever, &writer), 0);
    for (int round = 0; round < 200; round++) {
        regx_key_t key;
        void *handle = add_window(&writer.rkeys, REGX_ACCESS_REMOTE_WRITE, &key);

        pthread_mutex_lock(&writer.mutex);
        writer.key = key;
        pthread_mutex_unlock(&writer.mutex);
        wait_beyond(&writer.landed, atomic_load(&writer.landed));
        regx_rkey_table_remove(&writer.rkeys, handle);
        memset(memory, round, sizeof(memory));
        /* Two more: the second began after the memory was ours again. */
        wait_beyond(&writer.attempts, atomic_load(&writer.attempts) + 1);
        for (size_t i = 0; i < sizeof(memory); i++) {
            assert_int_equal(memory[i], (uint8_t)round);
        }
    }
    atomic_store(&writer.stop, true);
    pthread_join(thread, NULL);
    pthread_mutex_destroy(&writer.mutex);
    regx_rkey_table_fini(&writer.rkeys);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_write_lands_where_it_should),
        cmocka_unit_test(nothing_lands_outside),
        cmocka_unit_test(every_bit_of_the_key_counts),
        cmocka_unit_test(access_is_asked_for),
        cmocka_unit_test(a_closed_window_never_opens_again),
        cmocka_unit_test(the_table_grows_to_its_bound),
        cmocka_unit_test(when_remove_returns_nothing_lands),
    };

    return cmocka_run_group_tests_name("rkey_table", tests, NULL, NULL);
}

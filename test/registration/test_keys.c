/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How far a key reaches, on a real RDMA device: a peer that keeps the key of a buffer writes by it
 * after the transfer has ended. Where nothing is cached the device refuses it, and the memory stays
 * as it was. Where the registration is kept the peer's write arrives, until the cache lets go.
 * Where there is no device (test/machine has one) nothing is tried.
 */
#include "../below_room.h"
#include "unit.h"

#include <stdio.h>
#include <sys/mman.h>

#include "rig.h"

enum { LENGTH = 64 << 10 };

static rig_t rig;
static uint8_t *buffer;

static void open_with(const char *backend)
{
    const rig_config_t config = {.backend = backend, .count = 1, .admit = REGX_ADMIT_FIRST};
    char why[256];

    if (!rig_open(&rig, &config, why, sizeof(why))) {
        print_message("not tried: %s: %s\n", backend, why);
        skip();
    }
    buffer = map_below_room(LENGTH);
    assert_ptr_not_equal(buffer, MAP_FAILED);
    memset(buffer, 'o', LENGTH);
}

static void close_all(void)
{
    rig_close(&rig);
    munmap(buffer, LENGTH);
}

/* A transfer into that memory, which has ended: the peer still has the key. */
static regx_key_t used(uint8_t *memory)
{
    regx_region_t region;

    assert_int_equal(
        regx_region_acquire(&rig.registry, memory, LENGTH, REGX_ACCESS_REMOTE_WRITE, &region),
        REGX_OK);
    const regx_key_t key = region.mr->key;
    oracle_receive(rig.oracle, region.mr, memory, LENGTH, memory);
    regx_region_release(&rig.registry, &region);
    return key;
}

static bool is_all(const uint8_t *memory, uint8_t what)
{
    return memory[0] == what && memcmp(memory, memory + 1, LENGTH - 1) == 0;
}

static bool peer_writes(const regx_key_t *key, uint8_t what)
{
    uint8_t data[LENGTH];

    memset(data, what, LENGTH);
    return oracle_peer_writes(rig.oracle, key, 0, data, LENGTH);
}

static void let_go(void)
{
    while (atomic_load(&rig.counters.deregistrations) == 0) {
        regx_registry_progress(&rig.registry);
    }
}

static void without_a_cache_a_key_dies_with_its_use(void **state)
{
    (void)state;
    open_with("none");
    const regx_key_t key = used(buffer);
    assert_false(peer_writes(&key, 'x'));
    assert_true(is_all(buffer, 'o'));
    close_all();
}

/* Until it is evicted, here by another buffer. */
static void with_a_cache_a_key_lives_while_kept(void **state)
{
    (void)state;
    open_with("notifier");
    uint8_t *other = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const regx_key_t key = used(buffer);

    assert_true(peer_writes(&key, 'x'));
    assert_true(is_all(buffer, 'x'));
    used(other);
    let_go();
    assert_false(peer_writes(&key, 'y'));
    assert_true(is_all(buffer, 'x'));
    close_all();
    munmap(other, LENGTH);
}

/* Or until its memory changes: what is there now was never granted. */
static void a_key_does_not_outlive_its_memory(void **state)
{
    (void)state;
    open_with("notifier");
    const regx_key_t key = used(buffer);

    munmap(buffer, LENGTH);
    assert_ptr_equal(mmap(buffer, LENGTH, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0),
                     buffer);
    memset(buffer, 'n', LENGTH);
    let_go();
    assert_false(peer_writes(&key, 'x'));
    assert_true(is_all(buffer, 'n'));
    close_all();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_cache_a_key_dies_with_its_use),
        cmocka_unit_test(with_a_cache_a_key_lives_while_kept),
        cmocka_unit_test(a_key_does_not_outlive_its_memory),
    };

    rig_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

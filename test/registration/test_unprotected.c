/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Start here: why a registration cache has to be told of changes.
 *
 * A program sends a buffer, gives the memory back, gets new memory at the same address, and sends
 * that. A cache that goes by addresses alone finds the address registered, and the device sends
 * what it had pinned: the first buffer's bytes. Nothing fails, nothing is logged; the data is
 * wrong. `unprotected` is regx's cache with a watch that never tells of anything; the last test is
 * the same program with the backends that do.
 */
#include "unit.h"

#include <stdio.h>
#include <sys/mman.h>

#include "rig.h"

enum { LENGTH = 64 << 10 };

static rig_t rig;

static bool open_with(const char *backend)
{
    char why[256];

    if (rig_open(&rig, &(rig_config_t){.backend = backend}, why, sizeof(why))) {
        return true;
    }
    print_message("not tried: %s: %s\n", backend, why);
    return false;
}

/* New memory, at that address if one is given. */
static char *new_memory(char *at)
{
    char *memory =
        mmap(at, LENGTH, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | (at == NULL ? 0 : MAP_FIXED_NOREPLACE), -1, 0);

    assert_ptr_not_equal(memory, MAP_FAILED);
    return memory;
}

/* What the peer gets when the program sends its buffer. */
static char *sent(char *buffer)
{
    static char wire[LENGTH];
    regx_region_t region;

    assert_int_equal(regx_region_acquire(&rig.registry, buffer, LENGTH, REGX_ACCESS_LOCAL, &region),
                     REGX_OK);
    oracle_send(rig.oracle, region.mr, buffer, LENGTH, wire);
    regx_region_release(&rig.registry, &region);
    return wire;
}

/* What is in the program's buffer when a peer has sent it `content`. */
static char *received(char *buffer, char content)
{
    static char wire[LENGTH];
    regx_region_t region;

    memset(wire, content, LENGTH);
    assert_int_equal(
        regx_region_acquire(&rig.registry, buffer, LENGTH, REGX_ACCESS_REMOTE_WRITE, &region),
        REGX_OK);
    oracle_receive(rig.oracle, region.mr, buffer, LENGTH, wire);
    regx_region_release(&rig.registry, &region);
    return buffer;
}

static void an_unprotected_cache_sends_old_bytes(void **state)
{
    (void)state;
    if (!open_with("unprotected")) {
        skip();
    }
    char *buffer = new_memory(NULL);
    memset(buffer, 'a', LENGTH);
    assert_int_equal(sent(buffer)[0], 'a');

    munmap(buffer, LENGTH);
    new_memory(buffer);
    memset(buffer, 'b', LENGTH);

    assert_int_equal(sent(buffer)[0], 'a'); /* wrong, and nobody noticed */
    assert_int_equal(sent(buffer)[LENGTH - 1], 'a');

    munmap(buffer, LENGTH);
    rig_close(&rig);
}

static void an_unprotected_cache_loses_what_is_received(void **state)
{
    (void)state;
    if (!open_with("unprotected")) {
        skip();
    }
    char *buffer = new_memory(NULL);
    memset(buffer, 'a', LENGTH);
    assert_int_equal(received(buffer, 'x')[0], 'x');

    munmap(buffer, LENGTH);
    new_memory(buffer);
    memset(buffer, 'b', LENGTH);

    assert_int_equal(received(buffer, 'y')[0], 'b'); /* it went to pages that nobody sees */

    munmap(buffer, LENGTH);
    rig_close(&rig);
}

static void every_backend_does_better(void **state)
{
    unsigned tried = 0;

    (void)state;
    for (const char *const *backend = rig_backends; *backend != NULL; backend++) {
        if (strcmp(*backend, "unprotected") == 0 || strcmp(*backend, "retain") == 0 ||
            !open_with(*backend)) {
            continue; /* retain is for memory from malloc alone */
        }
        tried++;
        char *buffer = new_memory(NULL);
        memset(buffer, 'a', LENGTH);
        assert_int_equal(sent(buffer)[0], 'a');
        assert_int_equal(received(buffer, 'x')[0], 'x');

        munmap(buffer, LENGTH);
        new_memory(buffer);
        memset(buffer, 'b', LENGTH);

        assert_int_equal(sent(buffer)[0], 'b');
        assert_int_equal(sent(buffer)[LENGTH - 1], 'b');
        assert_int_equal(received(buffer, 'y')[0], 'y');

        munmap(buffer, LENGTH);
        rig_close(&rig);
    }
    if (tried == 0) {
        skip();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_unprotected_cache_sends_old_bytes),
        cmocka_unit_test(an_unprotected_cache_loses_what_is_received),
        cmocka_unit_test(every_backend_does_better),
    };

    rig_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

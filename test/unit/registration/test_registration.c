/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Registration with backend `none`, over a transport that only counts and can refuse.
 */
#include "../unit.h"

#include "registration/registration.h"

typedef struct fake {
    regx_transport_t transport;
    unsigned regs; /* calls of reg */
    unsigned deregs;
    unsigned live;
    unsigned refuse; /* the number of the call of reg that is refused; 0: none */
    regx_status_t refusal;
} fake_t;

static regx_status_t fake_reg(regx_transport_t *transport, void *base, size_t length,
                              unsigned access, regx_mr_t *mr)
{
    fake_t *fake = (fake_t *)transport;

    if (++fake->regs == fake->refuse) {
        return fake->refusal;
    }
    *mr = (regx_mr_t){.base = base, .length = length, .access = access, .handle = fake};
    memset(&mr->key, (int)fake->regs, sizeof(mr->key));
    fake->live++;
    return REGX_OK;
}

static void fake_dereg(regx_transport_t *transport, regx_mr_t *mr)
{
    fake_t *fake = (fake_t *)transport;

    assert_ptr_equal(mr->handle, fake);
    fake->deregs++;
    fake->live--;
    memset(mr, 0xee, sizeof(*mr)); /* what a real one may do: nothing of it may be used after */
}

static const regx_transport_ops_t fake_ops = {
    .abi = REGX_TRANSPORT_ABI, .name = "fake", .reg = fake_reg, .dereg = fake_dereg};

static char buffer[1 << 16];

static void each_use_registers_exactly_what_is_asked(void **state)
{
    regx_counters_t counters = {0};
    fake_t fake = {.transport = {.ops = &fake_ops}};
    regx_registry_t registry;
    regx_region_t region;

    (void)state;
    regx_registry_open(&registry, &regx_backend_none, NULL, NULL, &fake.transport, &counters);
    assert_string_equal(registry.backend->name, "none");
    for (unsigned i = 1; i <= 3; i++) {
        /* The same range every time: nothing is kept. */
        assert_int_equal(
            regx_region_acquire(&registry, buffer + 5, 1000, REGX_ACCESS_REMOTE_WRITE, &region),
            REGX_OK);
        assert_ptr_equal(region.mr->base, buffer + 5);
        assert_int_equal(region.mr->length, 1000);
        assert_int_equal(region.mr->access, REGX_ACCESS_REMOTE_WRITE);
        assert_int_equal(region.mr->key.bytes[REGX_KEY_SIZE - 1], i);
        assert_int_equal(fake.live, 1);
        assert_int_equal(counters.registered_bytes, 1000);
        regx_region_release(&registry, &region);
        assert_int_equal(fake.live, 0);
        assert_int_equal(counters.registered_bytes, 0);
        assert_int_equal(counters.registrations, i);
        assert_int_equal(counters.deregistrations, i);
        assert_int_equal(counters.uncached, i);
    }
    assert_int_equal(counters.hits, 0);
    assert_int_equal(counters.misses, 0);
    assert_int_equal(counters.registered_high, 1000);
}

static void a_refusal_is_told_and_leaves_nothing(void **state)
{
    enum { TRIES = 6 };
    static const regx_status_t refusals[] = {REGX_NO_MEMORY, REGX_DENIED};

    (void)state;
    for (size_t r = 0; r < sizeof(refusals) / sizeof(refusals[0]); r++) {
        for (unsigned nth = 1; nth <= TRIES; nth++) {
            regx_counters_t counters = {0};
            fake_t fake = {.transport = {.ops = &fake_ops}, .refuse = nth, .refusal = refusals[r]};
            regx_registry_t registry;
            regx_region_t regions[TRIES];
            regx_status_t status[TRIES];

            regx_registry_open(&registry, &regx_backend_none, NULL, NULL, &fake.transport,
                               &counters);
            for (unsigned i = 0; i < TRIES; i++) {
                status[i] = regx_region_acquire(&registry, buffer, 4096, REGX_ACCESS_REMOTE_WRITE,
                                                &regions[i]);
                assert_int_equal(status[i], i + 1 == nth ? refusals[r] : REGX_OK);
            }
            /* Once refused it is not tried again: the caller bounces instead. */
            assert_int_equal(fake.regs, TRIES);
            assert_int_equal(counters.registrations, TRIES - 1);
            assert_int_equal(counters.registered_bytes, (TRIES - 1) * 4096);
            for (unsigned i = 0; i < TRIES; i++) {
                if (status[i] == REGX_OK) {
                    regx_region_release(&registry, &regions[i]);
                }
            }
            assert_int_equal(fake.live, 0);
            assert_int_equal(fake.deregs, TRIES - 1);
            assert_int_equal(counters.deregistrations, TRIES - 1);
            assert_int_equal(counters.registered_bytes, 0);
        }
    }
}

/* ---- no more at a time than is allowed ---- */

enum { BOUND = 10000 };

static void open_bounded(regx_registry_t *registry, fake_t *fake, regx_counters_t *counters)
{
    const regx_cache_config_t config = {.once_bytes = (uint64_t)2 * BOUND};

    fake->transport.ops = &fake_ops;
    assert_int_equal(
        regx_registry_open(registry, &regx_backend_none, NULL, &config, &fake->transport, counters),
        REGX_OK);
}

static regx_status_t use(regx_registry_t *registry, size_t length, regx_region_t *region)
{
    return regx_region_acquire(registry, buffer, length, REGX_ACCESS_LOCAL, region);
}

static void what_would_pin_too_much_is_refused(void **state)
{
    regx_counters_t counters = {0};
    fake_t fake = {.transport = {.registers = true}};
    regx_registry_t registry;
    regx_region_t first, second, third;

    (void)state;
    open_bounded(&registry, &fake, &counters);
    assert_int_equal(use(&registry, BOUND + 1, &first), REGX_NO_MEMORY);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(use(&registry, BOUND - 1000, &first), REGX_OK);
        assert_int_equal(use(&registry, 1001, &second), REGX_NO_MEMORY);
        assert_int_equal(use(&registry, 1000, &second), REGX_OK);
        assert_int_equal(use(&registry, 1, &third), REGX_NO_MEMORY);
        /* The other direction has as much. */
        assert_int_equal(
            regx_region_acquire(&registry, buffer, BOUND, REGX_ACCESS_REMOTE_WRITE, &third),
            REGX_OK);
        regx_region_release(&registry, &third);
        regx_region_release(&registry, &first);
        assert_int_equal(use(&registry, BOUND - 1000, &third), REGX_OK);
        regx_region_release(&registry, &second);
        regx_region_release(&registry, &third);
    }
    assert_int_equal(fake.regs, 12); /* the device was not asked for the others */
    assert_int_equal(counters.registered_high, 2 * BOUND);
    assert_int_equal(fake.live, 0);
}

static void what_the_device_refuses_takes_no_room(void **state)
{
    regx_counters_t counters = {0};
    fake_t fake = {.transport = {.registers = true}, .refuse = 1, .refusal = REGX_DENIED};
    regx_registry_t registry;
    regx_region_t region;

    (void)state;
    open_bounded(&registry, &fake, &counters);
    assert_int_equal(use(&registry, BOUND, &region), REGX_DENIED);
    assert_int_equal(use(&registry, BOUND, &region), REGX_OK);
    regx_region_release(&registry, &region);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_use_registers_exactly_what_is_asked),
        cmocka_unit_test(a_refusal_is_told_and_leaves_nothing),
        cmocka_unit_test(what_would_pin_too_much_is_refused),
        cmocka_unit_test(what_the_device_refuses_takes_no_room),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

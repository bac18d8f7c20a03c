/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Backend `odp` over a device that only notes what it is asked: what is registered how, what is
 * prefetched when, and memory that is not there.
 */
#include "../unit.h"

#include "registration/registry.h"

enum { PAGE = 4096, SIZE = 8 * PAGE };

static struct fake {
    regx_transport_t transport;
    char calls[64]; /* r: registered on demand, R: pinned, p: prefetch, d: deregistered */
    unsigned live, access;
    unsigned refuse_advice; /* to regions of that access */
    bool notes_advice;      /* whatever it is, with success, unless that is waited for */
    const void *base;       /* of the last prefetch, … */
    size_t length;
    const regx_mr_t *mr;
} fake;

static void note(char call)
{
    const size_t length = strlen(fake.calls);

    assert_true(length + 1 < sizeof(fake.calls));
    fake.calls[length] = call;
}

static regx_status_t fake_reg(regx_transport_t *transport, void *base, size_t length,
                              unsigned access, regx_mr_t *mr)
{
    assert_ptr_equal(transport, &fake.transport);
    note((access & REGX_ACCESS_ON_DEMAND) != 0 ? 'r' : 'R');
    fake.access = access;
    fake.live++;
    *mr = (regx_mr_t){.base = base, .length = length, .access = access};
    return REGX_OK;
}

static void fake_dereg(regx_transport_t *transport, regx_mr_t *mr)
{
    note('d');
    fake.live--;
}

static regx_status_t fake_on_demand(regx_transport_t *transport, regx_error_t error)
{
    transport->on_demand_grain = transport->on_demand_grain == 0 ? 1 : transport->on_demand_grain;
    return REGX_OK;
}

static regx_status_t fake_prefetch(regx_transport_t *transport, const regx_mr_t *mr,
                                   const void *base, size_t length, bool wait)
{
    if ((mr->access & fake.refuse_advice) != 0 && (wait || !fake.notes_advice)) {
        return REGX_DENIED;
    }
    assert_true((const char *)base >= (const char *)mr->base);
    assert_true((const char *)base + length <= (const char *)mr->base + mr->length);
    note('p');
    fake.mr = mr;
    fake.base = base;
    fake.length = length;
    return REGX_OK;
}

static const regx_transport_ops_t fake_ops = {.name = "fake",
                                              .reg = fake_reg,
                                              .dereg = fake_dereg,
                                              .on_demand = fake_on_demand,
                                              .prefetch = fake_prefetch};

static regx_counters_t counters;
static regx_backend_choice_t choice;
static regx_registry_t registry;
static char *memory; /* not touched yet */

#define NO_ADVICE (REGX_ACCESS_LOCAL | REGX_ACCESS_REMOTE_WRITE) /* pages are touched */

/* refuse_advice: for which uses the device takes none. */
static void open_device(unsigned refuse_advice, bool notes_advice, size_t grain)
{
    const regx_cache_config_t cache = {.bytes = REGX_UNLIMITED, .count = 16};
    regx_error_t error;

    memset(&counters, 0, sizeof(counters));
    fake = (struct fake){.transport = {.ops = &fake_ops, .on_demand_grain = grain},
                         .refuse_advice = refuse_advice,
                         .notes_advice = notes_advice};
    const regx_monitor_config_t config = {.transport = &fake.transport, .counters = &counters};
    assert_int_equal(regx_backend_choose("odp", false, &config, &choice, error), REGX_OK);
    assert_int_equal(
        regx_registry_open(&registry, choice.monitor, &cache, &fake.transport, &counters), REGX_OK);
    assert_int_equal(fake.live, 0); /* what the start tried */
    memset(fake.calls, 0, sizeof(fake.calls));
    memory = unit_map(NULL, SIZE);
}

static int close_all(void **state)
{
    regx_registry_close(&registry);
    choice.monitor->stop(choice.monitor);
    munmap(memory, SIZE);
    assert_int_equal(fake.live, 0);
    return 0;
}

static regx_status_t use(char *base, size_t length, unsigned access)
{
    regx_region_t region;
    const regx_status_t status = regx_region_acquire(&registry, base, length, access, &region);

    if (status == REGX_OK) {
        regx_region_release(&registry, &region);
    }
    return status;
}

static unsigned pages_in_memory(void)
{
    unsigned char there[SIZE / PAGE];
    unsigned count = 0;

    assert_int_equal(mincore(memory, SIZE, there), 0);
    for (size_t i = 0; i < sizeof(there); i++) {
        count += there[i] & 1u;
    }
    return count;
}

static uint64_t fell_back(const char *reason)
{
    return regx_tally_find(counters.fallbacks, reason)->count;
}

UNIT_TEST_BETWEEN(each_use_is_prefetched_once_it_is_registered, NULL, close_all)
{
    regx_region_t region;

    open_device(0, false, 1);
    assert_int_equal(
        regx_region_acquire(&registry, memory + 10, 5000, REGX_ACCESS_REMOTE_WRITE, &region),
        REGX_OK);
    assert_string_equal(fake.calls, "rp");
    assert_int_equal(fake.access, REGX_ACCESS_REMOTE_WRITE | REGX_ACCESS_ON_DEMAND);
    assert_ptr_equal(fake.mr, region.mr);
    assert_ptr_equal(fake.base, memory + 10);
    assert_int_equal(fake.length, 5000);
    regx_region_release(&registry, &region);
    assert_int_equal(use(memory + PAGE, 100, REGX_ACCESS_REMOTE_WRITE), REGX_OK);
    assert_int_equal(use(memory + 10, 5000, REGX_ACCESS_LOCAL), REGX_OK);
    regx_registry_count(&registry);
    assert_string_equal(fake.calls, "rppdrp"); /* one for both makes the first superfluous */
    assert_int_equal(counters.hits, 1);
    assert_int_equal(counters.misses, 2);
    assert_int_equal(counters.prefetch_touched, 0);
    assert_int_equal(pages_in_memory(), 0);
}

UNIT_TEST_BETWEEN(touching_maps_pages_and_changes_none, NULL, close_all)
{
    open_device(NO_ADVICE, false, 1);
    memory[2 * PAGE] = 'x';
    assert_int_equal(use(memory + 10, 3 * PAGE, REGX_ACCESS_REMOTE_WRITE), REGX_OK);
    assert_string_equal(fake.calls, "r");
    assert_int_equal(pages_in_memory(), 4);
    assert_int_equal(memory[2 * PAGE], 'x');
    assert_int_equal(counters.prefetch_touched, 1);
    /* To be read, it need not be writable; to be written, it must. */
    assert_int_equal(mprotect(memory, SIZE, PROT_READ), 0);
    assert_int_equal(use(memory, SIZE, REGX_ACCESS_LOCAL), REGX_OK);
    assert_int_equal(use(memory, SIZE, REGX_ACCESS_REMOTE_WRITE), REGX_DENIED);
    assert_int_equal(counters.prefetch_touched, 2);
}

UNIT_TEST_BETWEEN(advice_that_is_not_taken_is_touched_instead, NULL, close_all)
{
    open_device(REGX_ACCESS_LOCAL, false, 1);
    assert_int_equal(use(memory, PAGE, REGX_ACCESS_REMOTE_WRITE), REGX_OK);
    assert_string_equal(fake.calls, "rp");
    assert_int_equal(pages_in_memory(), 0);
    assert_int_equal(use(memory + PAGE, PAGE, REGX_ACCESS_LOCAL), REGX_OK);
    assert_string_equal(fake.calls, "rpr");
    assert_int_equal(pages_in_memory(), 1);
    /* And one that is taken no more does no harm. */
    fake.refuse_advice = REGX_ACCESS_REMOTE_WRITE;
    assert_int_equal(use(memory, PAGE, REGX_ACCESS_REMOTE_WRITE), REGX_OK);
    assert_int_equal(fell_back("odp: advice refused, no prefetch"), 1);
    assert_int_equal(counters.prefetch_touched, 1);
}

/* Of memory that may not be used it would say so as little. */
UNIT_TEST_BETWEEN(advice_that_is_only_noted_is_touched_instead, NULL, close_all)
{
    open_device(NO_ADVICE, true, 1);
    assert_int_equal(use(memory, PAGE, REGX_ACCESS_REMOTE_WRITE), REGX_OK);
    assert_string_equal(fake.calls, "r");
    assert_int_equal(pages_in_memory(), 1);
    assert_int_equal(mprotect(memory, PAGE, PROT_READ), 0);
    assert_int_equal(use(memory, PAGE, REGX_ACCESS_REMOTE_WRITE), REGX_DENIED);
}

/* The device would fail, so it is not asked; and when it is there again, it is. */
static void missing_memory_is_denied(unsigned refuse_advice)
{
    open_device(refuse_advice, false, 1);
    assert_int_equal(use(memory, SIZE, REGX_ACCESS_LOCAL), REGX_OK);
    assert_int_equal(munmap(memory + 3 * PAGE, PAGE), 0);
    memset(fake.calls, 0, sizeof(fake.calls));
    assert_int_equal(use(memory, SIZE, REGX_ACCESS_LOCAL), REGX_DENIED);
    assert_int_equal(use(memory + 3 * PAGE - 1, 2, REGX_ACCESS_LOCAL), REGX_DENIED);
    assert_string_equal(fake.calls, "");
    assert_int_equal(use(memory, 3 * PAGE, REGX_ACCESS_LOCAL), REGX_OK);
    unit_map(memory + 3 * PAGE, PAGE);
    assert_int_equal(use(memory, SIZE, REGX_ACCESS_LOCAL), REGX_OK);
    assert_int_equal(counters.registrations, 1);
}

UNIT_TEST_BETWEEN(missing_memory_is_denied_however_prefetched, NULL, close_all)
{
    missing_memory_is_denied(0);
    close_all(state);
    missing_memory_is_denied(NO_ADVICE);
}

UNIT_TEST_BETWEEN(what_the_device_errs_with_is_pinned_for_one_use, NULL, close_all)
{
    regx_region_t region;

    open_device(0, false, PAGE);
    assert_int_equal(use(memory, SIZE, REGX_ACCESS_LOCAL), REGX_OK);
    assert_int_equal(regx_region_acquire(&registry, memory + 8, 100, REGX_ACCESS_LOCAL, &region),
                     REGX_OK);
    assert_int_equal(fake.access, REGX_ACCESS_LOCAL);
    assert_ptr_equal(region.mr->base, memory + 8);
    assert_string_equal(fake.calls, "rpR");
    regx_region_release(&registry, &region);
    assert_string_equal(fake.calls, "rpRd");
    assert_int_equal(use(memory + PAGE, 100, REGX_ACCESS_LOCAL), REGX_OK);
    assert_string_equal(fake.calls, "rpRdp");
    assert_int_equal(counters.uncached, 1);
    assert_int_equal(fell_back("odp: pinned, not where a page begins"), 1);
}

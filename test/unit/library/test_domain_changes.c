/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The library: what it does not keep, gives back by itself, or tells of. On a device in memory.
 * (That memory which changed is registered anew: test/registration/test_library.py, by what arrives.)
 */
#include "domain.h"

/* Its changes are not reported. */
DOMAIN_TEST(shared_memory_is_not_kept_and_that_is_said, "notifier")
{
    char *base = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const char *const said = "not watched: shared memory";
    const uint64_t before = domain_fell_back(domain, said);
    const char *reason;
    uint64_t count;

    assert_ptr_not_equal(base, MAP_FAILED);
    for (int i = 0; i < 3; i++) {
        domain_use(domain, base, LENGTH, TO_SEND);
    }
    assert_int_equal(domain_statistics(domain).hits, 0);
    assert_int_equal(domain_statistics(domain).uncached, 3);
    assert_int_equal(domain_fell_back(domain, said), before + 3);
    assert_int_not_equal(regx_domain_fallback(domain, 1000, &reason, &count), 0);
    munmap(base, LENGTH);
}

DOMAIN_TEST(what_was_freed_is_deregistered_without_another_call, "notifier")
{
    char *base = domain_map(LENGTH);
    const uint32_t key = domain_use(domain, base, LENGTH, TO_SEND);

    munmap(base, LENGTH);
    await(!domain_is_registered(key, base, LENGTH, 0)); /* or the alarm rings */
}

static unsigned told;

static void note(void *context, const void *base, size_t length)
{
    assert_ptr_equal(context, &told);
    assert_non_null(base);
    assert_true(length > 0);
    told++;
}

UNIT_TEST(a_change_of_memory_in_use_is_told_of)
{
    const regx_domain_options_t options = {
        .size = sizeof(options), .backend = "notifier", .changed_in_use = note, .context = &told};
    regx_domain_t *domain = domain_open("notifier"); /* or it is skipped */
    char *base = domain_map(LENGTH);
    regx_use_t use;

    told = 0;
    regx_domain_close(domain);
    assert_int_equal(regx_domain_open(pd, &options, &domain, refusal, sizeof(refusal)), 0);
    domain_use(domain, base, LENGTH, TO_SEND);
    munmap(base, LENGTH); /* allowed */
    base = domain_map(LENGTH);
    regx_domain_progress(domain);
    assert_int_equal(told, 0);
    domain_acquire(domain, base, LENGTH, TO_SEND, &use);
    assert_int_equal(domain_statistics(domain).misses, 2); /* both were kept */
    munmap(base, LENGTH);                                  /* not allowed */
    until(domain_statistics(domain).invalidations >= 2, regx_domain_progress(domain));
    assert_true(domain_is_registered(use.mr->lkey, base, LENGTH, 0));
    regx_domain_release(domain, &use);
    assert_int_equal(domain_statistics(domain).inuse_changes, 1);
    regx_domain_close(domain);
    assert_int_equal(told, 1);
}

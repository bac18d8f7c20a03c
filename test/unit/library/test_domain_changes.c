/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The library: memory that changed is registered anew, whatever thread or call changed it. On
 * a device in memory.
 */
#include "domain.h"

#include <sys/syscall.h>

DOMAIN_TEST(memory_unmapped_past_libc_is_registered_anew, "notifier")
{
    char *base = domain_map(LENGTH);
    const uint32_t key = domain_use(domain, base, LENGTH, FOR_PEERS);

    assert_int_equal(domain_use(domain, base, LENGTH, FOR_PEERS), key);
    assert_int_equal(syscall(SYS_munmap, base, LENGTH), 0);
    assert_int_equal(syscall(SYS_mmap, base, LENGTH, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
                     (long)base);
    assert_int_not_equal(domain_use(domain, base, LENGTH, FOR_PEERS), key);
    assert_int_equal(domain_statistics(domain).hits, 1);
    munmap(base, LENGTH);
}

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

enum { THREADS = 3, ROUNDS = 300 };

/* Each maps memory, which is often where another thread's was, and gives it back past libc. */
static void *map_and_use(void *domain)
{
    for (int i = 0; i < ROUNDS; i++) {
        const size_t length = (size_t)(1 + i % 4) * PAGE;
        char *base = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        regx_use_t use[2];

        for (int n = 0; n < 2; n++) {
            if (base == MAP_FAILED ||
                regx_domain_acquire(domain, base, length, FOR_PEERS, &use[n]) != 0 ||
                !domain_is_registered(use[n].mr->rkey, base, length, FOR_PEERS)) {
                return domain;
            }
        }
        regx_domain_release(domain, &use[1]);
        regx_domain_release(domain, &use[0]);
        syscall(SYS_munmap, base, length);
    }
    return NULL;
}

DOMAIN_TEST(threads_that_map_and_unmap_find_their_own, "notifier")
{
    pthread_t threads[THREADS];

    for (int i = 0; i < THREADS; i++) {
        threads[i] = unit_thread(map_and_use, domain);
    }
    for (int i = 0; i < THREADS; i++) {
        void *failed;

        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    const regx_statistics_t seen = domain_statistics(domain);
    assert_int_equal(seen.hits + seen.misses + seen.uncached, 2 * THREADS * ROUNDS);
}

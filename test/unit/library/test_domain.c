/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The library: what it takes and refuses, what is kept, and what it tells of itself. On a device in
 * memory.
 */
#include "domain.h"

#include "../transport/verbs/fake_device.h"

UNIT_TEST(memory_used_again_is_registered_once)
{
    regx_domain_t *domain = domain_open("notifier");
    char *base = domain_map(LENGTH);
    const uint32_t key = domain_use(domain, base, LENGTH, FOR_PEERS);

    for (int i = 0; i < 100; i++) {
        assert_int_equal(domain_use(domain, base + i, LENGTH - 100, FOR_PEERS), key);
    }
    const regx_statistics_t seen = domain_statistics(domain);
    assert_int_equal(seen.registrations, 1);
    assert_int_equal(seen.misses, 1);
    assert_int_equal(seen.hits, 100);
    assert_int_equal(seen.registered_bytes, LENGTH);
    regx_domain_close(domain);
    assert_false(domain_is_registered(key, base, LENGTH, 0));
    munmap(base, LENGTH);
}

DOMAIN_TEST(none_keeps_nothing, "none")
{
    char *base = domain_map(LENGTH);
    const char *reason;

    for (uint64_t i = 1; i <= 3; i++) {
        const uint32_t key = domain_use(domain, base + 5, 1000, TO_RECEIVE);

        assert_false(domain_is_registered(key, base + 5, 1000, 0));
        assert_int_equal(domain_statistics(domain).deregistrations, i);
    }
    assert_int_equal(domain_statistics(domain).uncached, 3);
    assert_int_equal(domain_statistics(domain).hits, 0);
    assert_string_equal(regx_domain_backend(domain, &reason), "none");
    assert_string_equal(reason, "asked for");
    munmap(base, LENGTH);
}

/* What was registered to be sent from is not received into by the same key. */
UNIT_TEST(each_use_has_the_access_that_it_asked_for)
{
    static const int wanted[] = {TO_SEND, TO_RECEIVE, IBV_ACCESS_REMOTE_READ,
                                 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, FOR_PEERS};
    static const char *const backends[] = {"none", "notifier"};
    const int count = sizeof(wanted) / sizeof(wanted[0]);

    for (int b = 0; b < 2; b++) {
        regx_domain_t *domain = domain_open(backends[b]);

        for (int i = 0; i < count * count; i++) {
            char *base = domain_map(LENGTH);

            domain_use(domain, base, LENGTH, wanted[i / count]); /* checks it */
            domain_use(domain, base, LENGTH, wanted[i % count]);
            munmap(base, LENGTH);
        }
        regx_domain_close(domain);
    }
}

UNIT_TEST(what_cannot_be_used_is_refused)
{
    static const char *const backends[] = {"none", "notifier"};

    for (int b = 0; b < 2; b++) {
        regx_domain_t *domain = domain_open(backends[b]);
        char *base = domain_map(LENGTH);
        void *last = (void *)(UINTPTR_MAX - PAGE);
        regx_use_t use;

        assert_int_equal(regx_domain_acquire(domain, base, 0, TO_SEND, &use), EINVAL);
        assert_int_equal(regx_domain_acquire(domain, last, LENGTH, TO_SEND, &use), EINVAL);
        assert_int_equal(regx_domain_acquire(domain, base, SIZE_MAX, TO_SEND, &use), EINVAL);
        assert_int_equal(regx_domain_acquire(domain, base, PAGE, IBV_ACCESS_REMOTE_WRITE, &use),
                         EINVAL);
        assert_int_equal(regx_domain_acquire(domain, base, PAGE, IBV_ACCESS_ON_DEMAND, &use),
                         EINVAL);
        assert_int_equal(regx_domain_acquire(domain, base, PAGE, IBV_ACCESS_REMOTE_ATOMIC, &use),
                         EINVAL);
        fake.register_error = ENOMEM;
        assert_int_equal(regx_domain_acquire(domain, base, PAGE, TO_SEND, &use), ENOMEM);
        fake.register_error = EPERM;
        assert_int_equal(regx_domain_acquire(domain, base, PAGE, TO_SEND, &use), EFAULT);
        fake.register_error = 0;
        /* Not unmapped: other memory, malloc's for one, might come there at once. */
        assert_int_equal(mprotect(base, LENGTH, PROT_NONE), 0);
        assert_int_equal(regx_domain_acquire(domain, base, PAGE, TO_SEND, &use), EFAULT);
        munmap(base, LENGTH);
        assert_int_equal(domain_statistics(domain).registrations, 0);
        regx_domain_close(domain);
    }
}

UNIT_TEST(wrong_options_are_refused_in_one_line)
{
    regx_domain_options_t options = {.size = sizeof(options)};
    regx_domain_t *domain = NULL;

    assert_int_equal(domain_refused("hoks"), EINVAL);
    assert_string_equal(refusal, "backend=hoks is not known; allowed: auto, none, hooks, "
                                 "notifier, hooks+notifier, kernel, retain");
    assert_int_equal(domain_refused("odp"), EINVAL);
    options.size--;
    assert_int_equal(regx_domain_open(pd, &options, &domain, refusal, sizeof(refusal)), EINVAL);
    assert_non_null(strstr(refusal, "options.size"));
    assert_int_equal(regx_domain_open(pd, &options, &domain, NULL, 0), EINVAL);
    assert_null(domain);
}

UNIT_TEST(without_options_it_is_auto)
{
    regx_domain_t *domain;
    const char *reason = "", *backend;

    assert_int_equal(regx_domain_open(pd, NULL, &domain, NULL, 0), 0);
    backend = regx_domain_backend(domain, &reason);
    if (strcmp(backend, "none") == 0) {
        assert_ptr_equal(strstr(reason, "notifier: "), reason); /* why not */
    } else {
        assert_string_equal(backend, "notifier");
    }
    regx_domain_close(domain);
}

UNIT_TEST(all_domains_of_a_process_share_one_backend)
{
    regx_domain_t *first = domain_open("notifier"), *second = domain_open("auto"),
                  *third = domain_open("none");
    char *base = domain_map(LENGTH);

    assert_string_equal(regx_domain_backend(second, NULL), "notifier");
    assert_int_equal(domain_refused("retain"), EBUSY);
    assert_string_equal(refusal, "backend=retain: another domain of this process has notifier");
    /* Each has its own registrations. */
    assert_int_not_equal(domain_use(first, base, LENGTH, TO_SEND),
                         domain_use(second, base, LENGTH, TO_SEND));
    regx_domain_close(first);
    regx_domain_close(third);
    /* What the other one needs still runs. */
    domain_use(second, base, LENGTH, TO_SEND);
    assert_int_equal(domain_statistics(second).hits, 1);
    munmap(base, LENGTH);
    assert_int_equal(domain_refused("retain"), EBUSY);
    regx_domain_close(second);
    assert_int_not_equal(domain_refused("hooks"), EBUSY);
}

DOMAIN_TEST(a_shorter_structure_is_filled_in_as_far_as_it_goes, "none")
{
    char *base = domain_map(LENGTH);
    regx_statistics_t statistics;

    memset(&statistics, 0xee, sizeof(statistics));
    domain_use(domain, base, LENGTH, TO_SEND);
    regx_domain_statistics(domain, &statistics, sizeof(uint64_t));
    assert_int_equal(statistics.registrations, 1);
    assert_int_equal(statistics.deregistrations, UINT64_C(0xeeeeeeeeeeeeeeee));
    munmap(base, LENGTH);
}

/* The last one: `retain` stays. */
UNIT_TEST(the_words_for_backends_can_be_opened_or_say_why_not)
{
    const char *word;
    unsigned count = 0;

    assert_string_equal(regx_domain_backends(0), "auto");
    for (; (word = regx_domain_backends(count)) != NULL; count++) {
        const regx_domain_options_t options = {.size = sizeof(options), .backend = word};
        regx_domain_t *domain;
        const int result = regx_domain_open(pd, &options, &domain, refusal, sizeof(refusal));

        if (result == 0) {
            assert_true(strcmp(word, "auto") == 0 ||
                        strcmp(word, regx_domain_backend(domain, NULL)) == 0);
            regx_domain_close(domain);
        } else {
            assert_int_equal(result, EOPNOTSUPP);
            assert_non_null(strstr(refusal, word));
        }
    }
    assert_int_equal(count, 7);
}

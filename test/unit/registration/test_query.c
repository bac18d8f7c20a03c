/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The query that a hit makes by itself, a system call, rather than by the monitor. The test answers
 * it: it is caught (seccomp), so that whatever the test likes can happen within it.
 */
#include "registry.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <ucontext.h>

#ifdef __x86_64__
#define RESULT(machine) (machine)->gregs[REG_RAX]
#elif defined(__aarch64__)
#define RESULT(machine) (machine)->regs[0]
#endif

#ifdef RESULT

static const regx_uffd_t uffd = {.fd = -1, .pagemap = -1};

typedef struct query {
    registry_t *r;
    void (*within)(registry_t *r);
    bool changing; /* the answer: a change is under way */
    unsigned count;
} query_t;

static query_t query;

static void answer(int signal, siginfo_t *info, void *context)
{
    mcontext_t *machine = &((ucontext_t *)context)->uc_mcontext;

    (void)signal, (void)info;
    query.count++;
    if (query.within != NULL) {
        query.within(query.r);
    }
    RESULT(machine) = query.changing ? -EAGAIN : -EINVAL;
}

/* false: this machine does not let us. */
static bool catch_queries(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)-1, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {.len = sizeof(filter) / sizeof(filter[0]), .filter = filter};

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/* With one region; its hits ask by themselves. */
static registry_t *begin(void)
{
    const struct sigaction action = {.sa_sigaction = answer, .sa_flags = SA_SIGINFO};
    registry_t *r = registry_open_large(true);

    /* In each test: cmocka takes the signal for itself before it. */
    assert_int_equal(sigaction(SIGSYS, &action, NULL), 0);
    registry_use(r, 0x100000, PAGE);
    r->cache->query = &uffd;
    r->asks = 0;
    query = (query_t){.r = r};
    return r;
}

static void a_hit_asks_by_itself_once(void **state)
{
    registry_t *r = begin();

    (void)state;
    for (unsigned i = 1; i <= 3; i++) {
        assert_int_equal(registry_served(r, 0x100000, PAGE), HIT);
        assert_int_equal(query.count, i);
    }
    assert_int_equal(r->asks, 0);
    registry_close(r);
}

static void while_a_change_is_under_way_nothing_hits(void **state)
{
    registry_t *r = begin();

    (void)state;
    query.changing = r->changing = true;
    assert_int_equal(registry_served(r, 0x100000, PAGE), ONCE);
    assert_int_equal(query.count, 1);
    query.changing = r->changing = false;
    assert_int_equal(registry_served(r, 0x100000, PAGE), HIT);
    assert_int_equal(query.count, 2);
    registry_close(r);
}

/* It is over when the slow path asks the monitor. */
static void a_change_that_ends_after_the_query_is_a_hit_after_all(void **state)
{
    registry_t *r = begin();

    (void)state;
    query.changing = true;
    assert_int_equal(registry_served(r, 0x100000, PAGE), HIT);
    assert_int_equal(query.count, 1);
    assert_int_equal(r->asks, 1);
    registry_close(r);
}

static void log_it(registry_t *r)
{
    registry_log(r, 0x100000, PAGE);
}

static void take_news(registry_t *r)
{
    r->monitor.log->sequence++;
}

/* The query comes first: what it does not see any more is in the log or on its way there. */
static void what_ends_within_the_query_is_seen(void **state)
{
    registry_t *r = begin();

    (void)state;
    query.within = log_it;
    assert_int_equal(registry_served(r, 0x100000, PAGE), MISS);
    assert_int_equal(query.count, 1);
    query.within = take_news;
    assert_int_equal(registry_served(r, 0x100000, PAGE), ONCE);
    assert_int_equal(query.count, 2);
    registry_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hit_asks_by_itself_once),
        cmocka_unit_test(while_a_change_is_under_way_nothing_hits),
        cmocka_unit_test(a_change_that_ends_after_the_query_is_a_hit_after_all),
        cmocka_unit_test(what_ends_within_the_query_is_seen),
    };

    if (!catch_queries()) {
        printf("1..0 # SKIP system calls cannot be caught here: %s\n", strerror(errno));
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void)
{
    printf("1..0 # SKIP how a system call is answered is not known of this processor\n");
    return 0;
}

#endif

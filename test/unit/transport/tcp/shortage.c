/* SPDX-License-Identifier: BSD-3-Clause */
#include "shortage.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

enum { DESCRIPTORS = 512 }; /* more than a test has open */

static struct rlimit limit;
static int fillers[DESCRIPTORS];
static unsigned taken; /* of them */
static int starved = -1;
static int starved_of;

int __real_epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event);
int __wrap_epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event);

int __wrap_epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event)
{
    if (epoll == starved && operation == EPOLL_CTL_ADD) {
        errno = starved_of;
        return -1;
    }
    return __real_epoll_ctl(epoll, operation, fd, event);
}

int keep_limit(void **state)
{
    (void)state;
    return getrlimit(RLIMIT_NOFILE, &limit);
}

int restore_limit(void **state)
{
    (void)state;
    for (; taken > 0; taken--) {
        close(fillers[taken - 1]);
    }
    feed();
    return setrlimit(RLIMIT_NOFILE, &limit);
}

void take_all_descriptors(void)
{
    const struct rlimit few = {.rlim_cur = DESCRIPTORS, .rlim_max = limit.rlim_max};
    int fd;

    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    while ((fd = dup(STDERR_FILENO)) >= 0) {
        fillers[taken++] = fd;
    }
    assert_int_equal(errno, EMFILE);
}

void give_one_back(void)
{
    close(fillers[--taken]);
}

void allow_no_descriptor(void)
{
    const struct rlimit none = {.rlim_cur = 0, .rlim_max = limit.rlim_max};

    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
}

void allow_descriptors(void)
{
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

void starve(const end_t *end, int error)
{
    starved = end->tcp->epoll;
    starved_of = error;
}

void feed(void)
{
    starved = -1;
}

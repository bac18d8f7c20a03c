/* SPDX-License-Identifier: BSD-3-Clause
 *
 * libregx-registration: memory that is registered once, used again and again by a program of
 * libibverbs, and never used stale. Manual page: libregx-registration(3).
 *
 * A domain is a cache of registrations over one protection domain. To acquire memory registers it,
 * or finds what was registered before; between acquire and release its registration stays. After
 * the release it is kept until its memory changes (munmap, mremap, madvise, free ...) or its room
 * is needed. How changes are learned is the backend's.
 *
 * Functions that return int return 0 or an error number, and leave errno undefined. Any thread may
 * call all of them, except regx_domain_close, and with what is said of a use. None may be called from a
 * signal handler, nor from a forked child, which may only exit or exec.
 */
#ifndef REGX_REGISTRATION_PUBLIC_H
#define REGX_REGISTRATION_PUBLIC_H

#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define REGX_PUBLIC __attribute__((visibility("default")))

typedef struct regx_domain regx_domain_t;

/* ---- opening ---- */

/* Zeros are the defaults, except of `size`. */
typedef struct regx_domain_options {
    size_t size;         /* sizeof(regx_domain_options_t) */
    const char *backend; /* one of regx_domain_backends; NULL: auto */
    uint64_t bytes;      /* that are kept at most, in all; 0: no limit but the kernel's */
    uint64_t count;      /* registrations that are kept at most; 0: 16384, or what the device has */
    /* Called at the first use of which it was seen that its memory changed between acquire and
     * release, which is the program's error, once the release is made. Comes from acquire, progress
     * or close, in the thread that calls these, and may call none of these functions. NULL: not
     * wanted. */
    void (*changed_in_use)(void *context, const void *base, size_t length);
    void *context;
} regx_domain_options_t;

/* The words for `backend`: "auto" first; NULL: there are no more. */
REGX_PUBLIC const char *regx_domain_backends(unsigned index);

/* Opens a domain over `pd`, which stays the caller's, and must be there until the domain is closed.
 * `options` may be NULL. All domains of a process that keep registrations have the same backend,
 * and auto takes what runs. (Where a program forks, ibv_fork_init is the program's to call,
 * before.)
 *
 * EINVAL: an option is wrong; EOPNOTSUPP: the backend that was asked for cannot be started here;
 * EBUSY: another one runs in this process; ENOMEM. `error` then holds one line, of up to 256 bytes,
 * with the reason; it may be NULL if `error_size` is 0. */
REGX_PUBLIC int regx_domain_open(struct ibv_pd *pd, const regx_domain_options_t *options,
                                 regx_domain_t **domain, char *error, size_t error_size);

/* Deregisters all. Each use must have been released, and no other call be under way. */
REGX_PUBLIC void regx_domain_close(regx_domain_t *domain);

/* The backend that this domain has, and by what choice: both texts live as long as the domain.
 * `reason` may be NULL. */
REGX_PUBLIC const char *regx_domain_backend(const regx_domain_t *domain, const char **reason);

/* ---- using memory ---- */

/* One use of memory. The program's, which keeps it in place and unchanged from acquire to
 * release. */
typedef struct regx_use {
    struct ibv_mr *mr; /* covers the memory, and perhaps more; not to be deregistered */
    uint64_t reserved[14];
} regx_use_t;

/* Registers that memory, or finds it registered. `access`: 0, to send from it;
 * IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_WRITE (with the first) and IBV_ACCESS_REMOTE_READ, as
 * for ibv_reg_mr. Acquire and release may be of different threads.
 *
 * A peer that is given the rkey can use what is registered under it for as long as it is: with
 * backend none until the release, else until it is given up, and by whole pages.
 *
 * EINVAL: no bytes, beyond the end of memory, or an access that is not one of these; ENOMEM: there
 * is no room for it, on the device or in what the process may lock; EFAULT: it cannot be used so
 * (not mapped, or read-only). */
REGX_PUBLIC int regx_domain_acquire(regx_domain_t *domain, void *base, size_t length, int access,
                                    regx_use_t *use);

/* All that was posted with the use's keys must be complete. */
REGX_PUBLIC void regx_domain_release(regx_domain_t *domain, regx_use_t *use);

/* Deregisters some of what has changed. acquire does so too, and with the notifier a thread of the
 * domain's. So only a program that uses another backend, and that for a while acquires nothing,
 * has a reason to call it. */
REGX_PUBLIC void regx_domain_progress(regx_domain_t *domain);

/* ---- what it did ---- */

/* Counts since open. */
typedef struct regx_statistics {
    uint64_t registrations;    /* made */
    uint64_t deregistrations;  /* undone */
    uint64_t registered_bytes; /* now */
    uint64_t registered_high;  /* bytes: most at once */
    uint64_t hits;             /* acquisitions served by what was kept */
    uint64_t misses;           /* ... that had to register, and were kept */
    uint64_t uncached;         /* ... that were registered for one use */
    uint64_t evictions;        /* registrations given up for room */
    uint64_t invalidations;    /* registrations that a change of their memory ended */
    /* Look-ups that did not trust what they found, since it had changed. */
    uint64_t stale_prevented;
    uint64_t inuse_changes; /* uses of which it was seen that their memory changed meanwhile */
} regx_statistics_t;

/* Fills in so many bytes of *statistics: sizeof(*statistics). */
REGX_PUBLIC void regx_domain_statistics(regx_domain_t *domain, regx_statistics_t *statistics,
                                        size_t size);

/* Why memory was not kept, or went otherwise than asked: reason number `index`, and how often. What
 * the backend refused is that of all domains of the process. *reason lives as long as the domain.
 * Returns 0; ENOENT: there are no more. */
REGX_PUBLIC int regx_domain_fallback(regx_domain_t *domain, unsigned index, const char **reason,
                                     uint64_t *count);

#ifdef __cplusplus
}
#endif

#endif

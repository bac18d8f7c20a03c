/* SPDX-License-Identifier: BSD-3-Clause
 *
 * libregx-libfabric: a memory monitor for libfabric, whose caches of registrations then keep only
 * what the kernel says is unchanged. Manual page: libregx-libfabric(3).
 */
#ifndef REGX_LIBFABRIC_PUBLIC_H
#define REGX_LIBFABRIC_PUBLIC_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Also ask at each look-up whether the kernel still watches the memory: two system calls, not one;
 * sees shmat with SHM_REMAP over private memory. Linux 6.7 and later. */
#define REGX_LIBFABRIC_SCAN 0x1u

/* Makes it libfabric's monitor of ordinary memory, for all domains that are opened from then on, as
 * long as the process lives. `flags`: 0 or REGX_LIBFABRIC_SCAN. Any thread, but not two at once.
 *
 * 0, or an error number: EINVAL, a flag that there is not; EOPNOTSUPP, the kernel does not report
 * changes here; EBUSY, libfabric has another monitor: one was imported before, a domain that caches
 * is open, or the environment asks for one (FI_MR_CACHE_MONITOR); ENOMEM; what else libfabric
 * answers. `error` then holds one line, of up to 256 bytes, with the reason; it may be NULL if
 * `error_size` is 0. */
__attribute__((visibility("default"))) int regx_libfabric_monitor(unsigned flags, char *error,
                                                                  size_t error_size);

#ifdef __cplusplus
}
#endif

#endif

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The self-test of a monitor: changes scratch pages of its own in every way that the monitor claims
 * to see, and looks whether each was in the log in time. Run by every monitor at its start, so that
 * one that is deaf here (patched code patched over, a filter that eats events) is refused, not
 * trusted.
 */
#ifndef REGX_REGISTRATION_SELFTEST_H
#define REGX_REGISTRATION_SELFTEST_H

#include "registration/monitor.h"

/* What the monitor claims to see. munmap, mremap (what it takes away), madvise(MADV_DONTNEED) and
 * mmap(MAP_FIXED), each made in the ways that are named. Not tried: brk, as the heap is others';
 * MADV_FREE, of which what is pinned takes no harm (mca-params/staleness.md). */
#define REGX_SELFTEST_LIBC 0x1u        /* by calling libc */
#define REGX_SELFTEST_RAW 0x2u         /* by the system call itself */
#define REGX_SELFTEST_THREAD 0x4u      /* also by a second thread, in the ways above */
#define REGX_SELFTEST_DESTINATION 0x8u /* also what a raw mremap moves something onto */
#define REGX_SELFTEST_REMAP 0x10u /* also shmat(SHM_REMAP), by libc, where System V's memory is */
#define REGX_SELFTEST_ALL 0x1fu

/* The monitor runs but is not yet anyone's. REGX_INVALID: a change was not seen, or could not be
 * tried; REGX_NO_MEMORY: no scratch pages. `error` then holds one
 * line that names the change and the way. */
regx_status_t regx_selftest(regx_monitor_t *monitor, unsigned claims, char *error,
                            size_t error_size);

#endif

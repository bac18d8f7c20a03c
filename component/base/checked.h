/* SPDX-License-Identifier: BSD-3-Clause
 *
 * For programs that run under valgrind. It sees what this process stores and what the kernel writes
 * for it, but not what another process has the kernel write here: it would blame the program for
 * using bytes that were never set. A few instructions that do nothing outside of valgrind. Without
 * its header at build: nothing.
 */
#ifndef REGX_BASE_CHECKED_H
#define REGX_BASE_CHECKED_H

#include <stddef.h>

#ifdef __has_include
#if __has_include(<valgrind/memcheck.h>)
#include <valgrind/memcheck.h>
#endif
#endif

/* A peer has written those bytes. What of them the program may not use stays so. */
static inline void regx_checked_written(void *base, size_t length)
{
#ifdef VALGRIND_MAKE_MEM_DEFINED_IF_ADDRESSABLE
    VALGRIND_MAKE_MEM_DEFINED_IF_ADDRESSABLE(base, length);
#else
    (void)base, (void)length;
#endif
}

#endif

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Small things that every layer needs: what calls answer, the time, arithmetic of addresses.
 */
#ifndef REGX_BASE_UTIL_H
#define REGX_BASE_UTIL_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* Linux 5.14; older headers lack them. Older kernels refuse, and pages come at their first use. */
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

/* What a call between layers answers if it can fail in more than one way. Each function's comment
 * lists which of these it uses. */
typedef enum regx_status {
    REGX_OK = 0,
    REGX_PENDING,     /* accepted; the completion callback tells the end */
    REGX_AGAIN,       /* not accepted for lack of room; nothing happened; try again from progress */
    REGX_UNREACHABLE, /* this peer cannot be reached this way */
    REGX_DENIED,      /* the kernel or the device refuses this operation */
    REGX_NO_MEMORY,   /* memory, locked memory or table space ran out */
    REGX_INVALID,     /* an argument or a message from a peer is malformed */
    REGX_FAILED       /* the operation was started and failed */
} regx_status_t;

/* Why something cannot be, as a part of one line for the user. */
#define REGX_ERROR 384
typedef char regx_error_t[REGX_ERROR];

/* Says why, and returns the status. */
__attribute__((format(printf, 3, 4))) static inline regx_status_t
regx_refuse(regx_error_t error, regx_status_t status, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(error, REGX_ERROR, format, arguments);
    va_end(arguments);
    return status;
}

/* Around floating-point arithmetic of regx's own: masks the exceptions that the program may have
 * enabled (feenableexcept), of which rounding is one, and answers the program's control word. Restoring
 * that restores the exception flags, too. On x86 alone; other processors rarely trap. */
static inline uint32_t regx_fpe_mask(void)
{
    uint32_t program = 0;
#ifdef __x86_64__
    const uint32_t usual = 0x1f80;

    __asm__ volatile("stmxcsr %0\n\tldmxcsr %1" : "=m"(program) : "m"(usual) : "memory");
#endif
    return program;
}

static inline void regx_fpe_restore(uint32_t program)
{
#ifdef __x86_64__
    __asm__ volatile("ldmxcsr %0" ::"m"(program) : "memory");
#endif
}

/* The time that only goes forward, in nanoseconds since some moment. */
static inline int64_t regx_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* What the kernel says of this process. Not /proc/self/: of a process whose first thread has ended
 * that has neither memory nor descriptors. */
#define REGX_PROC "/proc/thread-self/"

/* The first line of a file, as of /proc or /sys; of size at least 1. false: there is none. */
static inline bool regx_read_line(const char *path, char *line, size_t size)
{
    FILE *file = fopen(path, "re");
    const bool read = file != NULL && fgets(line, (int)size, file) != NULL;

    if (!read) {
        line[0] = '\0';
    }
    if (file != NULL) {
        fclose(file);
    }
    return read;
}

/* The structure of `type` whose `member` is at `pointer`. */
#define REGX_CONTAINER_OF(pointer, type, member)                                                   \
    ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

static inline uint64_t regx_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t regx_max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Whether `length` bytes from an offset on lie within so many. */
static inline bool regx_within(uint64_t offset, uint64_t length, uint64_t size)
{
    return offset <= size && length <= size - offset;
}

/* Bytes of a page of memory. Not for the data path: read it once and keep it. */
static inline size_t regx_page_size(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

/* `address`, moved up to a multiple of `unit`, which is a power of two. */
static inline uint64_t regx_align_up(uint64_t address, uint64_t unit)
{
    return (address + unit - 1) & ~(unit - 1);
}

/* Whether something is mapped in all of those pages. MS_ASYNC does nothing, to all that is mapped. */
static inline bool regx_is_mapped(uintptr_t start, uintptr_t end)
{
    return msync((void *)start, end - start, MS_ASYNC) == 0;
}

/* What was stored before, also past the caches (movnt), is visible to all before what is stored
 * after. The processor need not wait for it, as for a full fence. */
static inline void regx_fence_stores(void)
{
#if defined(__x86_64__)
    __builtin_ia32_sfence();
#else
    __sync_synchronize();
#endif
}

#endif

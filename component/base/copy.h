/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Copies of user data, kept from what makes memcpy slow.
 *
 * For more than about 2 KiB glibc's memcpy is `rep movsb` on processors that have it fast (FSRM).
 * On AMD's Zen 3 and Zen 4 that takes 25 times as long where the destination lies 1 to 15 bytes
 * behind the source in its page, and twice as long where it lies 16 to 31 bytes behind: 8 KiB at
 * 3.6 and 40 GB/s, not 100 (glibc bugs 30994 and 30995). Behind Open MPI's header of 14 bytes, data
 * from the beginning of a page come to lie just there.
 *
 * So where the places are like that, what is copied here goes in pieces that are too short for
 * `rep movsb`; elsewhere it is one memcpy. What Open MPI copies on a node lies as it does in the
 * user's buffer, within a cache line: both copies are aligned alike.
 * (What comes over verbs lies behind Open MPI's header at the beginning of a buffer.)
 */
#ifndef REGX_BASE_COPY_H
#define REGX_BASE_COPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#if __has_include(<valgrind/memcheck.h>)
#include <valgrind/memcheck.h>
#endif

/* Bytes up to which memcpy uses the vector registers. */
#define REGX_COPY_PIECE 2048u

/* The unit within which data keep their place; 1: where headers must be aligned. */
#if defined(__x86_64__)
#define REGX_COPY_LINE 64u
#else
#define REGX_COPY_LINE 1u
#endif

/* Whether `rep movsb` would be slow. A difference of 0 wraps: it is not. */
static inline bool regx_copy_is_slow(const void *to, const void *from)
{
    return ((uintptr_t)to - (uintptr_t)from - 1) % 4096 < 31;
}

/* Its first and its last `end` bytes, which may overlap. */
static inline void regx_copy_ends(void *to, const void *from, size_t length, size_t end)
{
    memcpy(to, from, end);
    memcpy((char *)to + length - end, (const char *)from + length - end, end);
}

/* Bytes up to which a few moves cost less than a call. */
#define REGX_COPY_SHORT 64u

/* As memcpy, of at most REGX_COPY_SHORT bytes, without a call; `from` may be NULL if there are none.
 * First what most frames are made of: Open MPI's header, and a number or two. */
static inline void regx_copy_short(void *to, const void *from, size_t length)
{
    if (length >= 8 && length <= 16) {
        regx_copy_ends(to, from, length, 8);
    } else if (length > 32) {
        regx_copy_ends(to, from, length, 32);
    } else if (length > 16) {
        regx_copy_ends(to, from, length, 16);
    } else if (length >= 4) {
        regx_copy_ends(to, from, length, 4);
    } else if (length >= 2) {
        regx_copy_ends(to, from, length, 2);
    } else if (length > 0) {
        *(char *)to = *(const char *)from;
    }
}

/* As memcpy. */
static inline void regx_copy(void *to, const void *from, size_t length)
{
    size_t piece = length;

    if (length > REGX_COPY_PIECE && regx_copy_is_slow(to, from)) {
        piece = REGX_COPY_PIECE;
        __asm__("" : "+r"(piece)); /* a constant length would be `rep movsq`, which is as slow */
    }
    for (; length > piece; length -= piece) {
        memcpy(to, from, piece);
        to = (char *)to + piece;
        from = (const char *)from + piece;
    }
    memcpy(to, from, length);
}

/* Begins to take a cache line from the core that has it: a store to it would wait for that, and later
 * stores with it. The compiler's own way to say so fetches the line for reading on the plainest x86. */
static inline void regx_copy_take(const void *line)
{
#if defined(__x86_64__)
    __asm__ volatile("prefetchw (%0)" : : "r"(line));
#else
    __builtin_prefetch(line, 1);
#endif
}

/* Whether this processor is one of AMD's, on which lines are better taken than read (regx_copy_taking). */
static inline bool regx_cpu_is_amd(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_is("amd");
#else
    return false;
#endif
}

/* As memcpy, from memory that another core has written and writes again: takes each line before it is
 * read. Else a writer whose reader follows closely is held up, on AMD's processors, probably because
 * a modified line that is only read stays with its writer as Owned (MOESI). Where the writer is ahead
 * a plain copy is as fast or faster. Seen on Zen 3, on cores whose second threads others use, without
 * MPI, 16 KiB at a time through 1 MiB of buffers, medians in GB/s of a plain copy, of one that always
 * takes, and of one that takes only while the writer has written no more: near 12.6, 23.7 and 31.6 (39
 * runs), on sibling threads 22.7, 19.9 and 22.7 (5 runs); between far cores all are level. */
static inline void regx_copy_taking(void *to, const void *from, size_t length)
{
    size_t taken = 0;

    for (size_t copied = 0; copied < length; copied += REGX_COPY_PIECE) {
        const size_t left = length - copied;
        size_t piece = left < REGX_COPY_PIECE ? left : REGX_COPY_PIECE;

        for (; taken < length && taken < copied + 2 * REGX_COPY_PIECE; taken += 64) {
            regx_copy_take((const char *)from + taken);
        }
        __asm__("" : "+r"(piece)); /* a length with a known bound would be `rep movsq`, too */
        memcpy((char *)to + copied, (const char *)from + copied, piece);
    }
}

/* As memcpy, but whole cache lines go past the caches to memory, where another core then finds them. A
 * plain store waits until that core has given up its copy of the line. All is there before a later
 * store. */
static inline void regx_copy_past_caches(void *to, const void *from, size_t length)
{
    size_t at = 0;

#if defined(__x86_64__)
    at = -(uintptr_t)to % 64;
    at = at < length ? at : length;
    memcpy(to, from, at);
    for (const size_t end = at + (length - at) / 64 * 64; at < end; at += 16) {
        _mm_stream_si128((void *)((char *)to + at),
                         _mm_loadu_si128((const void *)((const char *)from + at)));
    }
    _mm_sfence();
#endif
    memcpy((char *)to + at, (const char *)from + at, length - at);
}

/* As memcpy; `from` may be NULL if there are no bytes. Few, as headers have, cost less than a call. */
static inline void regx_copy_any(void *to, const void *from, size_t length)
{
    if (length <= REGX_COPY_SHORT) {
        regx_copy_short(to, from, length);
    } else {
        regx_copy(to, from, length);
    }
}

/* Writes exactly `length` bytes to `to`. */
typedef void (*regx_pack_t)(void *context, void *to, size_t length);

/* Header, and behind it the payload: `pack` writes it; NULL: it lies at `payload`. */
static inline void regx_copy_frame(void *to, const void *header, size_t header_length,
                                   regx_pack_t pack, void *payload, size_t payload_length)
{
    regx_copy_any(to, header, header_length);
    if (pack != NULL && payload_length > 0) {
        pack(payload, (char *)to + header_length, payload_length);
    } else {
        regx_copy_any((char *)to + header_length, payload, payload_length);
    }
}

/* How far from a cache line's beginning a header of `header` bytes begins, so that `data` behind it
 * lie within their line as they do now. */
static inline size_t regx_copy_skew(const void *data, size_t header)
{
    return ((uintptr_t)data - header) % REGX_COPY_LINE;
}

/* A peer has had the kernel write those bytes here, which valgrind does not see: it would blame the
 * program for using what was never set. What of them the program may not use stays so. A few
 * instructions that do nothing outside of valgrind. Without its header at build: nothing. */
static inline void regx_copy_came(void *base, size_t length)
{
#ifdef VALGRIND_MAKE_MEM_DEFINED_IF_ADDRESSABLE
    VALGRIND_MAKE_MEM_DEFINED_IF_ADDRESSABLE(base, length);
#else
    (void)base, (void)length;
#endif
}

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Stamps: bytes that say where they come from; numbers by chance; and waiting.
 *
 * A stamp is a function of (run, iteration, sender, message, byte position), so stale, shifted,
 * swapped and foreign bytes all differ from the right ones. stamp_fill and stamp_check take the
 * position at which a piece starts, so that a scattered message is stamped as one stream.
 */
#pragma once

#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Takes steps until that is so. */
#define until(condition, step)                                                                     \
    while (!(condition)) {                                                                         \
        step;                                                                                      \
    }

/* Waits until that is so, by what another thread or process does. */
#define await(condition) until(condition, sched_yield())

static inline uint64_t stamp_mix(uint64_t value)
{
    value = (value ^ (value >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ (value >> 27)) * UINT64_C(0x94d049bb133111eb);
    return value ^ (value >> 31);
}

/* Numbers that look random, and are the same for the same seed. */
static inline uint64_t chance_next(uint64_t *state)
{
    return stamp_mix(*state += UINT64_C(0x9e3779b97f4a7c15));
}

static inline uint64_t stamp_key(uint64_t run, uint64_t iteration, int sender, int message)
{
    uint64_t key = stamp_mix(run + UINT64_C(0x9e3779b97f4a7c15));
    key = stamp_mix(key + iteration);
    key = stamp_mix(key + (uint64_t)sender);
    return stamp_mix(key + (uint64_t)message);
}

static inline uint64_t stamp_word(uint64_t key, size_t position)
{
    return stamp_mix(key + (position / 8) * UINT64_C(0x9e3779b97f4a7c15));
}

static inline unsigned char stamp_byte(uint64_t key, size_t position)
{
    return (unsigned char)(stamp_word(key, position) >> (8 * (position % 8)));
}

static inline void stamp_fill(void *memory, size_t length, uint64_t key, size_t position)
{
    unsigned char *at = memory;
    size_t done = 0;
    while (done < length && (position + done) % 8 != 0) {
        at[done] = stamp_byte(key, position + done);
        done++;
    }
    for (; length - done >= 8; done += 8) {
        uint64_t word = stamp_word(key, position + done); /* little-endian, like stamp_byte */
        memcpy(at + done, &word, 8);
    }
    for (; done < length; done++) {
        at[done] = stamp_byte(key, position + done);
    }
}

/* The offset of the first wrong byte, or length when all are right. */
static inline size_t stamp_check(const void *memory, size_t length, uint64_t key, size_t position)
{
    const unsigned char *at = memory;
    size_t done = 0;
    while (done < length && (position + done) % 8 != 0) {
        if (at[done] != stamp_byte(key, position + done)) {
            return done;
        }
        done++;
    }
    for (; length - done >= 8; done += 8) {
        uint64_t word;
        memcpy(&word, at + done, 8);
        if (word != stamp_word(key, position + done)) {
            break;
        }
    }
    for (; done < length; done++) {
        if (at[done] != stamp_byte(key, position + done)) {
            return done;
        }
    }
    return length;
}

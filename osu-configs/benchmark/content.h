// SPDX-License-Identifier: BSD-3-Clause
//
// What the companion's messages hold: every word is stamped by sender, size, iteration, buffer and
// position.
#ifndef REGX_CONTENT_H
#define REGX_CONTENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

// How a message lies in memory: in pieces, of which the last is as long as the others.
struct layout {
    size_t size, piece;
    bool strided; // each piece is followed by as many bytes that are not the message's
};

static inline uint64_t content_mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static inline uint64_t content_seed(int sender, size_t size, uint64_t iteration, size_t buffer)
{
    uint64_t seed = content_mix((uint64_t)sender + 1);
    seed = content_mix(seed + size);
    seed = content_mix(seed + iteration);
    return content_mix(seed + buffer);
}

static inline uint64_t content_word(uint64_t seed, size_t at)
{
    return (seed + at) * 0x9e3779b97f4a7c15u;
}

static inline void content_stamp(struct layout layout, unsigned char *to, uint64_t seed)
{
    for (size_t piece = 0; piece < layout.size; piece += layout.piece) {
        unsigned char *begin = to + 2 * piece;
        for (size_t at = 0; at < layout.piece; at += sizeof(uint64_t)) {
            uint64_t word = content_word(seed + piece, at);
            size_t left = layout.piece - at;
            memcpy(begin + at, &word, left < sizeof word ? left : sizeof word);
        }
    }
}

// Bytes from the first on that are right.
static inline size_t content_right(const unsigned char *from, size_t size, uint64_t seed)
{
    for (size_t at = 0; at < size; at += sizeof(uint64_t)) {
        uint64_t word = content_word(seed, at);
        size_t bytes = size - at < sizeof word ? size - at : sizeof word;
        if (memcmp(from + at, &word, bytes) != 0) {
            const unsigned char *expected = (const unsigned char *)&word;
            size_t i = 0;
            while (from[at + i] == expected[i])
                i++;
            return at + i;
        }
    }
    return size;
}

static inline bool content_is(const unsigned char *from, size_t size, unsigned char value)
{
    for (size_t i = 0; i < size; i++)
        if (from[i] != value)
            return false;
    return true;
}

// Position in the message of the first wrong byte, or of the last one of a piece behind which
// something is not `gap` any more; or its size.
static inline size_t content_first_wrong(struct layout layout, const unsigned char *from,
                                         uint64_t seed, unsigned char gap)
{
    for (size_t piece = 0; piece < layout.size; piece += layout.piece) {
        const unsigned char *begin = from + 2 * piece;
        size_t right = content_right(begin, layout.piece, seed + piece);
        if (right < layout.piece)
            return piece + right;
        if (layout.strided && !content_is(begin + layout.piece, layout.piece, gap))
            return piece + layout.piece - 1;
    }
    return layout.size;
}

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
#include "shadow.h"

#include "../../chance.h"

enum {
    AROUND = 2 * BUFFER_PAGE /* what is compared before and behind */
};

uint64_t seed, number, chance;
int rank, ranks;
struct buffer buffers[BUFFERS];
struct model *shadow;

uint64_t below(uint64_t limit)
{
    return chance_next(&chance) % limit;
}

int any_rank(void)
{
    return (int)below((uint64_t)ranks);
}

int any_rank_but(int other)
{
    return (other + 1 + (int)below((uint64_t)ranks - 1)) % ranks;
}

struct model *model_of(int of, int buffer)
{
    return &shadow[of * BUFFERS + buffer];
}

struct part any_part(int of, int buffer, size_t length)
{
    const size_t left = model_of(of, buffer)->size - length;
    size_t offset = below(left + 1);

    if (below(3) == 0) {
        offset -= offset % BUFFER_PAGE;
    }
    return (struct part){of, buffer, offset};
}

size_t any_length(size_t most)
{
    return 1 + below(below(4) == 0 ? BUFFER_PAGE : most);
}

unsigned char *bytes_of(struct part part)
{
    return model_of(part.rank, part.buffer)->bytes + part.offset;
}

unsigned char *memory_of(struct part part)
{
    return buffers[part.buffer].memory + part.offset;
}

void compare(const unsigned char *memory, struct part part, size_t length, const char *what)
{
    const unsigned char *right = bytes_of(part);

    if (memcmp(memory, right, length) == 0) {
        check_bytes += length;
        return;
    }
    size_t at = 0;
    while (memory[at] == right[at]) {
        at++;
    }
    check_fail("seed %llu, operation %llu: %s: buffer %d (kind %d), byte %zu is 0x%02x instead of "
               "0x%02x",
               (unsigned long long)seed, (unsigned long long)number, what, part.buffer,
               (int)model_of(part.rank, part.buffer)->kind, part.offset + at, memory[at],
               right[at]);
}

void check(struct part part, size_t length, const char *what)
{
    const size_t size = model_of(part.rank, part.buffer)->size;
    const size_t before = part.offset < AROUND ? part.offset : AROUND;
    const size_t behind =
        size - part.offset - length < AROUND ? size - part.offset - length : AROUND;

    if (part.rank == rank) {
        part.offset -= before;
        compare(memory_of(part), part, before + length + behind, what);
    }
}

void check_all(void)
{
    for (int b = 0; b < BUFFERS; b++) {
        compare(buffers[b].memory, (struct part){rank, b, 0}, model_of(rank, b)->size, "at rest");
    }
}

void copy(struct part to, struct part from, size_t length)
{
    memcpy(bytes_of(to), bytes_of(from), length);
}

void renew_bytes(struct part part, size_t length)
{
    const uint64_t key = stamp_key(seed, number, part.rank, part.buffer);

    stamp_fill(bytes_of(part), length, key, part.offset);
    if (part.rank == rank) {
        stamp_fill(memory_of(part), length, key, part.offset);
    }
}

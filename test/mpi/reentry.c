/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hazard 8: what runs inside munmap and free allocates nothing.
 *
 *     reentry ROUNDS SIZE
 *
 * The program's own malloc and free stand before libc's. Each says when it is called while this
 * thread is in one of them or in munmap, or by the thread that reads the notifier's events (which
 * the one that unmaps waits for). In each round a buffer of each kind is sent, received and given
 * back: mapped, allocated, reallocated to elsewhere, trimmed off the heap.
 */
#include <malloc.h>
#include <stdatomic.h>
#include <sys/prctl.h>

#include "mapping.h"
#include "settle.h"

enum { SEED = 53, READER_NAME = 16 };

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *memory, size_t size);
void __libc_free(void *memory);

static __thread unsigned inside; /* allocator or munmap, of this thread */
static atomic_uint nested, by_reader;

static void enter(void)
{
    char name[READER_NAME] = "";
    nested += inside++ > 0;
    if (prctl(PR_GET_NAME, name, 0, 0, 0) == 0) {
        by_reader += strcmp(name, "regx-notifier") == 0;
    }
}

static void leave(void)
{
    inside--;
}

void *malloc(size_t size)
{
    enter();
    void *memory = __libc_malloc(size);
    leave();
    return memory;
}

void *calloc(size_t count, size_t size)
{
    enter();
    void *memory = __libc_calloc(count, size);
    leave();
    return memory;
}

void *realloc(void *memory, size_t size)
{
    enter();
    void *other = __libc_realloc(memory, size);
    leave();
    return other;
}

void free(void *memory)
{
    enter();
    __libc_free(memory);
    leave();
}

static size_t size;

static void use(unsigned char *memory, uint64_t round, int number)
{
    settle();
    check_transfer(memory, size, stamp_key(SEED, round, 0, number), "a buffer to be given back");
}

static void *allocate(void)
{
    void *memory = malloc(size);
    if (memory == NULL) {
        check_fail("no memory");
    }
    return memory;
}

static void play(uint64_t round)
{
    unsigned char *memory = mapping_make(NULL, size, false);
    use(memory, round, 0);
    enter();
    mapping_drop(memory, size, false);
    leave();

    memory = allocate();
    use(memory, round, 1);
    memory = realloc(memory, 16 * size);
    if (memory == NULL) {
        check_fail("no memory");
    }
    use(memory, round, 2);
    free(memory);

    mallopt(M_MMAP_THRESHOLD, (int)(2 * size)); /* now from the heap */
    memory = allocate();
    use(memory, round, 3);
    free(memory);
    enter();
    malloc_trim(0);
    leave();
    mallopt(M_MMAP_THRESHOLD, 64 * 1024);
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv, 3);
    const uint64_t rounds = strtoul(argv[1], NULL, 0);
    size = strtoul(argv[2], NULL, 0);
    void *volatile memory; /* or the compiler leaves both calls out */
    nested = by_reader = 0;
    enter(); /* the control: it sees what it is to see */
    memory = malloc(1);
    free(memory);
    leave();
    if (nested != 2) {
        check_fail("calls within calls are not seen");
    }
    nested = 0;
    for (uint64_t round = 0; round < rounds; round++) {
        play(round);
    }
    if (nested != 0 || by_reader != 0) {
        check_fail("%u allocations within an allocator's or munmap's call, %u by the reader",
                   nested, by_reader);
    }
    return check_end();
}

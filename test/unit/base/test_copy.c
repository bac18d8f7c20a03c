/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Copies: every byte, no other, and nothing at once that memcpy would do by a slow `rep movsb`.
 */
#include "../unit.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "base/copy.h"
#include "base/fault.h"

enum { PAGE = 4096, GUARD = 64, LONGEST = 3 * PAGE, STREAM = 1 };

static size_t longest_piece; /* of the copy under way */

UNIT_WRAP(void *, memcpy, void *to, const void *from, size_t length)
{
    longest_piece = length > longest_piece ? length : longest_piece;
    return __real_memcpy(to, from, length);
}

typedef struct buffers {
    uint8_t *from, *to; /* each at the beginning of a page */
} buffers_t;

static buffers_t buffers_open(void)
{
    const buffers_t opened = {.from = aligned_alloc(PAGE, 2 * PAGE + LONGEST),
                              .to = aligned_alloc(PAGE, 2 * PAGE + LONGEST)};

    assert_non_null(opened.from);
    assert_non_null(opened.to);
    unit_fill(opened.from, 2 * PAGE + LONGEST, STREAM, 0);
    return opened;
}

static void buffers_close(const buffers_t *buffers)
{
    free(buffers->from);
    free(buffers->to);
}

typedef void copy_t(void *to, const void *from, size_t length);

/* Copies from `at` to `at + GUARD + ahead`. */
static void copy(copy_t *how, const buffers_t *buffers, size_t at, size_t ahead, size_t length)
{
    uint8_t *const to = buffers->to + GUARD + at + ahead;

    memset(to - GUARD, 0xee, length + 2 * (size_t)GUARD);
    longest_piece = 0;
    how(to, buffers->from + GUARD + at, length);
    assert_memory_equal(to, buffers->from + GUARD + at, length);
    assert_true(unit_is_all(to - GUARD, GUARD, 0xee) && unit_is_all(to + length, GUARD, 0xee));
}

static const size_t lengths[] = {0,    1,    7,    64,   65,   191,  2047, 2048,   2049,
                                 2111, 2112, 4095, 4096, 4097, 6143, 6144, LONGEST};

UNIT_TEST(every_byte_is_copied_and_no_other)
{
    const buffers_t buffers = buffers_open();

    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        for (size_t ahead = 0; ahead < 70; ahead++) {
            copy(regx_copy, &buffers, 0, ahead, lengths[i]);
            copy(regx_copy, &buffers, 13, ahead, lengths[i]);
            copy(regx_copy_taking, &buffers, 0, ahead, lengths[i]);
            copy(regx_copy_taking, &buffers, 13, ahead, lengths[i]);
            copy(regx_copy_past_caches, &buffers, 0, ahead, lengths[i]);
            copy(regx_copy_past_caches, &buffers, 13, ahead, lengths[i]);
        }
        copy(regx_copy, &buffers, 100, PAGE - 101, lengths[i]);
    }
    buffers_close(&buffers);
}

UNIT_TEST(short_copies_are_as_right)
{
    const buffers_t buffers = buffers_open();

    for (size_t length = 0; length <= REGX_COPY_SHORT; length++) {
        for (size_t ahead = 0; ahead < 17; ahead++) {
            copy(regx_copy_short, &buffers, 0, ahead, length);
            copy(regx_copy_short, &buffers, 13, ahead, length);
        }
    }
    regx_copy_short(buffers.to, NULL, 0);
    buffers_close(&buffers);
}

/* Up to 31 bytes behind the source in its page, whichever page. */
UNIT_TEST(what_lies_just_behind_the_source_goes_in_short_pieces)
{
    const buffers_t buffers = buffers_open();

    for (size_t ahead = 0; ahead < PAGE; ahead++) {
        copy(regx_copy, &buffers, 0, ahead, LONGEST);
        if (ahead >= 1 && ahead <= 31) {
            assert_int_equal(longest_piece, REGX_COPY_PIECE);
        } else {
            assert_int_equal(longest_piece, LONGEST);
        }
        copy(regx_copy_taking, &buffers, 0, ahead, LONGEST);
        assert_int_equal(longest_piece, REGX_COPY_PIECE);
    }
    buffers_close(&buffers);
}

UNIT_TEST(data_behind_a_header_keep_their_place_in_the_line)
{
    static _Alignas(64) uint8_t data[64];
    static const _Alignas(64) uint8_t frame[256] = {0};

    for (size_t at = 0; at < sizeof(data); at++) {
        for (size_t header = 0; header < 130; header++) {
            const size_t skew = regx_copy_skew(data + at, header);

            assert_true(skew < REGX_COPY_LINE);
            assert_int_equal((uintptr_t)(frame + skew + header) % REGX_COPY_LINE,
                             at % REGX_COPY_LINE);
        }
    }
}

/* What it stored would be sent, where sender and receiver share the memory. */
UNIT_TEST(to_ask_for_the_end_of_a_buffer_changes_no_byte)
{
    char *const pages =
        mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_ptr_not_equal(pages, MAP_FAILED);
    signal(SIGSEGV, SIG_DFL); /* a sanitizer's handler might bring pages in */
    memset(pages, 0xee, PAGE);
    assert_int_equal(mprotect(pages + PAGE, PAGE, PROT_NONE), 0);
    assert_true(regx_fault_has_end(pages + PAGE) && regx_fault_has_end(pages + 1));
    assert_false(regx_fault_has_end(pages + PAGE + 1));
    assert_true(unit_is_all((uint8_t *)pages, PAGE, 0xee));
    assert_int_equal(munmap(pages, 2 * PAGE), 0);
}

#ifdef SYS_memfd_secret
/* No system call reaches it. */
UNIT_TEST(secret_memory_has_an_end)
{
    const int file = (int)syscall(SYS_memfd_secret, 0);

    unit_need(file >= 0 && ftruncate(file, PAGE) == 0, "this kernel has no secret memory");
    char *const page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    signal(SIGBUS, SIG_DFL);
    assert_true(regx_fault_has_end(page + PAGE));
    munmap(page, PAGE);
    close(file);
}
#endif

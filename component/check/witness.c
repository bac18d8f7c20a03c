/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The witness: what is registered with the device is registered as a buffer of an io_uring, too,
 * which pins the same pages. Later these are compared with what the program sees at the address.
 *
 * It is pinned first: that brings in pages that are still to be copied on write, which the device
 * then finds. The kernel reads both sides, so nothing faults where nothing is mapped.
 */
#include <string.h>

#include "check/check.h"
#include "transport/pinned/uring.h"

enum { CHUNK = 256 << 10, LOOKS = 8 };

#if !REGX_HAVE_PINNED /* then it is never open, and these are not there */
#pragma weak regx_uring_open
#pragma weak regx_uring_close
#pragma weak regx_uring_set
#pragma weak regx_uring_copy
#endif

static struct {
    bool is_open;
    regx_uring_t uring;
    regx_file_t file; /* of two chunks: the pages', and the program's */
    unsigned char *bytes;
} witness;

bool regx_check_witness_open(void)
{
    regx_error_t why = "no memory, or built with headers from before Linux 5.19";

    witness.file = regx_file_of(regx_descriptor_move(memfd_create("regx-check", MFD_CLOEXEC)));
    witness.bytes = mmap(NULL, 2 * (size_t)CHUNK, PROT_READ, MAP_SHARED, witness.file.fd, 0);
    witness.is_open = REGX_HAVE_PINNED && witness.bytes != MAP_FAILED &&
                      regx_uring_open(&witness.uring, REGX_CHECK_RANGES, why) == REGX_OK;
    if (!witness.is_open) {
        regx_check_say("bytes are not compared: %s", why);
    }
    return witness.is_open;
}

bool regx_check_witness_close(void)
{
    const bool was_open = witness.is_open;

    if (was_open) {
        witness.is_open = false;
        regx_uring_close(&witness.uring);
        regx_file_close(&witness.file);
    }
    return was_open;
}

void regx_check_witness_unpin(uint32_t slot)
{
    if (witness.is_open) {
        regx_uring_set(&witness.uring, slot, NULL, 0);
    }
}

bool regx_check_witness_pin(uint32_t slot, uintptr_t start, uintptr_t end)
{
    if (witness.is_open && end - start <= REGX_URING_PIN_MAX &&
        regx_uring_set(&witness.uring, slot, (const void *)start, end - start) == 0) {
        return true;
    }
    regx_check_witness_unpin(slot);
    return false;
}

uint64_t regx_check_witness_sum(uint32_t slot, uintptr_t start, size_t length)
{
    uint64_t sum = 1;

    for (size_t at = 0; at < length; at += CHUNK) {
        const size_t size = regx_min(length - at, CHUNK);

        if (!witness.is_open || !regx_file_is_ours(&witness.file) ||
            !regx_uring_copy(&witness.uring, true, slot, start + at, (uint32_t)size,
                             witness.file.fd, 0)) {
            return 0;
        }
        for (size_t i = 0; i < size; i += sizeof(uint64_t)) {
            uint64_t word = 0;

            memcpy(&word, witness.bytes + i, regx_min(size - i, sizeof(word)));
            sum = (sum ^ word) * UINT64_C(0x9e3779b97f4a7c15);
            sum ^= sum >> 32;
        }
    }
    return sum;
}

/* Both sides of a chunk. UNCOMPARED: they cannot be read; DIFFERENT: nothing is mapped there. */
static regx_check_verdict_t look(uint32_t slot, uintptr_t start, size_t length)
{
    if (!regx_uring_copy(&witness.uring, true, slot, start, (uint32_t)length, witness.file.fd, 0)) {
        return REGX_CHECK_UNCOMPARED;
    }
    const long copied =
        regx_raw(SYS_pwrite64, witness.file.fd, (long)start, (long)length, CHUNK, 0);

    if (copied == (long)length) {
        return REGX_CHECK_SAME;
    }
    return copied == -EFAULT || copied >= 0 ? REGX_CHECK_DIFFERENT : REGX_CHECK_UNCOMPARED;
}

regx_check_verdict_t regx_check_witness_compare(uint32_t slot, uintptr_t start, size_t length)
{
    const unsigned char *const bytes = witness.bytes;

    if (!witness.is_open || !regx_file_is_ours(&witness.file)) {
        return REGX_CHECK_UNCOMPARED;
    }
    for (size_t begin = 0; begin < length; begin += CHUNK) {
        const size_t size = regx_min(length - begin, CHUNK);
        const regx_check_verdict_t looked = look(slot, start + begin, size);
        size_t at = 0;

        if (looked != REGX_CHECK_SAME) {
            return looked;
        }
        if (memcmp(bytes, bytes + CHUNK, size) == 0) {
            continue;
        }
        while (bytes[at] == bytes[CHUNK + at]) {
            at++;
        }
        /* Another thread, or the device, may have written between the two. Then they will not differ
         * again in the same way. */
        const unsigned char pinned = bytes[at], seen = bytes[CHUNK + at];

        for (int i = 0; i < LOOKS; i++) {
            if (look(slot, start + begin + at, 1) != REGX_CHECK_SAME || bytes[0] != pinned ||
                bytes[CHUNK] != seen) {
                return REGX_CHECK_UNCOMPARED;
            }
        }
        return REGX_CHECK_DIFFERENT;
    }
    return REGX_CHECK_SAME;
}

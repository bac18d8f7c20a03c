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

enum { SLOTS = 4096, CHUNK = 256 << 10, LOOKS = 8 };

#if REGX_HAVE_PINNED

static struct {
    enum { CLOSED, OPEN, REFUSED } state;
    regx_uring_t uring;
    regx_file_t file; /* of two chunks: the pages', and the program's */
    unsigned char *bytes;
    unsigned char used[SLOTS];
} witness;

static bool refused(const char *why)
{
    witness.state = REFUSED;
    regx_check_say("bytes are not compared: %s", why);
    return false;
}

static bool is_open(void)
{
    regx_error_t why;

    if (witness.state != CLOSED) {
        return witness.state == OPEN;
    }
    if (regx_uring_open(&witness.uring, SLOTS, why) != REGX_OK) {
        return refused(why);
    }
    witness.file = regx_file_of(regx_descriptor_move(memfd_create("regx-check", MFD_CLOEXEC)));
    witness.bytes = MAP_FAILED;
    if (witness.file.fd >= 0 && ftruncate(witness.file.fd, 2 * (off_t)CHUNK) == 0) {
        witness.bytes = mmap(NULL, 2 * (size_t)CHUNK, PROT_READ, MAP_SHARED, witness.file.fd, 0);
    }
    if (witness.bytes == MAP_FAILED) {
        regx_file_close(&witness.file);
        regx_uring_close(&witness.uring);
        return refused(strerror(errno));
    }
    witness.state = OPEN;
    return true;
}

bool regx_check_witness_close(void)
{
    const bool was_open = witness.state == OPEN;

    if (was_open) {
        regx_uring_close(&witness.uring);
        regx_file_close(&witness.file);
        munmap(witness.bytes, 2 * (size_t)CHUNK);
    }
    witness.state = REFUSED;
    return was_open;
}

int regx_check_witness_pin(uintptr_t start, uintptr_t end)
{
    if (end - start > REGX_URING_PIN_MAX || !is_open()) {
        return -1;
    }
    const unsigned char *at = memchr(witness.used, 0, SLOTS);
    if (at == NULL || regx_uring_set(&witness.uring, (uint32_t)(at - witness.used),
                                     (const void *)start, end - start) != 0) {
        return -1;
    }
    witness.used[at - witness.used] = 1;
    return (int)(at - witness.used);
}

void regx_check_witness_unpin(int slot)
{
    if (slot >= 0 && witness.state == OPEN) {
        regx_uring_set(&witness.uring, (uint32_t)slot, NULL, 0);
        witness.used[slot] = 0;
    }
}

/* Both sides of a chunk. UNCOMPARED: they cannot be read; DIFFERENT: nothing is mapped there. */
static regx_check_verdict_t look(int slot, uintptr_t start, size_t length)
{
    if (!regx_uring_copy(&witness.uring, true, (uint32_t)slot, start, (uint32_t)length,
                         witness.file.fd, 0)) {
        return REGX_CHECK_UNCOMPARED;
    }
    const long copied =
        regx_raw(SYS_pwrite64, witness.file.fd, (long)start, (long)length, CHUNK, 0);

    return copied == (long)length             ? REGX_CHECK_SAME
           : copied == -EFAULT || copied >= 0 ? REGX_CHECK_DIFFERENT
                                              : REGX_CHECK_UNCOMPARED;
}

static regx_check_verdict_t compare(int slot, uintptr_t start, size_t length)
{
    regx_check_verdict_t looked = look(slot, start, length);
    size_t at = 0;

    if (looked != REGX_CHECK_SAME || memcmp(witness.bytes, witness.bytes + CHUNK, length) == 0) {
        return looked;
    }
    while (witness.bytes[at] == witness.bytes[CHUNK + at]) {
        at++;
    }
    /* Another thread, or the device, may have written between the two. Then they will not differ
     * again in the same way. */
    const unsigned char pinned = witness.bytes[at], seen = witness.bytes[CHUNK + at];

    for (int i = 0; i < LOOKS; i++) {
        if (look(slot, start + at, 1) != REGX_CHECK_SAME || witness.bytes[0] != pinned ||
            witness.bytes[CHUNK] != seen) {
            return REGX_CHECK_UNCOMPARED;
        }
    }
    return REGX_CHECK_DIFFERENT;
}

regx_check_verdict_t regx_check_witness_compare(int slot, uintptr_t start, size_t length)
{
    regx_check_verdict_t found = REGX_CHECK_SAME;

    if (slot < 0 || witness.state != OPEN || !regx_file_is_ours(&witness.file)) {
        return REGX_CHECK_UNCOMPARED;
    }
    for (size_t at = 0; at < length && found == REGX_CHECK_SAME; at += CHUNK) {
        found = compare(slot, start + at, regx_min(length - at, CHUNK));
    }
    return found;
}

#else

bool regx_check_witness_close(void)
{
    return false;
}

int regx_check_witness_pin(uintptr_t start, uintptr_t end)
{
    return (void)start, (void)end, -1;
}

void regx_check_witness_unpin(int slot)
{
    (void)slot;
}

regx_check_verdict_t regx_check_witness_compare(int slot, uintptr_t start, size_t length)
{
    return (void)slot, (void)start, (void)length, REGX_CHECK_UNCOMPARED;
}

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
#include "rendezvous/buffer.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#include "base/fault.h"
#include "base/memlock.h"
#include "rendezvous/engine.h"

/* ---- copies ---- */

enum { PIECE = 4096 }; /* a page, or a part of one: it is there as a whole or not at all */

/* The kernel loads from the buffer, or stores to it, as the processor would; the other side it pins,
 * which it refuses of some memory that the processor reaches. (gettid: by getpid() the kernel finds no
 * memory once the first thread has ended.) Returns 0, or the error. */
static int copy_by_kernel(char *to, const char *from, bool stores, size_t length)
{
    const struct iovec target = {to, length}, source = {(void *)(uintptr_t)from, length};
    const pid_t self = gettid();
    const ssize_t n = stores ? process_vm_readv(self, &target, 1, &source, 1, 0)
                             : process_vm_writev(self, &source, 1, &target, 1, 0);

    return n == (ssize_t)length ? 0 : n >= 0 ? EFAULT : errno;
}

/* Moves a piece. false: the buffer is not accessible there, as far as is known. */
static bool move(char *to, const char *from, bool stores, size_t length)
{
    if (copy_by_kernel(to, from, stores, length) == 0) {
        return true;
    }
    /* The error may be of the call: of a filter, or EFAULT if it could not pin the other side. */
    if (regx_fault_bring_in(stores ? to : from, 1, stores) != 0) {
        return false;
    }
    memcpy(to, from, length);
    return true;
}

/* stores: `to` is the buffer; else `from`. */
static bool copy(char *to, const char *from, bool stores, size_t length)
{
    const char *const buffer = stores ? to : from;
    bool whole = true;

    for (size_t done = 0, piece; done < length; done += piece) {
        piece = regx_min(PIECE - (uintptr_t)(buffer + done) % PIECE, length - done);
        if (!move(to + done, from + done, stores, piece)) {
            piece = length - done;
            if (regx_fault_may_touch(buffer + done, stores, &piece)) {
                memcpy(to + done, from + done, piece);
            } else {
                whole = false;
            }
        }
    }
    return whole;
}

bool regx_buffer_read(void *to, const void *buffer, size_t length)
{
    memset(to, 0, length);
    return copy(to, buffer, false, length);
}

bool regx_buffer_write(void *buffer, const void *from, size_t length)
{
    return copy(buffer, from, true, length);
}

bool regx_buffer_is_writable(const char *base, size_t length)
{
    const int error = regx_fault_bring_in(base, length, true);

    return error == 0 || (error != EFAULT && error != ENOMEM && error != EHWPOISON &&
                          regx_fault_lacks(base, length, true) == NULL);
}

/* Tries it on a byte that is there. */
const char *regx_buffer_lacks(const void *base, size_t length, bool stores,
                              char text[REGX_BUFFER_LACKS])
{
    const char *lacks = regx_fault_lacks(base, length, stores);
    char to, from = 0;
    const int copies = copy_by_kernel(&to, &from, stores, 1),
              brings = regx_fault_bring_in(&from, 1, stores);

    if (lacks == NULL && copies != 0 && brings != 0) {
        snprintf(text, REGX_BUFFER_LACKS,
                 "not known to be accessible, for this process is refused process_vm (%s)"
                 " and madvise (%s)",
                 strerror(copies), strerror(brings));
        return text;
    }
    return lacks != NULL ? lacks : "not accessible";
}

/* ---- checksums ---- */

#define PROOF_BLOCK (16u * 1024u) /* is read and summed at once */

/* Two odd numbers without a pattern (XXH64's). */
#define MIX UINT64_C(0x9e3779b185ebca87)
#define FOLD UINT64_C(0xc2b2ae3d27d4eb4f)

static inline uint64_t mixed(uint64_t sum, uint64_t word, uint64_t by)
{
    const uint64_t product = (sum ^ word) * by;

    return product << 29 | product >> 35;
}

/* Four lanes, so that four multiplications are under way at a time. Each step can be undone, so
 * that no two words of a lane give the same. */
static void mix(uint64_t lanes[4], const uint8_t *block)
{
    uint64_t words[4];

    memcpy(words, block, sizeof(words));
    for (unsigned i = 0; i < 4; i++) {
        lanes[i] = mixed(lanes[i], words[i], MIX);
    }
}

uint64_t regx_buffer_checksum(const void *data, size_t length)
{
    uint64_t lanes[4] = {1, 2, 3, length}, sum = 0;
    uint8_t rest[sizeof(lanes)] = {0};
    const size_t whole = length - length % sizeof(rest);

    for (size_t at = 0; at < whole; at += sizeof(rest)) {
        mix(lanes, (const uint8_t *)data + at);
    }
    memcpy(rest, (const uint8_t *)data + whole, length - whole);
    mix(lanes, rest);
    for (unsigned i = 0; i < 4; i++) {
        sum = mixed(sum, lanes[i], FOLD);
    }
    return sum ^ sum >> 32;
}

bool regx_buffer_prove(const char *base, uint64_t length, uint64_t *sum)
{
    char block[PROOF_BLOCK];
    uint64_t sums[2] = {0, 0};
    bool readable = true;

    for (uint64_t done = 0; done < length && readable; done += PROOF_BLOCK) {
        const size_t size = regx_min(PROOF_BLOCK, length - done);

        readable = regx_buffer_read(block, base + done, size);
        sums[1] = regx_buffer_checksum(block, size);
        sums[0] = regx_buffer_checksum(sums, sizeof(sums));
    }
    *sum = sums[0];
    return readable;
}

/* ---- refusals ---- */

#define LOOKED_INTO 64u /* by one process */

static const char other[] = "registration refused";

/* Why there was no memory: the share of what may be pinned, the limit of locked memory, or else
 * kernel or device. */
static const char *short_of(const regx_region_t *refused, uintptr_t start, size_t length,
                            bool looks)
{
    const uint64_t limit = regx_memlock_limit(), page = regx_page_size();
    const uint64_t pages = regx_align_up(start % page + length, page);

    if (refused->over_share) {
        return "over btl_regx_once_bytes";
    }
    if (!looks) {
        return "no memory to register";
    }
    return limit != REGX_MEMLOCK_NONE && regx_memlock_pinned() + pages > limit
               ? "over the limit of locked memory"
               : "no room in kernel or device";
}

void regx_buffer_refused(regx_rndv_t *rndv, regx_end_t end, regx_status_t status,
                         const regx_region_t *refused, const void *base, size_t length)
{
    const bool looks = atomic_fetch_add(&rndv->refusals, 1) < LOOKED_INTO;
    const uintptr_t start = (uintptr_t)base;
    const char *reason = other;
    char text[REGX_REASON_LENGTH];

    if (status == REGX_NO_MEMORY) {
        reason = short_of(refused, start, length, looks);
    } else if (status == REGX_DENIED && looks) {
        const char *lacks = regx_fault_lacks(base, length, end == REGX_RECEIVER);

        reason = lacks != NULL ? lacks : other;
    }
    snprintf(text, sizeof(text), "%s: %s", end == REGX_SENDER ? "sender" : "receiver", reason);
    regx_fall_back(rndv, text);
}

void regx_buffer_release(regx_rndv_t *rndv, regx_region_t *region, bool failed)
{
    if (failed) {
        regx_registry_progress(rndv->registry);
    }
    regx_region_release(rndv->registry, region);
}

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What regx counts about itself, so that the path taken is never silent. One structure per
 * process, made by btl/, written by every room, read by the report. The names are those of the
 * report's keys (one table, REGX_COUNTERS, so that no list can be forgotten).
 */
#ifndef REGX_BASE_COUNTERS_H
#define REGX_BASE_COUNTERS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The paths a message may take; `fallback` counts messages that did not go the way that was
 * asked for (they are also counted under the path that did carry them). */
#define REGX_PATHS(X)                                                                              \
    X(eager) X(frag) X(bounce) X(pipeline) X(direct) X(read) X(together) X(remap) X(fallback)

typedef enum regx_path {
#define REGX_PATH_ENUM(name) REGX_PATH_##name,
    REGX_PATHS(REGX_PATH_ENUM)
#undef REGX_PATH_ENUM
        REGX_PATH_COUNT
} regx_path_t;

#define REGX_COUNTERS(X)                                                                           \
    X(bytes_shm, "payload bytes sent, or read, on the node: shared memory, the kernel's copies")   \
    X(bytes_tcp, "payload bytes sent over tcp")                                                    \
    X(bytes_verbs, "payload bytes sent, or read, over verbs")                                      \
    X(tcp_looks, "looks at the network by tcp: a system call or two each")                         \
    X(grants, "grants sent: slots or chunks that a peer may write")                                \
    X(grant_stalls, "times a landing found no free slot and had to queue")                         \
    X(slots_high, "most bounce slots in use at once")                                              \
    X(chunks_high, "most chunks of one transfer in flight at once; together: and its half")        \
    X(pool_bytes, "bytes of bounce memory")                                                        \
    X(pool_pinned_bytes, "bytes of it that are locked in memory")                                  \
    X(puts, "puts done as the sender: one per slot or chunk written")                              \
    X(gets, "gets done as the receiver")                                                           \
    X(chunks_sender, "chunks copied by the sender (together)")                                     \
    X(chunks_receiver, "chunks copied by the receiver (together)")                                 \
    X(copied_out_bytes, "bytes copied from bounce slots to the user's buffers")                    \
    X(registrations, "registrations made")                                                         \
    X(deregistrations, "registrations undone")                                                     \
    X(largest_registration, "length of the largest registration")                                  \
    X(registered_bytes, "bytes registered now")                                                    \
    X(registered_high, "most bytes registered at once")                                            \
    X(hits, "acquisitions served by a kept region")                                                \
    X(misses, "acquisitions that had to register")                                                 \
    X(uncached, "acquisitions that were registered for one use")                                   \
    X(evictions, "regions given up for room")                                                      \
    X(invalidations, "regions that a change of the address space killed")                          \
    X(hooks_missed, "changes that the hooks did not report and the notifier did")                  \
    X(stale_prevented, "hits refused because the region had changed")                              \
    X(inuse_changes, "buffers that changed while a transfer used them")                            \
    X(prefetch_advised, "uses whose pages the device was asked to look up before (odp)")           \
    X(prefetch_touched, "uses whose pages were mapped before by the process (odp)")                \
    X(verified, "chunks and slots whose checksum was compared (verify)")                           \
    X(mismatches, "those of them that arrived as something else than was sent")                    \
    X(malformed, "messages of peers that were refused")

/* Named tallies whose keys are only known at run time: reasons of decisions and of fallbacks,
 * ports. */
#define REGX_REASONS_MAX 32
#define REGX_REASON_LENGTH 64

typedef struct regx_tally {
    _Atomic uint32_t state; /* of the reason: not there, being written, there */
    char reason[REGX_REASON_LENGTH];
    _Atomic uint64_t count;
} regx_tally_t;

typedef struct regx_counters {
#define REGX_COUNTER_FIELD(name, help) _Atomic uint64_t name;
    REGX_COUNTERS(REGX_COUNTER_FIELD)
#undef REGX_COUNTER_FIELD
    _Atomic uint64_t messages[REGX_PATH_COUNT]; /* as the sender */
    _Atomic uint64_t bytes[REGX_PATH_COUNT];
    regx_tally_t decisions[REGX_REASONS_MAX];
    regx_tally_t fallbacks[REGX_REASONS_MAX];
    regx_tally_t ports[REGX_REASONS_MAX]; /* payload bytes sent, by the port of an RDMA device */
    bool threads;                         /* several threads may count: set once at the start */
} regx_counters_t;

/* Adds n. With one thread a plain add, which costs a tenth of an interlocked one. */
static inline void regx_count(const regx_counters_t *counters, _Atomic uint64_t *counter,
                              uint64_t n)
{
    if (counters->threads) {
        atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
    } else {
        atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
                              memory_order_relaxed);
    }
}

/* Keeps the largest value seen. */
static inline void regx_count_high(_Atomic uint64_t *counter, uint64_t value)
{
    uint64_t seen = atomic_load_explicit(counter, memory_order_relaxed);

    while (value > seen && !atomic_compare_exchange_weak_explicit(
                               counter, &seen, value, memory_order_relaxed, memory_order_relaxed)) {
    }
}

static inline void regx_count_message(regx_counters_t *counters, regx_path_t path, uint64_t bytes)
{
    regx_count(counters, &counters->messages[path], 1);
    regx_count(counters, &counters->bytes[path], bytes);
}

/* The tally of that reason, made at its first use; a sixteenth kind of reason and all later ones
 * are "other". Compares strings: not for every message. Any thread, of any object. */
regx_tally_t *regx_tally_find(regx_tally_t tallies[REGX_REASONS_MAX], const char *reason);

/* Counts a reason once. Any thread. */
void regx_tally(regx_tally_t tallies[REGX_REASONS_MAX], const char *reason);

#endif

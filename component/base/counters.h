/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What regx counts about itself, so that the path taken is never silent. One structure per
 * process, made by btl/, written by every room, read by the report. The tables below are the only
 * lists of counters: the structure, the report's keys and their documentation are made from them.
 */
#ifndef REGX_BASE_COUNTERS_H
#define REGX_BASE_COUNTERS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The paths that large messages take, one by each strategy that has a path (rendezvous/strategy.c,
 * whose table is made from this one): X(name, help). */
#define REGX_RENDEZVOUS_PATHS(X)                                                                   \
    X(bounce, "copied through slots of the bounce pool")                                           \
    X(pipeline, "written in registered chunks")                                                    \
    X(direct, "written as a whole from a registered buffer")                                       \
    X(read, "read by the receiver")                                                                \
    X(together, "copied by receiver and sender at the same time")                                  \
    X(remap, "written to pages that are then moved to the user's buffer")

/* All paths, in the same form. The report has messages_NAME and bytes_NAME. */
#define REGX_PATHS(X)                                                                              \
    X(eager, "sent eagerly, in one fragment with their header")                                    \
    X(frag, "sent in fragments: the data is not contiguous, or no rendezvous was possible")        \
    REGX_RENDEZVOUS_PATHS(X)                                                                       \
    X(fallback, "not sent by the requested path; also counted under the path that was used")

typedef enum regx_path {
#define REGX_PATH_ENUM(name, help) REGX_PATH_##name,
    REGX_PATHS(REGX_PATH_ENUM)
#undef REGX_PATH_ENUM
        REGX_PATH_COUNT
} regx_path_t;

/* The other counters: X(name, COUNT or LEVEL, help). A count only grows. A level is how much there
 * is now, or was at most. The report's key is the name. */
#define REGX_COUNTERS(X)                                                                           \
    X(regrants, COUNT,                                                                             \
      "transfers granted anew because the memory changed (grant=synchronous, optimistic) or a "    \
      "write failed (grant=optimistic)")                                                           \
    X(slots_high, LEVEL, "maximum number of bounce slots in use")                                  \
    X(pool_bytes, LEVEL, "bytes of bounce memory")                                                 \
    X(pool_pinned_bytes, LEVEL,                                                                    \
      "bytes of bounce memory that are locked; shared memory is locked page by page at first use") \
    X(puts, COUNT, "puts by the sender, one per slot or chunk")                                    \
    X(gets, COUNT, "gets by the receiver")                                                         \
    X(chunks_sender, COUNT, "pieces copied by the sender (together)")                              \
    X(chunks_receiver, COUNT, "pieces copied by the receiver (together)")                          \
    X(remap_pages, COUNT, "pages moved to users' buffers (remap)")                                 \
    X(remap_copied_bytes, COUNT,                                                                   \
      "bytes copied from landing pages to users' buffers: unaligned ends, and pages that could "   \
      "not be moved (remap)")                                                                      \
    X(onesided, COUNT, "puts, gets and atomic operations on windows of other processes")           \
    X(onesided_messages, COUNT,                                                                    \
      "one-sided operations sent to the target as a message, rather than done by the kernel "      \
      "(same node) or a device")                                                                   \
    X(registrations, COUNT, "registrations made")                                                  \
    X(deregistrations, COUNT, "deregistrations")                                                   \
    X(registered_bytes, LEVEL, "bytes registered at the moment")                                   \
    X(registered_high, LEVEL, "maximum number of bytes registered")                                \
    X(hits, COUNT, "cache look-ups that found a registration")                                     \
    X(misses, COUNT, "cache look-ups that had to register")                                        \
    X(uncached, COUNT, "registrations for a single use, which the cache does not keep")            \
    X(evictions, COUNT, "cached registrations evicted to make room")                               \
    X(invalidations, COUNT, "cached registrations invalidated by a change of memory")              \
    X(stale_prevented, COUNT,                                                                      \
      "cache look-ups that rejected a registration because its memory had changed or was "         \
      "changing")                                                                                  \
    X(inuse_changes, COUNT, "buffers unmapped or replaced while a transfer used them")             \
    X(drain_waits, COUNT, "calls to unmap memory that waited for transfers (inuse=drain)")         \
    X(prefetch_touched, COUNT,                                                                     \
      "transfers whose pages were touched by the process in advance (odp)")                        \
    X(verified, COUNT, "chunks and slots whose checksums were compared (verify)")                  \
    X(malformed, COUNT, "invalid messages from peers, which were refused")                         \
    X(bytes_shm, COUNT,                                                                            \
      "payload bytes sent or read within the node, by shared memory and kernel copies")            \
    X(stages_taken, COUNT, "messages that the receiver copied from the sender's stage")            \
    X(pieces_owned, COUNT,                                                                         \
      "pieces copied in user space, to or from a peer's memory from MPI_Alloc_mem")                \
    X(bytes_verbs, COUNT, "payload bytes sent or read over verbs")

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
#define REGX_COUNTER_FIELD(name, kind, help) _Atomic uint64_t name;
    REGX_COUNTERS(REGX_COUNTER_FIELD)
#undef REGX_COUNTER_FIELD
    _Atomic uint64_t messages[REGX_PATH_COUNT]; /* as the sender; what is read
                                                   as exposed: as the receiver */
    _Atomic uint64_t bytes[REGX_PATH_COUNT];
    regx_tally_t decisions[REGX_REASONS_MAX];
    regx_tally_t fallbacks[REGX_REASONS_MAX];
    regx_tally_t ports[REGX_REASONS_MAX]; /* payload bytes sent, by the port of an RDMA device */
    bool threads;                         /* several threads may count: set once at the start */
} regx_counters_t;

typedef enum { REGX_COUNT, REGX_LEVEL } regx_counter_kind_t;

/* A row of a table of counters. */
typedef struct regx_counter {
    const char *name;
    const char *help;
    regx_counter_kind_t kind;
    size_t offset; /* of the counter in regx_counters_t; of a path, its number */
} regx_counter_t;

/* The tables above as arrays; the last row has no name. */
extern const regx_counter_t regx_paths[], regx_counter_table[];

static inline const char *regx_path_name(regx_path_t path)
{
    return regx_paths[path].name;
}

/* Of one thread: a tenth of an interlocked add. */
static inline void regx_count_alone(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

/* Adds n. */
static inline void regx_count(const regx_counters_t *counters, _Atomic uint64_t *counter,
                              uint64_t n)
{
    if (counters->threads) {
        atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
    } else {
        regx_count_alone(counter, n);
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

/* What a peer sent does not fit what it was granted or may ask for. */
static inline void regx_count_malformed(regx_counters_t *counters)
{
    regx_count(counters, &counters->malformed, 1);
}

static inline void regx_count_message(regx_counters_t *counters, regx_path_t path, uint64_t bytes)
{
    if (counters->threads) {
        atomic_fetch_add_explicit(&counters->messages[path], 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&counters->bytes[path], bytes, memory_order_relaxed);
    } else {
        regx_count_alone(&counters->messages[path], 1);
        regx_count_alone(&counters->bytes[path], bytes);
    }
}

/* The tally of that reason, made at its first use. The first REGX_REASONS_MAX - 1 reasons have one
 * each; all later ones share "other". Compares strings: not for every message. Any thread, of any
 * object. */
regx_tally_t *regx_tally_find(regx_tally_t tallies[REGX_REASONS_MAX], const char *reason);

/* Counts a reason once. Any thread. */
void regx_tally(regx_tally_t tallies[REGX_REASONS_MAX], const char *reason);

#endif

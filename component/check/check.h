/* SPDX-License-Identifier: BSD-3-Clause
 *
 * regx-check: whether a program of libibverbs uses registrations whose memory has changed since.
 *
 * The command (check.c) runs the program with libregx-check.so preloaded. In it interpose.c stands
 * between the program and libibverbs; ranges.c knows what is registered, and what of that has
 * changed; changer.c finds who changed it; witness.c compares bytes. faults.c is in both: it has what was
 * found, in memory that the command reads when the program has ended.
 *
 * What changes memory is not interposed: libraries with hooks of their own would patch our functions
 * in place of libc's, and miss what libc calls itself. What takes pages away from files is: it has no hooks.
 */
#ifndef REGX_CHECK_H
#define REGX_CHECK_H

#include <infiniband/verbs.h>

#include "registration/monitor/monitor.h"

/* The environment variable by which the command tells the library the file of the sum, and that file's name. */
#define REGX_CHECK_SUM "REGX_CHECK_SUM"

/* By which Open MPI, or MPICH, tells each process its rank. NULL: neither started it. PMI_RANK is also in a shell that
 * Slurm has started (srun --pty, salloc), whose ranks are others'; it is one of 1. */
static inline const char *regx_check_rank(void)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK"), *size = getenv("PMI_SIZE");

    return rank != NULL || (size != NULL && strcmp(size, "1") == 0) ? rank : getenv("PMI_RANK");
}

/* ---- what was found (faults.c) ---- */

typedef enum regx_check_verdict {
    REGX_CHECK_NONE,       /* no fault, or one that has no name yet */
    REGX_CHECK_DIFFERENT,  /* used, and the pages hold other bytes than the program sees */
    REGX_CHECK_SAME,       /* used, and both hold the same bytes now */
    REGX_CHECK_UNCOMPARED, /* used, and there is no witness */
    REGX_CHECK_REMOTE,     /* peers may have used it */
    REGX_CHECK_SUPPRESSED, /* any of these, but only counted */
    REGX_CHECK_VERDICTS
} regx_check_verdict_t;

/* What happens to registered memory. */
enum { REGX_CHECK_REGISTERED, REGX_CHECK_CHANGED, REGX_CHECK_USED, REGX_CHECK_EVENTS };

#define REGX_CHECK_LARGE 1024 /* what connects is smaller: UCX has up to 177 bytes */
#define REGX_CHECK_FAULTS 256
#define REGX_CHECK_TEXT 10752

/* A distinct fault: what three calls of a process have in common. That process alone writes it. */
typedef struct regx_check_fault {
    _Atomic uint64_t key;                 /* 0: none yet */
    _Atomic uint64_t times;               /* that it was seen */
    _Atomic regx_check_verdict_t verdict; /* NONE: what follows is not yet written */
    int rank;                             /* -1: none */
    int process;
    uint64_t start, length; /* of the first use */
    char text[REGX_CHECK_EVENTS][REGX_CHECK_TEXT];
} regx_check_fault_t;

/* Shared by the processes of a command, which makes it. A process without a command makes its own. */
typedef struct regx_check_sum {
    bool has_command;
    bool stops;          /* at the first fault */
    uint64_t limit;      /* of distinct faults that are told */
    char patterns[8192]; /* of what is not told, each with its zero; an empty one ends them */
    int64_t start_ns;    /* when it was made */
    _Atomic uint64_t processes; /* that loaded the library */
    _Atomic uint64_t devices, windows, registrations, postings;
    _Atomic uint64_t large;       /* messages of REGX_CHECK_LARGE that were posted, or received */
    _Atomic uint64_t unwatched;   /* registrations whose changes nothing reports */
    _Atomic uint64_t unwitnessed; /* that have no witness */
    _Atomic uint64_t unfollowed;  /* for which there was no room, or no memory */
    _Atomic uint64_t untold;      /* uses beyond the limit */
    regx_check_fault_t faults[REGX_CHECK_FAULTS];
} regx_check_sum_t;

extern regx_check_sum_t *regx_check_sum;                                /* NULL: there is none */
extern const char *const regx_check_verdict_names[REGX_CHECK_VERDICTS]; /* NULL: not to be told */

/* Makes it that of a file, or one of its own if there is none (-1). NULL: no memory, see errno. */
void regx_check_sum_open(int fd);
/* Uses of stale memory that are a fault, told or not. times: that each verdict was found. */
uint64_t regx_check_sum_used(uint64_t times[REGX_CHECK_VERDICTS]);
/* ended: how the command did, if not well; else NULL. false: nothing was followed, which it says last; or not all
 * registrations. */
bool regx_check_sum_print(const char *ended);

/* To standard error, in one piece, unless that has become another file. Allocates nothing. */
__attribute__((format(printf, 1, 2))) void regx_check_say(const char *format, ...);

/* ---- in the library ---- */

#define REGX_CHECK_FRAMES 48

/* What was called, and from where. */
typedef struct regx_check_call {
    const char *what;
    uint64_t count;
    const void *frames[REGX_CHECK_FRAMES]; /* the innermost first; NULL: some are left out */
} regx_check_call_t;

/* The caller's, without this library's frames. from: only that frame, if it is not NULL, and what called
 * it; no frame where it is not there. Allocates nothing. */
void regx_check_call_take(regx_check_call_t *call, const char *what, const void *from);

/* A use that is a fault, before it has a name. */
typedef struct regx_check_finding {
    regx_check_verdict_t verdict; /* NONE: what follows is not written */
    int64_t registered_ns;
    uintptr_t start;
    size_t length;
    regx_check_call_t calls[REGX_CHECK_EVENTS];
} regx_check_finding_t;

/* When the library is loaded: before anything below. */
void regx_check_faults_begin(void);
/* Reports it, unless it is suppressed, or none. use: what its caller does; NULL: nothing that is seen.
 * Holding no lock. */
void regx_check_fault(regx_check_finding_t *found, const char *use);

/* ---- ranges.c: what is registered ---- */

#define REGX_CHECK_RANGES (1 << 14) /* as many as an io_uring has buffers */
#define REGX_CHECK_CHANGES 8        /* that a range keeps apart */

typedef struct regx_check_change {
    uintptr_t start, end;
    regx_check_call_t call;
} regx_check_change_t;

/* A part that was offered to a peer, where no byte differed then. */
typedef struct regx_check_offer {
    uintptr_t start;
    size_t length;
    uint64_t sum; /* of the registered pages; 0: there is no offer */
    int looks;    /* completions after which it is still looked at */
} regx_check_offer_t;

#define REGX_CHECK_KEYS 2
#define REGX_CHECK_OFFERS 4 /* of a range: a later one takes the place of the oldest */

/* Only ranges.c looks into it, except at `access`. */
typedef struct regx_check_range {
    struct regx_check_range
        *next[REGX_CHECK_KEYS]; /* of those of a key's hash; the first: or of the unused */
    const struct ibv_context *context;
    uint32_t keys[REGX_CHECK_KEYS]; /* its lkey and its rkey */
    int access;
    uintptr_t base;
    size_t length;
    uint64_t iova;
    int64_t begun_ns;
    uint32_t calls_before;  /* it was registered, which changed nothing of it */
    regx_check_call_t call; /* that registers it */
    bool is_registered;     /* and has its keys */
    bool is_pinned;         /* it has a witness */
    bool is_unsure;         /* it may have changed, unreported: bytes are to tell */
    bool is_watched;        /* else what is told of it is not all, but has a call */
    regx_watch_t watch;
    uint64_t message; /* the last one that was searched for what it offers of it */
    regx_check_offer_t offers[REGX_CHECK_OFFERS];
    uint32_t offered;    /* so many times */
    uint64_t changed_at; /* how many uses there had been of anything, at its first change */
    int change_count;
    regx_check_change_t changes[REGX_CHECK_CHANGES];
} regx_check_range_t;

/* Before memory is registered: it is watched and witnessed from now on. NULL: there is no room. */
regx_check_range_t *regx_check_range_begin(const struct ibv_context *context, const void *base,
                                           size_t length, uint64_t iova, int access);
/* It is registered by the keys of that one. NULL: nothing. */
void regx_check_range_add(regx_check_range_t *range, const struct ibv_mr *mr);
/* Before it is deregistered: what was registered by its key, to be ended or added again. NULL: nothing. */
regx_check_range_t *regx_check_range_remove(const struct ibv_mr *mr);
/* It is not registered any more, or was not. NULL: nothing. */
void regx_check_range_end(regx_check_range_t *range);
/* All that are registered, as the process ends: reports what peers may have used. */
void regx_check_ranges_judge(void);
/* Of a file those bytes have lost their pages by that call, which returns to `caller`. Up to INT64_MAX: so
 * have private mappings, whose registered pages are copies that a hole leaves alone. Also in a handler of a
 * signal, which may interrupt this library. */
void regx_check_file_lost(int fd, const char *what, const void *caller, off_t from, off_t to);
/* Memory is to be locked, and there is not enough: gives all witnesses up, for good. false: there are none. */
bool regx_check_witnesses_drop(void);

/* Something is posted, or has completed, that reads or writes that memory. */
void regx_check_use(const struct ibv_context *context, const struct ibv_sge *piece, const char *use,
                    bool completed);
#define REGX_CHECK_PIECES 4 /* of a message, that are looked at */

/* A message is posted. In it, stacks offer memory to their peers by address and key: that is a use, too,
 * though nothing of this process will post or complete it. */
void regx_check_message(const struct ibv_context *context, const struct ibv_sge *list,
                        size_t count);
/* Something was received, which may tell that a peer has written to what it was offered. */
void regx_check_received(void);

/* ---- changer.c ---- */

void regx_check_changer_start(void);
uint32_t regx_check_changer_now(void); /* how many calls it has seen */
/* Fills in the call that changed that memory, after so many. shared: which other mappings may share, so that
 * MADV_DONTNEED is none. false: none was seen. */
bool regx_check_changer_find(regx_check_change_t *change, uint32_t since, bool shared);

/* ---- witness.c: one thread at a time ---- */

bool regx_check_witness_open(void); /* whether there is one */
/* Pins memory as that slot, in the place of what it had. false: it cannot be had, and the slot has none. */
bool regx_check_witness_pin(uint32_t slot, uintptr_t start, uintptr_t end);
void regx_check_witness_unpin(uint32_t slot);
/* A sum of the pinned bytes; 0: they cannot be read. */
uint64_t regx_check_witness_sum(uint32_t slot, uintptr_t start, size_t length);
/* false: there was none. */
bool regx_check_witness_close(void);
/* The pages of a slot, against what is at these addresses now: DIFFERENT, SAME or UNCOMPARED. */
regx_check_verdict_t regx_check_witness_compare(uint32_t slot, uintptr_t start, size_t length);

#endif

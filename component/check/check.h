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
 * in place of libc's, and miss what libc calls itself.
 */
#ifndef REGX_CHECK_H
#define REGX_CHECK_H

#include <infiniband/verbs.h>

#include "registration/monitor/monitor.h"

/* The environment, by which the command tells the library the file of the sum. */
#define REGX_CHECK_SUM "REGX_CHECK_SUM"

/* ---- what was found (faults.c) ---- */

typedef enum regx_check_verdict {
    REGX_CHECK_NONE,       /* nothing was found, or it has no name yet */
    REGX_CHECK_DIFFERENT,  /* used, and the pages hold other bytes than the program sees */
    REGX_CHECK_SAME,       /* used, and both hold the same bytes now */
    REGX_CHECK_UNCOMPARED, /* used, and there is no witness */
    REGX_CHECK_REMOTE,     /* peers may have used it */
    REGX_CHECK_SUPPRESSED, /* one of these, but not to be told */
    REGX_CHECK_VERDICTS
} regx_check_verdict_t;

#define REGX_CHECK_FAULTS 256
#define REGX_CHECK_TEXT 400

/* What happened to the memory: each with its call and stack, as text. */
typedef enum regx_check_event {
    REGX_CHECK_REGISTERED,
    REGX_CHECK_CHANGED,
    REGX_CHECK_USED,
    REGX_CHECK_EVENTS
} regx_check_event_t;

/* A distinct fault: what three stacks of a process have in common. That process alone writes it. */
typedef struct regx_check_fault {
    _Atomic uint64_t key;   /* 0: none yet */
    _Atomic uint64_t times; /* that it was seen */
    _Atomic regx_check_verdict_t verdict;
    /* What follows is not yet written of what has no name. */
    int rank; /* -1: none */
    int process;
    uint64_t start, length; /* of the first use */
    char text[REGX_CHECK_EVENTS][REGX_CHECK_TEXT];
} regx_check_fault_t;

/* Shared by the processes of a command, which makes it. A process that has none makes its own. */
typedef struct regx_check_sum {
    bool has_command, stops; /* stops: abort at the first fault */
    uint64_t limit;          /* of distinct faults that are told */
    int64_t start_ns;        /* when it was made */
    char patterns[8192];     /* of what is suppressed, each with its zero; an empty one ends them */
    _Atomic uint64_t processes; /* that loaded the library */
    _Atomic uint64_t devices, windows, registrations, postings;
    _Atomic uint64_t unwatched;   /* registrations whose changes nothing reports */
    _Atomic uint64_t unwitnessed; /* that have no witness */
    _Atomic uint64_t blind;       /* that have neither */
    _Atomic uint64_t untold;      /* uses beyond the limit */
    regx_check_fault_t faults[REGX_CHECK_FAULTS];
} regx_check_sum_t;

extern regx_check_sum_t *regx_check_sum; /* in the library; NULL: not yet loaded */

/* That of a file, or one of its own if there is none (-1). NULL: no memory, see errno. */
regx_check_sum_t *regx_check_sum_map(int fd);
/* How often faults of that verdict were seen. */
uint64_t regx_check_sum_times(const regx_check_sum_t *sum, regx_check_verdict_t verdict);
/* Uses of stale memory that are a fault, told or not. */
uint64_t regx_check_sum_used(const regx_check_sum_t *sum);
void regx_check_sum_print(const regx_check_sum_t *sum);
/* Whether it is told, and not merely counted. */
static inline bool regx_check_is_told(const regx_check_fault_t *fault)
{
    return fault->verdict >= REGX_CHECK_DIFFERENT && fault->verdict <= REGX_CHECK_REMOTE;
}
extern const char *const regx_check_verdict_names[REGX_CHECK_VERDICTS];
extern const char *const regx_check_event_names[REGX_CHECK_EVENTS];

/* One line to standard error, in one piece, unless that has become another file. Allocates nothing. */
__attribute__((format(printf, 1, 2))) void regx_check_say(const char *format, ...);

/* ---- in the library ---- */

#define REGX_CHECK_FRAMES 12

typedef struct regx_check_stack {
    int count;
    void *frames[REGX_CHECK_FRAMES]; /* the innermost first */
} regx_check_stack_t;

/* Of the caller, without this library. from: only that frame, if it is not NULL, and what called it.
 * Takes none where there is no such frame. Allocates nothing. */
void regx_check_stack_take(regx_check_stack_t *stack, const void *from);

typedef struct regx_check_change {
    uintptr_t start, end;
    const char *call; /* that made it; NULL: it was not seen */
    regx_check_stack_t stack;
    bool sure; /* false: changes were missed, and this may be one of them */
} regx_check_change_t;

#define REGX_CHECK_CHANGES 4 /* that a range keeps apart; of more, what they span */

/* What is registered. */
typedef struct regx_check_range {
    const struct ibv_context *context; /* NULL: none */
    uint32_t lkey, rkey;
    int access;
    uintptr_t base;
    size_t length;
    uint64_t iova;
    int64_t since_ns;    /* when */
    regx_watch_t watch;  /* `next`: the first change that may be of it, if it is watched */
    int slot;            /* of its witness; -1: none */
    uint64_t changed_at; /* how many uses there had been of anything, at its first change */
    int change_count;
    regx_check_change_t changes[REGX_CHECK_CHANGES];
    regx_check_stack_t stack;
} regx_check_range_t;

/* When the library is loaded: before anything below. */
void regx_check_faults_begin(void);
/* As the process ends: tells what was found, if there is no command that will. */
void regx_check_faults_end(void);

/* Reports a fault, unless it is suppressed. change: NULL if it was not seen. stack: NULL if nothing that
 * is seen uses it. Holding no lock. */
void regx_check_fault(regx_check_verdict_t verdict, const regx_check_range_t *range,
                      const regx_check_change_t *change, uintptr_t start, size_t length,
                      const char *use, const regx_check_stack_t *stack);

/* ---- ranges.c ---- */

/* Before memory is registered: it is watched and witnessed from now on. */
void regx_check_range_begin(regx_check_range_t *range, const struct ibv_context *context,
                            const void *base, size_t length, uint64_t iova, int access);
/* It is registered by these keys. false: there is no room, and it is ended. */
bool regx_check_range_add(regx_check_range_t *range, uint32_t lkey, uint32_t rkey);
/* It is not registered any more. */
void regx_check_range_end(regx_check_range_t *range);
/* Before it is deregistered. false: it was not known. *range: what was, to be ended or added. */
bool regx_check_range_remove(const struct ibv_context *context, uint32_t lkey,
                             regx_check_range_t *range);
/* All that are registered, as the process ends: reports what peers may have used. */
void regx_check_ranges_judge(void);
/* Memory is to be locked, and there is not enough: gives all witnesses up, for good. false: there are
 * none. */
bool regx_check_witnesses_drop(void);

/* Something is posted, or has completed, that reads or writes that memory. */
void regx_check_use(const struct ibv_context *context, const struct ibv_sge *piece, const char *use,
                    bool completed);
/* A message is posted. In it, stacks offer memory to their peers by address and key: that is a use, too,
 * though nothing of this process will post or complete it. */
void regx_check_message(const struct ibv_context *context, const struct ibv_sge *list,
                        size_t count);

/* ---- changer.c ---- */

void regx_check_changer_start(void);
/* Who made the last change of what is between start and end, if that was seen: fills in call and
 * stack. */
void regx_check_changer_find(regx_check_change_t *change);

/* ---- witness.c: one thread at a time ---- */

/* -1: it cannot be had. */
int regx_check_witness_pin(uintptr_t start, uintptr_t end);
void regx_check_witness_unpin(int slot); /* -1: nothing */
/* false: there was none. */
bool regx_check_witness_close(void);
/* The pages of a slot, against what is at these addresses now: DIFFERENT, SAME or UNCOMPARED. */
regx_check_verdict_t regx_check_witness_compare(int slot, uintptr_t start, size_t length);

#endif

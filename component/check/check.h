/* SPDX-License-Identifier: BSD-3-Clause
 *
 * regx-check: whether a program of libibverbs uses registrations whose memory has changed since.
 *
 * The command (check.c) runs the program with libregx-check.so preloaded. In it interpose.c stands
 * between the program and libibverbs; ranges.c knows what is registered, and what of that has
 * changed; changer.c finds who changed it; witness.c compares bytes; sum.c has what was found, in
 * memory that the command reads when the program has ended.
 *
 * What changes memory is not interposed: libraries with hooks of their own would patch our functions
 * in place of libc's, and miss what libc calls itself.
 */
#ifndef REGX_CHECK_H
#define REGX_CHECK_H

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The environment, by which the command tells the library. */
#define REGX_CHECK_SUM "REGX_CHECK_SUM"           /* the file of the sum */
#define REGX_CHECK_STOP "REGX_CHECK_STOP"         /* abort at the first fault */
#define REGX_CHECK_LIMIT "REGX_CHECK_LIMIT"       /* distinct faults that are told */
#define REGX_CHECK_SUPPRESS "REGX_CHECK_SUPPRESS" /* a file of patterns */

/* ---- stacks ---- */

#define REGX_CHECK_FRAMES 12

typedef struct regx_check_stack {
    int count;
    void *frames[REGX_CHECK_FRAMES]; /* the innermost first */
} regx_check_stack_t;

/* Of the caller, without this library. behind: only what follows that address, if it is not NULL.
 * Allocates nothing. */
void regx_check_stack_take(regx_check_stack_t *stack, const void *behind);

/* ---- what was found (sum.c) ---- */

typedef enum regx_check_verdict {
    REGX_CHECK_DIFFERENT,  /* used, and the pages hold other bytes than the program sees */
    REGX_CHECK_SAME,       /* used, and both hold the same bytes now */
    REGX_CHECK_UNCOMPARED, /* used, and there is no witness */
    REGX_CHECK_REMOTE,     /* peers may use it */
    REGX_CHECK_VERDICTS
} regx_check_verdict_t;

#define REGX_CHECK_FAULTS 256
#define REGX_CHECK_TEXT 400

/* A distinct fault: what its three stacks have in common. */
typedef struct regx_check_fault {
    _Atomic uint64_t key;   /* 0: none yet */
    _Atomic uint64_t times; /* that it was seen */
    _Atomic uint32_t whole; /* the rest is written */
    regx_check_verdict_t verdict;
    int rank; /* -1: none */
    int process;
    uint64_t start, length;           /* of the first use */
    char registered[REGX_CHECK_TEXT]; /* when, and where */
    char changed[REGX_CHECK_TEXT];    /* by which call, from where */
    char used[REGX_CHECK_TEXT];       /* by what, from where */
} regx_check_fault_t;

/* Shared by the processes of a command. */
typedef struct regx_check_sum {
    _Atomic uint64_t processes; /* that loaded the library */
    _Atomic uint64_t devices, registrations, postings, compared;
    _Atomic uint64_t unwatched;   /* registrations whose changes nothing reports */
    _Atomic uint64_t unwitnessed; /* that have no witness */
    _Atomic uint64_t blind;       /* that have neither */
    _Atomic uint64_t found[REGX_CHECK_VERDICTS];
    _Atomic uint64_t untold, suppressed;
    regx_check_fault_t faults[REGX_CHECK_FAULTS];
} regx_check_sum_t;

extern regx_check_sum_t *regx_check_sum; /* in the library; NULL: not yet loaded */

/* The file of that name, or new memory if it is NULL or cannot be had; *shared: the former. */
regx_check_sum_t *regx_check_sum_map(const char *path, bool *shared);
void regx_check_sum_print(const regx_check_sum_t *sum);
void regx_check_fault_print(const regx_check_fault_t *fault, uint64_t times); /* 0: not how often */
const char *regx_check_verdict_name(regx_check_verdict_t verdict);
/* Uses of stale memory that were seen. */
uint64_t regx_check_sum_used(const regx_check_sum_t *sum);

/* ---- in the library ---- */

/* One line to standard error, in one piece. Allocates nothing. */
__attribute__((format(printf, 1, 2))) void regx_check_say(const char *format, ...);

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
    uint32_t lkey;
    int access;
    uintptr_t base;
    size_t length;
    uint64_t iova;
    int64_t since_ns; /* when, after the library was loaded */
    uint64_t since;   /* the first change that may be of it */
    int slot;         /* of its witness; -1: none */
    bool watched;     /* its changes are reported */
    bool told;        /* that peers may use it */
    int change_count;
    regx_check_change_t changes[REGX_CHECK_CHANGES];
    regx_check_stack_t stack;
} regx_check_range_t;

int64_t regx_check_elapsed_ns(void); /* since the library was loaded */

/* Reports a fault, unless it is suppressed. change: NULL if it was not seen. Holding no lock. */
void regx_check_fault(regx_check_verdict_t verdict, const regx_check_range_t *range,
                      const regx_check_change_t *change, uintptr_t start, size_t length,
                      const char *use, const regx_check_stack_t *stack);

/* ---- ranges.c ---- */

/* Before memory is registered: it is watched and witnessed from now on. */
void regx_check_range_begin(regx_check_range_t *range, const struct ibv_context *context,
                            const void *base, size_t length, uint64_t iova, int access);
/* It is registered by that key. */
void regx_check_range_add(regx_check_range_t *range, uint32_t lkey);
/* It is not registered. */
void regx_check_range_end(regx_check_range_t *range);
/* Before it is deregistered. false: it was not known. *range: what was, to be ended or added. */
bool regx_check_range_remove(const struct ibv_context *context, uint32_t lkey,
                             regx_check_range_t *range);
/* Memory is to be locked, and there is not enough: gives all witnesses up, for good. false: there are
 * none. */
bool regx_check_witnesses_drop(void);

/* Something is posted, or has completed, that reads or writes that memory. */
void regx_check_use(const struct ibv_context *context, uint32_t lkey, uint64_t address,
                    uint64_t length, const char *use, bool completed);

/* ---- changer.c ---- */

void regx_check_changer_start(void);
/* Who made the last change of what is between start and end, if that was seen: fills in call and
 * stack. */
void regx_check_changer_find(regx_check_change_t *change);

/* ---- witness.c: one thread at a time ---- */

/* -1: it cannot be had. */
int regx_check_witness_pin(uintptr_t start, uintptr_t end);
void regx_check_witness_unpin(int slot);
void regx_check_witness_close(void);
typedef enum regx_check_bytes {
    REGX_BYTES_SAME,
    REGX_BYTES_DIFFER,
    REGX_BYTES_UNKNOWN
} regx_check_bytes_t;
/* The pages of a slot, against what is at these addresses now. */
regx_check_bytes_t regx_check_witness_compare(int slot, uintptr_t start, size_t length);

#endif

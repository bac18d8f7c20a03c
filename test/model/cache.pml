/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How a look-up in the registration cache learns of changes that the notifier reports, for the model checker
 * Spin: threads of the application that transfer one buffer, threads that change it, the notifier's reader and
 * the cache's progress, in every interleaving. test_model.py runs it, whole and with one rule of the protocol
 * broken at a time (-DBREAK_ and its name): then the assertion must fail, or the model would prove nothing.
 *
 * Each part says of which file in registration/ it is, and uses the names of its functions. Proven: a look-up
 * never answers with a region whose pages were changed between the start of its pinning and the start of the
 * look-up; what is used stays registered; and no deadlock. Memory is sequentially consistent. Not in it: the
 * ring of the log (inval_log.pml).
 */
#ifndef THREADS
#define THREADS 1
#endif
#ifndef ROUNDS
#define ROUNDS 2 /* transfers by each of them */
#endif
#ifndef CHANGERS
#define CHANGERS 1
#endif
#ifndef CHANGES
#define CHANGES 1 /* by each of them */
#endif

/* ---- the kernel */
byte pages;            /* which pages the buffer has: counts its changes */
bool armed;            /* watched by userfaultfd */
byte changing;         /* mmap_changing, which the query reads */
bool posted[CHANGERS]; /* an event that has not been read; its changer waits */

/* ---- the log: inval_log.c. Every change touches the buffer. */
byte head, whole; /* changes logged or being logged, and those that are whole */
bit sequence;
byte interest;

/* ---- the cache: two records, of which one is alive at a time */
#define RECORDS 2
mtype = {FREE, ALIVE, DEAD, RETIRED};
bool locked;
byte applied;
mtype state[RECORDS] = FREE;
byte uses[RECORDS], pinned[RECORDS]; /* the pages that the device has */
#define ALIVE_ONE (state[0] == ALIVE || state[1] == ALIVE)

byte finished;

/* regx_inval_log_write, by the reader alone */
inline log_change()
{
    if
    :: interest == 0
    :: else -> head++; whole++
    fi
}

/* regx_cache_catch_up_locked: it may stop before any change. */
inline catch_up()
{
    top = head;
    cursor = applied;
    do
    :: cursor >= top || cursor == whole -> break
    :: cursor < top && cursor < whole ->
        atomic {
            if
            :: state[0] == ALIVE -> state[0] = DEAD; interest--
            :: state[1] == ALIVE -> state[1] = DEAD; interest--
            :: else
            fi;
            cursor++
        }
    :: cursor < top -> break
    od;
#ifdef BREAK_PASSED
    applied = top;
#else
    applied = cursor;
#endif
    atomic { top = 0; cursor = 0 }
}

inline lock()
{
    atomic { !locked -> locked = true }
}

/* regx_monitor_is_settled, and the head that is read behind it */
#ifdef BREAK_NO_QUERY
#define QUERY skip
#else
#define QUERY settled = settled && changing == 0
#endif
#ifdef BREAK_NO_SEQUENCE
#define SEQUENCE skip
#else
#define SEQUENCE settled = settled && sequence == 0
#endif
#define HEAD epoch = head
#ifdef BREAK_QUERY_LATE
#define LOOK SEQUENCE; HEAD; QUERY
#else
#ifdef BREAK_HEAD_EARLY
#define LOOK HEAD; QUERY; SEQUENCE
#else
#define LOOK QUERY; SEQUENCE; HEAD
#endif
#endif
/* Each change touches the buffer. */
#ifdef BREAK_PENDING
#define UNTOUCHED true
#else
#define UNTOUCHED (applied >= epoch || head == applied)
#endif

proctype application()
{
    byte start, since, got, epoch, round, top, cursor, n;
    bit settled;

    do
    :: round == ROUNDS -> break
    :: round < ROUNDS ->
        round++;
        start = pages; /* the buffer as the application has it now */

        /* cache.c: regx_cache_look_up */
        settled = 1;
        LOOK;
        lock();
        if
        :: applied < epoch -> catch_up()
        :: else
        fi;
        if
        :: atomic { ALIVE_ONE -> n = (state[0] == ALIVE -> 0 : 1) };
            if
            :: settled && UNTOUCHED -> assert(pinned[n] >= start); goto use
            :: else -> goto once
            fi
        :: else -> locked = false
        fi;

        /* miss.c: regx_cache_acquire; uffd.c: subscribe */
#ifndef BREAK_INTEREST
        interest++;
#endif
#ifdef BREAK_SINCE
        armed = true;
        since = head;
#else
        since = head;
        armed = true;
#endif
#ifdef BREAK_INTEREST
        interest++;
#endif
        got = pages; /* the device pins, no lock held */

        /* miss.c: publish. It also asks query and sequence; this holds without. */
        lock();
        catch_up();
        atomic {
            if
#ifdef BREAK_INSERT
            :: !ALIVE_ONE && (state[0] == FREE || state[1] == FREE) ->
#else
            :: !ALIVE_ONE && head == since && (state[0] == FREE || state[1] == FREE) ->
#endif
                n = (state[0] == FREE -> 0 : 1);
                state[n] = ALIVE;
                pinned[n] = got;
                goto use
            :: else -> interest-- /* for this use alone */
            fi
        }
once:
        locked = false;
        goto next;

use:    /* regx_cache_use_locked, and what it is used for */
        atomic { uses[n]++; locked = false };
        assert(state[n] == ALIVE || state[n] == DEAD);
        lock(); /* regx_cache_release */
        atomic { uses[n]--; locked = false };
next:
        start = 0;
        d_step { since = 0; got = 0; epoch = 0; n = 0; settled = 0 }
    od;
    finished++
}

/* The kernel: munmap, MAP_FIXED, mremap. The pages go, then comes the event. The address is free before that, so
 * another thread may have it already. */
proctype changer(byte me)
{
    byte done;

    do
    :: done == CHANGES -> break
    :: done < CHANGES ->
        done++;
        if
        :: atomic { armed -> pages++; armed = false; changing++ };
            posted[me] = true;
            !posted[me]; /* the reader's read lets it go on */
            changing--
        :: atomic { !armed -> pages++ }
        fi
    od;
    finished++
}

/* notifier.c: read_events */
proctype reader()
{
    byte which;

end_idle:
    do
    ::  if
        :: posted[0] -> which = 0
#if CHANGERS > 1
        :: posted[1] -> which = 1
#endif
        fi;
        sequence = 1;
        posted[which] = false;
#ifdef BREAK_EVEN_EARLY
        sequence = 0;
        log_change()
#else
        log_change();
        sequence = 0
#endif
    od
}

#ifdef BREAK_USES
#define UNUSED(n) state[n] == DEAD
#else
#define UNUSED(n) state[n] == DEAD && uses[n] == 0
#endif

/* cache.c: regx_cache_progress, regx_cache_retire */
proctype progress()
{
    byte top, cursor;

    do
    :: head != applied -> lock(); catch_up(); locked = false
    :: atomic { !locked && UNUSED(0) -> state[0] = RETIRED }; state[0] = FREE
    :: atomic { !locked && UNUSED(1) -> state[1] = RETIRED }; state[1] = FREE
    :: atomic { finished == THREADS + CHANGERS && head == applied && !locked &&
                state[0] != DEAD && state[1] != DEAD -> break }
    od
}

init
{
    byte id;
    atomic {
        if /* the cache is empty, or holds the buffer */
        :: true
        :: state[0] = ALIVE; interest = 1; armed = true
        fi;
        do
        :: id < THREADS -> run application(); id++
        :: else -> break
        od;
        id = 0;
        do
        :: id < CHANGERS -> run changer(id); id++
        :: else -> break
        od;
        run reader();
        run progress()
    }
}

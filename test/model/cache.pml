/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How a look-up in the registration cache learns of changes that the notifier reports, for the model checker
 * Spin: threads of the application that transfer one buffer, threads that change it, the notifier's reader and
 * the cache's progress, in every interleaving. test_model.py runs it, whole and with one rule of the protocol
 * broken at a time (-DBREAK_ and its name): then the assertion must fail, or the model would prove nothing.
 *
 * Each part says of which file in registration/ it is, and uses the names of its functions. Proven: a look-up
 * never answers with a region whose pages were changed between the start of its pinning and the start of the
 * look-up; and no deadlock. Memory is sequentially consistent. Not in it: how uses are counted and regions
 * retired (test/unit/registration/test_races.c), and the ring of the log (inval_log.pml).
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

/* ---- the cache */
bool locked, alive;
byte applied, pinned; /* the pages that the device has */

byte finished;

/* regx_inval_log_write, by the reader alone */
inline log_change()
{
    if
    :: interest == 0
    :: else -> head++; whole++
    fi
}

/* regx_cache_catch_up_locked, with the lock held: it may stop before any change. */
inline catch_up()
{
    top = head;
    cursor = applied;
#ifdef BREAK_APPLY_ORDER
    applied = top;
#endif
    do
    :: cursor == top || cursor == whole -> break
    :: cursor < top && cursor < whole ->
        atomic {
            if
            :: alive -> alive = false; interest--
            :: else
            fi;
            cursor++
        }
    :: cursor < top -> break
    od;
#ifndef BREAK_APPLY_ORDER
    applied = cursor;
#endif
    atomic { top = 0; cursor = 0 }
}

inline lock()
{
    atomic { !locked -> locked = true }
}

#define CHECK(condition, otherwise) if :: condition :: else -> goto otherwise fi
#ifdef BREAK_NO_QUERY
#define QUIET(otherwise) skip
#else
#define QUIET(otherwise) CHECK(changing == 0, otherwise)
#endif
#ifdef BREAK_NO_SEQUENCE
#define LOGGED(otherwise) skip
#else
#define LOGGED(otherwise) CHECK(sequence == 0, otherwise)
#endif
/* cache.c: is_current */
#define EPOCH(otherwise) \
    epoch = head; \
    if :: epoch == applied -> epoch = 0 :: else -> epoch = 0; goto otherwise fi
#ifdef BREAK_QUERY_LATE
#define CHECKS(otherwise) LOGGED(otherwise); EPOCH(otherwise); QUIET(otherwise)
#else
#define CHECKS(otherwise) QUIET(otherwise); LOGGED(otherwise); EPOCH(otherwise)
#endif

proctype application()
{
    byte start, since, got, epoch, round, top, cursor;

    do
    :: round == ROUNDS -> break
    :: round < ROUNDS ->
        round++;
        start = pages; /* the buffer as the application has it now */

        /* cache.c: try_use */
        CHECKS(slow);
        atomic {
            CHECK(alive, slow);
            assert(pinned >= start);
            goto next
        }
slow:   /* miss.c: use_found_locked. Not all that changed need have ended. */
        lock();
        catch_up();
        if
        :: alive ->
            QUIET(once);
            LOGGED(once);
#ifndef BREAK_PENDING
            CHECK(head == applied, once);
#endif
            assert(pinned >= start);
            goto once
        :: else -> locked = false
        fi;

        /* miss.c: register_admitted; uffd.c: subscribe */
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
        lock();

        /* miss.c: publish_locked. It also asks query and sequence; this holds without. */
        catch_up();
        atomic {
            if
#ifdef BREAK_INSERT
            :: !alive -> alive = true; pinned = got
#else
            :: !alive && head == since -> alive = true; pinned = got
#endif
            :: else -> interest-- /* for this use alone */
            fi
        }
once:
        locked = false;
next:
        start = 0;
        d_step { since = 0; got = 0 }
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

/* cache.c: regx_registry_progress */
proctype progress()
{
    byte top, cursor;

    do
    :: head != applied -> lock(); catch_up(); locked = false
    :: atomic { finished == THREADS + CHANGERS && head == applied && !locked -> break }
    od
}

init
{
    byte id;
    atomic {
        if /* the cache is empty, or holds the buffer */
        :: true
        :: alive = true; interest = 1; armed = true
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

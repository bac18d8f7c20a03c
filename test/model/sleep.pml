/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How the threads of several caches sleep on one log and are woken (registration/retire.c,
 * regx_inval_log_wake in registration/monitor/inval_log.c), for the model checker Spin.
 *
 * Two caches on one log, each with a thread that acts on changes and sleeps while there are none
 * (a futex: it sleeps only if the word still has the value that was seen). One process logs
 * CHANGES changes and wakes whoever sleeps. Another closes the caches, one after the other: it
 * stops a thread and waits until that has ended. It begins at any time; with ACTED_ON once both have
 * acted on all changes, which must come without any other event.
 *
 * Nobody may sleep for ever: Spin finds that as an end state in which not all processes have ended.
 * BREAK_... leaves out one rule.
 */
#ifndef CHANGES
#define CHANGES 2
#endif
#define CACHES 2

byte head;   /* changes logged */
byte wakes;  /* times that sleepers were woken */
bool asleep; /* a thread sleeps, or is about to */

byte applied[CACHES]; /* changes that each cache has acted on */
bool stop[CACHES];
bool ended[CACHES];
bool sleeps[CACHES]; /* in the futex */

inline futex_wake()
{
    atomic { sleeps[0] = false; sleeps[1] = false }
}

inline wake()
{
    if
    :: asleep ->
        atomic { had = asleep; asleep = false }
        if
        :: had ->
#ifndef BREAK_WAKES_COUNTED
            wakes++;
#endif
            futex_wake()
        :: else
        fi
    :: else
    fi
}

proctype writer()
{
    bool had;
    byte i;

    for (i : 1 .. CHANGES) {
#ifdef BREAK_LOGGED_FIRST
        wake();
        head++
#else
        head++;
        wake()
#endif
    }
}

proctype cache_thread(byte me)
{
    byte seen;
    bool idle;

    do
    :: stop[me] -> break
    :: else ->
#ifndef BREAK_SEEN_LATE
        seen = wakes;
#endif
#ifndef BREAK_ASLEEP_LATE
        asleep = true;
#endif
        idle = applied[me] == head;
        idle = idle && !stop[me];
#ifdef BREAK_SEEN_LATE
        seen = wakes;
#endif
#ifdef BREAK_ASLEEP_LATE
        asleep = true;
#endif
        if
        :: idle ->
            atomic {
#ifdef BREAK_ONE_FLAG
                sleeps[me] = asleep /* the word that is waited on is the flag */
#else
                sleeps[me] = wakes == seen
#endif
            }
            !sleeps[me]
        :: else
        fi
        applied[me] = head
    od
    ended[me] = true
}

proctype closer()
{
    byte i;

#ifdef ACTED_ON
    applied[0] == CHANGES && applied[1] == CHANGES;
#endif
    for (i : 0 .. CACHES - 1) {
        stop[i] = true;
#ifdef BREAK_ONE_FLAG
        asleep = false;
#else
#ifndef BREAK_STOP_COUNTED
        wakes++;
#endif
#endif
        futex_wake();
        ended[i]
    }
}

init
{
    atomic {
        run writer();
        run cache_thread(0);
        run cache_thread(1);
        run closer()
    }
}

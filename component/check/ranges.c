/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What is registered, and what of it has changed since. The notifier reports changes of private
 * memory. Of memory that it cannot watch only the witness tells, which is then compared at each use.
 *
 * Never accused are: a range that changed before it was registered, a part of it that has not changed, a
 * use beside a change that is still under way in another thread.
 */
#include <string.h>
#include <sys/uio.h>

#include "check/check.h"
#include "registration/monitor/uffd.h"

enum {
    HEADS = 1 << 12,
    MESSAGE = 4096,  /* bytes of a message that are looked at */
    OFFER = 12,      /* bytes of an offer at least: an address and a key */
    OFFERS = 16,     /* of what changed, that are judged for a range and a message */
    LOOKS = 8,       /* at an offer: the next message mostly tells that the peer has written */
    KEPT = 64 << 10, /* bytes at most that stay pinned */
    REMOTE = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC
};

/* What is posted, as far as it is looked at. */
typedef struct message {
    size_t length;
    unsigned char bytes[MESSAGE];
} message_t;

/* Under the lock. Nothing is allocated under it: a thread that deregisters may be inside free(). Faults are
 * told after it was given up. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static regx_check_range_t *ranges; /* that there is room for, from the first registration on */
static regx_check_range_t *heads[REGX_CHECK_KEYS][HEADS];
static regx_check_range_t *unused; /* the last that ended comes first: that one may be held still */
static uint32_t touched;           /* ranges that were ever used */
static regx_monitor_t *_Atomic monitor;
static regx_maps_t maps;

static _Atomic uint64_t cursor; /* changes that were looked at */
static uint64_t uses, messages;
static _Atomic bool may_be_open;         /* false: none is_open */
static _Atomic bool may_be_written;      /* false: no offer is looked at */
static __thread volatile bool is_inside; /* this thread has the lock, or is about to */

static void enter(void)
{
    is_inside = true;
    pthread_mutex_lock(&lock);
}

static void leave(void)
{
    pthread_mutex_unlock(&lock);
    is_inside = false;
}

static uint32_t slot_of(const regx_check_range_t *range)
{
    return (uint32_t)(range - ranges);
}

static regx_check_range_t **head_of(int which, const struct ibv_context *context, uint32_t key)
{
    return &heads[which][((uintptr_t)context ^ key) * UINT64_C(0x9e3779b97f4a7c15) >> 52];
}

/* By its lkey. */
static regx_check_range_t *find(const struct ibv_context *context, uint32_t lkey)
{
    regx_check_range_t *range = *head_of(0, context, lkey);

    while (range != NULL && (range->context != context || range->keys[0] != lkey)) {
        range = range->next[0];
    }
    return range;
}

/* Whether peers may use it, and it has changed, or may have. */
static bool is_open(const regx_check_range_t *range)
{
    return range->is_registered && (range->access & REMOTE) != 0 &&
           (range->change_count > 0 || range->is_unsure);
}

/* ---- changes ---- */

static const regx_check_call_t unseen = {.what = "a call that was not seen"};
static const regx_check_call_t unwatched = {
    .what = "a call that was not seen, of memory that cannot be watched: truncate, shmdt, a system "
            "call that is not libc's, or another process; strace finds it (NOTES of man "
            "regx-check)"};

/* sure: that is a change. Otherwise, or where there is no room for one more, bytes are to tell. by: the call that
 * made it; NULL: the notifier told. */
static void mark(regx_check_range_t *range, const regx_change_t *seen, bool sure,
                 const regx_check_call_t *by)
{
    regx_check_change_t change = {.start = regx_max(seen->start, range->base),
                                  .end = regx_min(seen->end, range->base + range->length),
                                  .call = by != NULL ? *by : unseen};

    for (int i = 0; i < range->change_count; i++) {
        if (range->changes[i].start <= change.start && change.end <= range->changes[i].end) {
            return; /* it is stale already */
        }
    }
    if (change.start >= change.end) {
        return;
    }
    may_be_open = true;
    if (!sure || range->change_count == REGX_CHECK_CHANGES) {
        range->is_unsure = true;
        return;
    }
    if (by == NULL && !regx_check_changer_find(&change, range->calls_before, !range->is_watched) &&
        !range->is_watched) {
        return; /* it may be none: bytes tell */
    }
    if (range->change_count == 0) {
        range->changed_at = uses;
    }
    range->changes[range->change_count++] = change;
}

/* A file's bytes that lost their pages, and the call. */
typedef struct loss {
    struct stat file;
    uint64_t from, to;
    bool copies; /* also what private mappings have copied */
    regx_check_call_t call;
} loss_t;

static bool mark_loss(void *context, const regx_vma_t *mapping)
{
    const loss_t *loss = context;
    const uint64_t from = regx_max(loss->from, mapping->offset);
    const uint64_t to = regx_min(loss->to, mapping->offset + (mapping->end - mapping->start));
    const regx_change_t change = {.start = mapping->start + (from - mapping->offset),
                                  .end = mapping->start + (to - mapping->offset)};

    if (mapping->device != loss->file.st_dev || mapping->inode != loss->file.st_ino || from >= to ||
        (mapping->kind != REGX_VMA_SHARED && !loss->copies)) {
        return true;
    }
    for (uint32_t i = 0; i < touched; i++) {
        if (ranges[i].is_registered && !ranges[i].is_watched) {
            mark(&ranges[i], &change, true, &loss->call);
        }
    }
    return true;
}

/* In a handler of a signal, of a thread that has the lock, it is not named. */
void regx_check_file_lost(int fd, const char *what, const void *caller, off_t from, off_t to)
{
    const uint64_t page = regx_page_size();
    loss_t loss = {.from = regx_align_up((uint64_t)from, page),
                   .to = (uint64_t)to & ~(page - 1),
                   .copies = to == INT64_MAX};

    if (is_inside || regx_check_sum == NULL || regx_check_sum->unwatched == 0 ||
        fstat(fd, &loss.file) != 0) {
        return;
    }
    regx_check_call_take(&loss.call, what, caller);
    enter();
    regx_maps_each(&maps, 0, UINTPTR_MAX, mark_loss, &loss);
    leave();
}

/* Acts on what is in the log, up to that number. certain: it may be what somebody did. */
static void act(uint64_t until, bool certain)
{
    for (; cursor < until; cursor++) {
        regx_change_t change = {.end = UINTPTR_MAX}; /* if it is lost */
        const regx_change_state_t state = regx_inval_log_read(monitor->log, cursor, &change);

        if (state == REGX_CHANGE_LATER) {
            return;
        }
        for (uint32_t i = 0; i < touched; i++) {
            mark(&ranges[i], &change, certain && state == REGX_CHANGE_READ, NULL);
        }
        if (state == REGX_CHANGE_LOST) {
            cursor = regx_max(cursor, until - regx_min(until, REGX_INVAL_LOG_RING));
        }
    }
}

/* Waits until what has ended before the call is in the log, and acts on it. The reader is between two system
 * calls of its own, or has closed the descriptor for good: so this ends. It sleeps, so that the reader
 * runs even if this thread has a higher priority. */
static void catch_up(void)
{
    static const struct timespec a_moment = {.tv_nsec = 10000};

    while (monitor != NULL && atomic_load(&monitor->log->sequence) % 2 == 1) {
        if (!regx_file_is_ours(&monitor->query->file)) {
            regx_check_say("changes of memory are not reported any more, so bytes alone are "
                           "compared: the program closed the notifier's descriptor");
            for (uint32_t i = 0; i < touched; i++) {
                ranges[i].is_unsure = true;
            }
            may_be_open = true;
            monitor = NULL;
        }
        regx_raw(SYS_nanosleep, (long)&a_moment, 0, 0, 0, 0);
    }
    if (monitor != NULL) {
        act(atomic_load(&monitor->log->head), true);
    }
}

/* ---- registrations ---- */

static void start(void)
{
    static regx_counters_t counters;
    const regx_monitor_config_t config = {.counters = &counters};
    regx_monitor_t *new = NULL;
    regx_error_t why;
    /* 64 MiB: most processes that a command starts register nothing. */
    void *memory = mmap(NULL, REGX_CHECK_RANGES * sizeof(*ranges), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (memory == MAP_FAILED) {
        return;
    }
    ranges = memory;
    regx_check_changer_start();
    (void)regx_maps_open(&maps);
    const bool compares = regx_check_witness_open();
    if (regx_backend_notifier.start(&config, &new, why) == REGX_OK) {
        monitor = new;
    } else {
        regx_check_say("changes of memory are not reported, so %s: %s",
                       compares
                           ? "bytes alone are compared"
                           : "nothing can be found (a container may allow it by --security-opt "
                             "seccomp=unconfined)",
                       why);
    }
}

/* Of memory that cannot be watched, because it is a file's or shared, the notifier does not tell all; but what
 * it tells has a call. */
static bool hear_of(void *context, const regx_vma_t *mapping)
{
    (void)context;
    if (mapping->kind == REGX_VMA_SHARED || mapping->kind == REGX_VMA_FILE) {
        (void)regx_uffd_register(monitor->query->file.fd, mapping->start, mapping->end);
    }
    return true;
}

/* It is pinned, and has not changed, as far as is known. */
static bool is_held(const regx_check_range_t *range)
{
    return range->is_pinned && range->change_count == 0 && !range->is_unsure;
}

regx_check_range_t *regx_check_range_begin(const struct ibv_context *context, const void *base,
                                           size_t length, uint64_t iova, int access)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    regx_check_call_t call;
    regx_watch_t watch;
    bool watched = false, witnessed = false;

    regx_check_call_take(&call, NULL, NULL);
    pthread_once(&once, start);
    enter();
    regx_check_range_t *range = unused;
    if (range != NULL) {
        unused = range->next[0];
    } else if (ranges != NULL && touched < REGX_CHECK_RANGES) {
        range = &ranges[touched++];
    }
    if (range != NULL) {
        /* What was changed before must be in the log by now, or it would look as if it came after. */
        catch_up();
        const uint32_t calls = regx_check_changer_now();
        watched = regx_watch_begin(&watch, monitor, base, length);
        if (watched) {
            /* Where memory that was not watched is found, the notifier logs that it may have changed
             * meanwhile. What else is registered there is not accused for that. */
            act(watch.next, false);
        }
        /* Many programs register the same memory again and again. If it has not changed, it is pinned. */
        witnessed = (watched && is_held(range) && range->watch.start == watch.start &&
                     range->watch.end == watch.end) ||
                    regx_check_witness_pin(slot_of(range), watch.start, watch.end);
        regx_watch_end(&range->watch);
        if (!watched && monitor != NULL) {
            watch.monitor = monitor;
            regx_inval_log_interest(monitor->log, watch.start, watch.end, 1);
            regx_maps_each(&maps, watch.start, watch.end, hear_of, NULL);
        }
        *range = (regx_check_range_t){.context = context,
                                      .access = access,
                                      .base = (uintptr_t)base,
                                      .length = length,
                                      .iova = iova,
                                      .is_unsure = !watched,
                                      .is_pinned = witnessed,
                                      .is_watched = watched,
                                      .watch = watch,
                                      .begun_ns = regx_now_ns(),
                                      .calls_before = calls,
                                      .call = call};
    }
    leave();
    atomic_fetch_add(&regx_check_sum->registrations, 1);
    atomic_fetch_add(&regx_check_sum->unfollowed, range == NULL);
    atomic_fetch_add(&regx_check_sum->unwatched, range != NULL && !watched);
    atomic_fetch_add(&regx_check_sum->unwitnessed, range != NULL && !witnessed);
    return range;
}

void regx_check_range_add(regx_check_range_t *range, const struct ibv_mr *mr)
{
    if (range == NULL) {
        return;
    }
    enter();
    range->keys[0] = mr->lkey;
    range->keys[1] = mr->rkey;
    range->is_registered = true;
    for (int i = 0; i < REGX_CHECK_KEYS; i++) {
        regx_check_range_t **head = head_of(i, range->context, range->keys[i]);

        range->next[i] = *head;
        *head = range;
    }
    may_be_open = may_be_open || is_open(range);
    leave();
}

regx_check_range_t *regx_check_range_remove(const struct ibv_mr *mr)
{
    enter();
    regx_check_range_t *range = find(mr->context, mr->lkey);

    for (int i = 0; range != NULL && i < REGX_CHECK_KEYS; i++) {
        regx_check_range_t **at = head_of(i, range->context, range->keys[i]);

        while (*at != range) {
            at = &(*at)->next[i];
        }
        *at = range->next[i];
        range->is_registered = false;
    }
    leave();
    return range;
}

/* change: NULL if it was not seen. */
static void describe(regx_check_finding_t *found, regx_check_verdict_t verdict,
                     const regx_check_range_t *range, const regx_check_change_t *change,
                     uintptr_t start, size_t length)
{
    const regx_check_call_t *by = range->is_watched ? &unseen : &unwatched;

    if (change != NULL) {
        by = &change->call;
    }
    *found = (regx_check_finding_t){.verdict = verdict,
                                    .registered_ns = range->begun_ns,
                                    .start = start,
                                    .length = length,
                                    .calls = {range->call, *by}};
}

/* Peers may have used what changed: it was registered still when something was used after that use by
 * which the change was noticed. */
static void judge_peers(const regx_check_range_t *range)
{
    regx_check_finding_t found = {.verdict = REGX_CHECK_NONE};

    enter();
    const regx_check_change_t *change = &range->changes[0];
    if (range->change_count > 0 && (range->access & REMOTE) != 0 && uses > range->changed_at + 1) {
        describe(&found, REGX_CHECK_REMOTE, range, change, change->start,
                 change->end - change->start);
        found.calls[REGX_CHECK_USED].what = "peers, perhaps";
    }
    leave();
    regx_check_fault(&found, NULL);
}

static void let_go(regx_check_range_t *range)
{
    regx_check_witness_unpin(slot_of(range));
    regx_watch_end(&range->watch);
    range->is_pinned = false;
}

void regx_check_range_end(regx_check_range_t *range)
{
    if (range == NULL) {
        return;
    }
    judge_peers(range);
    enter();
    if (unused != NULL && unused->is_pinned) {
        let_go(unused);
    }
    if (!is_held(range) || range->length > KEPT) {
        let_go(range);
    }
    range->next[0] = unused;
    unused = range;
    leave();
}

void regx_check_ranges_judge(void)
{
    for (uint32_t i = 0; i < touched; i++) {
        if (ranges[i].is_registered) {
            judge_peers(&ranges[i]);
        }
    }
}

bool regx_check_witnesses_drop(void)
{
    enter();
    const bool had = regx_check_witness_close();
    if (unused != NULL) {
        let_go(unused);
    }
    leave();
    return had;
}

/* ---- uses ---- */

/* Whether something of that part of it may have changed; *found: if it is stale, as far as is known, and no
 * worse was found. What changed is compared; the rest only if a change may have been missed. Of what
 * completes only bytes are news: it was judged when it was posted. */
static bool judge(regx_check_finding_t *found, const regx_check_range_t *range, uintptr_t start,
                  size_t length, bool completed)
{
    const regx_check_change_t rest = {.start = range->is_unsure ? start : UINTPTR_MAX,
                                      .end = start + length};
    bool any = false;

    for (int i = 0; i <= range->change_count && found->verdict != REGX_CHECK_DIFFERENT; i++) {
        const regx_check_change_t *change = i < range->change_count ? &range->changes[i] : &rest;
        const uintptr_t from = regx_max(start, change->start);
        const uintptr_t to = regx_min(start + length, change->end);

        if (from >= to) {
            continue;
        }
        any = true;
        const regx_check_verdict_t verdict =
            regx_check_witness_compare(slot_of(range), from, to - from);
        if (verdict == REGX_CHECK_DIFFERENT ||
            (change != &rest && (range->is_watched || verdict != REGX_CHECK_SAME) && !completed &&
             found->verdict == REGX_CHECK_NONE)) {
            describe(found, verdict, range, change == &rest ? NULL : change, start, length);
        }
    }
    return any;
}

void regx_check_use(const struct ibv_context *context, const struct ibv_sge *piece, const char *use,
                    bool completed)
{
    regx_check_finding_t found;

    found.verdict = REGX_CHECK_NONE; /* the rest is written where it is one */
    enter();
    catch_up();
    const regx_check_range_t *range = find(context, piece->lkey);
    if (range != NULL && piece->length != 0 &&
        regx_within(piece->addr - range->iova, piece->length, range->length)) {
        judge(&found, range, range->base + (uintptr_t)(piece->addr - range->iova), piece->length,
              completed);
    }
    uses++;
    leave();
    regx_check_fault(&found, use);
}

/* How many bytes are offered with the address at that place of a message, of as many as the range has
 * there. The word behind it says so, as of UCX and libfabric; else the greatest that may be a length, but
 * at least the page is. A key is no length. */
static size_t offered(const message_t *message, size_t at, uint32_t key, size_t page, size_t most)
{
    uint64_t word = 0, greatest = page;

    for (size_t i = at % 4; i + sizeof(word) <= message->length; i += 4) {
        memcpy(&word, message->bytes + i, sizeof(word));
        if (word == 0 || word > most || (uint32_t)word == key) {
            continue;
        }
        if (i == at + sizeof(word)) {
            return word;
        }
        greatest = regx_max(greatest, word);
    }
    return greatest;
}

void regx_check_received(void)
{
    regx_check_finding_t found;
    bool any = false;

    if (!may_be_written) {
        return;
    }
    found.verdict = REGX_CHECK_NONE;
    enter();
    catch_up();
    for (uint32_t i = 0; i < touched * REGX_CHECK_OFFERS; i++) {
        const regx_check_range_t *range = &ranges[i / REGX_CHECK_OFFERS];
        regx_check_offer_t *offer = &ranges[i / REGX_CHECK_OFFERS].offers[i % REGX_CHECK_OFFERS];
        const regx_check_change_t *change = NULL;

        if (!range->is_registered || offer->sum == 0 || offer->looks == 0) {
            continue;
        }
        if (found.verdict != REGX_CHECK_NONE) {
            any = true;
            continue;
        }
        offer->looks--;
        if (regx_check_witness_sum(slot_of(range), offer->start, offer->length) != offer->sum) {
            /* The registered pages have changed since: only a device does that to pages that the program does not see.
             * If the program has the same bytes it sees these pages, and what happens later is none of this offer. */
            const regx_check_verdict_t verdict =
                regx_check_witness_compare(slot_of(range), offer->start, offer->length);

            for (int k = 0; k < range->change_count && change == NULL; k++) {
                if (range->changes[k].start < offer->start + offer->length &&
                    offer->start < range->changes[k].end) {
                    change = &range->changes[k];
                }
            }
            if (verdict == REGX_CHECK_DIFFERENT) {
                describe(&found, verdict, range, change, offer->start, offer->length);
            }
            offer->looks = verdict == REGX_CHECK_UNCOMPARED ? offer->looks : 0;
        }
        any |= offer->looks > 0;
    }
    may_be_written = any;
    leave();
    regx_check_fault(&found, "a peer that wrote to what it was offered");
}

/* What is at each address in the message that is the range's. The range's key is in it as well. */
static void judge_offer(regx_check_finding_t *found, regx_check_range_t *range,
                        const message_t *message)
{
    uint64_t address;
    int looks = 0;

    for (size_t at = 0; at + sizeof(address) <= message->length && looks < OFFERS &&
                        found->verdict != REGX_CHECK_DIFFERENT;
         at++) {
        memcpy(&address, message->bytes + at, sizeof(address));
        if (regx_within(address - range->iova, 1, range->length)) {
            const uintptr_t start = range->base + (uintptr_t)(address - range->iova);
            const size_t most = range->base + range->length - start;
            const size_t page = regx_align_up(start + 1, regx_page_size()) - start;
            const size_t length = offered(message, at, range->keys[1], regx_min(page, most), most);

            if (!judge(found, range, start, length, false)) {
                continue;
            }
            looks++;
            if ((range->access & IBV_ACCESS_REMOTE_WRITE) != 0) {
                /* A peer may write to it from now on, without any news here. */
                range->offers[range->offered++ % REGX_CHECK_OFFERS] = (regx_check_offer_t){
                    start, length, regx_check_witness_sum(slot_of(range), start, length), LOOKS};
                may_be_written = true;
            }
        }
    }
}

void regx_check_message(const struct ibv_context *context, const struct ibv_sge *list, size_t count)
{
    message_t message;
    const struct iovec to = {.iov_base = message.bytes, .iov_len = sizeof(message.bytes)};
    struct iovec from[REGX_CHECK_PIECES];
    const regx_monitor_t *now = monitor;
    regx_check_finding_t found;
    bool any_open = false;
    size_t whole = 0;
    uint32_t key;

    found.verdict = REGX_CHECK_NONE;
    if (!may_be_open && (now == NULL || (atomic_load(&now->log->sequence) % 2 == 0 &&
                                         atomic_load(&now->log->head) == cursor))) {
        return; /* nor is there news of a change */
    }
    count = regx_min(count, REGX_CHECK_PIECES);
    for (size_t i = 0; i < count; i++) {
        from[i].iov_base = (void *)(uintptr_t)list[i].addr;
        from[i].iov_len = list[i].length;
        whole += list[i].length;
    }
    if (whole < OFFER) {
        return;
    }
    /* By the kernel: what is posted may not be there. Of this thread: the first may have ended. */
    const ssize_t got = process_vm_readv(gettid(), &to, 1, from, count, 0);
    message.length = got > 0 ? (size_t)got : 0;

    enter();
    catch_up();
    for (uint32_t i = 0; i < touched && !any_open; i++) {
        any_open = is_open(&ranges[i]);
    }
    messages++;
    for (size_t at = 0; any_open && at + sizeof(key) <= message.length; at++) {
        memcpy(&key, message.bytes + at, sizeof(key));
        regx_check_range_t *range = *head_of(1, context, key);

        for (; range != NULL; range = range->next[1]) {
            if (range->keys[1] == key && range->context == context && is_open(range) &&
                range->message != messages) {
                range->message = messages; /* its key may be there again */
                judge_offer(&found, range, &message);
            }
        }
    }
    may_be_open = any_open;
    leave();
    regx_check_fault(&found, "an offer to a peer");
}

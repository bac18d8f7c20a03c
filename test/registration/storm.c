/* SPDX-License-Identifier: BSD-3-Clause
 *
 * storm BACKEND SEED OPERATIONS [glance] [tight] [parts]: threads that change and use memory of
 * their own, all at once, so that what one gives back is at once another's: the kernel hands
 * addresses out again before munmap returns. No byte may be wrong.
 *
 * glance: they also send what is, or was a moment ago, another thread's, whatever the bytes are:
 * the error of a program that uses memory while it goes. The registration must hold to the end, and
 * must not be used for what gets the address next. Only unmapping then, in all its forms: of
 * MADV_DONTNEED the kernel tells before it acts.
 * tight: the cache has room for a third of their memory, so that they push out each other's.
 * parts: the cache acts on one changed region at a time.
 * Output and status as property's, but for `refused`: a refusal is a failure here.
 */
#include <stdatomic.h>

#include "../stamp.h"
#include "change.h"
#include "registration/cache.h"
#include "rig.h"

enum { PAGE = 4096, THREADS = 4, SLOTS = 8, BLOCKS = 4, LARGEST = 8, UNAVAILABLE = 77 };

typedef struct slot {
    /* Others may look: it may no longer be so. */
    _Atomic(uint8_t *) base;
    _Atomic unsigned pages;
} slot_t;

typedef struct actor {
    pthread_t thread;
    unsigned number;
    uint64_t random;
    slot_t slots[SLOTS];
    uint8_t *blocks[BLOCKS]; /* from malloc */
    size_t sizes[BLOCKS];
    uint64_t changes, transfers, bytes, glances;
} actor_t;

static rig_t rig;
static bool hooks_only;
static bool glance;
static bool parts;
static unsigned room; /* of the cache, in regions; 0: for all */
static uint64_t seed, operations;
static actor_t actors[THREADS];

static void must(bool so, const char *what)
{
    if (!so) {
        fprintf(stderr, "storm: seed %llu: %s: %s\n", (unsigned long long)seed, what,
                strerror(errno));
        _exit(2);
    }
}

static unsigned below(actor_t *actor, unsigned limit)
{
    return (unsigned)(chance_next(&actor->random) % limit);
}

/* ---- transfers ---- */

static void transfer(actor_t *actor, uint8_t *base, size_t length)
{
    const direction_t direction = below(actor, 2) == 0 ? SEND : RECEIVE;
    const uint64_t stamp = ((uint64_t)actor->number << 32) + ++actor->transfers;

    for (size_t at = below(actor, PAGE / 2); direction == SEND && at + 8 <= length; at += PAGE) {
        memcpy(base + at, &stamp, sizeof(stamp));
    }
    const transfer_t done = rig_transfer(&rig, direction, base, length, stamp);
    must(done.status == REGX_OK, "memory that is there cannot be registered");
    actor->bytes += length;
    if (done.right != length) {
        printf("stale: seed %llu, thread %u, transfer %llu: %s of %zu bytes at %p: byte %zu is "
               "wrong\n",
               (unsigned long long)seed, actor->number, (unsigned long long)actor->transfers,
               direction == SEND ? "send" : "receive", length, (void *)base, done.right);
        fflush(stdout);
        _exit(1);
    }
}

static void use_slot(actor_t *actor, const slot_t *slot)
{
    const size_t skip = below(actor, 2) * (size_t)PAGE / 4;

    transfer(actor, slot->base + skip, (size_t)slot->pages * PAGE - 2 * skip);
}

static void use(actor_t *actor)
{
    const unsigned which = below(actor, SLOTS + 1);

    if (which == SLOTS) {
        const unsigned block = below(actor, BLOCKS);

        if (actor->blocks[block] != NULL) {
            transfer(actor, actor->blocks[block], actor->sizes[block]);
        }
    } else {
        use_slot(actor, &actor->slots[which]);
    }
}

/* Sends what is another's, or no longer is. */
static void look_at_another(actor_t *actor)
{
    const actor_t *another = &actors[below(actor, THREADS)];
    static _Thread_local char data[LARGEST * PAGE];
    regx_region_t region;

    if (another == actor) {
        return;
    }
    const slot_t *slot = &another->slots[below(actor, SLOTS)];
    uint8_t *base = slot->base;
    const size_t length = (size_t)slot->pages * PAGE;
    if (base != NULL &&
        regx_region_acquire(&rig.registry, base, length, REGX_ACCESS_LOCAL, &region) == REGX_OK) {
        oracle_send(rig.oracle, region.mr, base, length, data);
        regx_region_release(&rig.registry, &region);
        actor->glances++;
    }
}

/* ---- changes ---- */

static by_t some_way(actor_t *actor)
{
    return hooks_only || below(actor, 2) == 0 ? BY_LIBC : BY_SYSCALL;
}

static void fill_slot(actor_t *actor, slot_t *slot)
{
    const unsigned pages = below(actor, 2) == 0 ? LARGEST : 1 + below(actor, LARGEST);
    uint8_t *base = change_mmap(some_way(actor), NULL, (size_t)pages * PAGE, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS, -1);

    must(base != MAP_FAILED, "mmap");
    slot->pages = pages;
    atomic_store(&slot->base, base);
}

static void empty_slot(actor_t *actor, slot_t *slot)
{
    must(change_munmap(some_way(actor), slot->base, (size_t)slot->pages * PAGE) == 0, "munmap");
}

/* Loses its second half, and gets it back if no thread was faster. */
static void halve(actor_t *actor, slot_t *slot)
{
    const unsigned left = (slot->pages + 1) / 2;
    const size_t lost = (size_t)(slot->pages - left) * PAGE;
    uint8_t *second = slot->base + (size_t)left * PAGE;

    if (lost == 0) {
        return;
    }
    must(change_munmap(some_way(actor), second, lost) == 0, "munmap of a half");
    if (mmap(second, lost, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != second) {
        slot->pages = left;
    }
}

static void map_over(actor_t *actor, slot_t *slot)
{
    must(change_mmap(some_way(actor), slot->base, (size_t)slot->pages * PAGE,
                     PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
                     -1) == slot->base,
         "mmap over");
}

/* Grows, here or elsewhere, and shrinks again. */
static void move(actor_t *actor, slot_t *slot)
{
    const size_t length = (size_t)slot->pages * PAGE;
    uint8_t *base =
        change_mremap(some_way(actor), slot->base, length, 2 * length, MREMAP_MAYMOVE, NULL);

    if (base == MAP_FAILED && errno == EFAULT) { /* of several mappings: fine, it is as it was */
        return;
    }
    must(base != MAP_FAILED, "mremap to more");
    atomic_store(&slot->base, base);
    must(change_mremap(some_way(actor), base, 2 * length, length, 0, NULL) == base,
         "mremap to less");
}

static void move_and_stay(actor_t *actor, slot_t *slot)
{
    const size_t length = (size_t)slot->pages * PAGE;
    uint8_t *base = change_mremap(some_way(actor), slot->base, length, length,
                                  MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);

    if (base == MAP_FAILED && errno == EFAULT) {
        return;
    }
    must(base != MAP_FAILED, "mremap DONTUNMAP");
    use(actor); /* perhaps this very slot: its old place, now empty */
    must(change_munmap(some_way(actor), base, length) == 0, "munmap of where it went");
}

static void advise(actor_t *actor, const slot_t *slot, int advice)
{
    must(change_madvise(some_way(actor), slot->base, (size_t)slot->pages * PAGE, advice) == 0,
         "madvise");
}

static void reallocate(actor_t *actor)
{
    static const size_t sizes[] = {3000, 20000, 100000, 300000};
    const unsigned which = below(actor, BLOCKS);

    free(actor->blocks[which]);
    actor->sizes[which] = sizes[below(actor, 4)];
    actor->blocks[which] = malloc(actor->sizes[which]);
}

static void make_child(void)
{
    const pid_t pid = fork();

    must(pid >= 0, "fork");
    if (pid == 0) {
        _exit(0);
    }
    must(waitpid(pid, NULL, 0) == pid, "a child");
}

static void change(actor_t *actor)
{
    slot_t *slot = &actor->slots[below(actor, SLOTS)];
    const bool at_once = below(actor, 2) == 0; /* before the news of the change has gone round */
    const unsigned draw = below(actor, 1000);

    actor->changes++;
    if (draw < 400) {
        empty_slot(actor, slot);
        fill_slot(actor, slot);
    } else if (draw < 500) {
        halve(actor, slot);
    } else if (draw < 600) {
        map_over(actor, slot);
    } else if (draw < 700) {
        move(actor, slot);
    } else if (draw < 760) {
        move_and_stay(actor, slot);
    } else if (draw < 820 && !glance) {
        reallocate(actor); /* free may advise */
    } else if (draw < 980 && !glance) {
        advise(actor, slot, MADV_DONTNEED);
    } else if (draw < 999 && !glance) {
        advise(actor, slot, MADV_FREE);
    } else if (draw == 999) {
        make_child();
    } else {
        empty_slot(actor, slot);
        fill_slot(actor, slot);
    }
    if (at_once) {
        use_slot(actor, slot);
    }
}

/* ---- the run ---- */

static void *act(void *argument)
{
    actor_t *actor = argument;

    for (unsigned i = 0; i < SLOTS; i++) {
        fill_slot(actor, &actor->slots[i]);
    }
    for (uint64_t i = 0; i < operations / THREADS; i++) {
        change(actor);
        for (unsigned uses = below(actor, 4); uses > 0; uses--) {
            use(actor);
        }
        if (glance) {
            look_at_another(actor);
        }
        if (below(actor, 16) == 0) {
            regx_registry_progress(&rig.registry);
        }
    }
    for (unsigned i = 0; i < SLOTS; i++) {
        empty_slot(actor, &actor->slots[i]);
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        free(actor->blocks[i]);
    }
    return NULL;
}

static bool read_options(char **options)
{
    for (; *options != NULL; options++) {
        if (strcmp(*options, "glance") == 0) {
            glance = true;
        } else if (strcmp(*options, "tight") == 0) {
            room = THREADS * (SLOTS + BLOCKS) / 3;
        } else if (strcmp(*options, "parts") == 0) {
            parts = true;
        } else {
            return false;
        }
    }
    return true;
}

int main(int argc, char **argv)
{
    actor_t sum = {0};
    regx_error_t why;

    if (argc < 4 || !read_options(argv + 4)) {
        fprintf(stderr, "usage: storm BACKEND SEED OPERATIONS [glance] [tight] [parts]\n");
        return 2;
    }
    seed = strtoull(argv[2], NULL, 10);
    operations = strtoull(argv[3], NULL, 10);
    rig_begin();
    if (!rig_open(&rig, argv[1], room, why)) {
        printf("%s\n", why);
        rig_end();
        return UNAVAILABLE;
    }
    hooks_only = strcmp(argv[1], "hooks") == 0;
    if (parts) {
        rig.registry.cache->applied_max = 1;
    }
    for (unsigned i = 0; i < THREADS; i++) {
        actors[i].number = i;
        actors[i].random = seed * UINT64_C(0x2545f4914f6cdd1d) + i;
        must(pthread_create(&actors[i].thread, NULL, act, &actors[i]) == 0, "a thread");
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(actors[i].thread, NULL);
        sum.changes += actors[i].changes;
        sum.transfers += actors[i].transfers;
        sum.bytes += actors[i].bytes;
        sum.glances += actors[i].glances;
    }
    rig_report(&rig, seed, sum.changes, sum.transfers, sum.bytes);
    printf(" glances %llu\n", (unsigned long long)sum.glances);
    rig_close(&rig);
    rig_end();
    return 0;
}

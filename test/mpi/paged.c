/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory whose pages the program itself brings in, as collectors and pagers do: a message, or an
 * operation on a window, is from or to such memory, and the kernel's copy is refused there.
 *
 *     paged HOW SIDE SIZE...
 *
 * HOW: protected, by a handler of SIGSEGV that opens a page; slow, that opens several, and fills them a
 * while later; guarded, as protected for guard pages; cut,
 * by a handler of SIGBUS that lengthens the file again; pager, by a userfaultfd (of user mode) that a
 * thread serves; child, that a child of this process serves; swapper, by a userfaultfd whose thread takes
 * pages away, too, and brings them in as they were; owned, as protected, in memory of MPI_Alloc_mem, from
 * or to which a message goes before, with no handler; closed, as protected with no handler at all; none,
 * the control: nothing has to be brought in.
 * SIDE: send, receive, put, get: what rank 0 sends from, rank 1 receives into, rank 0 puts to, or gets
 * from, at rank 1. Each SIZE goes once from the beginning of a page, and once from inside one. What is
 * sent from is filled when it is brought in.
 */
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

#include "mapping.h"

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#define MADV_GUARD_REMOVE 103
#endif
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

enum { PAGE = 4096, SEED = 71, INSIDE = 24, SEVERAL = 16 * PAGE, WHILE_NS = 300000 };
enum {
    PAGES = 1024,
    STAY = 64
}; /* of the swapper: the most that there are, and those that are in */

static int rank;
static const char *how;
static bool fills, is_owned;
static size_t room; /* bytes of `memory` */

static struct {
    unsigned char *memory; /* where it begins, on a page */
    unsigned char *buffer; /* what is sent from or received into */
    size_t size;
    uint64_t key;
    int file; /* or userfaultfd; -1 */
} now;

/* Counted by a child, too. */
static atomic_uint *faults;
static atomic_bool *ends;

/* Fills what of the buffer lies in those bytes. */
static void fill(unsigned char *from, size_t length, unsigned char *into)
{
    unsigned char *begin = from > now.buffer ? from : now.buffer;
    unsigned char *end = from + length;
    if (end > now.buffer + now.size) {
        end = now.buffer + now.size;
    }
    if (begin < end) {
        stamp_fill(into + (begin - from), (size_t)(end - begin), now.key,
                   (size_t)(begin - now.buffer));
    }
}

static void on_fault(int signal, siginfo_t *info, void *unused)
{
    static const char foreign[] = "a signal for other memory\n";
    unsigned char *page = (unsigned char *)((uintptr_t)info->si_addr / PAGE * PAGE);
    size_t length = PAGE;
    if (page < now.memory || page >= now.memory + room) {
        if (write(STDERR_FILENO, foreign, sizeof foreign - 1) >= 0) {
            _exit(signal);
        }
    }
    if (strcmp(how, "cut") == 0) {
        length = room - (size_t)(page - now.memory);
        if (ftruncate(now.file, (off_t)room) != 0) {
            _exit(signal);
        }
    } else if (strcmp(how, "guarded") == 0) {
        madvise(page, PAGE, MADV_GUARD_REMOVE);
    } else if (strcmp(how, "slow") == 0) {
        const size_t rest = room - (size_t)(page - now.memory);
        length = rest < SEVERAL ? rest : SEVERAL;
        mprotect(page, length, PROT_READ | PROT_WRITE);
        nanosleep(&(struct timespec){.tv_nsec = WHILE_NS}, NULL);
    } else {
        mprotect(page, PAGE, PROT_READ | PROT_WRITE);
    }
    if (fills) {
        fill(page, length, page);
    }
    ++*faults;
}

/* Serves the userfaultfd until all is over. */
static void *serve(void *unused)
{
    static unsigned char page[PAGE];
    struct uffd_msg message;
    struct pollfd waits = {now.file, POLLIN, 0};
    while (!*ends) {
        if (poll(&waits, 1, 5) <= 0 || read(now.file, &message, sizeof message) != sizeof message ||
            message.event != UFFD_EVENT_PAGEFAULT) {
            continue;
        }
        unsigned char *to =
            (unsigned char *)(uintptr_t)(message.arg.pagefault.address / PAGE * PAGE);
        memset(page, 0, PAGE);
        if (fills) {
            fill(to, PAGE, page);
        }
        ++*faults;
        struct uffdio_copy copy = {(uintptr_t)to, (uintptr_t)page, PAGE, 0, 0};
        ioctl(now.file, UFFDIO_COPY, &copy);
    }
    return NULL;
}

static struct {
    unsigned char *store;
    bool in[PAGES];
    size_t ins, hand;
} swap;

static unsigned char *page_of(size_t number)
{
    return now.memory + number * PAGE;
}

static void wake(unsigned char *page)
{
    struct uffdio_range range = {(uintptr_t)page, PAGE};
    ioctl(now.file, UFFDIO_WAKE, &range);
}

/* As the program's own stores see it the page keeps its bytes: who stores to it from here on waits. */
static void swap_out(void)
{
    do {
        swap.hand = (swap.hand + 1) % (room / PAGE);
    } while (!swap.in[swap.hand]);
    unsigned char *page = page_of(swap.hand);
    struct uffdio_writeprotect protect = {{(uintptr_t)page, PAGE}, UFFDIO_WRITEPROTECT_MODE_WP};
    check_that(ioctl(now.file, UFFDIO_WRITEPROTECT, &protect) == 0, "write protection: %s",
               strerror(errno));
    memcpy(swap.store + swap.hand * PAGE, page, PAGE);
    madvise(page, PAGE, MADV_DONTNEED);
    wake(page);
    swap.in[swap.hand] = false;
    swap.ins--;
}

static void swap_in(size_t number)
{
    struct uffdio_copy copy = {(uintptr_t)page_of(number), (uintptr_t)(swap.store + number * PAGE),
                               PAGE, 0, 0};
    if (swap.in[number]) {
        wake(page_of(number));
        return;
    }
    until(swap.ins < STAY, swap_out());
    ++*faults;
    check_that(ioctl(now.file, UFFDIO_COPY, &copy) == 0, "a page cannot be brought in: %s",
               strerror(errno));
    swap.in[number] = true;
    swap.ins++;
}

/* Serves the userfaultfd until all is over, and takes a page away whenever there is nothing to serve. */
static void *swap_serve(void *unused)
{
    struct uffd_msg message;
    while (!*ends) {
        if (read(now.file, &message, sizeof message) != sizeof message) {
            if (swap.ins > 0) {
                swap_out();
            }
        } else if (message.event == UFFD_EVENT_PAGEFAULT) {
            swap_in(
                (size_t)((unsigned char *)(uintptr_t)message.arg.pagefault.address - now.memory) /
                PAGE);
        }
    }
    return NULL;
}

static bool is_swapper(void)
{
    return strcmp(how, "swapper") == 0;
}

static void open_swapper(void)
{
    check_that(room / PAGE <= PAGES, "the swapper has %d pages", PAGES);
    memset(&swap, 0, sizeof swap);
    swap.store = mapping_make(NULL, room, false);
    memset(swap.store, 0x5a, room);
    if (fills) {
        fill(now.memory, room, swap.store);
    }
    madvise(now.memory, room, MADV_NOHUGEPAGE);
}

static pthread_t thread;
static pid_t child;

static void open_pager(void)
{
    struct uffdio_api api = {.api = UFFD_API};
    struct uffdio_register range = {.range = {(uintptr_t)now.memory, room},
                                    .mode = UFFDIO_REGISTER_MODE_MISSING};
    now.file = -1;
    if (is_swapper()) { /* the kernel's accesses wait for it, too, where that is allowed */
        open_swapper();
        range.mode |= UFFDIO_REGISTER_MODE_WP;
        api.features = UFFD_FEATURE_PAGEFAULT_FLAG_WP;
        now.file = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
    }
    if (now.file < 0) {
        now.file = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
    }
    check_that(now.file >= 0 && ioctl(now.file, UFFDIO_API, &api) == 0 &&
                   ioctl(now.file, UFFDIO_REGISTER, &range) == 0,
               "no userfaultfd: %s", strerror(errno));
    *ends = false;
    if (strcmp(how, "child") != 0) {
        pthread_create(&thread, NULL, is_swapper() ? swap_serve : serve, NULL);
    } else if ((child = fork()) == 0) {
        serve(NULL);
        _exit(0);
    }
}

static void close_pager(void)
{
    *ends = true;
    if (strcmp(how, "child") != 0) {
        pthread_join(thread, NULL);
    } else {
        waitpid(child, NULL, 0);
    }
    close(now.file);
    if (is_swapper()) {
        mapping_drop(swap.store, room, false);
    }
}

static bool is_paged(void)
{
    return is_swapper() || strcmp(how, "pager") == 0 || strcmp(how, "child") == 0;
}

/* Memory that has to be brought in. */
static void make(void)
{
    if (is_owned) {
        MPI_Alloc_mem((MPI_Aint)room, MPI_INFO_NULL, &now.memory);
    } else if (strcmp(how, "cut") == 0) {
        now.file = (int)syscall(SYS_memfd_create, "cut", 0);
        check_that(ftruncate(now.file, (off_t)room) == 0, "ftruncate: %s", strerror(errno));
        now.memory = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_SHARED, now.file, 0);
    } else {
        now.memory = mapping_make(NULL, room, false);
    }
    if (!is_paged()) {
        memset(now.memory, 0x5a, room);
    }
}

static void handle_faults(void)
{
    const struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    if (!is_paged() && strcmp(how, "none") != 0 && strcmp(how, "closed") != 0) {
        sigaction(strcmp(how, "cut") == 0 ? SIGBUS : SIGSEGV, &action, NULL);
    }
}

static void take_away(void)
{
    int failed = 0;
    handle_faults();
    if (is_paged()) {
        open_pager();
    } else if (strcmp(how, "cut") == 0) {
        failed = ftruncate(now.file, 0);
    } else if (strcmp(how, "guarded") == 0) {
        failed = madvise(now.memory, room, MADV_GUARD_INSTALL);
    } else if (strcmp(how, "none") != 0) {
        failed = mprotect(now.memory, room, fills ? PROT_NONE : PROT_READ);
    }
    check_that(failed == 0, "%s: %s", how, strerror(errno));
    if (strcmp(how, "none") == 0 && fills) {
        fill(now.buffer, now.size, now.buffer);
    }
}

static void give_back(void)
{
    if (is_paged()) {
        close_pager();
    }
    if (is_owned) {
        mprotect(now.memory, room, PROT_READ | PROT_WRITE);
        MPI_Free_mem(now.memory);
        (void)signal(SIGSEGV, SIG_DFL);
        return;
    }
    mapping_drop(now.memory, room, false);
    if (strcmp(how, "cut") == 0) {
        close(now.file);
    }
}

static void message(const char *side, bool mine)
{
    const int length = (int)now.size;
    unsigned char *memory = mine ? now.buffer : check_memory(now.size);
    if (rank == 0) {
        if (!mine) {
            stamp_fill(memory, now.size, now.key, 0);
        }
        MPI_Send(memory, length, MPI_BYTE, 1, CHECK_TAG, MPI_COMM_WORLD);
    } else {
        MPI_Recv(memory, length, MPI_BYTE, 0, CHECK_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        check_stamp(memory, now.size, now.key, 0, side);
    }
    if (!mine) {
        free(memory);
    }
}

static void operation(const char *side, bool mine)
{
    const int length = (int)now.size;
    unsigned char *memory = check_memory(now.size);
    MPI_Win window;
    if (mine && is_swapper()) { /* regx asks once, when memory is offered */
        take_away();
    }
    MPI_Win_create(mine ? now.buffer : memory, (MPI_Aint)now.size, 1, MPI_INFO_NULL, MPI_COMM_WORLD,
                   &window);
    if (mine && !is_swapper()) {
        take_away();
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, window);
        if (strcmp(side, "put") == 0) {
            stamp_fill(memory, now.size, now.key, 0);
            MPI_Put(memory, length, MPI_BYTE, 1, 0, length, MPI_BYTE, window);
        } else {
            MPI_Get(memory, length, MPI_BYTE, 1, 0, length, MPI_BYTE, window);
        }
        MPI_Win_unlock(1, window);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == (strcmp(side, "put") == 0)) {
        check_stamp(mine ? now.buffer : memory, now.size, now.key, 0, side);
    }
    MPI_Win_free(&window);
    free(memory);
}

static void one(const char *side, size_t size, size_t inside, uint64_t round)
{
    const bool windows = strcmp(side, "put") == 0 || strcmp(side, "get") == 0;
    const bool mine = rank == (strcmp(side, "send") != 0); /* to be brought in */
    now.size = size;
    now.key = stamp_key(SEED, round, 0, 0);
    if (mine) {
        make();
        now.buffer = now.memory + inside;
        *faults = 0;
    }
    if (is_owned) {
        if (mine && fills) {
            fill(now.buffer, now.size, now.buffer);
        }
        message(side, mine);
        now.key = stamp_key(SEED, round, 1, 0);
    }
    if (mine && !windows) {
        take_away();
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (windows) {
        operation(side, mine);
    } else {
        message(side, mine);
    }
    check_that(!mine || (*faults == 0) == (strcmp(how, "none") == 0),
               "%s of %zu bytes, %s: %u faults", side, size, how, *faults);
    MPI_Barrier(MPI_COMM_WORLD);
    if (mine) {
        give_back();
    }
}

int main(int argc, char **argv)
{
    rank = check_begin(&argc, &argv, 4);
    how = argv[1];
    const char *side = argv[2];
    fills = strcmp(side, "send") == 0 || strcmp(side, "get") == 0;
    is_owned = strcmp(how, "owned") == 0;
    void *shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    faults = shared;
    ends = (atomic_bool *)shared + sizeof *faults;
    for (int i = 3; i < argc; i++) {
        const size_t size = strtoul(argv[i], NULL, 0);
        room = (size + INSIDE + 2 * PAGE) & ~(size_t)(PAGE - 1);
        one(side, size, 0, (uint64_t)i);
        one(side, size, INSIDE, (uint64_t)i + 1000);
    }
    return check_end();
}

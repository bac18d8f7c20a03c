/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Landing pages: what is written into them arrives, by moved pages as far as there are whole ones,
 * and nothing beside it is touched. Memory whose pages cannot be moved is refused before, or its
 * bytes are copied; they are right in any case.
 */
#include "../process.h"

#include <stdarg.h>
#include <sys/ioctl.h>

#include "base/util.h"
#include "rendezvous/engine.h"

enum { PAGE = 4096, SIZE = 16 * PAGE, COUNT = 4, ROOM = SIZE + 2 * PAGE };

/* Bytes that the kernel tells of when it next moves a range without holes, though it moves all of it. Then
 * another thread locks what is there, so that nothing can be moved back. */
static uint64_t told_of;
static bool tells_nothing, moves_nothing; /* when it next moves one with holes; of one without */

/* In libc's place. */
int ioctl(int fd, unsigned long request, ...)
{
    va_list arguments;

    va_start(arguments, request);
    uint64_t *move = va_arg(arguments, void *); /* dst, src, len, mode, move */
    va_end(arguments);
    const bool moves = _IOC_TYPE(request) == 0xAA && _IOC_NR(request) == 5;
    if (moves && moves_nothing && (move[3] & 2) == 0) {
        errno = EBUSY;
        return -1;
    }
    const int result = (int)syscall(SYS_ioctl, fd, request, move);
    if (moves && told_of > 0 && result == 0 && (move[3] & 2) == 0) {
        move[4] = told_of;
        told_of = 0;
        assert_int_equal(syscall(SYS_mlock, move[0], move[2]), 0);
        errno = EAGAIN;
        return -1;
    }
    if (moves && tells_nothing && result == 0 && (move[3] & 2) != 0) {
        tells_nothing = false;
        move[4] = (uint64_t)-EEXIST;
        errno = EEXIST;
        return -1;
    }
    return result;
}

typedef struct stage {
    regx_rndv_config_t config;
    regx_landings_t landings;
    regx_counters_t counters;
    /* Called when the caches are told. */
    void (*told)(struct stage *stage, uintptr_t start, uintptr_t end);
    unsigned tellings;
    char *buffer; /* ROOM bytes, private and anonymous */
    char *to;     /* the delivery's */
    size_t length;
    uint64_t stream; /* of the last delivery */
} stage_t;

static void changes(void *context, uintptr_t start, uintptr_t end)
{
    stage_t *stage = context;

    stage->tellings++;
    if (stage->told != NULL) {
        stage->told(stage, start, end);
    }
}

static char *map(size_t bytes, int flags, int fd)
{
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);

    return memory == MAP_FAILED ? NULL : memory;
}

static stage_t *stage_open(void)
{
    stage_t *stage = calloc(1, sizeof(*stage));

    assert_non_null(stage);
    stage->config = (regx_rndv_config_t){
        .chunk_size = SIZE, .chunk_depth = COUNT / 2, .changes = changes, .context = stage};
    regx_landings_init(&stage->landings, &stage->config, &stage->counters);
    stage->buffer = map(ROOM, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    assert_non_null(stage->buffer);
    return stage;
}

static void stage_close(stage_t *stage)
{
    munmap(stage->buffer, ROOM);
    regx_landings_fini(&stage->landings);
    free(stage);
}

#define STAGE_TEST(name)                                                                           \
    UNIT_TEST_WITH(name, NULL, stage_t *, stage, stage_open(), stage_close(stage))

/* Whether pages can be moved here at all. */
static bool pages_cannot_be_moved(void)
{
    stage_t *stage = stage_open();
    const char *refusal = regx_landings_refusal(&stage->landings, stage->buffer, PAGE);

    if (refusal != NULL) {
        printf("1..0 # SKIP UFFDIO_MOVE: %s\n", refusal);
    }
    stage_close(stage);
    return refusal != NULL;
}

const unit_group_t unit_group = {.refused = pages_cannot_be_moved};

/* Writes a new stream into a landing as a peer would, `length` bytes for `to`; what the user's
 * memory holds is another. Answers the landing. */
static regx_landing_t *land(stage_t *stage, char *to, size_t length)
{
    assert_null(regx_landings_refusal(&stage->landings, to, length));
    regx_landing_t *landing = regx_landing_get(&stage->landings, to, length);

    assert_non_null(landing);
    stage->to = to;
    stage->length = length;
    stage->stream++;
    unit_fill((uint8_t *)regx_landing_at(&stage->landings, landing, to), length, stage->stream, 0);
    return landing;
}

/* Delivers what was landed last, and asserts that it and nothing else arrived; what reason was
 * given. */
static const char *deliver(stage_t *stage, regx_landing_t *landing)
{
    const regx_counters_t *counters = &stage->counters;
    const uint64_t before = counters->remap_pages * PAGE + counters->remap_copied_bytes;
    char *const to = stage->to;
    char *const end = to + stage->length;
    /* What lies beside it in its first and last page. */
    const size_t left = (uintptr_t)to % PAGE;
    const size_t right = (PAGE - (uintptr_t)end % PAGE) % PAGE;
    uint8_t beside[2][PAGE];

    memcpy(beside[0], to - left, left);
    memcpy(beside[1], end, right);
    const char *reason = regx_landing_deliver(&stage->landings, landing, to, stage->length);
    assert_true(unit_is_filled((const uint8_t *)to, stage->length, stage->stream));
    assert_memory_equal(beside[0], to - left, left);
    assert_memory_equal(beside[1], end, right);
    assert_int_equal(counters->remap_pages * PAGE + counters->remap_copied_bytes - before,
                     stage->length);
    return reason;
}

/* Both, and gives the landing back. */
static const char *go(stage_t *stage, char *to, size_t length)
{
    regx_landing_t *landing = land(stage, to, length);
    const char *reason = deliver(stage, landing);

    regx_landing_put(&stage->landings, landing);
    return reason;
}

static size_t whole_pages(const char *to, size_t length)
{
    const uintptr_t start = ((uintptr_t)to + PAGE - 1) / PAGE;
    const uintptr_t end = ((uintptr_t)to + length) / PAGE;

    return end > start ? end - start : 0;
}

/* ---- what arrives ---- */

STAGE_TEST(every_place_and_length_arrives)
{
    uint64_t seed = 17, pages = 0;

    memset(stage->buffer, 0x33, ROOM / 2); /* the rest has no pages yet */
    for (unsigned i = 0; i < 500; i++) {
        const size_t skew = i % 3 == 0 ? 0 : chance_next(&seed) % PAGE;
        const size_t most = SIZE - skew;
        size_t length = 1 + chance_next(&seed) % most;
        char *to = stage->buffer + PAGE * (1 + chance_next(&seed) % 2) + skew;

        if (i % 5 == 0) {
            length = most; /* all that a landing takes */
        }
        if ((size_t)(to - stage->buffer) + length > ROOM - 1 || whole_pages(to, length) == 0) {
            continue;
        }
        assert_null(go(stage, to, length));
        pages += whole_pages(to, length);
        assert_int_equal(stage->counters.remap_pages, pages);
    }
    assert_true(pages > 250);
}

/* Neither what was written nor the user's old pages stay. */
STAGE_TEST(a_landing_is_empty_again)
{
    unsigned char there[2 * SIZE / PAGE];

    memset(stage->buffer, 0x40, ROOM);
    regx_landing_t *landing = land(stage, stage->buffer + PAGE - 100, 100 + 3 * PAGE);
    assert_int_equal(mincore(landing->memory, 2 * SIZE, there), 0);
    assert_int_equal(there[0], 1);
    assert_null(deliver(stage, landing));
    assert_int_equal(mincore(landing->memory, 2 * SIZE, there), 0);
    assert_true(unit_is_all(there, sizeof(there), 0));
    regx_landing_put(&stage->landings, landing);
}

static unsigned mappings(void)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    unsigned count = 0;

    assert_non_null(maps);
    for (int c; (c = fgetc(maps)) != EOF;) {
        count += c == '\n';
    }
    fclose(maps);
    return count;
}

STAGE_TEST(the_number_of_mappings_stays)
{
    assert_null(go(stage, stage->buffer + PAGE, 4 * PAGE));
    const unsigned before = mappings();
    for (unsigned i = 0; i < 200; i++) {
        assert_null(go(stage, stage->buffer + PAGE * (1 + i % 3) + i, (1 + i % 9) * PAGE + PAGE));
    }
    assert_true(mappings() <= before + 1); /* libc's own */
}

/* The first time before a page has changed, the second after the last. */
static void look_when_told(stage_t *stage, uintptr_t start, uintptr_t end)
{
    const char *first = (const char *)start;

    assert_int_equal(start, regx_align_up((uintptr_t)stage->to, PAGE));
    assert_int_equal(end, ((uintptr_t)stage->to + stage->length) / PAGE * PAGE);
    if (stage->tellings % 2 == 1) {
        assert_int_equal(first[0], 0x77);
        assert_int_equal(((const char *)end)[-1], 0x77);
    } else {
        assert_true(first[0] != 0x77 || first[1] != 0x77);
    }
}

STAGE_TEST(caches_are_told_before_and_after)
{
    stage->told = look_when_told;
    for (unsigned i = 1; i <= 5; i++) {
        memset(stage->buffer, 0x77, ROOM);
        assert_null(go(stage, stage->buffer + PAGE + 5, 6 * PAGE));
        assert_int_equal(stage->tellings, 2 * i);
    }
}

STAGE_TEST(there_are_so_many_landings_and_no_more)
{
    regx_landing_t *taken[COUNT];

    assert_null(regx_landings_refusal(&stage->landings, stage->buffer, PAGE));
    for (unsigned i = 0; i < COUNT; i++) {
        taken[i] = regx_landing_get(&stage->landings, stage->buffer, SIZE);
        assert_non_null(taken[i]);
    }
    assert_null(regx_landing_get(&stage->landings, stage->buffer, 1));
    for (unsigned i = 0; i < COUNT; i++) {
        regx_landing_put(&stage->landings, taken[i]);
    }
    assert_null(go(stage, stage->buffer, SIZE));
}

/* ---- the neighbours in the edge pages ---- */

typedef struct neighbour {
    _Atomic bool stop;
    _Atomic uint64_t rounds;
    uint64_t *before, *after; /* in the first and in the last page of the message */
} neighbour_t;

static void *count_up(void *context)
{
    neighbour_t *neighbour = context;

    while (!atomic_load(&neighbour->stop)) {
        /* Ordinary ones: each is lost if its page is exchanged for a copy that was made before. */
        ++*(volatile uint64_t *)neighbour->before;
        ++*(volatile uint64_t *)neighbour->after;
        atomic_fetch_add(&neighbour->rounds, 1);
    }
    return NULL;
}

STAGE_TEST(a_thread_that_counts_in_an_edge_page_loses_nothing)
{
    neighbour_t neighbour = {.before = (uint64_t *)(void *)(stage->buffer + PAGE),
                             .after = (uint64_t *)(void *)(stage->buffer + 6 * PAGE - 8)};

    const pthread_t thread = unit_thread(count_up, &neighbour);
    for (unsigned i = 0; i < 100 || atomic_load(&neighbour.rounds) < 300; i++) {
        regx_landing_t *landing = land(stage, stage->buffer + PAGE + 64, 5 * PAGE - 128);

        assert_null(regx_landing_deliver(&stage->landings, landing, stage->to, stage->length));
        assert_true(unit_is_filled((const uint8_t *)stage->to, stage->length, stage->stream));
        regx_landing_put(&stage->landings, landing);
    }
    atomic_store(&neighbour.stop, true);
    pthread_join(thread, NULL);
    assert_true(stage->counters.remap_pages >= 100 * 3);
    assert_int_equal(*neighbour.before, neighbour.rounds);
    assert_int_equal(*neighbour.after, neighbour.rounds);
}

/* ---- what cannot be moved ---- */

static void assert_refused(stage_t *stage, char *memory, size_t bytes, const char *reason)
{
    assert_non_null(memory);
    assert_string_equal(regx_landings_refusal(&stage->landings, memory, bytes), reason);
    munmap(memory, bytes);
}

STAGE_TEST(other_memory_than_private_anonymous_is_refused)
{
    const int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

    assert_true(file >= 0);
    assert_string_equal(regx_landings_refusal(&stage->landings, stage->buffer + 1, 2 * PAGE - 2),
                        "remap: no whole page in it");
    assert_null(stage->landings.areas);
    assert_refused(stage, map(SIZE, MAP_SHARED | MAP_ANONYMOUS, -1), SIZE, "remap: shared memory");
    assert_refused(stage, map(SIZE, MAP_PRIVATE, file), SIZE, "remap: a mapping of a file");
    char *memory = map(SIZE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    assert_int_equal(mprotect(memory + PAGE, PAGE, PROT_READ), 0);
    assert_refused(stage, memory, SIZE, "remap: more than one mapping");
    assert_string_equal(regx_landings_refusal(&stage->landings, memory, SIZE), "remap: not mapped");
    close(file);
}

STAGE_TEST(huge_pages_are_refused)
{
    char *memory = map(2u << 20, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1);

    if (memory == NULL) {
        stage_close(stage);
    }
    unit_need(memory != NULL, "no huge pages are set aside");
    assert_refused(stage, memory, 2u << 20, "remap: memory of huge pages (hugetlb)");
}

/* It goes well before, is copied while that is so, and goes well after. */
static void assert_copied(stage_t *stage, const char *reason)
{
    const uint64_t pages = stage->counters.remap_pages;
    const char *given = go(stage, stage->buffer + PAGE + 9, 7 * PAGE);

    assert_non_null(given);
    assert_string_equal(given, reason);
    assert_int_equal(stage->counters.remap_pages, pages);
}

static void assert_moved(stage_t *stage)
{
    const uint64_t pages = stage->counters.remap_pages;

    assert_null(go(stage, stage->buffer + PAGE + 9, 7 * PAGE));
    assert_int_equal(stage->counters.remap_pages - pages, 6);
}

/* As Linux 6.18 does where it migrates pages at that time. */
STAGE_TEST(what_the_kernel_moves_and_does_not_tell_of_arrives)
{
    assert_moved(stage);
    told_of = 2 * PAGE;
    assert_non_null(go(stage, stage->buffer + PAGE + 9, 7 * PAGE));
    assert_int_equal(told_of, 0);
    assert_int_equal(syscall(SYS_munlock, stage->buffer, ROOM), 0);
    assert_moved(stage);
    tells_nothing = true;
    assert_non_null(go(stage, stage->buffer + PAGE + 9, 7 * PAGE));
    assert_false(tells_nothing);
    assert_moved(stage);
}

/* What is zero looks as if it had been moved. */
STAGE_TEST(zeros_that_are_not_moved_arrive)
{
    memset(stage->buffer, 0x77, ROOM);
    regx_landing_t *landing = land(stage, stage->buffer, 3 * PAGE);
    memset(landing->memory + PAGE, 0, PAGE);
    moves_nothing = true;
    assert_non_null(regx_landing_deliver(&stage->landings, landing, stage->buffer, 3 * PAGE));
    moves_nothing = false;
    assert_true(unit_is_filled((uint8_t *)stage->buffer, PAGE, stage->stream));
    assert_true(unit_is_all((uint8_t *)stage->buffer + PAGE, PAGE, 0));
    regx_landing_put(&stage->landings, landing);
}

/* A filter may have come meanwhile. */
UNIT_TEST(what_was_moved_is_known_without_a_call)
{
    if (process_in_child()) {
        stage_t *stage = stage_open();
        regx_landing_t *landing = land(stage, stage->buffer, 7 * PAGE);

        told_of = 2 * PAGE;
        const bool denied = process_deny(SYS_pread64, EPERM);
        regx_landing_deliver(&stage->landings, landing, stage->to, stage->length);
        _exit(!denied || !unit_is_filled((uint8_t *)stage->to, 7 * PAGE, stage->stream));
    }
}

STAGE_TEST(locked_memory_is_copied)
{
    assert_moved(stage);
    /* Not by libc, which the sanitizers make do nothing. */
    assert_int_equal(syscall(SYS_mlock, stage->buffer + PAGE, 8 * PAGE), 0);
    assert_copied(stage, "remap: memory that is locked or protected otherwise");
    assert_int_equal(syscall(SYS_munlock, stage->buffer + PAGE, 8 * PAGE), 0);
    assert_moved(stage);
}

STAGE_TEST(memory_of_another_userfaultfd_is_copied)
{
    regx_uffd_t other;
    regx_error_t error;

    assert_moved(stage);
    assert_int_equal(regx_uffd_open(&other, error), REGX_OK);
    assert_int_equal(regx_uffd_register(other.file.fd, (uintptr_t)stage->buffer,
                                        (uintptr_t)stage->buffer + ROOM),
                     0);
    assert_copied(stage, "remap: pages pinned, shared with a child, or watched");
    assert_int_equal(regx_uffd_unregister(other.file.fd, (uintptr_t)stage->buffer,
                                          (uintptr_t)stage->buffer + ROOM),
                     0);
    regx_uffd_close(&other);
    assert_moved(stage);
}

/* All of it; or but for the first pages, which were written since: two whole ones of the message. The child
 * lives until a pipe is closed; then it says whether its memory is as it was. */
STAGE_TEST(memory_shared_with_a_child_is_copied)
{
    for (unsigned own = 0; own <= 2; own += 2) {
        int go_on[2];
        char byte;

        assert_moved(stage);
        memset(stage->buffer, 0x5c, ROOM);
        assert_int_equal(pipe(go_on), 0);
        const pid_t child = fork();
        if (child == 0) {
            close(go_on[1]);
            _exit(read(go_on[0], &byte, 1) != 0 ||
                  !unit_is_all((uint8_t *)stage->buffer, ROOM, 0x5c));
        }
        close(go_on[0]);
        memset(stage->buffer, 1, own * 2 * PAGE);
        const uint64_t pages = stage->counters.remap_pages;
        assert_string_equal(go(stage, stage->buffer + PAGE + 9, 7 * PAGE),
                            "remap: pages pinned, shared with a child, or watched");
        assert_int_equal(stage->counters.remap_pages - pages, own);
        close(go_on[1]);
        process_must_end_well(child);
        assert_moved(stage); /* they were copied by the write, and are this process's own again */
    }
}

UNIT_TEST(without_its_descriptor_all_is_copied)
{
    stage_t *stage = stage_open();

    assert_moved(stage);
    const int null = open("/dev/null", O_RDWR);
    const int other = dup3(null, stage->landings.uffd.fd, O_CLOEXEC); /* the same number */
    assert_int_equal(other, stage->landings.uffd.fd);
    close(null);
    assert_copied(stage, "remap: its userfaultfd was closed by the program");
    stage_close(stage);
    assert_int_equal(fcntl(other, F_GETFD), FD_CLOEXEC); /* not ours to close */
    close(other);
}

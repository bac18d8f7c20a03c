/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Careful copies: right where there is memory, and no crash where there is none.
 */
#include "../process.h"

#include <linux/userfaultfd.h>
#include <sys/ioctl.h>

#include "base/fault.h"
#include "rendezvous/buffer.h"

enum { PAGE = 4096, PAGES = 9, LENGTH = PAGES * PAGE };

static uint8_t *map(void)
{
    uint8_t *memory = unit_map(NULL, LENGTH);

    unit_handle_no_faults();
    for (size_t i = 0; i < LENGTH; i++) {
        memory[i] = unit_stamp(1, i);
    }
    return memory;
}

/* Each page is there or not as a bit of `holes` says. */
static void unmap(uint8_t *memory, unsigned holes)
{
    for (unsigned page = 0; page < PAGES; page++) {
        if (holes >> page & 1) {
            assert_int_equal(munmap(memory + page * PAGE, PAGE), 0);
        }
    }
}

static bool is_hole(unsigned holes, size_t at)
{
    return holes >> at / PAGE & 1;
}

static void check_pattern_of_holes(unsigned holes, size_t from, size_t length)
{
    static uint8_t other[LENGTH];
    uint8_t *memory = map();
    bool whole = true;

    for (size_t i = 0; i < length; i++) {
        whole &= !is_hole(holes, from + i);
    }
    unmap(memory, holes);
    memset(other, 0x77, LENGTH);
    assert_int_equal(regx_buffer_read(other, memory + from, length), whole);
    for (size_t i = 0; i < length; i++) {
        assert_int_equal(other[i], is_hole(holes, from + i) ? 0 : unit_stamp(1, from + i));
        other[i] = unit_stamp(2, i);
    }
    assert_int_equal(regx_buffer_write(memory + from, other, length), whole);
    for (size_t i = 0; i < LENGTH; i++) {
        const bool written = i >= from && i < from + length;

        if (!is_hole(holes, i)) {
            assert_int_equal(memory[i], written ? unit_stamp(2, i - from) : unit_stamp(1, i));
        }
    }
    munmap(memory, LENGTH);
}

UNIT_TEST(every_pattern_of_holes_is_skipped)
{
    for (unsigned holes = 0; holes < 1u << PAGES; holes += holes < 40 ? 1 : 13) {
        check_pattern_of_holes(holes, 0, LENGTH);
        check_pattern_of_holes(holes, 1, LENGTH - 2);
        check_pattern_of_holes(holes, PAGE - 1, LENGTH - 2 * PAGE + 2);
    }
}

/* What cannot be written is left out like what is not there. */
UNIT_TEST(read_only_pages_are_read_and_not_written)
{
    uint8_t *memory = map();
    uint8_t other[LENGTH];

    memset(other, 0x55, LENGTH);
    assert_int_equal(mprotect(memory + 2 * PAGE, PAGE, PROT_READ), 0);
    assert_false(regx_buffer_write(memory, other, LENGTH));
    for (size_t i = 0; i < LENGTH; i++) {
        assert_int_equal(memory[i], i / PAGE == 2 ? unit_stamp(1, i) : 0x55);
    }
    munmap(memory, LENGTH);
}

/* Where the kernel's page is that the vDSO reads the time from: memory that no other system call
 * takes than those that copy as the processor does. */
static const void *find_kernels_page(void)
{
    static unsigned long found;
    char line[256];
    FILE *maps = found == 0 ? fopen("/proc/self/maps", "r") : NULL;

    while (maps != NULL && fgets(line, sizeof(line), maps) != NULL) {
        if (strstr(line, "[vvar]") != NULL) {
            found = strtoul(line, NULL, 16);
        }
    }
    if (maps != NULL) {
        (void)fclose(maps);
    }
    return (const void *)found;
}

/* What the processor reaches is copied, whatever it is. */
UNIT_TEST(any_memory_is_copied)
{
    const void *page = find_kernels_page();
    uint8_t copy[PAGE];

    unit_need(page != NULL, "the kernel gives no vDSO");
    assert_true(regx_buffer_read(copy, page, PAGE));
}

/* ---- what a filter of system calls refuses ---- */

/* What is there arrives, what is not is left out, and what may only be read is not written. */
static bool copies_well(void)
{
    enum { HOLE = 3, READ_ONLY = 5 };
    uint8_t *memory = map(), other[LENGTH];
    bool well = true;

    unmap(memory, 1u << HOLE);
    mprotect(memory + READ_ONLY * PAGE, PAGE, PROT_READ);
    well &= !regx_buffer_read(other, memory, LENGTH);
    for (size_t i = 0; i < LENGTH; i++) {
        well &= other[i] == (i / PAGE == HOLE ? 0 : unit_stamp(1, i));
    }
    memset(other, 0x55, LENGTH);
    well &= !regx_buffer_write(memory, other, LENGTH);
    for (size_t i = 0; i < LENGTH; i++) {
        well &= i / PAGE == HOLE || memory[i] == (i / PAGE == READ_ONLY ? unit_stamp(1, i) : 0x55);
    }
    well &= regx_buffer_read(other, memory, HOLE * PAGE);
    return well && regx_buffer_write(memory + 1, other, HOLE * PAGE - 1);
}

UNIT_TEST(a_refused_call_is_not_blamed_on_the_buffer)
{
    static const int errors[] = {EPERM, ENOSYS, EACCES, EFAULT};

    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        if (process_in_child()) {
            const bool denied = process_deny(SYS_process_vm_readv, errors[i]) &&
                                process_deny(SYS_process_vm_writev, errors[i]);

            _exit(denied && copies_well() ? 0 : 1);
        }
    }
}

/* Then nothing is copied, which might end the process, and the line says why. */
UNIT_TEST(where_nothing_tells_what_is_there_the_calls_are_named)
{
    if (process_in_child()) {
        uint8_t *memory = map(), other[PAGE];
        char text[REGX_BUFFER_LACKS];
        bool well = strcmp(regx_buffer_lacks(memory, PAGE, true, text), "not accessible") == 0;

        well &= process_deny(SYS_process_vm_readv, ENOSYS) &&
                process_deny(SYS_process_vm_writev, ENOSYS) && process_deny(SYS_madvise, EPERM) &&
                !regx_buffer_read(other, memory, PAGE);
        const char *lacks = regx_buffer_lacks(memory, PAGE, true, text);
        well &= strstr(lacks, "process_vm (Function not implemented)") != NULL &&
                strstr(lacks, "madvise (Operation not permitted)") != NULL;
        munmap(memory, PAGE);
        well &= strcmp(regx_buffer_lacks(memory, PAGE, true, text), "not mapped") == 0;
        _exit(well ? 0 : 1);
    }
}

static void *copy_alone(void *first)
{
    char path[64], text[512] = "";

    snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", (int)getpid(), *(pid_t *)first);
    while (strstr(text, ") Z ") == NULL) {
        FILE *stat = fopen(path, "r");

        if (stat != NULL) {
            (void)!fgets(text, sizeof(text), stat);
            (void)fclose(stat);
        }
        sched_yield();
    }
    /* As before Linux 5.14, which cannot be asked otherwise what is there. */
    _exit(process_deny(SYS_madvise, EINVAL) && copies_well() ? 0 : 1);
}

/* For the kernel the process's number then names one without memory. */
UNIT_TEST(a_process_whose_first_thread_has_ended_copies)
{
    static pid_t first;
    pthread_t thread;
    if (process_in_child()) {
        first = gettid();
        if (pthread_create(&thread, NULL, copy_alone, &first) != 0) {
            _exit(1);
        }
        pthread_exit(NULL);
    }
}

/* ---- what the program may bring in (that it does, test/hazard/test_paged.py shows) ---- */

enum { GUARD_INSTALL = 102 }; /* Linux 6.13 */
enum { USER_MODE_ONLY = 1 };  /* of a userfaultfd, Linux 5.11 */

static void handle(int signal)
{
    abort();
}

/* Nobody handles the fault of that memory, though somebody does another signal. */
static void check_left_out(uint8_t *memory, int other_signal)
{
    uint8_t other[LENGTH];

    unit_handle_no_faults();
    (void)signal(other_signal, handle);
    assert_false(regx_buffer_read(other, memory, LENGTH));
    assert_false(regx_buffer_write(memory, other, LENGTH));
    unit_handle_no_faults();
    munmap(memory, LENGTH);
}

UNIT_TEST(what_a_file_lacks_is_left_out)
{
    const int file = memfd_create("cut", MFD_CLOEXEC);

    assert_int_equal(ftruncate(file, LENGTH - PAGE), 0);
    check_left_out(mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0), SIGSEGV);
    close(file);
}

UNIT_TEST(guard_pages_are_left_out)
{
    static const int kinds[] = {MAP_PRIVATE, MAP_SHARED};

    for (size_t i = 0; i < 2; i++) {
        uint8_t *memory =
            mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, kinds[i] | MAP_ANONYMOUS, -1, 0);

        unit_need(madvise(memory + 2 * PAGE, PAGE, GUARD_INSTALL) == 0,
                  "this kernel has no guard pages%s", i == 0 ? "" : " of shared memory");
        check_left_out(memory, SIGBUS);
    }
}

/* Where there is nothing yet. */
UNIT_TEST(memory_that_grows_down_to_the_end_of_a_message_is_there)
{
    const size_t room = 16u << 20; /* the kernel keeps 1 MiB below it free */
    char *base = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *top;

    unit_handle_no_faults();
    munmap(base, room);
    top = mmap(base + room - PAGE, PAGE, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN, -1, 0);
    assert_true(regx_fault_has_end(top - LENGTH));
    munmap(top - 2 * LENGTH, 2 * LENGTH + PAGE);
}

/* A blocked signal ends the process, whatever handles it. */
UNIT_TEST(a_blocked_signal_is_not_handled)
{
    uint8_t *memory = map(), other[PAGE];
    sigset_t set;

    assert_int_equal(mprotect(memory, PAGE, PROT_NONE), 0);
    (void)signal(SIGSEGV, handle);
    sigemptyset(&set);
    sigaddset(&set, SIGSEGV);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    assert_false(regx_buffer_read(other, memory, PAGE));
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    unit_handle_no_faults();
    munmap(memory, LENGTH);
}

static struct {
    int file;     /* that is as long as its mapping again; -1: none, but the page is mapped anew */
    uint8_t *end; /* of the memory, whose last page is brought in */
} brought;

static void bring_in(int signal)
{
    const bool done = brought.file >= 0
                          ? ftruncate(brought.file, LENGTH) == 0
                          : mmap(brought.end - PAGE, PAGE, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
    if (!done) {
        abort();
    }
}

static bool is_written(uint8_t *memory)
{
    uint8_t other[LENGTH];

    memset(other, 0x55, LENGTH);
    unit_handle_no_faults();
    (void)signal(SIGBUS, bring_in);
    brought.end = memory + LENGTH;
    return regx_buffer_write(memory, other, LENGTH) && memcmp(memory, other, LENGTH) == 0;
}

UNIT_TEST(where_proc_cannot_be_read_pages_are_brought_in)
{
    if (process_in_child()) {
        brought.file = memfd_create("cut", MFD_CLOEXEC);
        const bool cut = ftruncate(brought.file, LENGTH - PAGE) == 0;
        uint8_t *memory = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED, brought.file, 0);

        _exit(cut && process_deny(SYS_openat, EACCES) && is_written(memory) ? 0 : 1);
    }
}

UNIT_TEST(memory_that_has_failed_is_mapped_anew)
{
    const int uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | USER_MODE_ONLY);
    uint8_t *memory = map();
    struct uffdio_api api = {.api = UFFD_API, .features = 1 << 14 /* POISON, Linux 6.6 */};
    struct uffdio_register range = {.range = {(uintptr_t)memory + LENGTH - PAGE, PAGE},
                                    .mode = UFFDIO_REGISTER_MODE_MISSING};
    struct uffdio_zeropage failed = {.range = range.range}; /* as struct uffdio_poison */

    unit_need(ioctl(uffd, UFFDIO_API, &api) == 0, "no UFFDIO_POISON");
    assert_int_equal(madvise(memory + LENGTH - PAGE, PAGE, MADV_DONTNEED), 0);
    assert_int_equal(ioctl(uffd, UFFDIO_REGISTER, &range), 0);
    assert_int_equal(ioctl(uffd, _IOWR(UFFDIO, 0x08, struct uffdio_zeropage), &failed), 0);
    close(uffd);
    brought.file = -1;
    assert_true(is_written(memory));
    unit_handle_no_faults();
    munmap(memory, LENGTH);
}

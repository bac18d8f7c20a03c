/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What is mapped where: each kind of memory, by asking the kernel and by reading its list.
 */
#include "../unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <unistd.h>

#include "registration/monitor/uffd.h"

enum { PAGE = 4096, MOST = 4000 };

static unsigned char bss[4 * PAGE];
static unsigned char data[4 * PAGE] = {1};

/* How much a read returns at most (it is linked by --wrap); 0: as much as the kernel gives. */
static size_t most_at_once;

ssize_t __real_read(int fd, void *buffer, size_t size);
ssize_t __wrap_read(int fd, void *buffer, size_t size);
ssize_t __wrap_read(int fd, void *buffer, size_t size)
{
    return __real_read(fd, buffer, most_at_once > 0 && most_at_once < size ? most_at_once : size);
}

typedef struct found {
    regx_vma_t mappings[MOST];
    unsigned count, most;
} found_t;

static found_t asked, listed;

static bool keep(void *context, const regx_vma_t *mapping)
{
    found_t *found = context;

    assert_true(found->count < MOST);
    found->mappings[found->count++] = *mapping;
    return found->count < found->most;
}

static void find(regx_maps_t *maps, found_t *found, const void *start, size_t length, unsigned most)
{
    found->count = 0;
    found->most = most;
    regx_maps_each(maps, (uintptr_t)start, (uintptr_t)start + length, keep, found);
}

static int setup(void **state)
{
    static regx_maps_t maps;

    assert_int_equal(regx_maps_open(&maps), 0);
    *state = &maps;
    return 0;
}

static int teardown(void **state)
{
    regx_maps_close(*state);
    return 0;
}

/* Both ways find one mapping around these pages, of that kind; where the kernel cannot be asked,
 * the list alone. */
static void expect_kind(regx_maps_t *maps, const void *base, size_t length, regx_vma_kind_t kind)
{
    const bool query = maps->query;
    const uintptr_t start = ((uintptr_t)base + PAGE - 1) / PAGE * PAGE;
    const uintptr_t end = ((uintptr_t)base + length) / PAGE * PAGE;

    for (int way = 0; way < (query ? 2 : 1); way++) {
        maps->query = way == 1;
        find(maps, &asked, (void *)start, end - start, MOST);
        assert_int_equal(asked.count, 1);
        assert_true(asked.mappings[0].start <= start && asked.mappings[0].end >= end);
        assert_int_equal(asked.mappings[0].kind, kind);
    }
    maps->query = query;
}

static void *map(size_t length, int flags, int fd)
{
    void *base = mmap(NULL, length, PROT_READ | PROT_WRITE, flags, fd, 0);

    assert_ptr_not_equal(base, MAP_FAILED);
    return base;
}

static void private_memory_is_told(void **state)
{
    unsigned char stack[4 * PAGE];
    void *heap = malloc(64 * 1024);
    void *mapped = map(8 * PAGE, MAP_PRIVATE | MAP_ANONYMOUS, -1);

    stack[0] = 1;
    assert_non_null(heap);
    expect_kind(*state, stack, sizeof(stack), REGX_VMA_PRIVATE);
    expect_kind(*state, heap, 64 * 1024, REGX_VMA_PRIVATE);
    expect_kind(*state, mapped, 8 * PAGE, REGX_VMA_PRIVATE);
    expect_kind(*state, bss + PAGE, sizeof(bss) - PAGE, REGX_VMA_PRIVATE);
    free(heap);
    munmap(mapped, 8 * PAGE);
}

static void mapped_files_are_told(void **state)
{
    const int fd = memfd_create("regx", MFD_CLOEXEC);
    const int zero = open("/dev/zero", O_RDWR | O_CLOEXEC);

    assert_true(fd >= 0 && zero >= 0);
    assert_int_equal(ftruncate(fd, 8 * PAGE), 0);
    void *private = map(8 * PAGE, MAP_PRIVATE, fd);
    void *shared = map(8 * PAGE, MAP_SHARED, fd);
    void *zeroes = map(8 * PAGE, MAP_PRIVATE, zero);

    expect_kind(*state, data, sizeof(data), REGX_VMA_FILE);
    expect_kind(*state, private, 8 * PAGE, REGX_VMA_FILE);
    expect_kind(*state, zeroes, 8 * PAGE, REGX_VMA_FILE);
    expect_kind(*state, shared, 8 * PAGE, REGX_VMA_SHARED);
    munmap(private, 8 * PAGE);
    munmap(shared, 8 * PAGE);
    munmap(zeroes, 8 * PAGE);
    close(fd);
    close(zero);
}

static void shared_memory_is_told(void **state)
{
    void *mapped = map(8 * PAGE, MAP_SHARED | MAP_ANONYMOUS, -1);
    const int id = shmget(IPC_PRIVATE, 8 * PAGE, 0600);
    void *segment = shmat(id, NULL, 0);

    assert_int_equal(shmctl(id, IPC_RMID, NULL), 0);
    expect_kind(*state, mapped, 8 * PAGE, REGX_VMA_SHARED);
    expect_kind(*state, segment, 8 * PAGE, REGX_VMA_SHARED);
    munmap(mapped, 8 * PAGE);
    shmdt(segment);
}

static void huge_pages_are_told(void **state)
{
    const size_t length = (size_t)2 << 20;
    void *base = mmap(NULL, length, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);

    if (base == MAP_FAILED) {
        print_message("not tried: no huge pages are set aside (vm.nr_hugepages)\n");
        skip();
    }
    expect_kind(*state, base, length, REGX_VMA_HUGE);
    munmap(base, length);
    base =
        mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
    assert_ptr_not_equal(base, MAP_FAILED);
    expect_kind(*state, base, length, REGX_VMA_SHARED);
    munmap(base, length);
}

/* A file whose name is as long as paths may be: a line that no small buffer holds. */
static void the_longest_file_name_is_read(void **state)
{
    char top[] = "/tmp/regx-maps-XXXXXX";
    char name[201];
    int depth = 0;
    const int back = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    name[7] = '\n'; /* which the list writes in four characters */
    assert_non_null(mkdtemp(top));
    assert_int_equal(chdir(top), 0);
    for (; depth < 19; depth++) {
        assert_int_equal(mkdir(name, 0700), 0);
        assert_int_equal(chdir(name), 0);
    }
    const int fd = open("file", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 8 * PAGE), 0);
    void *mapped = map(8 * PAGE, MAP_PRIVATE, fd);

    close(fd);
    expect_kind(*state, mapped, 8 * PAGE, REGX_VMA_FILE);
    unlink("file");
    while (depth-- > 0) {
        assert_int_equal(chdir(".."), 0);
        assert_int_equal(rmdir(name), 0);
    }
    assert_int_equal(fchdir(back), 0);
    assert_int_equal(rmdir(top), 0);
    close(back);
    munmap(mapped, 8 * PAGE);
}

/* Some of the 16 pages are gone, some read-only: what is left, in order, whole. */
static void mappings_of_a_range_come_whole_and_in_order(void **state)
{
    regx_maps_t *maps = *state;
    const bool query = maps->query;
    char *base = map(16 * PAGE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    const uintptr_t at = (uintptr_t)base;

    assert_int_equal(munmap(base + 2 * PAGE, 2 * PAGE), 0);
    assert_int_equal(mprotect(base + 8 * PAGE, 4 * PAGE, PROT_READ), 0);
    for (int way = 0; way < (query ? 2 : 1); way++) {
        maps->query = way == 1;
        find(maps, &asked, base + PAGE, 8 * PAGE, MOST);
        assert_int_equal(asked.count, 3);
        assert_int_equal(asked.mappings[0].end, at + 2 * PAGE);
        assert_int_equal(asked.mappings[1].start, at + 4 * PAGE);
        assert_int_equal(asked.mappings[1].end, at + 8 * PAGE);
        assert_int_equal(asked.mappings[2].start, at + 8 * PAGE);
        assert_int_equal(asked.mappings[2].end, at + 12 * PAGE);
        find(maps, &asked, base + PAGE, 8 * PAGE, 2); /* stops when it is told to */
        assert_int_equal(asked.count, 2);
        find(maps, &asked, base + 2 * PAGE, 2 * PAGE, MOST);
        assert_int_equal(asked.count, 0);
    }
    maps->query = query;
    munmap(base, 16 * PAGE);
}

/* All there is, the same both ways: lines end and begin anywhere in what a read returns. */
static void asking_and_reading_see_the_same_mappings(void **state)
{
    regx_maps_t *maps = *state;
    char *base = map(2000 * PAGE, MAP_PRIVATE | MAP_ANONYMOUS, -1);

    if (!maps->query) {
        print_message("not tried: this kernel cannot be asked (PROCMAP_QUERY, Linux 6.11)\n");
        skip();
    }
    for (size_t i = 0; i < 2000; i += 2) {
        assert_int_equal(mprotect(base + i * PAGE, PAGE, PROT_READ), 0);
    }
    find(maps, &asked, NULL, UINTPTR_MAX, MOST);
    for (most_at_once = 0; most_at_once <= 173; most_at_once += 173) {
        maps->query = false;
        find(maps, &listed, NULL, UINTPTR_MAX, MOST);
        maps->query = true;
        /* The list also has a page that is not the process's own ([vsyscall]). */
        assert_in_range(listed.count - asked.count, 0, 1);
        assert_true(asked.count > 2000);
        for (unsigned i = 0; i < asked.count; i++) {
            assert_int_equal(asked.mappings[i].start, listed.mappings[i].start);
            assert_int_equal(asked.mappings[i].end, listed.mappings[i].end);
            assert_int_equal(asked.mappings[i].kind, listed.mappings[i].kind);
        }
    }
    most_at_once = 0;
    munmap(base, 2000 * PAGE);
}

static void the_descriptor_is_closed_at_exec(void **state)
{
    const regx_maps_t *maps = *state;

    assert_int_equal(fcntl(maps->fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(private_memory_is_told, setup, teardown),
        cmocka_unit_test_setup_teardown(mapped_files_are_told, setup, teardown),
        cmocka_unit_test_setup_teardown(shared_memory_is_told, setup, teardown),
        cmocka_unit_test_setup_teardown(huge_pages_are_told, setup, teardown),
        cmocka_unit_test_setup_teardown(the_longest_file_name_is_read, setup, teardown),
        cmocka_unit_test_setup_teardown(mappings_of_a_range_come_whole_and_in_order, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(asking_and_reading_see_the_same_mappings, setup, teardown),
        cmocka_unit_test_setup_teardown(the_descriptor_is_closed_at_exec, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

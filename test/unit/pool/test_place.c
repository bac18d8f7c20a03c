/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Placing on synthetic topologies, and locking under a limit: in a child that has the limit and,
 * where the tests run as root, an ordinary user's rights, because root is not limited.
 */
#include "../process.h"
#include "../unit.h"

#include <dlfcn.h>
#include <hwloc.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "pool/pool.h"

static size_t page;

/* ---- near ---- */

static hwloc_topology_t synthetic(const char *description, unsigned long flags)
{
    hwloc_topology_t topology;

    assert_int_equal(hwloc_topology_init(&topology), 0);
    assert_int_equal(hwloc_topology_set_synthetic(topology, description), 0);
    assert_int_equal(hwloc_topology_set_flags(topology, flags), 0);
    assert_int_equal(hwloc_topology_load(topology), 0);
    return topology;
}

/* Asserts which nodes are near the given cores; nodes named in `empty` have no memory. All three
 * are lists as hwloc writes them, such as "0-3,6"; `expected` NULL: nothing to choose. */
static void near_is(const char *description, const char *empty, const char *cores,
                    const char *expected)
{
    hwloc_topology_t topology = synthetic(description, 0);
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    hwloc_bitmap_t near;
    char text[64] = "nothing";

    hwloc_bitmap_list_sscanf(set, empty);
    for (hwloc_obj_t node = NULL;
         (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != NULL;) {
        if (hwloc_bitmap_isset(set, node->os_index)) {
            node->attr->numanode.local_memory = 0;
        } else {
            assert_true(node->attr->numanode.local_memory > 0);
        }
    }
    hwloc_bitmap_list_sscanf(set, cores);
    near = regx_place_near(topology, set);
    if (near != NULL) {
        hwloc_bitmap_list_snprintf(text, sizeof(text), near);
    }
    assert_string_equal(text, expected == NULL ? "nothing" : expected);
    hwloc_bitmap_free(near);
    hwloc_bitmap_free(set);
    hwloc_topology_destroy(topology);
}

#define FOUR_NODES "pack:2 die:2 [numa(memory=1GB)] core:2 pu:1" /* node n has cores 2n, 2n+1 */

#define NUMBERED "pack:4 [numa(memory=1GB indexes=3,1,0,2)] core:2 pu:1"
#define THREADS "pack:2 [numa(memory=1GB)] core:2 pu:2(indexes=0,4,1,5,2,6,3,7)"
#define TWO_KINDS "pack:2 [numa(memory=8GB)] [numa(memory=1GB)] core:2 pu:1"

UNIT_TEST(the_nearest_nodes_that_have_memory_are_chosen)
{
    static const struct {
        const char *topology, *empty, *cores, *expected;
    } rows[] = {
        {FOUR_NODES, "", "4-5", "2"},
        {NUMBERED, "", "0", "3"}, /* by the system's numbers */
        {THREADS, "", "4-5", "0"},
        {FOUR_NODES, "", "0,7", "0,3"},
        {FOUR_NODES, "1", "1-2", "0"},  /* one of them has no memory */
        {FOUR_NODES, "1", "2", "0"},    /* the other node of the package */
        {FOUR_NODES, "0-1", "0", NULL}, /* none in the package: both others are as far */
        {TWO_KINDS, "", "0", "0-1"},
        {TWO_KINDS, "0", "1", "1"},
        {"numa:1(memory=1GB) core:4 pu:1", "", "0", NULL},
        {FOUR_NODES, "", "0-7", NULL},     /* near to all */
        {FOUR_NODES, "0,2-3", "7", NULL},  /* one node has memory, far */
        {FOUR_NODES, "0-3", "2", NULL},    /* none has */
        {FOUR_NODES, "", "", NULL},        /* no cores */
        {FOUR_NODES, "", "100-101", NULL}, /* cores that are not there */
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        near_is(rows[i].topology, rows[i].empty, rows[i].cores, rows[i].expected);
    }
}

/* ---- children ---- */

/* What a child found out, in memory shared with it. */
typedef struct found {
    const char *stopped; /* where the child gave up, or NULL */
    int error;
    size_t returned;
    size_t prefix; /* bytes from the memory's start that are in a locked mapping */
    bool content;  /* was as before */
    bool bound;
} found_t;

static found_t *found;

/* The child ends here unless it is so. */
static void must(bool so, const char *what)
{
    if (!so) {
        found->stopped = what;
        found->error = errno;
        _exit(0);
    }
}

static void in_child(void (*child)(void *argument), void *argument)
{
    memset(found, 0, sizeof(*found));
    if (process_in_child()) {
        child(argument);
        _exit(0);
    }
}

/* ---- bind ---- */

static void bind_child(void *argument)
{
    const size_t length = 1 << 16;
    hwloc_topology_t topology;
    hwloc_bitmap_t nodes = hwloc_bitmap_alloc();
    hwloc_membind_policy_t policy;
    cpu_set_t cpus;
    size_t cpu = 0;
    char *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    must(memory != MAP_FAILED && sched_getaffinity(0, sizeof(cpus), &cpus) == 0,
         "sched_getaffinity");
    while (!CPU_ISSET(cpu, &cpus)) {
        cpu++;
    }
    CPU_ZERO(&cpus);
    CPU_SET(cpu, &cpus);
    /* This machine, told that it has a second node, on whose cores this process does not run. */
    must(cpu < 512 && sched_setaffinity(0, sizeof(cpus), &cpus) == 0, "sched_setaffinity");
    topology =
        synthetic("pack:2 [numa(memory=1GB)] core:512 pu:1", HWLOC_TOPOLOGY_FLAG_IS_THISSYSTEM);
    must(hwloc_get_area_membind(topology, memory, length, nodes, &policy,
                                HWLOC_MEMBIND_BYNODESET) == 0,
         "get_mempolicy");
    memset(memory, 0x5a, length);
    regx_place_bind(topology, memory, length);
    found->content = memory[0] == 0x5a && memcmp(memory, memory + 1, length - 1) == 0;
    found->bound = hwloc_get_area_membind(topology, memory, length, nodes, &policy,
                                          HWLOC_MEMBIND_BYNODESET) == 0 &&
                   policy == HWLOC_MEMBIND_BIND && hwloc_bitmap_isset(nodes, 0) &&
                   hwloc_bitmap_weight(nodes) == 1;
    hwloc_bitmap_free(nodes);
    hwloc_topology_destroy(topology);
    munmap(memory, length);
}

UNIT_TEST(memory_prefers_the_near_node)
{
    in_child(bind_child, NULL);
    unit_need(found->stopped == NULL, "%s: %s", found->stopped, strerror(found->error));
    assert_true(found->bound);
    assert_true(found->content);
}

/* ---- topologies loaded ---- */

static unsigned loads;

/* In place of hwloc's own, which it calls. */
int hwloc_topology_load(hwloc_topology_t topology)
{
    int (*load)(hwloc_topology_t) =
        (int (*)(hwloc_topology_t))dlsym(RTLD_NEXT, "hwloc_topology_load");

    assert_non_null(load);
    loads++;
    return load(topology);
}

/* By hwloc's word, not by the kernel's list that the component reads. */
static unsigned nodes_with_memory(void)
{
    hwloc_topology_t topology;
    unsigned count = 0;

    assert_int_equal(hwloc_topology_init(&topology), 0);
    assert_int_equal(hwloc_topology_set_flags(topology, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED), 0);
    assert_int_equal(hwloc_topology_load(topology), 0);
    for (hwloc_obj_t node = NULL;
         (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != NULL;) {
        count += node->attr->numanode.local_memory > 0;
    }
    hwloc_topology_destroy(topology);
    return count;
}

/* Where several nodes have memory, or the kernel tells nothing, one is. */
UNIT_TEST(no_topology_is_loaded_where_one_node_has_all_memory)
{
    const bool is_told = access("/sys/devices/system/node/has_memory", R_OK) == 0;
    const bool is_one = nodes_with_memory() == 1;
    char *memory = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_ptr_not_equal(memory, MAP_FAILED);
    loads = 0;
    regx_place_bind(NULL, memory, page);
    assert_int_equal(loads, is_told && is_one ? 0 : 1);
    munmap(memory, page);
}

/* ---- lock ---- */

/* What the kernel says of the mapping that starts at memory (/proc/self/smaps). */
typedef struct mapping {
    size_t length; /* 0: it says nothing */
    size_t pages;  /* bytes that are there and locked */
    bool locked;   /* VmFlags: lo */
} mapping_t;

static mapping_t mapping_at(const void *memory)
{
    char line[1024];
    bool here = false;
    size_t from;
    size_t to;
    size_t kib;
    mapping_t mapping = {0};
    FILE *file = fopen("/proc/self/smaps", "r");

    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, "%zx-%zx ", &from, &to) == 2) {
            here = from == (size_t)memory;
            mapping.length = here ? to - from : mapping.length;
        } else if (here && sscanf(line, "Locked: %zu", &kib) == 1) {
            mapping.pages = kib * 1024;
        } else if (here && strncmp(line, "VmFlags:", 8) == 0) {
            mapping.locked = strstr(line, " lo") != NULL;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return mapping;
}

/* The length of the locked mapping that starts at memory. */
static size_t locked_prefix(const void *memory)
{
    const mapping_t mapping = mapping_at(memory);

    must(mapping.length != 0, "/proc/self/smaps");
    return mapping.locked ? mapping.length : 0;
}

typedef struct locking {
    size_t limit;  /* RLIMIT_MEMLOCK */
    size_t before; /* pages locked elsewhere already */
    size_t length; /* of the memory */
    int refusal;   /* of mlock2, which the kernel does not have or a container forbids; 0: none */
} locking_t;

static void lock_child(void *argument)
{
    const locking_t *locking = argument;
    const struct rlimit limit = {locking->limit, locking->limit};
    const int fd = memfd_create("regx", 0);
    char *memory;

    must(fd >= 0 && ftruncate(fd, (off_t)locking->length) == 0, "memfd");
    memory = mmap(NULL, locking->length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    must(memory != MAP_FAILED && setrlimit(RLIMIT_MEMLOCK, &limit) == 0, "setrlimit");
    must(geteuid() != 0 || (setgid(65534) == 0 && setuid(65534) == 0), "setuid");
    if (locking->before > 0) {
        void *other = mmap(NULL, locking->before * page, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        must(other != MAP_FAILED && mlock(other, locking->before * page) == 0,
             "mlock of something else");
    }
    must(locking->refusal == 0 || process_deny(SYS_mlock2, locking->refusal), "seccomp");
    memset(memory, 0x5a, locking->length);
    found->returned = regx_place_lock(memory, locking->length);
    found->prefix = locked_prefix(memory);
}

static size_t whole_pages(size_t length)
{
    return (length + page - 1) / page * page;
}

/* Asserts that of `length` bytes exactly `expected` were locked, said by regx and by the kernel. */
static void locks(locking_t locking, size_t expected)
{
    struct rlimit allowed;

    assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &allowed), 0);
    unit_need(allowed.rlim_max >= locking.limit, "this process may lock %zu bytes only",
              (size_t)allowed.rlim_max);
    in_child(lock_child, &locking);
    unit_expect(found->stopped == NULL, "%s: %s", found->stopped, strerror(found->error));
    assert_int_equal(found->returned, expected);
    assert_int_equal(found->prefix, whole_pages(expected));
}

UNIT_TEST(all_is_locked_where_the_limit_allows)
{
    locks((locking_t){.limit = 16 * page, .length = 16 * page}, 16 * page);
    locks((locking_t){.limit = 16 * page, .length = 15 * page + 1}, 15 * page + 1);
    locks((locking_t){.limit = 16 * page, .before = 4, .length = 12 * page}, 12 * page);
}

UNIT_TEST(the_largest_prefix_is_locked_where_it_does_not)
{
    locks((locking_t){.limit = 16 * page, .length = 1 << 24}, 16 * page);
    locks((locking_t){.limit = 16 * page - 1, .length = 64 * page}, 15 * page);
    locks((locking_t){.limit = 15 * page, .length = 15 * page + 1}, 15 * page);
    locks((locking_t){.limit = 16 * page, .before = 5, .length = 64 * page}, 11 * page);
}

UNIT_TEST(nothing_is_locked_where_nothing_may_be)
{
    locks((locking_t){.limit = 0, .length = 64 * page}, 0);
    locks((locking_t){.limit = page - 1, .length = 64 * page}, 0);
    locks((locking_t){.limit = 16 * page, .before = 16, .length = 64 * page}, 0);
}

UNIT_TEST(the_older_call_locks_where_the_newer_is_refused)
{
    locks((locking_t){.limit = 16 * page, .length = 16 * page, .refusal = ENOSYS}, 16 * page);
    locks((locking_t){.limit = 16 * page, .length = 16 * page, .refusal = EPERM}, 16 * page);
    locks((locking_t){.limit = 0, .length = 64 * page, .refusal = ENOSYS}, 0);
}

/* What is not touched takes no memory, and what is touched stays. */
UNIT_TEST(what_is_locked_is_not_brought_in)
{
    const size_t length = 16 * page;
    const int fd = memfd_create("regx", 0);
    struct stat status;
    char *memory;

    assert_int_equal(ftruncate(fd, (off_t)length), 0);
    memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(memory != MAP_FAILED);
    unit_need(regx_place_lock(memory, length) >= length, "16 pages cannot be locked");
    assert_int_equal(fstat(fd, &status), 0);
    assert_int_equal(status.st_blocks, 0);
    memory[3 * page] = 1;
    assert_int_equal(fstat(fd, &status), 0);
    assert_int_equal(status.st_blocks * 512, page);
    assert_int_equal(mapping_at(memory).pages, page); /* locked by that touch alone */
    munmap(memory, length);
    close(fd);
}

static int prepare(void **state)
{
    page = (size_t)sysconf(_SC_PAGESIZE);
    found = mmap(NULL, sizeof(*found), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return found == MAP_FAILED ? -1 : 0;
}

const unit_group_t unit_group = {.setup = prepare};

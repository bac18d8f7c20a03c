/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Memory for the user's buffers (MPI_Alloc_mem): what is allocated, how a peer's is mapped, and who
 * copies.
 */
#include "shm_parties.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { LEAST = REGX_ALLOC_MEM_MIN, ALL = 16 * MIB /* what a party gives */ };

/* ---- allocation ---- */

static uint8_t *allocate(size_t length)
{
    return regx_shm_ops.node.allocate(one.transport, length);
}

SHM_TEST(blocks_do_not_overlap_and_are_used_again)
{
    static const size_t lengths[] = {LEAST, LEAST + 1, 3 * MIB, 100000, MIB};
    uint8_t *blocks[5];

    for (unsigned lap = 0; lap < 10; lap++) { /* more than there is, were nothing used again */
        for (unsigned i = 0; i < 5; i++) {
            blocks[i] = allocate(lengths[i]);
            assert_non_null(blocks[i]);
            assert_int_equal((uintptr_t)blocks[i] % regx_page_size(), 0);
            unit_fill(blocks[i], lengths[i], i, 0);
        }
        for (unsigned i = 0; i < 5; i++) {
            assert_true(unit_is_filled(blocks[i], lengths[i], i));
        }
        for (unsigned i = 0; i < 5; i++) { /* each lap in another order */
            regx_shm_ops.node.release(one.transport, blocks[(2 * i + lap) % 5]);
        }
    }
}

SHM_TEST(freed_neighbours_become_one_block)
{
    uint8_t *blocks[4];

    assert_non_null(allocate(ALL - 2 * MIB));
    for (unsigned i = 0; i < 4; i++) {
        blocks[i] = allocate(MIB / 2);
        assert_non_null(blocks[i]);
    }
    assert_null(allocate(LEAST));
    regx_shm_ops.node.release(one.transport, blocks[1]);
    regx_shm_ops.node.release(one.transport, blocks[3]);
    assert_null(allocate(MIB));
    regx_shm_ops.node.release(one.transport, blocks[2]);
    assert_ptr_equal(allocate(3 * MIB / 2), blocks[1]);
}

SHM_TEST(no_more_is_given_than_allowed)
{
    unsigned given = 0;

    assert_null(allocate(LEAST - 1)); /* too short: not reported */
    assert_int_equal(fallbacks(&one), 0);
    assert_null(allocate(SIZE_MAX));
    assert_null(allocate(ALL + 1));
    while (allocate(MIB) != NULL) {
        given++;
    }
    assert_int_equal(given, ALL / MIB);
    assert_int_equal(fallbacks(&one), 3);
}

/* Under a limit of the process there is none, and no signal. */
static void refused_by(int resource, rlim_t limit)
{
    struct rlimit before;

    shm_parties_open(false);
    assert_int_equal(getrlimit(resource, &before), 0);
    const struct rlimit low = {limit, before.rlim_max};
    assert_int_equal(setrlimit(resource, &low), 0);
    const uint8_t *block = allocate(4 * MIB);
    assert_int_equal(setrlimit(resource, &before), 0);
    assert_null(block);
    assert_int_equal(fallbacks(&one), 1);
    assert_non_null(allocate(ALL)); /* nothing is left of it */
    parties_close();
}

UNIT_TEST(what_the_system_refuses_is_not_given)
{
    refused_by(RLIMIT_FSIZE, MIB);
    refused_by(RLIMIT_NOFILE, 3);
}

SHM_TEST(a_child_does_not_have_it)
{
    int status;

    volatile uint8_t *block = allocate(MIB);
    assert_non_null(block);
    block[0] = 1;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const struct rlimit no_core = {0, 0};

        setrlimit(RLIMIT_CORE, &no_core);
        signal(SIGSEGV, SIG_DFL);
        block[0] = 2;
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    assert_int_equal(block[0], 1);
}

/* Bytes that the first segment of `two` takes. */
static size_t taken(void)
{
    struct stat status;

    assert_int_equal(fstat(regx_shm_of(two.transport)->alloc_mem.names[0].file.descriptor, &status),
                     0);
    return (size_t)status.st_blocks * 512;
}

SHM_TEST(pages_are_taken_at_the_first_touch_and_given_back)
{
    uint8_t *kept = regx_shm_ops.node.allocate(two.transport, MIB);
    uint8_t *block = regx_shm_ops.node.allocate(two.transport, MIB);

    assert_true(kept != NULL && block != NULL);
    assert_int_equal(taken(), 0);
    unit_fill(kept, MIB, 5, 0);
    unit_fill(block, MIB, 6, 0);
    assert_int_equal(taken(), 2 * MIB);
    regx_shm_ops.node.release(two.transport, block);
    assert_int_equal(taken(), MIB);
    assert_true(unit_is_filled(kept, MIB, 5));
    regx_shm_ops.node.release(two.transport, kept);
}

/* ---- a peer's table ---- */

static uint64_t pieces_mapped(void)
{
    return one.counters.pieces_owned;
}

/* `one` gets what `two` has there, three times. */
static void get_right(uint8_t *from)
{
    uint8_t *to = malloc(MIB);
    regx_mr_t remote = {.base = from};

    unit_handle_no_faults(); /* else it may have protected its own: the kernel copies */
    unit_fill(from, MIB, 3, 0);
    regx_shm_expose(two.transport, from, MIB, &remote.key);
    for (int i = 0; i < 3; i++) {
        op_t op;

        memset(to, 0, MIB);
        op_get(&op, to, MIB, NULL, &remote, 0);
        op_start_get(&one, &op);
        op_await(&op);
        assert_memory_equal(to, from, MIB);
    }
    free(to);
}

enum { LONGER, NOTHING, TOO_FAR, ANOTHER_FILE, NO_DESCRIPTOR, WITHOUT_SEALS, LIES };

static void lie(regx_alloc_mem_name_t *name, int how, int file_without_seals)
{
    switch (how) {
    case LONGER:
        name->length += regx_page_size();
        break;
    case NOTHING:
        name->length = 0;
        break;
    case TOO_FAR:
        name->base = UINT64_MAX - MIB;
        break;
    case ANOTHER_FILE:
        name->file.inode++;
        break;
    case NO_DESCRIPTOR:
        name->file.descriptor = -1;
        break;
    default: /* it could be cut short while it is mapped */
        assert_int_equal(ftruncate(file_without_seals, (off_t)name->length), 0);
        assert_true(regx_shm_file_name(file_without_seals, &name->file));
    }
}

/* What `two` says of its first segment is wrong: then that is not mapped, which is counted once, and
 * the kernel copies. Others are mapped. */
UNIT_TEST(what_a_peer_says_wrong_is_refused)
{
    const int other = memfd_create("test", 0);

    for (int how = 0; how < LIES; how++) {
        shm_parties_open(false);
        uint8_t *first = regx_shm_ops.node.allocate(two.transport, 2 * MIB);
        assert_non_null(first);
        lie(&regx_shm_main(regx_shm_of(two.transport))->alloc_mem.names[0], how, other);
        get_right(first);
        assert_int_equal(pieces_mapped(), 0);
        assert_int_equal(fallbacks(&one), 1);
        uint8_t *second = regx_shm_ops.node.allocate(two.transport, 2 * MIB);
        assert_non_null(second);
        get_right(second);
        assert_true(pieces_mapped() > 0);
        assert_int_equal(fallbacks(&one), 1);
        regx_shm_ops.node.release(two.transport, first);
        regx_shm_ops.node.release(two.transport, second);
        parties_close();
    }
    close(other);
}

/* Nor is more read of the table than there is. */
SHM_TEST(a_table_is_not_read_beyond_its_end)
{
    uint8_t *memory = regx_shm_ops.node.allocate(two.transport, 2 * MIB);
    atomic_store(&regx_shm_main(regx_shm_of(two.transport))->alloc_mem.count, UINT32_MAX);
    get_right(memory);
    assert_true(pieces_mapped() > 0);
    assert_int_equal(fallbacks(&one), REGX_ALLOC_MEM_SEGMENTS - 1);
    regx_shm_ops.node.release(two.transport, memory);
}

/* Kilobytes of that field of this process, and mappings of the first segment of `two` that a core would have. */
static void look(long *shared, unsigned *dumped)
{
    const ino_t inode = (ino_t)regx_shm_of(two.transport)->alloc_mem.names[0].file.inode;
    FILE *smaps = fopen("/proc/self/smaps", "r");
    unsigned long number;
    bool of_it = false;
    char line[512];
    long part;

    assert_non_null(smaps);
    *shared = 0;
    *dumped = 0;
    while (fgets(line, sizeof(line), smaps) != NULL) {
        if (sscanf(line, "%*x-%*x %*s %*x %*x:%*x %lu", &number) == 1) {
            of_it = number == inode;
        } else if (of_it && sscanf(line, "Rss: %ld kB", &part) == 1) {
            *shared += part;
        } else if (of_it && strncmp(line, "VmFlags:", 8) == 0) {
            *dumped += strstr(line, " dd") == NULL;
        }
    }
    fclose(smaps);
}

/* Nor are they in this process's core. (Both parties are one process here.) */
SHM_TEST(what_was_copied_of_a_peer_does_not_stay_in_this_process)
{
    enum { ROUNDS = 8, LEEWAY_KIB = 1024 };
    uint8_t *memory = regx_shm_ops.node.allocate(two.transport, ROUNDS * MIB);
    unsigned dumped;
    long before, after;

    regx_shm_of(one.transport)->config.neighbours = 64;
    assert_non_null(memory);
    unit_fill(memory, ROUNDS * MIB, 7, 0);
    look(&before, &dumped);
    assert_int_equal(dumped, 1);
    for (unsigned i = 0; i < ROUNDS; i++) {
        get_right(memory + i * MIB);
    }
    assert_true(pieces_mapped() > 0);
    look(&after, &dumped);
    assert_int_equal(dumped, 1);
    assert_true(after < before + LEEWAY_KIB);
    regx_shm_ops.node.release(two.transport, memory);
}

/* ---- who copies ---- */

/* A piece of the peer's memory from MPI_Alloc_mem is copied by this process, also when the peer has
 * ended; of other memory by the kernel, and also for who helps with a get. */
SHM_TEST(the_kernel_copies_what_is_not_mapped)
{
    op_t op;

    get_start(&one, &op, 0, SHM_ZONE, false);
    op_await(&op);
    get_check(&op);
    assert_int_equal(pieces_mapped(), 0);
    uint8_t *const plain = source, *const guarded = sink;
    source = regx_shm_ops.node.allocate(two.transport, SHM_ZONE);
    sink = regx_shm_ops.node.allocate(one.transport, SHM_ZONE);
    assert_true(source != NULL && sink != NULL);
    unit_fill(source, SHM_ZONE, 4, 0);
    get_start(&one, &op, 0, SHM_ZONE, true);
    work(&two);
    op_await(&op);
    get_check(&op);
    assert_true(two.counters.chunks_sender > 0 && two.counters.pieces_owned == 0);
    assert_true(pieces_mapped() > 0);
    conn_of(&one)->peer.vm.pid = 0x7ffffff0; /* no process has that number */
    conn_of(&one)->peer.vm.life.made--;
    get_start(&one, &op, 0, SHM_ZONE, false);
    op_await(&op);
    get_check(&op);
    regx_shm_ops.node.release(two.transport, source);
    regx_shm_ops.node.release(one.transport, sink);
    source = plain;
    sink = guarded;
}

/* The program's mistake, or a neighbour's lie, must not end the process that helps. */
SHM_TEST(what_may_not_be_read_fails_for_both)
{
    op_t op;

    uint8_t *const to = regx_shm_ops.node.allocate(one.transport, SHM_ZONE), *const guarded = sink;
    assert_non_null(to);
    sink = to;
    void *middle = (void *)regx_align_up((uintptr_t)source + SHM_ZONE / 2, regx_page_size());
    const size_t hidden = SHM_ZONE / 2 - 2 * regx_page_size();
    assert_int_equal(mprotect(middle, hidden, PROT_NONE), 0);
    get_start(&one, &op, 0, SHM_ZONE, true);
    work(&two);
    parties_await(&op.ended, 1);
    assert_int_equal(op.status, REGX_FAILED);
    assert_int_equal(two.counters.chunks_sender, 0);
    assert_int_equal(mprotect(middle, hidden, PROT_READ | PROT_WRITE), 0);
    regx_shm_ops.node.release(one.transport, to);
    sink = guarded;
}

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Two copies of registration/ in one process: the component's, and the library's over a device in
 * memory, with the same buffer.
 *
 *     beside library|component BACKEND raw|libc ROUNDS SIZE
 *
 * library: the domain is opened before MPI_Init and closed after MPI_Finalize, and uses each buffer
 * before a message does; component: the other way round. BACKEND is the domain's. Rank 0 sends,
 * rank 1 receives. After each round both ranks unmap the buffer, by libc or by bare system calls,
 * and map new memory at its address. That what arrives is right is checked here, and that nothing
 * that the domain registered before is used after. What the domain did goes to standard error.
 */
#include <stdint.h>

#include "library/regx/registration.h"
#include "mpi/mapping.h"
#include "unit/transport/verbs/fake_device.h"
#include "unit/transport/verbs/fake_parts.h"

enum { SEED = 97, USES = 4, FOR_PEERS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE };

static regx_domain_t *domain;
static size_t size;
static unsigned char *memory;

static void open_domain(const char *backend)
{
    const regx_domain_options_t options = {.size = sizeof(options), .backend = backend};
    char error[256] = "";

    fake_reset();
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_pd *pd = ibv_alloc_pd(ibv_open_device(list[0]));
    ibv_free_device_list(list);
    if (regx_domain_open(pd, &options, &domain, error, sizeof(error)) != 0) {
        fprintf(stderr, "not opened: %s\n", error);
        exit(1);
    }
}

static void close_domain(void)
{
    const char *reason;
    uint64_t count;

    for (unsigned i = 0; regx_domain_fallback(domain, i, &reason, &count) == 0; i++) {
        fprintf(stderr, "domain: %s\n", reason);
    }
    regx_domain_close(domain);
}

/* By the domain; its key. */
static uint32_t use(void)
{
    regx_use_t use;

    if (regx_domain_acquire(domain, memory, size, FOR_PEERS, &use) != 0) {
        check_fail("the domain does not register %zu bytes", size);
    }
    const uint32_t key = use.mr->rkey;
    pthread_mutex_lock(&fake_lock);
    const bool right = fake_is_registered(key, (uintptr_t)memory, size, FOR_PEERS);
    pthread_mutex_unlock(&fake_lock);
    if (!right) {
        check_fail("the key %u is not one of that memory", key);
    }
    regx_domain_release(domain, &use);
    return key;
}

/* Keys count upwards; answers the highest. */
static uint32_t use_both(uint64_t round, bool library_first, uint32_t before)
{
    uint32_t highest = before;

    for (int n = 0; n < USES; n++) {
        uint32_t key = library_first ? use() : 0;

        check_transfer(memory, size, stamp_key(SEED, round, 0, n), "a buffer that both watch");
        key = library_first ? key : use();
        if (key <= before) {
            check_fail("round %llu: the key %u is of memory that is gone",
                       (unsigned long long)round, key);
        }
        highest = key > highest ? key : highest;
    }
    return highest;
}

/* Between pages that nobody can use: so no mapping beside it becomes a part of it. */
static void map_first(bool raw)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *whole =
        mmap(NULL, size + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (whole == MAP_FAILED) {
        check_fail("no memory for %zu bytes", size);
    }
    memory = whole + page;
    mapping_drop(memory, size, raw);
    mapping_make(memory, size, raw);
}

int main(int argc, char **argv)
{
    uint32_t before = 0;

    if (argc != 6) {
        fprintf(stderr, "beside: five arguments are needed\n");
        return 1;
    }
    const bool library_first = strcmp(argv[1], "library") == 0, raw = strcmp(argv[3], "raw") == 0;
    const uint64_t rounds = strtoul(argv[4], NULL, 0);
    size = strtoul(argv[5], NULL, 0);
    if (library_first) {
        open_domain(argv[2]);
    }
    MPI_Init(&argc, &argv);
    if (!library_first) {
        open_domain(argv[2]);
    }
    map_first(raw);
    for (uint64_t round = 0; round < rounds; round++) {
        before = use_both(round, library_first, before);
        mapping_drop(memory, size, raw);
        mapping_make(memory, size, raw);
    }
    regx_statistics_t seen;
    regx_domain_statistics(domain, &seen, sizeof(seen));
    if (seen.hits + seen.misses + seen.uncached != rounds * USES) {
        check_fail("the domain counts other uses than there were");
    }
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    fprintf(stderr, "domain of rank %d: hits %llu\n", rank, (unsigned long long)seen.hits);
    if (!library_first) {
        close_domain();
    }
    check_done(MPI_COMM_WORLD);
    MPI_Finalize();
    if (library_first) {
        close_domain();
    }
    return 0;
}

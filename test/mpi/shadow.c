/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Random operations on some buffers of each rank, of which every rank knows what they must hold.
 *
 *     shadow SEED OPERATIONS FILE [WAY...]
 *
 * Operation number i is made of SEED and i alone: so every rank carries out all of them on its
 * shadow, a copy of all ranks' buffers, and those that concern it on its memory. Operations are
 * messages, several at once; puts, gets and atomic operations on windows; new content; new buffers
 * of any kind (buffer.h); other pages under the same addresses. Whatever may have been written to
 * is compared with the shadow, with what lies around it, and now and then all.
 *
 * A WAY is `messages`: there are no windows; or a freedom that a parameter of regx gives a program:
 * `drain`, that a buffer is unmapped while a message uses it (btl_regx_inuse=drain), and `replace`,
 * that other pages come under a receive buffer's addresses meanwhile (btl_regx_grant=synchronous).
 * By FILE, which the ranks share, they see to it that the message is under way then.
 */
#include <fcntl.h>

#include "shadows/shadow.h"

enum { CHECK_ALL = 8 }; /* operations */

bool onesided = true;
struct shared *shared;

static bool drains, replaces;

static const struct operation {
    void (*make)(void);
    unsigned weight;
    const bool *allowed;
} operations[] = {{send_messages, 20, NULL},     {put_or_get, 8, &onesided},
                  {accumulate, 2, &onesided},    {fetch, 4, &onesided},
                  {renew_content, 4, NULL},      {renew_buffer, 4, NULL},
                  {renew_window, 1, NULL},       {replace_pages, 4, NULL},
                  {unmap_under_way, 6, &drains}, {replace_under_way, 6, &replaces}};

static void operate(void)
{
    const unsigned count = sizeof operations / sizeof *operations;
    uint64_t total = 0;
    unsigned which = 0;

    chance = stamp_key(seed, number, 0, 0);
    for (unsigned n = 0; n < count; n++) {
        total += operations[n].weight;
    }
    for (uint64_t drawn = below(total); drawn >= operations[which].weight; which++) {
        drawn -= operations[which].weight;
    }
    if (operations[which].allowed == NULL || *operations[which].allowed) {
        operations[which].make();
    }
    if (number % CHECK_ALL == 0) {
        check_all();
    }
}

static void share(const char *path)
{
    const int file = open(path, O_RDWR | O_CREAT, 0600);

    if (file < 0 || ftruncate(file, sizeof *shared) != 0) {
        check_fail("%s: %s", path, strerror(errno));
    }
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (shared == MAP_FAILED) {
        check_fail("%s: %s", path, strerror(errno));
    }
    close(file);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc < 4 || ranks < 2) {
        check_fail("a seed, a number of operations, a file, and two ranks are needed");
    }
    seed = strtoull(argv[1], NULL, 0);
    const uint64_t operations_wanted = strtoull(argv[2], NULL, 0);
    share(argv[3]);
    for (int n = 4; n < argc; n++) {
        onesided = onesided && strcmp(argv[n], "messages") != 0;
        drains = drains || strcmp(argv[n], "drain") == 0;
        replaces = replaces || strcmp(argv[n], "replace") == 0;
    }
    shadow = calloc((size_t)ranks * BUFFERS, sizeof *shadow);
    for (int n = 0; n < ranks * BUFFERS; n++) {
        shadow[n].bytes = check_memory(LARGEST);
    }
    chance = ~seed;
    for (int b = 0; b < WINDOWS; b++) {
        open_window(b);
    }
    for (int n = 0; n < ranks * (BUFFERS - WINDOWS); n++) {
        make_buffer(n / (BUFFERS - WINDOWS), WINDOWS + n % (BUFFERS - WINDOWS));
    }
    for (number = 1; number <= operations_wanted; number++) {
        operate();
    }
    check_all();
    for (int b = 0; b < BUFFERS; b++) {
        b < WINDOWS ? close_window(b) : give_back(rank, b);
    }
    check_done(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * stale CHANGE USE [ROUNDS]: registers a buffer, changes its memory in one way, and uses the registration in one
 * way. Each of the three is a function by itself, which regx-check is to name. The example of the
 * library brings the device and its queue pairs.
 */
#define main example_main
#include "../../component/library/example.c"
#undef main

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define PLANTED __attribute__((noinline, noclone, visibility("default")))
enum { PAGE = 4096, FLAGS = MAP_PRIVATE | MAP_ANONYMOUS };

struct ibv_mr *planted_registration(struct ibv_pd *pd, void *base);
struct ibv_mr *planted_source(struct ibv_pd *pd, void *base);
struct ibv_mr *planted_target(struct ibv_pd *pd, void *base);
void planted_change(const char *kind, char *base);
int planted_use(const wire_t *wire, const char *kind, struct ibv_mr *mr, char *base,
                const struct ibv_mr *to);

static uint64_t iova;
static int file = -1; /* whose memory it is: the buffer's is the second LENGTH of it */

PLANTED struct ibv_mr *planted_registration(struct ibv_pd *pd, void *base)
{
    const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    struct ibv_mr *mr = iova != 0 ? ibv_reg_mr_iova(pd, base, LENGTH, iova, access)
                                  : ibv_reg_mr(pd, base, LENGTH, access);

    require(mr != NULL, "ibv_reg_mr fails");
    return mr;
}

/* Two callers that have the same place on the stack. */
PLANTED struct ibv_mr *planted_source(struct ibv_pd *pd, void *base)
{
    struct ibv_mr *mr = planted_registration(pd, base);

    __asm__ volatile("# source");
    return mr;
}

PLANTED struct ibv_mr *planted_target(struct ibv_pd *pd, void *base)
{
    struct ibv_mr *mr = planted_registration(pd, base);

    __asm__ volatile("# target");
    return mr;
}

static void map_again(char *base, size_t length, int fill)
{
    require(mmap(base, length, PROT_READ | PROT_WRITE, FLAGS | MAP_FIXED, -1, 0) == base,
            "mmap fails");
    memset(base, fill, length);
}

static void map_file(char *base, int how)
{
    require(mmap(base, 4 * LENGTH, PROT_READ | PROT_WRITE, how | MAP_FIXED_NOREPLACE, file,
                 LENGTH) == base,
            "the file cannot be mapped");
}

static void *change_in_thread(void *base)
{
    planted_change("munmap", base);
    return NULL;
}

/* The stack grows, below what is registered of it, and other functions have had their frames there. */
static void deepen(int frames)
{
    volatile char frame[LENGTH];

    for (size_t i = 0; i < LENGTH; i += PAGE) {
        frame[i] = (char)frames;
    }
    if (frames > 0) {
        deepen(frames - 1);
        require(frame[0] == (char)frames, "a frame has changed");
    }
}

/* Of the same bytes afterwards: "zeros", "back", "none", "beside". */
PLANTED void planted_change(const char *kind, char *base)
{
    if (strcmp(kind, "munmap") == 0 || strcmp(kind, "file-munmap") == 0 || *kind == 'z') {
        munmap(base, LENGTH);
        map_again(base, LENGTH, *kind == 'z' ? 1 : 2);
    } else if (strcmp(kind, "raw") == 0) {
        syscall(SYS_munmap, base, LENGTH);
        map_again(base, LENGTH, 2);
    } else if (strncmp(kind, "madvise", 7) == 0) {
        madvise(base, LENGTH, MADV_DONTNEED);
        memset(base, 2, LENGTH);
        mmap(base, kind[7] == '-' ? LENGTH : 0, PROT_READ, FLAGS | MAP_FIXED, -1, 0);
    } else if (strcmp(kind, "file-copied") == 0) { /* the program has pages of its own there */
        require(fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 8 * LENGTH) == 0,
                "the file cannot be emptied");
    } else if (strcmp(kind, "hole") == 0) { /* where there were zeros */
        memset(base, 0, LENGTH);
        require(fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, LENGTH, LENGTH) == 0,
                "the file has no hole");
    } else if (strncmp(kind, "file-", 5) == 0) {
        madvise(base, LENGTH, MADV_DONTNEED); /* takes none of its pages away */
        const long failed =
            strcmp(kind, "file-remove") == 0 ? madvise(base, LENGTH, MADV_REMOVE)
            : strcmp(kind, "file-punch") == 0
                ? fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, LENGTH, LENGTH)
            : strcmp(kind, "file-raw") == 0 ? syscall(SYS_ftruncate, file, LENGTH)
                                            : ftruncate(file, LENGTH);
        require(failed == 0 && ftruncate(file, 8 * LENGTH) == 0, "the file cannot be emptied");
        memset(base, 2, LENGTH);
    } else if (strcmp(kind, "blocked") == 0) {
        sigset_t all;

        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, NULL);
        planted_change("munmap", base);
        require(sigtimedwait(&all, NULL, &(struct timespec){0}) < 0, "a signal waits");
    } else if (strcmp(kind, "closed") == 0) {
        require(syscall(SYS_close_range, 100, ~0u, 0) == 0, "close_range fails");
        planted_change("munmap", base);
    } else if (strcmp(kind, "back") == 0) {
        char *other = mremap(base, LENGTH, LENGTH, MREMAP_MAYMOVE | MREMAP_FIXED, base + LENGTH);

        require(other == base + LENGTH &&
                    mremap(other, LENGTH, LENGTH, MREMAP_MAYMOVE | MREMAP_FIXED, base) == base,
                "mremap fails");
    } else if (strcmp(kind, "beside") == 0) {
        munmap(base + 2 * LENGTH, LENGTH); /* and in it, behind what is used */
        madvise(base + PAGE, PAGE, MADV_DONTNEED);
    } else if (strcmp(kind, "two") == 0) { /* of which the second one matters */
        munmap(base, PAGE);
        map_again(base, PAGE, 1);
        madvise(base + PAGE, PAGE, MADV_DONTNEED);
    } else if (strcmp(kind, "thread") == 0) {
        pthread_t thread;

        require(pthread_create(&thread, NULL, change_in_thread, base) == 0 &&
                    pthread_join(thread, NULL) == 0,
                "no thread");
    } else if (strcmp(kind, "fork") == 0) {
        const pid_t child = fork();
        int status;

        if (child == 0) {
            memset(base, 3, LENGTH);
            munmap(base, LENGTH);
            _exit(0);
        }
        require(waitpid(child, &status, 0) == child && status == 0, "the child fails");
        memset(base, 2, LENGTH);
    } else {
        require(strcmp(kind, "none") == 0 || strcmp(kind, "stack") == 0, "no such change");
        deepen(*kind == 's' ? 40 : 0);
        memset(base, 2, LENGTH);
    }
}

/* As stacks do, with the key behind what else they tell. Returns its length. */
static uint32_t make_offer(char *offer, const char *kind, uint64_t address, uint32_t key)
{
    uint64_t words[] = {address, 0, 0, 0};
    size_t count = 2;

    if (strcmp(kind, "offer-of-a-page") == 0) {
        words[1] = PAGE;
    } else if (strcmp(kind, "offer-of-pages") == 0) {
        words[1] = 2 * PAGE;
    } else if (strcmp(kind, "offer-of-pages-by-a-word-before") == 0) {
        words[0] = 2 * PAGE;
        words[2] = address;
        count = 3;
    } else if (strcmp(kind, "offer-of-two") == 0) {
        words[1] = address + PAGE;
    } else {
        count = 1;
    }
    memcpy(offer, words, count * sizeof(words[0]));
    memcpy(offer + count * sizeof(words[0]), &key,
           strcmp(kind, "offer-without-key") == 0 ? 0 : sizeof(key));
    return (uint32_t)(count * sizeof(words[0]) + sizeof(key));
}

/* A request of the same number as a later one, whose completion is not this one's: because it failed, is silent, was
 * refused (there is room for one), or is a receive. */
static void read_before(const wire_t *wire, char kind, struct ibv_send_wr request)
{
    struct ibv_recv_wr receive = {.sg_list = request.sg_list, .num_sge = 1}, *refused_receive;
    struct ibv_send_wr *refused, again = request;
    struct ibv_wc done;

    request.wr.rdma.rkey += kind == 'f' ? 1u << 30 : 0;
    request.send_flags = kind == 's' ? 0 : IBV_SEND_SIGNALED;
    require(ibv_post_send(wire->from, &request, &refused) == 0 &&
                (kind != 'r' || ibv_post_send(wire->from, &again, &refused) == ENOMEM),
            "ibv_post_send answers otherwise");
    while (ibv_poll_cq(wire->cq, 1, &done) == 0 && kind != 's') {
    }
    connect_qp(wire, wire->from, wire->to->qp_num);
    require(kind != 'o' || ibv_post_recv(wire->from, &receive, &refused_receive) == 0,
            "ibv_post_recv fails");
}

PLANTED int planted_use(const wire_t *wire, const char *kind, struct ibv_mr *mr, char *base,
                        const struct ibv_mr *to)
{
    const uint64_t address = iova != 0 ? iova : (uintptr_t)base;
    struct ibv_sge piece = {.addr = address, .length = PAGE, .lkey = mr->lkey};
    struct ibv_send_wr request = {
        .sg_list = &piece,
        .num_sge = 1,
        .send_flags = IBV_SEND_SIGNALED,
        .opcode = strcmp(kind, "read") == 0 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
        .wr.rdma = {.remote_addr = (uintptr_t)to->addr, .rkey = to->rkey}};
    struct ibv_recv_wr receive = {.sg_list = &piece, .num_sge = 1}, *refused;
    struct ibv_send_wr *refused_send;
    struct ibv_wc done;
    int count, more = 0;
    static char message[64], *const offer = message + 5; /* at any place of it */

    if (strcmp(kind, "written") == 0) { /* by a peer, after an offer that is not inline */
        char *const other = (char *)to->addr + PAGE;
        struct ibv_sge room = {(uintptr_t)other, PAGE, to->lkey};

        piece = (struct ibv_sge){(uintptr_t)other, 0, to->lkey};
        piece.length = make_offer(other, "offer-of-a-page", address, mr->rkey);
        receive.sg_list = &room;
        require(ibv_post_recv(wire->to, &receive, &refused) == 0 &&
                    ibv_post_send(wire->from, &request, &refused_send) == 0,
                "posting fails");
        while (ibv_poll_cq(wire->cq, 1, &done) == 0) {
        }
        piece = (struct ibv_sge){(uintptr_t)to->addr, PAGE, to->lkey};
        request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
        request.wr.rdma.remote_addr = address;
        request.wr.rdma.rkey = mr->rkey;
        more = 1;
    }
    if (strncmp(kind, "offer", 5) == 0) {
        const uint32_t length = make_offer(offer, kind, address, mr->rkey);

        piece = (struct ibv_sge){.addr = (uintptr_t)message, .length = sizeof(message)};
        if (iova != 0) { /* and nothing else */
            piece = (struct ibv_sge){.addr = (uintptr_t)offer, .length = length};
        }
        request.send_flags |= IBV_SEND_INLINE;
    }
    if (strcmp(kind, "receives") == 0) { /* of one number, of which the first completes */
        for (; more < 2; more++) {
            require(ibv_post_recv(wire->to, &receive, &refused) == 0, "ibv_post_recv fails");
            piece.addr += LENGTH / 2;
        }
        piece = (struct ibv_sge){(uintptr_t)to->addr, PAGE, to->lkey};
        request.opcode = IBV_WR_SEND_WITH_IMM;
        more = 1;
    }
    if (strncmp(kind, "read-", 5) == 0) {
        request.opcode = IBV_WR_RDMA_READ;
        read_before(wire, kind[5], request);
        planted_change("zeros", base);
        piece = (struct ibv_sge){(uintptr_t)to->addr, PAGE, to->lkey};
    }
    if (strcmp(kind, "receive") == 0 || strcmp(kind, "iova") == 0) {
        return ibv_post_recv(wire->to, &receive, &refused);
    }
    if (strstr(kind, "extended") != NULL) {
        struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(wire->from);

        require(qp != NULL, "no extended interface");
        ibv_wr_start(qp);
        ibv_wr_rdma_write(qp, to->rkey, (uintptr_t)to->addr);
        if ((request.send_flags & IBV_SEND_INLINE) != 0) {
            ibv_wr_set_inline_data(qp, (void *)(uintptr_t)piece.addr, piece.length);
        } else {
            ibv_wr_set_sge(qp, piece.lkey, piece.addr, piece.length);
        }
        require(ibv_wr_complete(qp) == 0, "wr_complete fails");
    } else {
        require(ibv_post_send(wire->from, &request, &refused_send) == 0, "ibv_post_send fails");
    }
    while ((count = ibv_poll_cq(wire->cq, 1, &done)) == 0 || (count == 1 && more-- > 0)) {
    }
    return count != 1 || done.status != IBV_WC_SUCCESS;
}

/* Registers memory of its own, uses it, and changes it when it is not registered. */
static void *use_in_thread(void *argument)
{
    const wire_t *wire = argument;
    char *base = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, FLAGS, -1, 0);

    for (int round = 0; round < 1000; round++) {
        struct ibv_mr *mr = planted_registration(wire->pd, base);
        struct ibv_sge piece = {.addr = (uintptr_t)base, .length = LENGTH, .lkey = mr->lkey};
        struct ibv_recv_wr receive = {.sg_list = &piece, .num_sge = 1}, *refused;

        ibv_post_recv(wire->to, &receive, &refused); /* there may be no room */
        ibv_dereg_mr(mr);
        if (round % 8 == 0) {
            map_again(base, LENGTH, round % 128);
        }
    }
    munmap(base, LENGTH);
    return NULL;
}

static void use_in_threads(wire_t *wire)
{
    pthread_t threads[3];

    for (int i = 0; i < 3; i++) {
        require(pthread_create(&threads[i], NULL, use_in_thread, wire) == 0, "no thread");
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
    }
}

static const char *change = "none", *use = "write";
static int rounds = 1;

static void lengthen(int signal)
{
    require(ftruncate(file, 8 * LENGTH + signal) == 0, "ftruncate fails");
}

static int run(void)
{
    char frame[4 * LENGTH + PAGE];
    const pid_t child = getenv("STALE_CHILD") != NULL ? fork() : 0;
    int status = 1;
    wire_t wire;

    if (child != 0) {
        require(waitpid(child, &status, 0) == child, "the child fails");
        return WEXITSTATUS(status);
    }
    if (getenv("STALE_ERRORS") != NULL) {
        close(STDERR_FILENO);
        require(open(getenv("STALE_ERRORS"), O_WRONLY | O_CREAT, 0600) == STDERR_FILENO, "no file");
    }
    if (!open_device(&wire)) {
        fprintf(stderr, "stale: no RDMA device here\n");
        return NO_DEVICE;
    }
    if (strcmp(use, "nothing") == 0) {
        return 0;
    }
    open_wire(&wire);
    /* The example's peers only write. */
    struct ibv_qp_attr rights = {.qp_access_flags =
                                     IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};
    require(ibv_modify_qp(wire.to, &rights, IBV_QP_ACCESS_FLAGS) == 0, "no rights for readers");
    char *target = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, FLAGS, -1, 0);
    char *base = mmap(NULL, 4 * LENGTH, PROT_READ | PROT_WRITE, FLAGS, -1, 0);
    if (strcmp(change, "stack") == 0) {
        base = frame + -(uintptr_t)frame % PAGE;
    }
    if (strncmp(change, "file", 4) == 0 || strcmp(change, "hole") == 0 ||
        strncmp(use, "written", 7) == 0) {
        base -= 1 << 28; /* far from what else is registered */
        file = memfd_create("stale", 0);
        require(ftruncate(file, 8 * LENGTH) == 0, "no file");
        map_file(base, strcmp(change, "file-copied") == 0 ? MAP_PRIVATE : MAP_SHARED);
    }
    memset(base, 1, 4 * LENGTH);
    memset(target, 7, LENGTH);
    struct ibv_mr *to = planted_target(wire.pd, target);
    if (strcmp(use, "threads") == 0) {
        use_in_threads(&wire);
        return 0;
    }
    for (int i = 0; strcmp(use, "many") == 0 && i < 1 << 14; i++) {
        planted_source(wire.pd, base);
    }
    if (strstr(use, "iova") != NULL) {
        iova = 1 << 20;
    }
    if (strcmp(use, "between") == 0) { /* it changes while it is not registered */
        ibv_dereg_mr(planted_source(wire.pd, base));
        if (file < 0) {
            map_again(base, LENGTH, 5);
        } else { /* the same again, which is another mapping */
            munmap(base, 4 * LENGTH);
            map_file(base, MAP_SHARED);
        }
    }
    if (strcmp(use, "interrupted") == 0) {
        signal(SIGALRM, lengthen);
        setitimer(ITIMER_REAL, &(struct itimerval){{0, 3000}, {0, 3000}}, NULL);
    }
    for (int round = 0; round < rounds; round++) {
        struct ibv_mr *mr = planted_source(wire.pd, base);

        if (strcmp(use, "rereg") == 0) {
            require(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
                                 IBV_ACCESS_LOCAL_WRITE) == 0 &&
                        ibv_rereg_mr(mr, 0, NULL, NULL, 0, 0) == IBV_REREG_MR_ERR_INPUT,
                    "ibv_rereg_mr answers otherwise");
        }
        planted_change(change, base);
        int result = planted_use(&wire, use, mr, base, to);
        if (strcmp(use, "twice") == 0) {
            result |= planted_use(&wire, use, mr, base, to);
        }
        require(result == 0, "the use fails");
        ibv_dereg_mr(mr);
        if (strcmp(change, "beside") == 0) {
            map_again(base + 2 * LENGTH, LENGTH, 1);
        }
    }
    puts("stale: done");
    return 0;
}

/* So many calls below its caller. */
static __attribute__((noinline, noclone)) int run_below(int frames)
{
    const int result = frames > 0 ? run_below(frames - 1) : run();

    __asm__ volatile("" ::: "memory"); /* it returns to here */
    return result;
}

static void *run_alone(void *first)
{
    pthread_join((pthread_t)first, NULL);
    exit(run());
}

int main(int argc, char **argv)
{
    pthread_t thread;

    change = argc > 1 ? argv[1] : change;
    use = argc > 2 ? argv[2] : use;
    rounds = argc > 3 ? atoi(argv[3]) : rounds;
    if (getenv("STALE_ALONE") == NULL) {
        return getenv("STALE_DEPTH") != NULL ? run_below(atoi(getenv("STALE_DEPTH"))) : run();
    }
    require(pthread_create(&thread, NULL, run_alone, (void *)pthread_self()) == 0, "no thread");
    pthread_exit(NULL);
}

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Between the program and libibverbs. Functions are found before libibverbs' own because the library
 * is preloaded. Posting and polling are inline, by pointers in the context and in queue pairs: these are
 * put in place when the context is opened, and when the extended interface of a queue pair is asked for.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "check/check.h"

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

#define INTERPOSED __attribute__((visibility("default")))
enum { DEVICES = 64, TYPES = 16, PIECES = 1 << 14, PLACES = 8, READS = 1 << 24 };

/* Another library that interposes behind us comes first. libibverbs itself may be among the libraries
 * of a plugin only, which are not looked through. It stays, since what is found is kept. */
static void *real(const char *name)
{
    const bool is_verb = strncmp(name, "ibv_", 4) == 0;
    void *const library = is_verb ? dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NODELETE) : NULL;
    void *function = dlsym(RTLD_NEXT, name);

    if (function == NULL && library != NULL) {
        function = dlsym(library, name);
    }
    if (function == NULL) {
        regx_check_say("no library has %s", name);
        abort();
    }
    return function;
}

#define REAL(name)                                                                                 \
    ({                                                                                             \
        static __typeof__(name) *_Atomic found;                                                    \
                                                                                                   \
        found != NULL ? found : (found = (__typeof__(&name))real(#name));                          \
    })

/* Found before it is called: a hook of the program may call it inside munmap and free, with malloc's locks
 * held, and who loads a library holds the linker's while it allocates. */
static int (*_Atomic real_dereg_mr)(struct ibv_mr *mr);

static _Atomic bool has_begun; /* a device was opened, or memory registered */

static bool follows(void)
{
    return regx_check_sum != NULL;
}

/* ---- the old interface ---- */

/* Of a queue pair with the extended interface. */
typedef struct setters {
    void (*list)(struct ibv_qp_ex *qp, size_t count, const struct ibv_sge *list);
    void (*inlines)(struct ibv_qp_ex *qp, size_t count, const struct ibv_data_buf *list);
} setters_t;

/* What is open, and the device's own functions, in place of which ours are. */
typedef struct device {
    const struct ibv_context *_Atomic context; /* NULL: none */
    struct ibv_context_ops ops;
    setters_t setters[TYPES]; /* of queue pairs, by their type */
} device_t;

static device_t devices[DEVICES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* NULL: it is not followed. */
static device_t *device_of(const struct ibv_context *context)
{
    for (int i = 0; i < DEVICES; i++) {
        if (atomic_load_explicit(&devices[i].context, memory_order_acquire) == context) {
            return &devices[i];
        }
    }
    return NULL;
}

static setters_t *setters_of(const struct ibv_qp *qp)
{
    return &device_of(qp->context)->setters[regx_min(qp->qp_type, TYPES - 1)];
}

/* What is posted for the device to write to, until it completes. Of a request of several pieces: the first. */
typedef struct piece {
    const struct ibv_context *context; /* NULL: none */
    uint64_t id;
    uint32_t number; /* of the queue pair, with READS if it reads; 0: a shared queue's */
    uint64_t order;  /* in which they were posted; 0: none */
    struct ibv_sge sge;
} piece_t;

static piece_t pieces[PIECES + PLACES];
static pthread_mutex_t pieces_lock = PTHREAD_MUTEX_INITIALIZER;

/* Of the places of its hash: that of the oldest piece; or of those that have all that this one has, of the oldest, or
 * of the newest. Some programs give all their requests the same number; these complete in order. */
static piece_t *place_of(const piece_t *piece, bool same, bool newest)
{
    const uint64_t hash =
        ((uintptr_t)piece->context ^ ((uint64_t)piece->number << 32) ^ piece->id) *
        UINT64_C(0x9e3779b97f4a7c15);
    piece_t *found = NULL;

    for (piece_t *at = &pieces[hash >> 50]; at < &pieces[(hash >> 50) + PLACES]; at++) {
        if ((found == NULL || (at->order < found->order) != newest) &&
            (!same || (at->context == piece->context && at->number == piece->number &&
                       at->id == piece->id))) {
            found = at;
        }
    }
    return found;
}

static const char a_receive[] = "a receive";

static bool take_piece(piece_t *piece, bool newest)
{
    pthread_mutex_lock(&pieces_lock);
    piece_t *place = place_of(piece, true, newest);

    if (place != NULL) {
        *piece = *place;
        *place = (piece_t){0};
    }
    pthread_mutex_unlock(&pieces_lock);
    return place != NULL;
}

static void count_large(uint64_t bytes)
{
    if (bytes >= REGX_CHECK_LARGE) {
        atomic_fetch_add_explicit(&regx_check_sum->large, 1, memory_order_relaxed);
    }
}

/* What a request uses. id: of one that writes here; NULL: it does not. how: NULL: it is inline, and the processor
 * reads it. */
static void use(const struct ibv_context *context, uint32_t number, const uint64_t *id,
                const struct ibv_sge *list, size_t count, const char *how)
{
    static uint64_t order;
    uint64_t bytes = 0;

    for (size_t i = 0; i < count; i++) {
        bytes += list[i].length;
        if (how != NULL) {
            regx_check_use(context, &list[i], how, false);
        }
    }
    count_large(how != a_receive ? bytes : 0);
    if (id != NULL && count > 0) {
        piece_t piece = {.context = context, .id = *id, .number = number, .sge = list[0]};

        pthread_mutex_lock(&pieces_lock);
        piece.order = ++order;
        *place_of(&piece, false, false) = piece;
        pthread_mutex_unlock(&pieces_lock);
    }
    atomic_fetch_add_explicit(&regx_check_sum->postings, 1, memory_order_relaxed);
}

/* A request may complete at once, so its piece is put before it is posted. That of one that was refused would be
 * taken for a later one of the same number. */
static void take_back(const struct ibv_context *context, uint32_t number, uint64_t id)
{
    take_piece(&(piece_t){.context = context, .number = number, .id = id}, true);
}

/* Whether it fills memory, and its completion is told. */
static bool reads(const struct ibv_send_wr *request, bool told)
{
    return request->opcode >= IBV_WR_RDMA_READ && request->opcode <= IBV_WR_ATOMIC_FETCH_AND_ADD &&
           (!told || (request->send_flags & IBV_SEND_SIGNALED) != 0);
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **refused)
{
    static const char *const names[] = {
        [IBV_WR_RDMA_WRITE... IBV_WR_RDMA_WRITE_WITH_IMM] = "a write",
        [IBV_WR_SEND... IBV_WR_SEND_WITH_IMM] = "a send",
        [IBV_WR_RDMA_READ] = "a read",
        [IBV_WR_ATOMIC_CMP_AND_SWP... IBV_WR_ATOMIC_FETCH_AND_ADD] = "an atomic operation",
        [IBV_WR_SEND_WITH_INV] = "a send"};

    for (const struct ibv_send_wr *at = wr; follows() && at != NULL; at = at->next) {
        const char *how = at->opcode < sizeof(names) / sizeof(names[0]) ? names[at->opcode] : NULL;
        const size_t count = how != NULL ? (size_t)at->num_sge : 0;

        if (!reads(at, false)) {
            regx_check_message(qp->context, at->sg_list, count);
        }
        use(qp->context, qp->qp_num | READS, reads(at, true) ? &at->wr_id : NULL, at->sg_list,
            count, (at->send_flags & IBV_SEND_INLINE) == 0 ? how : NULL);
    }
    struct ibv_send_wr *first = NULL; /* that was refused; NULL: some devices do not say */
    const int error = device_of(qp->context)->ops.post_send(qp, wr, &first);
    if (error != 0) {
        *refused = first != NULL ? first : *refused;
        for (; follows() && first != NULL; first = first->next) {
            if (reads(first, true)) {
                take_back(qp->context, qp->qp_num | READS, first->wr_id);
            }
        }
    }
    return error;
}

/* To a queue pair of that number, or to a shared queue, by 0. */
static int post_receive(const struct ibv_context *context, uint32_t number, struct ibv_qp *qp,
                        struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **refused)
{
    const struct ibv_context_ops *ops = &device_of(context)->ops;
    struct ibv_recv_wr *first = NULL;

    for (const struct ibv_recv_wr *at = wr; follows() && at != NULL; at = at->next) {
        use(context, number, &at->wr_id, at->sg_list, (size_t)at->num_sge, a_receive);
    }
    const int error =
        qp != NULL ? ops->post_recv(qp, wr, &first) : ops->post_srq_recv(srq, wr, &first);
    if (error != 0) {
        *refused = first != NULL ? first : *refused;
        for (; follows() && first != NULL; first = first->next) {
            take_back(context, number, first->wr_id);
        }
    }
    return error;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **refused)
{
    return post_receive(qp->context, qp->qp_num, qp, NULL, wr, refused);
}

static int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **refused)
{
    return post_receive(srq->context, 0, NULL, srq, wr, refused);
}

/* What has been received, or read, is in the pages that were registered. Of what failed nothing is known but its
 * number: it is under way no longer. */
static void completed(struct ibv_context *context, const struct ibv_wc *wc)
{
    const uint32_t numbers[] = {wc->qp_num | READS, wc->qp_num, 0};
    const bool failed = wc->status != IBV_WC_SUCCESS;
    const bool received = !failed && (wc->opcode & IBV_WC_RECV) != 0;
    const bool read = wc->opcode >= IBV_WC_RDMA_READ && wc->opcode <= IBV_WC_FETCH_ADD;
    piece_t piece = {.context = context, .id = wc->wr_id};
    bool found = false;

    if (!failed && !received && !read) {
        return;
    }
    count_large(received ? wc->byte_len : 0);
    if (received) {
        regx_check_received();
    }
    for (int i = received ? 1 : 0; i < (read && !failed ? 1 : 3) && !found; i++) {
        piece.number = numbers[i];
        found = take_piece(&piece, false);
    }
    if (found && !failed && wc->opcode != IBV_WC_RECV_RDMA_WITH_IMM) {
        if (wc->byte_len != 0) {
            piece.sge.length = (uint32_t)regx_min(piece.sge.length, wc->byte_len);
        }
        regx_check_use(context, &piece.sge,
                       received ? "a receive that completed" : "a read that completed", true);
    }
}

static int poll_cq(struct ibv_cq *cq, int most, struct ibv_wc *wc)
{
    const int count = device_of(cq->context)->ops.poll_cq(cq, most, wc);

    for (int i = 0; follows() && i < count; i++) {
        completed(cq->context, &wc[i]);
    }
    return count;
}

static struct ibv_mw *alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
    if (follows()) {
        atomic_fetch_add(&regx_check_sum->windows, 1);
    }
    return device_of(pd->context)->ops.alloc_mw(pd, type);
}

INTERPOSED struct ibv_context *ibv_open_device(struct ibv_device *which)
{
    struct ibv_context *context = REAL(ibv_open_device)(which);

    if (context == NULL || !follows() || context->ops.poll_cq == poll_cq) {
        return context;
    }
    atomic_store(&has_begun, true);
    atomic_fetch_add(&regx_check_sum->devices, 1);
    pthread_mutex_lock(&lock);
    device_t *device = device_of(NULL);
    if (device != NULL) {
        *device = (device_t){.ops = context->ops};
        atomic_store(&device->context, context);
        context->ops.post_send = post_send;
        context->ops.post_recv = post_recv;
        context->ops.post_srq_recv = post_srq_recv;
        context->ops.poll_cq = poll_cq;
        if (context->ops.alloc_mw != NULL) {
            context->ops.alloc_mw = alloc_mw;
        }
    } else {
        regx_check_say("the postings of a device are not followed: %d are open already", DEVICES);
    }
    pthread_mutex_unlock(&lock);
    return context;
}

INTERPOSED int ibv_close_device(struct ibv_context *context)
{
    device_t *device = device_of(context);

    if (device != NULL) {
        context->ops = device->ops;
        atomic_store(&device->context, NULL);
    }
    return REAL(ibv_close_device)(context);
}

/* ---- the extended interface ---- */

static void set_sge_list(struct ibv_qp_ex *ex, size_t count, const struct ibv_sge *list)
{
    const struct ibv_qp *qp = &ex->qp_base;

    if (follows()) {
        regx_check_message(qp->context, list, count);
        use(qp->context, 0, NULL, list, count, "a request");
    }
    setters_of(qp)->list(ex, count, list);
}

/* One piece is a list, too. */
static void set_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t address, uint32_t length)
{
    set_sge_list(ex, 1, &(struct ibv_sge){address, length, lkey});
}

/* What is inline the processor reads: so nothing of it can be stale, but it may offer what is. */
static void set_inlines(struct ibv_qp_ex *ex, size_t count, const struct ibv_data_buf *list)
{
    const struct ibv_qp *qp = &ex->qp_base;
    struct ibv_sge buffers[REGX_CHECK_PIECES];
    size_t known = 0;

    for (; follows() && known < regx_min(count, REGX_CHECK_PIECES); known++) {
        buffers[known] = (struct ibv_sge){.addr = (uintptr_t)list[known].addr,
                                          .length = (uint32_t)list[known].length};
    }
    if (follows()) {
        regx_check_message(qp->context, buffers, known);
        use(qp->context, 0, NULL, buffers, known, NULL);
    }
    setters_of(qp)->inlines(ex, count, list);
}

static void set_inline(struct ibv_qp_ex *ex, void *address, size_t length)
{
    set_inlines(ex, 1, &(struct ibv_data_buf){address, length});
}

INTERPOSED struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
    struct ibv_qp_ex *ex = REAL(ibv_qp_to_qp_ex)(qp);

    if (ex == NULL || !follows() || device_of(qp->context) == NULL || ex->wr_set_sge == NULL ||
        ex->wr_set_sge == set_sge) {
        return ex;
    }
    const setters_t own = {ex->wr_set_sge_list, ex->wr_set_inline_data_list};
    setters_t *setters = setters_of(qp);
    pthread_mutex_lock(&lock);
    if (setters->list == NULL || (setters->list == own.list && setters->inlines == own.inlines)) {
        *setters = own;
        ex->wr_set_sge = set_sge;
        ex->wr_set_sge_list = set_sge_list;
        if (own.inlines != NULL) {
            ex->wr_set_inline_data = set_inline;
            ex->wr_set_inline_data_list = set_inlines;
        }
    } else {
        regx_check_say("a queue pair's extended postings are not followed: there are two kinds");
    }
    pthread_mutex_unlock(&lock);
    return ex;
}

/* ---- registrations ---- */

typedef enum how { PLAIN, IOVA, IOVA2 } how_t; /* the calls of libibverbs that register */

static struct ibv_mr *ask(how_t how, struct ibv_pd *pd, void *base, size_t length, uint64_t iova,
                          unsigned access)
{
    switch (how) {
    case PLAIN:
        return REAL(ibv_reg_mr)(pd, base, length, (int)access);
    case IOVA:
        return REAL(ibv_reg_mr_iova)(pd, base, length, iova, (int)access);
    default:
        return REAL(ibv_reg_mr_iova2)(pd, base, length, iova, access);
    }
}

static struct ibv_mr *reg(how_t how, struct ibv_pd *pd, void *base, size_t length, uint64_t iova,
                          unsigned access)
{
    static __thread bool within; /* libibverbs calls itself, or another library between us */

    /* Of memory that the device brings in by itself nothing goes stale. */
    if (within || !follows() || length == 0 || (access & IBV_ACCESS_ON_DEMAND) != 0) {
        return ask(how, pd, base, length, iova, access);
    }
    within = has_begun = true;
    real_dereg_mr = REAL(ibv_dereg_mr);
    regx_check_range_t *range =
        regx_check_range_begin(pd->context, base, length, iova, (int)access);
    struct ibv_mr *mr = ask(how, pd, base, length, iova, access);
    if (mr == NULL && errno == ENOMEM && regx_check_witnesses_drop()) {
        regx_check_say(
            "bytes are not compared any more: the memory that may be locked is all used");
        /* The witness was charged for it, too; the kernel gives back what it unpins a while later. */
        for (int i = 0; i < 2000 && mr == NULL && errno == ENOMEM; i++) {
            usleep(1000);
            mr = ask(how, pd, base, length, iova, access);
        }
    }
    const int error = errno;
    if (mr != NULL) {
        regx_check_range_add(range, mr);
    } else {
        regx_check_range_end(range);
    }
    within = false;
    errno = error;
    return mr;
}

INTERPOSED struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *base, size_t length, int access)
{
    const uint64_t iova = (access & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : (uintptr_t)base;

    return reg(PLAIN, pd, base, length, iova, (unsigned)access);
}

INTERPOSED struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *base, size_t length,
                                          uint64_t iova, int access)
{
    return reg(IOVA, pd, base, length, iova, (unsigned)access);
}

INTERPOSED struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *base, size_t length,
                                           uint64_t iova, unsigned access)
{
    return reg(IOVA2, pd, base, length, iova, access);
}

/* By the time that it is deregistered another may have its key: so it goes before. */
INTERPOSED int ibv_dereg_mr(struct ibv_mr *mr)
{
    regx_check_range_t *range = follows() ? regx_check_range_remove(mr) : NULL;
    const int error = (real_dereg_mr != NULL ? real_dereg_mr : REAL(ibv_dereg_mr))(mr);

    if (error == 0) {
        regx_check_range_end(range);
    } else {
        regx_check_range_add(range, mr);
    }
    return error;
}

/* Where it gets no other memory its pages stay, and what is known of them does, too. */
INTERPOSED int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *base,
                            size_t length, int access)
{
    regx_check_range_t *old = follows() ? regx_check_range_remove(mr) : NULL, *next = old;

    if (old != NULL && (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0) {
        next = regx_check_range_begin(mr->context, base, length, (uintptr_t)base, old->access);
    }
    const int error = REAL(ibv_rereg_mr)(mr, flags, pd, base, length, access);
    regx_check_range_t *valid = NULL; /* if it fails in the middle, neither is */
    if (error == 0) {
        valid = next;
        if (next != NULL && (flags & IBV_REREG_MR_CHANGE_ACCESS) != 0) {
            next->access = access;
        }
    } else if (error == IBV_REREG_MR_ERR_INPUT) {
        valid = old; /* all is as it was */
    }
    regx_check_range_add(valid, mr);
    if (old != valid) {
        regx_check_range_end(old);
    }
    if (next != valid && next != old) {
        regx_check_range_end(next);
    }
    return error;
}

/* ---- files ----
 * Who maps them keeps a registration of the old pages, and the notifier is told nothing. */

INTERPOSED int fallocate(int fd, int mode, off_t from, off_t length)
{
    const int moves = FALLOC_FL_COLLAPSE_RANGE | FALLOC_FL_INSERT_RANGE; /* all that lies behind */
    const int result = REAL(fallocate)(fd, mode, from, length);

    if (result == 0 && (mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE | moves)) != 0) {
        regx_check_file_lost(fd, "fallocate", __builtin_return_address(0), from,
                             (mode & moves) != 0 ? INT64_MAX : from + length);
    }
    return result;
}

INTERPOSED int ftruncate(int fd, off_t length)
{
    const int result = REAL(ftruncate)(fd, length);

    if (result == 0) {
        regx_check_file_lost(fd, "ftruncate", __builtin_return_address(0), length, INT64_MAX);
    }
    return result;
}

/* Programs call these if they are built for large files. */
INTERPOSED __attribute__((alias("fallocate"))) int fallocate64(int fd, int mode, off_t from,
                                                               off_t length);
INTERPOSED __attribute__((alias("ftruncate"))) int ftruncate64(int fd, off_t length);

/* ---- the process ---- */

/* What was registered before is the parent's, and the child has neither the watch nor the witness. */
static void after_fork_in_child(void)
{
    if (has_begun) {
        regx_check_sum = NULL;
    }
}

__attribute__((constructor)) static void begin(void)
{
    /* These fail, and find libc's: a pool calls them later with locks held, as of real_dereg_mr. */
    const int none = ftruncate(-1, 0) + fallocate(-1, 0, 0, 1);

    (void)none;
    regx_check_faults_begin();
    pthread_atfork(NULL, NULL, after_fork_in_child);
}

__attribute__((destructor)) static void end(void)
{
    if (follows()) {
        regx_check_ranges_judge();
    }
    /* With LD_PRELOAD alone there is no command that would tell. */
    if (follows() && !regx_check_sum->has_command && regx_check_sum->devices > 0) {
        regx_check_sum_print(NULL);
    }
}

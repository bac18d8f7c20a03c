/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Between the program and libibverbs. Functions are found before libibverbs' own because the library
 * is preloaded; the linker gives ours their names (component.am). Posting and polling are inline, by
 * pointers in the context and in queue pairs: these are put in place when the context is opened, and
 * when the extended interface of a queue pair is asked for.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/util.h"
#include "check/check.h"

#undef ibv_reg_mr
#undef ibv_reg_mr_iova
#undef ibv_reg_mr_iova2

#define INTERPOSED __attribute__((visibility("default")))
enum { CONTEXTS = 64, RECEIVES = 1 << 14, EXTENDED = 4 }; /* a receive's place: 14 bits of a hash */

/* Another library that interposes behind us comes first. libibverbs itself may be among the libraries
 * of a plugin only, which are not looked through. */
static void *real(const char *name)
{
    void *function = dlsym(RTLD_NEXT, name);

    if (function == NULL) {
        void *library = dlopen("libibverbs.so.1", RTLD_NOW);

        function = library != NULL ? dlsym(library, name) : NULL;
    }
    if (function == NULL) {
        regx_check_say("libibverbs has no %s", name);
        abort();
    }
    return function;
}

#define REAL(name) ((__typeof__(&name))real(#name))

/* ---- children ---- */

static _Atomic bool inert; /* in a child of fork; it has neither the watch nor the witness */

static void become_inert(void)
{
    atomic_store(&inert, true);
}

static bool follows(void)
{
    return regx_check_sum != NULL && !atomic_load_explicit(&inert, memory_order_relaxed);
}

/* ---- the old interface ---- */

/* Those that are open. */
static struct {
    const struct ibv_context *_Atomic context;
    struct ibv_context_ops ops; /* the device's own */
} contexts[CONTEXTS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static const struct ibv_context_ops *ops_of(const struct ibv_context *context)
{
    for (int i = 0; i < CONTEXTS; i++) {
        if (atomic_load_explicit(&contexts[i].context, memory_order_acquire) == context) {
            return &contexts[i].ops;
        }
    }
    abort(); /* its pointers lead here */
}

/* What is posted for the device to write to, until it completes. Another at the same place ends it. */
typedef struct receive {
    const struct ibv_context *context; /* NULL: none */
    uint64_t id;
    uint32_t number; /* of the queue pair; 0: a shared queue's */
    struct ibv_sge piece;
} receive_t;

static receive_t receives[RECEIVES];
static pthread_mutex_t receives_lock = PTHREAD_MUTEX_INITIALIZER;

static receive_t *place_of(const struct ibv_context *context, uint32_t number, uint64_t id)
{
    const uint64_t hash =
        ((uintptr_t)context ^ ((uint64_t)number << 32) ^ id) * UINT64_C(0x9e3779b97f4a7c15);

    return &receives[hash >> 50];
}

static void put_receive(const receive_t *receive)
{
    pthread_mutex_lock(&receives_lock);
    *place_of(receive->context, receive->number, receive->id) = *receive;
    pthread_mutex_unlock(&receives_lock);
}

static bool get_receive(receive_t *receive)
{
    pthread_mutex_lock(&receives_lock);
    receive_t *place = place_of(receive->context, receive->number, receive->id);
    const bool found = place->context == receive->context && place->number == receive->number &&
                       place->id == receive->id;

    if (found) {
        *receive = *place;
        place->context = NULL;
    }
    pthread_mutex_unlock(&receives_lock);
    return found;
}

static const char *use_of(enum ibv_wr_opcode code)
{
    switch (code) {
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
    case IBV_WR_SEND_WITH_INV:
        return "a send";
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
        return "a write";
    case IBV_WR_RDMA_READ:
        return "a read";
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
        return "an atomic operation";
    default:
        return NULL;
    }
}

static bool writes_here(enum ibv_wr_opcode code)
{
    return code == IBV_WR_RDMA_READ || code == IBV_WR_ATOMIC_CMP_AND_SWP ||
           code == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

/* Kept of a request that writes to several pieces: the first. */
static void use_pieces(const receive_t *kept, const struct ibv_sge *pieces, int count,
                       const char *use)
{
    for (int i = 0; i < count; i++) {
        regx_check_use(kept->context, pieces[i].lkey, pieces[i].addr, pieces[i].length, use, false);
    }
    atomic_fetch_add_explicit(&regx_check_sum->postings, 1, memory_order_relaxed);
}

static void will_receive(struct ibv_context *context, uint32_t number, const struct ibv_recv_wr *wr)
{
    for (; wr != NULL; wr = wr->next) {
        receive_t receive = {.context = context, .id = wr->wr_id, .number = number};

        use_pieces(&receive, wr->sg_list, wr->num_sge, "a receive");
        if (wr->num_sge > 0) {
            receive.piece = wr->sg_list[0];
            put_receive(&receive);
        }
    }
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **refused)
{
    for (const struct ibv_send_wr *at = wr; follows() && at != NULL; at = at->next) {
        receive_t receive = {.context = qp->context, .id = at->wr_id, .number = qp->qp_num};
        const char *use = use_of(at->opcode);

        if (use == NULL || at->num_sge == 0 || (at->send_flags & IBV_SEND_INLINE) != 0) {
            atomic_fetch_add_explicit(&regx_check_sum->postings, 1, memory_order_relaxed);
            continue; /* the processor reads it */
        }
        use_pieces(&receive, at->sg_list, at->num_sge, use);
        if (writes_here(at->opcode)) {
            receive.piece = at->sg_list[0];
            put_receive(&receive);
        }
    }
    return ops_of(qp->context)->post_send(qp, wr, refused);
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **refused)
{
    if (follows()) {
        will_receive(qp->context, qp->qp_num, wr);
    }
    return ops_of(qp->context)->post_recv(qp, wr, refused);
}

static int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **refused)
{
    if (follows()) {
        will_receive(srq->context, 0, wr);
    }
    return ops_of(srq->context)->post_srq_recv(srq, wr, refused);
}

/* What has been received, or read, is in the pages that were registered. */
static void completed(struct ibv_context *context, const struct ibv_wc *wc)
{
    receive_t receive = {.context = context, .id = wc->wr_id, .number = wc->qp_num};
    const bool received = (wc->opcode & IBV_WC_RECV) != 0;

    if (wc->status != IBV_WC_SUCCESS ||
        (!received && wc->opcode != IBV_WC_RDMA_READ && wc->opcode != IBV_WC_COMP_SWAP &&
         wc->opcode != IBV_WC_FETCH_ADD)) {
        return;
    }
    bool found = get_receive(&receive);
    if (!found && received) {
        receive.number = 0;
        found = get_receive(&receive);
    }
    const uint32_t length = (uint32_t)regx_min(receive.piece.length, wc->byte_len);

    if (found && wc->opcode != IBV_WC_RECV_RDMA_WITH_IMM) {
        regx_check_use(context, receive.piece.lkey, receive.piece.addr,
                       length != 0 ? length : receive.piece.length,
                       received ? "a receive that completed" : "a read that completed", true);
    }
}

static int poll_cq(struct ibv_cq *cq, int most, struct ibv_wc *wc)
{
    const int count = ops_of(cq->context)->poll_cq(cq, most, wc);

    for (int i = 0; follows() && i < count; i++) {
        completed(cq->context, &wc[i]);
    }
    return count;
}

static struct ibv_context *opened(struct ibv_context *context)
{
    if (context == NULL || !follows() || context->ops.poll_cq == poll_cq) {
        return context;
    }
    atomic_fetch_add(&regx_check_sum->devices, 1);
    pthread_mutex_lock(&lock);
    for (int i = 0; i < CONTEXTS; i++) {
        if (contexts[i].context == NULL) {
            contexts[i].ops = context->ops;
            atomic_store(&contexts[i].context, context);
            context->ops.post_send = post_send;
            context->ops.post_recv = post_recv;
            context->ops.post_srq_recv = post_srq_recv;
            context->ops.poll_cq = poll_cq;
            pthread_mutex_unlock(&lock);
            return context;
        }
    }
    pthread_mutex_unlock(&lock);
    regx_check_say("the postings of a device are not followed: it was opened more than %d times",
                   CONTEXTS);
    return context;
}

INTERPOSED struct ibv_context *regx_check_open_device(struct ibv_device *device);
struct ibv_context *regx_check_open_device(struct ibv_device *device)
{
    return opened(REAL(ibv_open_device)(device));
}

INTERPOSED struct ibv_context *regx_check_import_device(int fd);
struct ibv_context *regx_check_import_device(int fd)
{
    return opened(REAL(ibv_import_device)(fd));
}

INTERPOSED int regx_check_close_device(struct ibv_context *context);
int regx_check_close_device(struct ibv_context *context)
{
    for (int i = 0; i < CONTEXTS; i++) {
        if (contexts[i].context == context) {
            context->ops = contexts[i].ops;
            atomic_store(&contexts[i].context, NULL);
        }
    }
    return REAL(ibv_close_device)(context);
}

/* ---- the extended interface ----
 * The pointers of a queue pair are one of a few sets. Each set has functions of its own, so that it need
 * not be looked up. */

typedef void set_piece_t(struct ibv_qp_ex *qp, uint32_t lkey, uint64_t address, uint32_t length);
typedef void set_list_t(struct ibv_qp_ex *qp, size_t count, const struct ibv_sge *list);

static struct {
    set_piece_t *piece;
    set_list_t *list;
} extended[EXTENDED];

static void use_extended(const struct ibv_qp_ex *qp, size_t count, const struct ibv_sge *list)
{
    const receive_t none = {.context = qp->qp_base.context};

    if (follows()) {
        use_pieces(&none, list, (int)count, "a request");
    }
}

#define EXTENDED_SET(n)                                                                            \
    static void set_piece_##n(struct ibv_qp_ex *qp, uint32_t lkey, uint64_t address,               \
                              uint32_t length)                                                     \
    {                                                                                              \
        const struct ibv_sge piece = {.addr = address, .length = length, .lkey = lkey};            \
                                                                                                   \
        use_extended(qp, 1, &piece);                                                               \
        extended[n].piece(qp, lkey, address, length);                                              \
    }                                                                                              \
    static void set_list_##n(struct ibv_qp_ex *qp, size_t count, const struct ibv_sge *list)       \
    {                                                                                              \
        use_extended(qp, count, list);                                                             \
        extended[n].list(qp, count, list);                                                         \
    }
EXTENDED_SET(0)
EXTENDED_SET(1)
EXTENDED_SET(2)
EXTENDED_SET(3)

static set_piece_t *const set_piece[EXTENDED] = {set_piece_0, set_piece_1, set_piece_2,
                                                 set_piece_3};
static set_list_t *const set_list[EXTENDED] = {set_list_0, set_list_1, set_list_2, set_list_3};

INTERPOSED struct ibv_qp_ex *regx_check_qp_to_qp_ex(struct ibv_qp *qp);
struct ibv_qp_ex *regx_check_qp_to_qp_ex(struct ibv_qp *qp)
{
    struct ibv_qp_ex *ex = REAL(ibv_qp_to_qp_ex)(qp);

    if (ex == NULL || !follows() || ex->wr_set_sge == NULL) {
        return ex;
    }
    pthread_mutex_lock(&lock);
    int i = 0;
    while (i < EXTENDED && ex->wr_set_sge != set_piece[i] && extended[i].piece != NULL &&
           (extended[i].piece != ex->wr_set_sge || extended[i].list != ex->wr_set_sge_list)) {
        i++;
    }
    if (i < EXTENDED && ex->wr_set_sge != set_piece[i]) {
        extended[i].piece = ex->wr_set_sge;
        extended[i].list = ex->wr_set_sge_list;
        ex->wr_set_sge = set_piece[i];
        ex->wr_set_sge_list = set_list[i];
    }
    pthread_mutex_unlock(&lock);
    if (i == EXTENDED) {
        regx_check_say(
            "a queue pair's extended postings are not followed: there are more kinds than %d",
            EXTENDED);
    }
    return ex;
}

/* ---- registrations ---- */

/* One call of libibverbs that registers; which, says `iova`. */
typedef struct order {
    struct ibv_pd *pd;
    void *base;
    size_t length;
    uint64_t iova;
    unsigned access;
    enum { PLAIN, IOVA, IOVA2 } call;
} order_t;

typedef struct ibv_mr *plain_t(struct ibv_pd *pd, void *base, size_t length, int access);
typedef struct ibv_mr *iova_t(struct ibv_pd *pd, void *base, size_t length, uint64_t iova,
                              int access);
typedef struct ibv_mr *iova2_t(struct ibv_pd *pd, void *base, size_t length, uint64_t iova,
                               unsigned access);

static struct ibv_mr *order(const order_t *order)
{
    plain_t *plain;
    iova_t *iova;
    iova2_t *iova2;

    switch (order->call) {
    case PLAIN:
        plain = (plain_t *)real("ibv_reg_mr");
        return plain(order->pd, order->base, order->length, (int)order->access);
    case IOVA:
        iova = (iova_t *)real("ibv_reg_mr_iova");
        return iova(order->pd, order->base, order->length, order->iova, (int)order->access);
    default:
        iova2 = (iova2_t *)real("ibv_reg_mr_iova2");
        return iova2(order->pd, order->base, order->length, order->iova, order->access);
    }
}

static __thread bool within; /* libibverbs calls itself, or another library between us */

/* Of memory that the device brings in by itself nothing goes stale. */
static bool is_followed(const order_t *order)
{
    return follows() && !within && order->length != 0 &&
           (order->access & IBV_ACCESS_ON_DEMAND) == 0;
}

static struct ibv_mr *reg(const order_t *ordered)
{
    regx_check_range_t range;

    if (!is_followed(ordered)) {
        return order(ordered);
    }
    within = true;
    regx_check_range_begin(&range, ordered->pd->context, ordered->base, ordered->length,
                           ordered->iova, (int)ordered->access);
    regx_check_stack_take(&range.stack, NULL);
    struct ibv_mr *mr = order(ordered);
    if (mr == NULL && errno == ENOMEM && regx_check_witnesses_drop()) {
        regx_check_say(
            "bytes are not compared any more: the memory that may be locked is all used");
        range.slot = -1;
        mr = order(ordered);
    }
    const int error = errno;
    if (mr != NULL) {
        atomic_fetch_add(&regx_check_sum->registrations, 1);
        regx_check_range_add(&range, mr->lkey);
    } else {
        regx_check_range_end(&range);
    }
    within = false;
    errno = error;
    return mr;
}

INTERPOSED struct ibv_mr *regx_check_reg_mr(struct ibv_pd *pd, void *base, size_t length,
                                            int access);
struct ibv_mr *regx_check_reg_mr(struct ibv_pd *pd, void *base, size_t length, int access)
{
    const uint64_t iova = (access & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : (uintptr_t)base;

    return reg(&(order_t){pd, base, length, iova, (unsigned)access, PLAIN});
}

INTERPOSED struct ibv_mr *regx_check_reg_mr_iova(struct ibv_pd *pd, void *base, size_t length,
                                                 uint64_t iova, int access);
struct ibv_mr *regx_check_reg_mr_iova(struct ibv_pd *pd, void *base, size_t length, uint64_t iova,
                                      int access)
{
    return reg(&(order_t){pd, base, length, iova, (unsigned)access, IOVA});
}

INTERPOSED struct ibv_mr *regx_check_reg_mr_iova2(struct ibv_pd *pd, void *base, size_t length,
                                                  uint64_t iova, unsigned access);
struct ibv_mr *regx_check_reg_mr_iova2(struct ibv_pd *pd, void *base, size_t length, uint64_t iova,
                                       unsigned access)
{
    return reg(&(order_t){pd, base, length, iova, access, IOVA2});
}

/* By the time that it is deregistered another may have its key: so it goes before. */
INTERPOSED int regx_check_dereg_mr(struct ibv_mr *mr);
int regx_check_dereg_mr(struct ibv_mr *mr)
{
    regx_check_range_t range;
    const bool known = follows() && regx_check_range_remove(mr->context, mr->lkey, &range);
    const uint32_t key = mr->lkey;
    const int error = REAL(ibv_dereg_mr)(mr);

    if (known && error != 0) {
        regx_check_range_add(&range, key);
    } else if (known) {
        regx_check_range_end(&range);
    }
    return error;
}

/* Registered anew where it gets other memory or rights; unknown if that fails. */
INTERPOSED int regx_check_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *base,
                                   size_t length, int access);
int regx_check_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *base, size_t length,
                        int access)
{
    regx_check_range_t old = {0}, range;
    const bool known = follows() && regx_check_range_remove(mr->context, mr->lkey, &old);
    const bool moves = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
    const int rights = (flags & IBV_REREG_MR_CHANGE_ACCESS) != 0 ? access : old.access;

    if (known) {
        /* Without other memory the pages stay: what is known of them does, too. */
        range = old;
        range.access = rights;
    }
    if (known && moves) {
        regx_check_range_begin(&range, mr->context, base, length, (uintptr_t)base, rights);
        regx_check_stack_take(&range.stack, NULL);
    }
    const int error = REAL(ibv_rereg_mr)(mr, flags, pd, base, length, access);
    if (known && error == 0) {
        regx_check_range_add(&range, mr->lkey);
    } else if (known && moves) {
        regx_check_range_end(&range);
    }
    if (known && (moves || error != 0)) {
        regx_check_range_end(&old);
    }
    return error;
}

__attribute__((constructor)) static void begin(void)
{
    pthread_atfork(NULL, NULL, become_inert);
}

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What osc/rdma wants of a BTL, found by reading Open MPI 4.1.4:
 *   - It registers for any endpoint, ships the handle by value, and puts and gets by address and
 *     handle. It takes a put whose callback was called for one that can be seen at the target.
 *   - It needs no local handle below the local registration thresholds, that is, never.
 *   - It asks the BTL for operations on its own process's memory too: then the endpoint is the
 *     process's own or NULL. And on memory of a neighbour's that it has mapped itself: then the
 *     handle is NULL, and the address is of this process.
 *   - It asks for all operations of MPI that have a number, whether the BTL has said that it knows
 *     them or not. MIN and MAX are of signed and unsigned numbers, and do not say which: refused.
 *     What is refused as NOT_SUPPORTED it does by get and put, under a lock; any other error it
 *     repeats without end.
 *   - That an operation is done at once may not be told by returning 1: of four bytes it then
 *     writes eight.
 *   - It changes data under a lock of its own, by the BTL or by plain loads and stores; but a
 *     compare-and-swap it has the BTL do without that lock (4.1.4 always, later ones between
 *     nodes). One that is refused it does under the lock. Between nodes it also has the BTL take
 *     that very lock, and announce posts (MPI_Win_post): only these are done. Nothing marks
 *     them: see is_own_swap. Were all done, a program's would come between another's get and put
 *     under the lock, and one of both be lost; were none, osc/rdma would repeat its own for ever.
 */
#include "btl/module.h"

#include <stdlib.h>
#include <string.h>

enum { POST_PLACES = 32 };         /* osc/rdma's OMPI_OSC_RDMA_POST_PEER_MAX */
#define LOCKED (UINT64_C(1) << 63) /* osc/rdma's OMPI_OSC_RDMA_LOCK_EXCLUSIVE */

typedef struct window_handle {
    struct mca_btl_base_registration_handle_t shipped; /* first */
    regx_onesided_window_t window;
} window_handle_t;

/* What is asked of the target for a call. */
typedef struct asked {
    regx_onesided_request_t request;
    regx_call_t call;
} asked_t;

/* ---- windows ---- */

mca_btl_base_registration_handle_t *regx_window_register(regx_module_t *module, void *base,
                                                         size_t size)
{
    window_handle_t *handle = calloc(1, sizeof(*handle));
    const bool paged = regx_rndv_is_paged(module->rndv, base, size);

    if (handle != NULL && !regx_onesided_offer(module->onesided, &handle->window, base, size, paged,
                                               handle->shipped.bytes)) {
        free(handle);
        handle = NULL;
    }
    if (handle != NULL) {
        atomic_fetch_add_explicit(&module->due.ended, 1u, memory_order_relaxed);
    }
    return (mca_btl_base_registration_handle_t *)handle;
}

void regx_window_deregister(regx_module_t *module, mca_btl_base_registration_handle_t *handle)
{
    regx_onesided_withdraw(module->onesided, &((window_handle_t *)handle)->window);
    atomic_fetch_sub_explicit(&module->due.ended, 1u, memory_order_relaxed);
    free(handle);
}

/* ---- what is in common ---- */

/* Whether the address is of this process. */
static bool is_here(const regx_endpoint_t *endpoint,
                    const mca_btl_base_registration_handle_t *remote_handle)
{
    return remote_handle == NULL || endpoint == NULL || endpoint->peer.id == regx_compat_self();
}

/* Whether the bytes lie in the window, whose name it reads. */
static bool find_window(const mca_btl_base_registration_handle_t *remote_handle, uint64_t address,
                        size_t size, regx_onesided_name_t *name)
{
    memcpy(name, remote_handle->bytes, sizeof(*name));
    return regx_onesided_holds(name->base, name->length, address, size);
}

/* osc/rdma does not hear of an operation that has gone wrong: the job ends. */
static void lose(const asked_t *asked, const char *why)
{
    const regx_onesided_request_t *request = &asked->request;

    regx_module_lost(regx_module_of(asked->call.btl), asked->call.endpoint,
                     request->type == REGX_ONESIDED_ATOMIC ? request->size : request->length,
                     request->type == REGX_ONESIDED_GET ? "from" : "to", why);
    regx_call_complete(&asked->call, OPAL_ERROR);
}

static void answered(regx_onesided_request_t *request, regx_status_t status)
{
    const asked_t asked = *REGX_CONTAINER_OF(request, asked_t, request);
    const regx_call_t *call = &asked.call;

    free(REGX_CONTAINER_OF(request, asked_t, request));
    if (!regx_endpoint_expects_callbacks(regx_module_of(call->btl), call->endpoint)) {
        return;
    }
    if (status == REGX_INVALID) {
        lose(&asked, "there is no such window");
    } else if (status != REGX_OK) {
        regx_call_complete(call, OPAL_ERROR); /* the transport reports a lost connection */
    } else {
        if (asked.request.type == REGX_ONESIDED_ATOMIC) {
            memcpy(call->local_address, &asked.request.result, asked.request.size);
        }
        regx_call_complete(call, OPAL_SUCCESS);
    }
}

static int ask(const asked_t *asked, regx_handle_t window)
{
    asked_t *kept = malloc(sizeof(*kept));

    if (kept == NULL) {
        return OPAL_ERR_OUT_OF_RESOURCE;
    }
    *kept = *asked;
    kept->request.window = window;
    kept->request.done = answered;
    if (regx_onesided_ask(regx_module_of(asked->call.btl)->onesided,
                          &asked->call.endpoint->onesided, &kept->request) != REGX_PENDING) {
        free(kept);
        return OPAL_ERR_OUT_OF_RESOURCE;
    }
    return OPAL_SUCCESS;
}

/* ---- puts and gets ---- */

int regx_window_move(const regx_call_t *call, regx_onesided_type_t type, uint64_t remote_address,
                     const mca_btl_base_registration_handle_t *remote_handle)
{
    const bool puts = type == REGX_ONESIDED_PUT;
    void *const remote = (void *)(uintptr_t)remote_address;
    regx_onesided_name_t name;

    if (is_here(call->endpoint, remote_handle)) {
        memmove(puts ? remote : call->local_address, puts ? call->local_address : remote,
                call->size);
        regx_call_complete(call, OPAL_SUCCESS);
        return OPAL_SUCCESS;
    }
    const asked_t asked = {.request = {.type = type,
                                       .address = remote_address,
                                       .local = call->local_address,
                                       .length = call->size},
                           .call = *call};
    if (!find_window(remote_handle, remote_address, call->size, &name)) {
        lose(&asked, "they are not inside the window");
        return OPAL_SUCCESS;
    }
    if (!(puts && name.by_target != 0) &&
        regx_onesided_copy(regx_module_of(call->btl)->onesided, &call->endpoint->onesided, type,
                           call->local_address, remote_address, call->size)) {
        regx_call_complete(call, OPAL_SUCCESS);
        return OPAL_SUCCESS;
    }
    return ask(&asked, name.handle);
}

/* ---- atomic operations ---- */

/* A lock of osc/rdma's that this process holds, or waits for. One thread at a time does: osc/rdma
 * lets only one accumulate at a peer of a window (4.1: OMPI_OSC_RDMA_PEER_ACCUMULATING, which is
 * cleared behind the release), and MPI allows one epoch with a lock at a target. Several may ask
 * for the lock of a dynamic window's regions: nothing is added under that one. A thread that adds
 * in the epoch of another is not known to hold its lock (mca-params/limits.md). */
typedef struct held_lock {
    regx_link_t link;
    const regx_endpoint_t *endpoint;
    uint64_t address;
    const void *thread; /* that takes it, by the address of its `counted`; another may release it */
} held_lock_t;

static struct {
    regx_lock_t lock;
    regx_link_t list;
} held = {{PTHREAD_MUTEX_INITIALIZER, true}, {&held.list, &held.list}};

/* What this thread last added 1 to without a lock, in which peer's window: osc/rdma's count of
 * posts, if it announces one next. A program's data are only fetched and changed under a lock,
 * unless it asks for acc_single_intrinsic. An accumulate that gets and puts keeps its lock until
 * they are done: a post before that is refused. */
static _Thread_local struct {
    const regx_endpoint_t *endpoint;
    regx_handle_t window;
    uint64_t address;
} counted;

static held_lock_t *find_held_locked(const asked_t *asked)
{
    for (regx_link_t *link = held.list.next; link != &held.list; link = link->next) {
        held_lock_t *one = REGX_CONTAINER_OF(link, held_lock_t, link);

        if (one->endpoint == asked->call.endpoint && one->address == asked->request.address) {
            return one;
        }
    }
    return NULL;
}

static bool holds_lock(void)
{
    bool holds = false;

    regx_lock(&held.lock);
    for (regx_link_t *link = held.list.next; link != &held.list && !holds; link = link->next) {
        holds = REGX_CONTAINER_OF(link, held_lock_t, link)->thread == &counted;
    }
    regx_unlock(&held.lock);
    return holds;
}

static bool is_counted(const regx_endpoint_t *endpoint, regx_handle_t window)
{
    return counted.endpoint == endpoint && counted.window.id == window.id &&
           counted.window.generation == window.generation;
}

static bool takes_lock(const regx_onesided_request_t *request)
{
    return request->compare == 0 && request->operand == LOCKED;
}

/* Whether this is osc/rdma's own: of a lock, or of one of the places for posts, which are behind
 * their count. */
static bool is_own_swap(const asked_t *asked, regx_handle_t window)
{
    const regx_onesided_request_t *request = &asked->request;
    const uint64_t place = request->address - counted.address;

    return takes_lock(request) ||
           (request->compare == 0 && is_counted(asked->call.endpoint, window) && place > 0 &&
            place <= POST_PLACES * sizeof(uint64_t));
}

/* Of memory here, or of a neighbour's, there are only data: osc/rdma then has its locks itself. */
static int change(asked_t *asked, const mca_btl_base_registration_handle_t *remote_handle,
                  int flags)
{
    regx_onesided_request_t *request = &asked->request;
    const bool swaps = request->op == REGX_ONESIDED_COMPARE_SWAP;
    regx_onesided_name_t name;

    request->size = (flags & MCA_BTL_ATOMIC_FLAG_32BIT) != 0 ? 4 : 8;
    if ((flags & MCA_BTL_ATOMIC_FLAG_FLOAT) != 0 || request->address % request->size != 0 ||
        is_here(asked->call.endpoint, remote_handle) ||
        (swaps && regx_compat_same_node(asked->call.endpoint->proc)) ||
        !find_window(remote_handle, request->address, request->size, &name) ||
        (swaps && !is_own_swap(asked, name.handle))) {
        return OPAL_ERR_NOT_SUPPORTED;
    }
    if (swaps && takes_lock(request)) { /* this thread asks until it has it */
        regx_lock(&held.lock);
        held_lock_t *one = find_held_locked(asked);
        if (one == NULL && (one = malloc(sizeof(*one))) != NULL) {
            *one = (held_lock_t){.endpoint = asked->call.endpoint, .address = request->address};
            regx_list_append(&held.list, &one->link);
        }
        if (one != NULL) {
            one->thread = &counted;
        }
        regx_unlock(&held.lock);
        if (one == NULL) {
            return OPAL_ERR_OUT_OF_RESOURCE;
        }
    } else if (!swaps && request->op == REGX_ONESIDED_ADD && request->operand == LOCKED) {
        /* It gives a lock back, perhaps from inside a completion, during a post. */
        regx_lock(&held.lock);
        held_lock_t *one = find_held_locked(asked);
        if (one != NULL) {
            regx_list_remove(&one->link);
        }
        regx_unlock(&held.lock);
        free(one);
    } else if (!swaps && request->op == REGX_ONESIDED_ADD && request->operand == 1 &&
               !holds_lock()) {
        counted.endpoint = asked->call.endpoint;
        counted.window = name.handle;
        counted.address = request->address;
    } else if (!swaps && is_counted(asked->call.endpoint, name.handle)) {
        counted.endpoint = NULL;
    }
    return ask(asked, name.handle);
}

static int fetch_op(mca_btl_base_module_t *btl, regx_endpoint_t *endpoint, void *local_address,
                    uint64_t remote_address, mca_btl_base_registration_handle_t *local_handle,
                    mca_btl_base_registration_handle_t *remote_handle, mca_btl_base_atomic_op_t op,
                    uint64_t operand, int flags, int order,
                    mca_btl_base_rdma_completion_fn_t callback, void *context, void *data)
{
    static const mca_btl_base_atomic_op_t theirs[] = {[REGX_ONESIDED_ADD] = MCA_BTL_ATOMIC_ADD,
                                                      [REGX_ONESIDED_AND] = MCA_BTL_ATOMIC_AND,
                                                      [REGX_ONESIDED_OR] = MCA_BTL_ATOMIC_OR,
                                                      [REGX_ONESIDED_XOR] = MCA_BTL_ATOMIC_XOR,
                                                      [REGX_ONESIDED_SWAP] = MCA_BTL_ATOMIC_SWAP};
    asked_t asked = {
        .request = {.type = REGX_ONESIDED_ATOMIC, .address = remote_address, .operand = operand},
        .call = {btl, endpoint, local_address, 0, local_handle, callback, context, data}};

    (void)order;
    for (unsigned i = 0; i < sizeof(theirs) / sizeof(theirs[0]); i++) {
        if (theirs[i] == op) {
            asked.request.op = (regx_onesided_op_t)i;
            return change(&asked, remote_handle, flags);
        }
    }
    return OPAL_ERR_NOT_SUPPORTED;
}

static int compare_swap(mca_btl_base_module_t *btl, regx_endpoint_t *endpoint, void *local_address,
                        uint64_t remote_address, mca_btl_base_registration_handle_t *local_handle,
                        mca_btl_base_registration_handle_t *remote_handle, uint64_t compare,
                        uint64_t value, int flags, int order,
                        mca_btl_base_rdma_completion_fn_t callback, void *context, void *data)
{
    asked_t asked = {
        .request = {.type = REGX_ONESIDED_ATOMIC,
                    .op = REGX_ONESIDED_COMPARE_SWAP,
                    .address = remote_address,
                    .operand = value,
                    .compare = compare},
        .call = {btl, endpoint, local_address, 0, local_handle, callback, context, data}};

    (void)order;
    return change(&asked, remote_handle, flags);
}

/* The target's processor does atomic operations, so they agree with its own atomic instructions:
 * GLOB. Open MPI 4.1 also looks for that bit in btl_flags, where no other flag has its value; if it
 * is there, it changes its locks on this node by the processor. The bit 32BIT is left out of
 * btl_flags: with it Open MPI 4.1 would compare and swap 4 bytes without its lock. */
void regx_onesided_declare(mca_btl_base_module_t *face, bool may)
{
    if (!may) {
        face->btl_flags &= ~(uint32_t)MCA_BTL_FLAGS_ATOMIC_FOPS;
    }
    /* The user may not want windows either (btl_regx_flags). */
    if ((face->btl_flags & MCA_BTL_FLAGS_ATOMIC_FOPS) == 0) {
        return;
    }
    face->btl_atomic_flags = MCA_BTL_ATOMIC_SUPPORTS_ADD | MCA_BTL_ATOMIC_SUPPORTS_AND |
                             MCA_BTL_ATOMIC_SUPPORTS_OR | MCA_BTL_ATOMIC_SUPPORTS_XOR |
                             MCA_BTL_ATOMIC_SUPPORTS_SWAP | MCA_BTL_ATOMIC_SUPPORTS_CSWAP |
                             MCA_BTL_ATOMIC_SUPPORTS_GLOB | MCA_BTL_ATOMIC_SUPPORTS_32BIT;
    face->btl_flags |= MCA_BTL_ATOMIC_SUPPORTS_GLOB;
    face->btl_atomic_fop = fetch_op;
    face->btl_atomic_cswap = compare_swap;
    face->btl_put_local_registration_threshold = SIZE_MAX;
    face->btl_get_local_registration_threshold = SIZE_MAX;
}

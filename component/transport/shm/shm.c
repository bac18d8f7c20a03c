/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Opening and closing of shared memory, and the table of its operations.
 */
#include <errno.h>
#include <linux/nsfs.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#include "base/fault.h"
#include "transport/shm/shm_internal.h"

#define ZCOPY_MAX 65536u

/* ---- where this process is ---- */

/* FNV-1a. */
static uint64_t hash(uint64_t value, const char *text)
{
    for (; *text != '\0'; text++) {
        value = (value ^ (uint8_t)*text) * UINT64_C(0x100000001b3);
    }
    return value;
}

/* The number of a namespace. 0: not known. */
static uint64_t namespace_number(const char *path)
{
    struct stat status;

    return stat(path, &status) == 0 ? status.st_ino : 0;
}

/* The numbers of the machine's own namespaces. */
#define INITIAL_IPC UINT64_C(0xefffffff)
#define INITIAL_USER UINT64_C(0xeffffffd)

/* Whether this process is in another IPC namespace than the process that started it. Then, as far as can be
 * seen, its neighbours are in others, too. */
static bool is_alone(void)
{
    const uint64_t here = namespace_number(REGX_PROC "ns/ipc");
    char path[64];

    if (here == 0 || here == INITIAL_IPC) {
        return false;
    }
    if (getpid() == 1 || getppid() == 0) {
        return true;
    }
    snprintf(path, sizeof(path), "/proc/%d/ns/ipc", getppid());
    const uint64_t there = namespace_number(path);
    if (there != 0) {
        return there != here;
    }
    /* It may not be looked into, as from a user namespace of this process's own: then this process is
     * alone if its IPC namespace was made by that user namespace. */
    const uint64_t users = namespace_number(REGX_PROC "ns/user");
    const int ipc = open(REGX_PROC "ns/ipc", O_RDONLY | O_CLOEXEC);
    const int owner = ipc < 0 ? -1 : ioctl(ipc, NS_GET_USERNS);
    struct stat status;
    const bool made_here =
        users != INITIAL_USER && owner >= 0 && fstat(owner, &status) == 0 && status.st_ino == users;

    if (owner >= 0) {
        close(owner);
    }
    if (ipc >= 0) {
        close(ipc);
    }
    return made_here;
}

static regx_shm_node_t this_node(void)
{
    regx_shm_node_t node = {.processes = namespace_number(REGX_PROC "ns/pid"),
                            .ipc = namespace_number(REGX_PROC "ns/ipc"),
                            .users = namespace_number(REGX_PROC "ns/user")};
    struct utsname names = {0};
    struct shmid_ds segment;
    struct stat folder;
    char boot[64] = "";

    regx_read_line("/proc/sys/kernel/random/boot_id", boot, sizeof(boot));
    uname(&names);
    node.machine = hash(hash(UINT64_C(0xcbf29ce484222325), boot), names.nodename);
    if (stat(REGX_SHM_FOLDER, &folder) == 0) {
        node.memory = hash(folder.st_dev ^ (folder.st_ino << 32), "/");
    }
    /* A process that may not attach memory of System V says that it has an IPC namespace of its own: it
     * cannot see its neighbours' memory either. Another BTL then leads to neighbours with such memory. */
    if ((shmat(-1, NULL, 0) == (void *)-1 && errno != EINVAL) ||
        (shmctl(-1, IPC_STAT, &segment) != 0 && errno != EINVAL)) {
        node.ipc = UINT64_MAX - (uint64_t)gettid();
    }
    return node;
}

/* ---- opening and closing ---- */

/* Of that kind, with so much of a pool, and a mailbox for each neighbour. last: no smaller pool is of use,
 * and there are only as many mailboxes as fit in this process's part; others are allocated when they
 * are needed. */
static bool open_main_as(regx_shm_t *shm, regx_segment_kind_t kind, size_t pool_size, bool last)
{
    /* Memory of System V is taken page by page, at first use. */
    const unsigned buffers = kind == REGX_SEGMENT_SYSV ? REGX_CICO_BUFFERS : REGX_CICO_FIRST;
    const size_t pool_offset = regx_shm_pool_offset(buffers);
    const size_t before = pool_offset + pool_size;
    /* If all of the node take as much, half of it is left to the program. */
    const size_t part = regx_segment_room(kind) / 2 / (shm->config.neighbours + 1);
    /* One for messages to itself. */
    const unsigned wanted = (unsigned)regx_min(
        shm->config.neighbours > 0 ? shm->config.neighbours + 1 : 0, REGX_SHM_AHEAD);
    /* The other quarter of what main segments take is for pools. */
    const uint32_t ring = regx_mailbox_ring_choose(wanted, ((size_t)wanted + 1) * wanted,
                                                   regx_segment_room(kind) / 4);
    const size_t size = regx_mailbox_size(ring);
    const size_t fit = (part - regx_min(part, before)) / size;
    const unsigned boxes = last ? (unsigned)regx_min(wanted, fit) : wanted;

    if (regx_segment_open(&shm->config, kind, before + boxes * size, last ? SIZE_MAX : part,
                          &shm->main) != REGX_OK) {
        return false;
    }
    if (!regx_mailbox_pool_begin(&shm->mailboxes, &shm->main, before, boxes, ring)) {
        regx_segment_free(&shm->main);
        return false;
    }
    shm->super.pool_size = pool_size;
    shm->super.pool_memory = shm->main.base + pool_offset;
    shm->cico.buffers_max = buffers;
    shm->cico.buffers = REGX_CICO_FIRST;
    return true;
}

/* A smaller pool is better than none: halves what is asked for, down to what is of use. named: in a file
 * with a name, else in memory of System V, or where there is none in a file, without a name if neighbours
 * can open it so. */
static bool open_main_of(regx_shm_t *shm, bool named)
{
    const regx_segment_kind_t file =
        !named && regx_segment_shows_descriptors() ? REGX_SEGMENT_POSIX : REGX_SEGMENT_NAMED;

    for (size_t size = shm->config.pool_size; size >= shm->config.pool_min; size /= 2) {
        size = regx_align_up(size, regx_page_size());
        const bool last = size / 2 < shm->config.pool_min;

        if ((!named && open_main_as(shm, REGX_SEGMENT_SYSV, size, last)) ||
            open_main_as(shm, file, size, last)) {
            return true;
        }
    }
    return false;
}

static regx_status_t open_shm(const regx_transport_config_t *config, regx_error_t error,
                              regx_transport_t **transport)
{
    regx_shm_t *shm = calloc(1, sizeof(*shm));
    regx_vm_cookie_t cookie;
    bool opened = false;

    if (shm == NULL) {
        return regx_refuse(error, REGX_NO_MEMORY, "out of memory");
    }
    snprintf(
        error, REGX_ERROR,
        "there is no shared memory for this process, neither of System V nor in /dev/shm: allow "
        "one, or name another BTL, too (--mca btl regx,vader,self)");
    shm->config = *config;
    shm->cico_offset = regx_cico_offset();
    if (getrandom(&cookie, sizeof(cookie), 0) != sizeof(cookie)) {
        free(shm);
        return REGX_UNREACHABLE;
    }
    /* A process that is alone in its IPC namespace takes memory of another kind only where there is none
     * with a name, however small the pool: nobody else would see it. Any other removes as well what a
     * job has left that was killed, or ended while not all neighbours had opened it: perhaps no process
     * with such a file starts here again. */
    if (shm->config.neighbours > 0) {
        regx_shm_files_clean();
        opened = is_alone() && open_main_of(shm, true);
    }
    if (!opened && !open_main_of(shm, false)) {
        free(shm);
        return REGX_UNREACHABLE;
    }
    /* Lets this user's other processes copy from and to this one where Yama's ptrace_scope is 1, as on
     * Ubuntu: the kernel else allows that to a process's ancestors alone. With 0 and without Yama it
     * changes nothing, and with 2 and 3 the kernel refuses still. So the scope is not looked at: an
     * administrator may raise it while the job runs. */
    (void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    shm->queue = &regx_shm_main(shm)->queue;
    shm->queue->cookie = cookie;
    regx_shm_main(shm)->expected = shm->config.neighbours;
    shm->address = (regx_shm_address_t){.main = shm->main.name,
                                        .pool_offset = regx_shm_pool_offset(shm->cico.buffers_max),
                                        .pool_size = shm->super.pool_size,
                                        .cookie_address = (uintptr_t)&shm->queue->cookie,
                                        .cookie = cookie,
                                        .life = regx_life_begin(&shm->life),
                                        .node = this_node()};
    regx_list_init(&shm->zcopies);
    regx_list_init(&shm->turns);
    regx_list_init(&shm->ending);
    regx_list_init(&shm->cico.queue);
    regx_list_init(&shm->cico.gets);
    regx_shared_copies_init(&shm->shared_copies);
    regx_lock_init(&shm->alloc_mem.lock, config->threads);
    regx_lock_init(&shm->lock, config->threads);
    shm->super.ops = &regx_shm_ops;
    shm->super.max_frame = REGX_MAILBOX_MAX;
    shm->super.max_zcopy = ZCOPY_MAX;
    shm->super.wires = regx_segment_kind_name(shm->mailboxes.kind);
    *transport = &shm->super;
    return REGX_OK;
}

static void shm_close(regx_transport_t *transport)
{
    regx_shm_t *shm = regx_shm_of(transport);
    const struct timespec pause = {.tv_nsec = 50000};

    for (size_t i = 0; i < shm->inbound_count; i++) {
        regx_shm_drop_inbound(shm, shm->inbound[i]);
    }
    /* Only now: who sees it may use the mailboxes again that were read here. */
    atomic_store_explicit(&shm->queue->closed, 1, memory_order_release);
    free(shm->inbound);
    /* A send that has completed must arrive, though this process ends MPI first. A spawned child does. Who
     * has mapped the mailbox reads it when this process has ended; nobody waits for that, as perhaps
     * they are connected no more, and wait for each other outside MPI. */
    for (regx_shm_reap(shm); shm->disconnecting != NULL; regx_shm_reap(shm)) {
        nanosleep(&pause, NULL);
    }
    regx_mailbox_pool_free(&shm->mailboxes);
    regx_alloc_mem_fini(&shm->alloc_mem);
    /* Frees the pages of the pool and, unless one is still read, of the mailboxes behind it: Open MPI's
     * processes keep what they have mapped of one another until they end, and one that spawns others would
     * run out of memory. Not the staging buffers: a late receiver would copy zeros out of one. */
    const size_t before = shm->address.pool_offset;
    const size_t length = shm->unread ? shm->super.pool_size : shm->main.name.length - before;
    munlock(shm->main.base + before, length); /* of what is locked the kernel frees no page */
    madvise(shm->main.base + before, length, MADV_REMOVE);
    regx_life_end(shm->life);
    regx_segment_free(&shm->main);
    regx_lock_fini(&shm->lock);
    free(shm);
}

size_t regx_shm_address(regx_transport_t *transport, void *buffer)
{
    memcpy(buffer, &regx_shm_of(transport)->address, sizeof(regx_shm_address_t));
    return sizeof(regx_shm_address_t);
}

void regx_shm_expose(regx_transport_t *transport, const void *base, size_t length, regx_key_t *key)
{
    const regx_shm_key_t named = {
        .address = (uintptr_t)base,
        .length = length & (SIZE_MAX >> 1),
        .by_kernel = regx_alloc_mem_find(regx_shm_of(transport), base, length) != NULL &&
                     regx_fault_has_handler(SIGSEGV),
        .offer = {.id = UINT32_MAX}};

    regx_shm_key_pack(named, key);
}

static regx_status_t shm_reg(regx_transport_t *transport, void *base, size_t length,
                             unsigned access, regx_mr_t *mr)
{
    if (transport->forked && (access & (REGX_ACCESS_REMOTE_READ | REGX_ACCESS_REMOTE_WRITE)) != 0) {
        return REGX_INVALID;
    }
    *mr = (regx_mr_t){.base = base, .length = length, .access = access};
    regx_shm_expose(transport, base, length, &mr->key);
    return REGX_OK;
}

static void shm_dereg(regx_transport_t *transport, regx_mr_t *mr)
{
    (void)transport, (void)mr;
}

const regx_transport_ops_t regx_shm_ops = {.abi = REGX_TRANSPORT_ABI,
                                           .name = "shm",
                                           .open = open_shm,
                                           .close = shm_close,
                                           .address = regx_shm_address,
                                           .reaches = regx_shm_reaches,
                                           .connect = regx_shm_connect,
                                           .disconnect = regx_shm_disconnect,
                                           .reachable = regx_shm_reachable,
                                           .send = regx_shm_send,
                                           .send_zcopy = regx_shm_send_zcopy,
                                           .put = regx_shm_put,
                                           .get = regx_shm_get,
                                           .node = {.has_next = regx_shm_has_next,
                                                    .copy = regx_shm_copy,
                                                    .expose = regx_shm_expose,
                                                    .stage = regx_shm_stage,
                                                    .unstage = regx_shm_unstage,
                                                    .allocate = regx_shm_allocate,
                                                    .release = regx_shm_release},
                                           .reg = shm_reg,
                                           .dereg = shm_dereg,
                                           .look = regx_shm_look,
                                           .progress = regx_shm_progress};

const regx_catalog_entry_t regx_shm_entry = {.ops = &regx_shm_ops};

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * fabric_steps own|regx|regx-scan ADDRESS: libfabric's cache of registrations, over the RDMA device
 * with that address, with its own memory monitor (of FI_MR_CACHE_MONITOR) or with ours. A buffer is
 * sent from four times, changed, filled anew and sent from. For each change a line: what arrived.
 */
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "library/regx/libfabric.h"

enum { LENGTH = 65536, USES = 4 };

typedef struct side {
    struct fid_ep *ep;
    struct fid_cq *cq;
    fi_addr_t address;
} side_t;

static struct fi_info *info;
static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_av *av;
static side_t from, to; /* of one process */
static char *target;
static struct fid_mr *target_mr;

static void require(bool right, const char *what)
{
    if (!right) {
        fprintf(stderr, "fabric_steps: %s fails\n", what);
        exit(1);
    }
}

static void succeed(long result, const char *what)
{
    if (result != 0) {
        fprintf(stderr, "fabric_steps: %s: %s\n", what, fi_strerror((int)-result));
        exit(1);
    }
}

/* ---- libfabric ---- */

static struct fi_info *find_device(const char *address)
{
    struct fi_info *hints = fi_allocinfo(), *found;

    require(hints != NULL, "fi_allocinfo");
    hints->caps = FI_RMA | FI_MSG;
    hints->mode = FI_CONTEXT | FI_RX_CQ_DATA;
    hints->addr_format = FI_SOCKADDR_IN;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->fabric_attr->prov_name = strdup("verbs;ofi_rxm");
    succeed(fi_getinfo(FI_VERSION(1, 17), address, NULL, FI_SOURCE, hints, &found), "fi_getinfo");
    fi_freeinfo(hints);
    return found;
}

static void open_side(side_t *side)
{
    struct fi_cq_attr attr = {.format = FI_CQ_FORMAT_CONTEXT, .size = 64};
    char name[256];
    size_t length = sizeof(name);

    succeed(fi_endpoint(domain, info, &side->ep, NULL), "fi_endpoint");
    succeed(fi_cq_open(domain, &attr, &side->cq, NULL), "fi_cq_open");
    succeed(fi_ep_bind(side->ep, &side->cq->fid, FI_SEND | FI_RECV), "fi_ep_bind");
    succeed(fi_ep_bind(side->ep, &av->fid, 0), "fi_ep_bind");
    succeed(fi_enable(side->ep), "fi_enable");
    succeed(fi_getname(&side->ep->fid, name, &length), "fi_getname");
    require(fi_av_insert(av, name, 1, &side->address, 0, NULL) == 1, "fi_av_insert");
}

static void close_side(const side_t *side)
{
    succeed(fi_close(&side->ep->fid), "closing an endpoint");
    succeed(fi_close(&side->cq->fid), "closing a queue");
}

static void write_from(char *buffer, void *descriptor)
{
    struct fi_cq_entry done;
    long result;

    while ((result = fi_write(from.ep, buffer, LENGTH, descriptor, to.address, (uintptr_t)target,
                              fi_mr_key(target_mr), NULL)) == -FI_EAGAIN) {
        (void)fi_cq_read(from.cq, &done, 1);
        (void)fi_cq_read(to.cq, &done, 1);
    }
    succeed(result, "fi_write");
    while ((result = fi_cq_read(from.cq, &done, 1)) == -FI_EAGAIN) {
        (void)fi_cq_read(to.cq, &done, 1);
    }
    require(result == 1, "a write");
}

static void send_from(char *buffer)
{
    struct fid_mr *mr;

    succeed(fi_mr_reg(domain, buffer, LENGTH, FI_WRITE | FI_READ, 0, 0, 0, &mr, NULL), "fi_mr_reg");
    memset(target, 0, LENGTH);
    write_from(buffer, fi_mr_desc(mr));
    succeed(fi_close(&mr->fid), "closing a registration");
}

/* ---- changes ---- */

static char *map_at(char *place)
{
    char *base = mmap(place, LENGTH, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | (place != NULL ? MAP_FIXED : 0), -1, 0);

    require(base != MAP_FAILED, "mmap");
    return base;
}

static void by_nothing(char *base)
{
    (void)base;
}

static void by_munmap(char *base)
{
    munmap(base, LENGTH);
    map_at(base);
}

static void by_raw_munmap(char *base)
{
    syscall(SYS_munmap, base, LENGTH);
    syscall(SYS_mmap, base, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
            -1, 0);
}

static void by_mmap(char *base)
{
    map_at(base);
}

static void by_mremap(char *base)
{
    char *other = map_at(NULL);

    memset(other, 1, LENGTH);
    require(mremap(other, LENGTH, LENGTH, MREMAP_MAYMOVE | MREMAP_FIXED, base) == base, "mremap");
}

static void by_dontneed(char *base)
{
    require(madvise(base, LENGTH, MADV_DONTNEED) == 0, "madvise");
}

static void by_shmat(char *base)
{
    const int id = shmget(IPC_PRIVATE, LENGTH, 0600 | IPC_CREAT);

    require(id >= 0 && shmat(id, base, SHM_REMAP) == base, "shmat");
    shmctl(id, IPC_RMID, NULL);
}

typedef struct change {
    const char *name;
    void (*make)(char *base);
} change_t;

/* Whether all that arrives is what was filled in after the change. */
static bool arrives_new(const change_t *change)
{
    char *buffer = map_at(NULL);
    bool all_new = true;

    for (int use = 0; use < USES; use++) {
        memset(buffer, 'A', LENGTH);
        send_from(buffer);
    }
    change->make(buffer);
    memset(buffer, 'B', LENGTH);
    send_from(buffer);
    for (int i = 0; i < LENGTH; i++) {
        all_new &= target[i] == 'B';
    }
    return all_new; /* the buffer stays, so that none lies where another has lain */
}

static void use_monitor(const char *name)
{
    const bool scan = strcmp(name, "regx-scan") == 0;
    char error[256];

    if (strcmp(name, "own") != 0 &&
        regx_libfabric_monitor(scan ? REGX_LIBFABRIC_SCAN : 0, error, sizeof(error)) != 0) {
        fprintf(stderr, "fabric_steps: %s\n", error);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    static const change_t changes[] = {
        {"none", by_nothing},      {"munmap", by_munmap},         {"raw munmap", by_raw_munmap},
        {"mmap over it", by_mmap}, {"mremap onto it", by_mremap}, {"MADV_DONTNEED", by_dontneed},
        {"SHM_REMAP", by_shmat}};
    struct fi_av_attr av_attr = {.type = FI_AV_TABLE};

    require(argc == 3, "own|regx|regx-scan ADDRESS");
    use_monitor(argv[1]);
    info = find_device(argv[2]);
    succeed(fi_fabric(info->fabric_attr, &fabric, NULL), "fi_fabric");
    succeed(fi_domain(fabric, info, &domain, NULL), "fi_domain");
    succeed(fi_av_open(domain, &av_attr, &av, NULL), "fi_av_open");
    open_side(&from);
    open_side(&to);
    target = map_at(NULL);
    succeed(fi_mr_reg(domain, target, LENGTH, FI_REMOTE_WRITE, 0, 0, 0, &target_mr, NULL),
            "fi_mr_reg");
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        printf("%s: %s\n", changes[i].name, arrives_new(&changes[i]) ? "new" : "STALE");
    }
    succeed(fi_close(&target_mr->fid), "closing a registration");
    close_side(&from);
    close_side(&to);
    succeed(fi_close(&av->fid), "closing the addresses");
    succeed(fi_close(&domain->fid), "closing the domain"); /* libfabric then says how many hits */
    succeed(fi_close(&fabric->fid), "closing the fabric");
    fi_freeinfo(info);
    return 0;
}

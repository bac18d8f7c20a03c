#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# One would expect fi_fetch_atomic with FI_ATOMIC_READ to bring the value of
# the target into the result buffer: fi_atomic(3) has it do just that, and
# fi_query_atomic tells that the provider has the operation.
# In libfabric 2.1.0 (Debian 13) the provider sm2 completes it with success, and
# leaves the result buffer as it was, so that a program goes on with what lay in
# it. The older value does come back with FI_SUM, with FI_ATOMIC_WRITE and with
# FI_BOR of 0, which can stand in for the read. With shm, tcp and sockets it
# comes back in all cases. So it is between processes; here one reads its own memory.
# The output seen is what "expected" holds below.
set -eu

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
root=$folder/root
: >"$folder/status"
mkdir -p "$folder/lists/partial" "$folder/archives/partial"
for name in bin lib lib64 sbin; do
    mkdir -p "$root/usr/$name"
    ln -s "usr/$name" "$root/$name"
done
# The mirror is the one that this machine uses for Debian.
# shellcheck disable=SC2016
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Label: Debian' 'Created-By: Packages' | head -n 1)
echo "deb $mirror trixie main" >"$folder/sources"
cat >"$folder/apt.conf" <<END
Dir::State "$folder"; Dir::State::status "$folder/status"; Dir::Cache "$folder";
Dir::Etc::sourcelist "$folder/sources"; Dir::Etc::sourceparts "-"; APT::Sandbox::User "root";
END
export APT_CONFIG="$folder/apt.conf"
apt-get -qq update
apt-get -qq -y --no-install-recommends --download-only install \
    libfabric-dev=2.1.0-1.1 tcc=0.9.27+git20200814.62c30a4a-2 libc6-dev >/dev/null
for package in "$folder"/archives/*.deb; do
    dpkg-deb --fsys-tarfile "$package" | tar -x --keep-directory-symlink --no-same-owner -C "$root"
done
# "inside COMMAND" runs a command of these packages, as root or as an ordinary user.
inside() {
    mkdir -p "$root/proc" "$root/dev" "$root/sys" "$root/tmp"
    map=
    [ "$(id -u)" = 0 ] || map=--map-root-user
    # shellcheck disable=SC2016,SC2086
    unshare --mount $map sh -c 'root=$1; shift
        for name in proc dev sys; do mount --rbind "/$name" "$root/$name" || exit; done
        exec chroot "$root" "$@"' sh "$root" "$@"
}

cat >"$root/probe.c" <<'END'
#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <stdio.h>
#include <string.h>
static struct fid_ep *endpoint;
static struct fid_cq *queue;
static fi_addr_t self;
static uint64_t target, local[2], key, address;
static void *descriptor;
/* One operation on a 5; what came back, and what the target is then. */
static void show(const char *name, enum fi_op operation, uint64_t operand)
{
    struct fi_cq_entry entry;
    ssize_t status;
    target = 5;
    local[0] = operand;
    local[1] = 99;
    do {
        status = fi_fetch_atomic(endpoint, &local[0], 1, descriptor, &local[1], descriptor, self, address, key,
                                 FI_UINT64, operation, NULL);
        fi_cq_read(queue, NULL, 0);
    } while (status == -FI_EAGAIN);
    if (status == 0)
        do
            status = fi_cq_read(queue, &entry, 1);
        while (status == -FI_EAGAIN);
    for (int i = 0; i < 1000; i++)
        fi_cq_read(queue, NULL, 0);
    printf("  %s: %s, fetched %lu, then %lu\n", name, status == 1 ? "success" : "an error", (unsigned long)local[1],
           (unsigned long)target);
}
int main(int argc, char **argv)
{
    struct fi_info *hints = fi_allocinfo(), *info;
    struct fi_av_attr table = {0};
    struct fi_cq_attr entries = {0};
    struct fi_atomic_attr attributes;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *addresses;
    struct fid_mr *remote, *own;
    const char *node = argc > 2 ? argv[2] : NULL;
    char name[512];
    size_t length = sizeof(name);
    hints->caps = FI_ATOMIC;
    hints->ep_attr->type = FI_EP_RDM;
    hints->fabric_attr->prov_name = strdup(argv[1]);
    hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_LOCAL;
    if (fi_getinfo(FI_VERSION(2, 0), node, NULL, node != NULL ? FI_SOURCE : 0, hints, &info) != 0)
        return 1;
    entries.format = FI_CQ_FORMAT_CONTEXT;
    fi_fabric(info->fabric_attr, &fabric, NULL);
    fi_domain(fabric, info, &domain, NULL);
    fi_av_open(domain, &table, &addresses, NULL);
    fi_cq_open(domain, &entries, &queue, NULL);
    fi_endpoint(domain, info, &endpoint, NULL);
    fi_ep_bind(endpoint, &addresses->fid, 0);
    fi_ep_bind(endpoint, &queue->fid, FI_TRANSMIT | FI_RECV);
    fi_enable(endpoint);
    fi_getname(&endpoint->fid, name, &length);
    fi_av_insert(addresses, name, 1, &self, 0, NULL);
    fi_mr_reg(domain, &target, sizeof(target), FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 1, 0, &remote, NULL);
    fi_mr_reg(domain, local, sizeof(local), FI_READ | FI_WRITE, 0, 2, 0, &own, NULL);
    descriptor = fi_mr_desc(own);
    key = fi_mr_key(remote);
    address = info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? (uintptr_t)&target : 0;

    printf("%s: FI_ATOMIC_READ is %s\n", info->fabric_attr->prov_name,
           fi_query_atomic(domain, FI_UINT64, FI_ATOMIC_READ, &attributes, FI_FETCH_ATOMIC) == 0 ? "there" : "missing");
    show("FI_ATOMIC_READ", FI_ATOMIC_READ, 0);
    show("FI_SUM of 3", FI_SUM, 3);
    show("FI_ATOMIC_WRITE of 3", FI_ATOMIC_WRITE, 3);
    show("FI_BOR of 0", FI_BOR, 0);
    return 0;
}
END
inside /usr/bin/tcc -w -o /tmp/probe /probe.c -lfabric
{
    inside /tmp/probe sm2
    inside /tmp/probe shm
    inside /tmp/probe sockets 127.0.0.1
    inside /tmp/probe 'tcp;ofi_rxm' 127.0.0.1
} >"$folder/seen"
cat >"$folder/expected" <<'END'
sm2: FI_ATOMIC_READ is there
  FI_ATOMIC_READ: success, fetched 99, then 5
  FI_SUM of 3: success, fetched 5, then 8
  FI_ATOMIC_WRITE of 3: success, fetched 5, then 3
  FI_BOR of 0: success, fetched 5, then 5
shm: FI_ATOMIC_READ is there
  FI_ATOMIC_READ: success, fetched 5, then 5
  FI_SUM of 3: success, fetched 5, then 8
  FI_ATOMIC_WRITE of 3: success, fetched 5, then 3
  FI_BOR of 0: success, fetched 5, then 5
sockets: FI_ATOMIC_READ is there
  FI_ATOMIC_READ: success, fetched 5, then 5
  FI_SUM of 3: success, fetched 5, then 8
  FI_ATOMIC_WRITE of 3: success, fetched 5, then 3
  FI_BOR of 0: success, fetched 5, then 5
tcp;ofi_rxm: FI_ATOMIC_READ is there
  FI_ATOMIC_READ: success, fetched 5, then 5
  FI_SUM of 3: success, fetched 5, then 8
  FI_ATOMIC_WRITE of 3: success, fetched 5, then 3
  FI_BOR of 0: success, fetched 5, then 5
END
cat "$folder/seen"
diff "$folder/expected" "$folder/seen" >&2 || {
    echo "this is no longer what was seen" >&2
    exit 1
}

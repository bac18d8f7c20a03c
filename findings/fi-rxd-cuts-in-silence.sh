#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# One would expect a message that is longer than the buffer of its receive to
# end with FI_ETRUNC, whatever the provider: fi_cq(3) and fi_errno(3) have this
# error for it, and a receiver has no other way to learn that data are missing.
# In libfabric 2.1.0 (Debian 13), over UDP (udp;ofi_rxd), of 100 bytes that come into
# a buffer of 10 the first 10 are delivered, and the receive succeeds with a
# length of 10, as if no more had been sent. Over TCP (tcp, and tcp;ofi_rxm)
# it ends with the error.
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
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static void check(const char *step, int result)
{
    if (result == 0)
        return;
    printf("%s: %s\n", step, fi_strerror(-result));
    exit(0);
}
/* Sends a message of 100 bytes to itself, and receives it into a buffer of 10. */
int main(int count, char **arguments)
{
    static char data[100], buffer[100], name[256];
    struct fi_context send_context, context;
    struct fi_info *hints = fi_allocinfo(), *info;
    struct fi_av_attr av_attributes = {0};
    struct fi_cq_attr cq_attributes = {0};
    struct fi_cq_tagged_entry entry;
    struct fi_cq_err_entry error = {0};
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_ep *endpoint;
    struct fid_av *av;
    struct fid_cq *cq;
    fi_addr_t self;
    size_t length = sizeof(name);
    int result, local = count > 2;
    alarm(60);
    printf("%s: ", arguments[1]);
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = FI_TAGGED | FI_MSG;
    hints->mode = FI_CONTEXT;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->fabric_attr->prov_name = strdup(arguments[1]);
    result = fi_getinfo(FI_VERSION(2, 1), local ? NULL : "127.0.0.1", NULL, local ? 0 : FI_SOURCE, hints, &info);
    check("fi_getinfo", result);
    check("fi_fabric", fi_fabric(info->fabric_attr, &fabric, NULL));
    check("fi_domain", fi_domain(fabric, info, &domain, NULL));
    check("fi_endpoint", fi_endpoint(domain, info, &endpoint, NULL));
    check("fi_av_open", fi_av_open(domain, &av_attributes, &av, NULL));
    cq_attributes.format = FI_CQ_FORMAT_TAGGED;
    check("fi_cq_open", fi_cq_open(domain, &cq_attributes, &cq, NULL));
    check("fi_ep_bind", fi_ep_bind(endpoint, &av->fid, 0));
    check("fi_ep_bind", fi_ep_bind(endpoint, &cq->fid, FI_SEND | FI_RECV));
    check("fi_enable", fi_enable(endpoint));
    check("fi_getname", fi_getname(&endpoint->fid, name, &length));
    fi_av_insert(av, name, 1, &self, 0, NULL);
    memset(data, 7, sizeof(data));
    check("fi_trecv", fi_trecv(endpoint, buffer, 10, NULL, FI_ADDR_UNSPEC, 5, 0, &context));
    while ((result = fi_tsend(endpoint, data, sizeof(data), NULL, self, 5, &send_context)) == -FI_EAGAIN)
        fi_cq_read(cq, &entry, 0);
    check("fi_tsend", result);
    for (int done = 0; done == 0;) {
        result = fi_cq_read(cq, &entry, 1);
        if (result == 1 && entry.op_context == &context) {
            printf("received without an error, len %zu", entry.len);
            done = 1;
        } else if (result == -FI_EAVAIL) {
            fi_cq_readerr(cq, &error, 0);
            done = error.op_context == &context;
            /* The error of sm2 is negative. */
            printf("%s, len %zu, olen %zu", fi_strerror(abs(error.err)), error.len, error.olen);
        }
    }
    printf(", %d of the bytes arrived\n", (int)strnlen(buffer, sizeof(buffer)));
    return 0;
}
END
inside /usr/bin/tcc -o /tmp/probe /probe.c -lfabric
for provider in "udp;ofi_rxd" "tcp;ofi_rxm" tcp; do
    inside /tmp/probe "$provider"
done | sed 's/error, len .* olen [0-9]*,/error,/' >"$folder/seen"
cat >"$folder/expected" <<'END'
udp;ofi_rxd: received without an error, len 10, 10 of the bytes arrived
tcp;ofi_rxm: Truncation error, 10 of the bytes arrived
tcp: Truncation error, 10 of the bytes arrived
END
cat "$folder/seen"
diff "$folder/expected" "$folder/seen" >&2 || {
    echo "this is no longer what was seen" >&2
    exit 1
}

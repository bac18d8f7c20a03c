#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# One would expect the record of a process (pmix_proc_info_t) to come out of
# PMIx_Data_unpack as it went into PMIx_Data_pack, with its exit code: the record is what
# a tool or a debugger gets that asks for the table of processes.
# In PMIx 5.0.7 (Debian 13), in 4.2.2 and in 7.0.0rc1, the exit code comes out as 0,
# and all other fields are right, so that a process whose state says that it ended with
# another status seems to have ended with 0. Both calls return PMIX_SUCCESS.
# PMIx_Value_xfer does copy the exit code, and PMIx_Data_print prints it.
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
    libpmix-dev=5.0.7-1 tcc=0.9.27+git20200814.62c30a4a-2 libc6-dev >/dev/null
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
#include <pmix.h>
#include <pmix_server.h>
#include <stdio.h>
#include <string.h>
static void show(const char *name, const pmix_proc_info_t *record)
{
    printf("%s: rank %u, host %s, program %s, pid %d, exit code %d, %s\n", name, record->proc.rank, record->hostname,
           record->executable_name, record->pid, record->exit_code, PMIx_Proc_state_string(record->state));
}
int main(void)
{
    pmix_server_module_t module;
    pmix_data_buffer_t buffer;
    pmix_data_array_t array;
    pmix_value_t value, copy;
    pmix_proc_info_t sent, received;
    int32_t count = 1;
    memset(&module, 0, sizeof(module));
    memset(&sent, 0, sizeof(sent));
    memset(&received, 0, sizeof(received));
    memset(&value, 0, sizeof(value));
    memset(&copy, 0, sizeof(copy));
    if (PMIx_server_init(&module, NULL, 0) != PMIX_SUCCESS)
        return 1;
    PMIX_LOAD_PROCID(&sent.proc, "job", 1);
    sent.hostname = "node";
    sent.executable_name = "program";
    sent.pid = 1234;
    sent.exit_code = 3;
    sent.state = PMIX_PROC_STATE_TERM_NON_ZERO;
    show("sent", &sent);

    PMIX_DATA_BUFFER_CONSTRUCT(&buffer);
    printf("PMIx_Data_pack: %s\n", PMIx_Error_string(PMIx_Data_pack(NULL, &buffer, &sent, 1, PMIX_PROC_INFO)));
    printf("PMIx_Data_unpack: %s\n",
           PMIx_Error_string(PMIx_Data_unpack(NULL, &buffer, &received, &count, PMIX_PROC_INFO)));
    show("unpacked", &received);

    array.type = PMIX_PROC_INFO;
    array.size = 1;
    array.array = &sent;
    value.type = PMIX_DATA_ARRAY;
    value.data.darray = &array;
    printf("PMIx_Value_xfer: %s\n", PMIx_Error_string(PMIx_Value_xfer(&copy, &value)));
    show("copied", copy.data.darray->array);
    PMIx_server_finalize();
    return 0;
}
END
inside /usr/bin/tcc -w -I/usr/lib/x86_64-linux-gnu/pmix2/include -o /tmp/probe /probe.c /usr/lib/x86_64-linux-gnu/pmix2/lib/libpmix.so
inside /tmp/probe >"$folder/seen"
cat >"$folder/expected" <<'END'
sent: rank 1, host node, program program, pid 1234, exit code 3, PROC TERMINATED WITH NON-ZERO STATUS
PMIx_Data_pack: PMIX_SUCCESS
PMIx_Data_unpack: PMIX_SUCCESS
unpacked: rank 1, host node, program program, pid 1234, exit code 0, PROC TERMINATED WITH NON-ZERO STATUS
PMIx_Value_xfer: PMIX_SUCCESS
copied: rank 1, host node, program program, pid 1234, exit code 3, PROC TERMINATED WITH NON-ZERO STATUS
END
cat "$folder/seen"
diff "$folder/expected" "$folder/seen" >&2 || {
    echo "this is no longer what was seen" >&2
    exit 1
}

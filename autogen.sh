#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# autogen.sh: make ./configure from configure.ac. Needed once in a git checkout, never in a tarball.
set -eu
cd "$(dirname "$0")"

missing=
for need in autoreconf:autoconf automake:automake pkg-config:pkg-config; do
    command -v "${need%%:*}" >/dev/null || missing="$missing ${need#*:}"
done
if [ -n "$missing" ]; then
    echo "autogen.sh: missing; on Debian: apt-get install$missing" >&2
    exit 1
fi
exec autoreconf --install --warnings=all,no-portability

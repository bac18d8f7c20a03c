dnl SPDX-License-Identifier: BSD-3-Clause

dnl REGX_HWLOC: for placing the pool near the process.
AC_DEFUN([REGX_HWLOC], [
    PKG_CHECK_MODULES([HWLOC], [hwloc >= 2.0], [],
        [AC_MSG_ERROR([hwloc 2.0 or later not found by pkg-config; install the Debian package libhwloc-dev])])
    REGX_SYSTEM_HEADERS([HWLOC])
    regx_hwloc_version=`$PKG_CONFIG --modversion hwloc`
])

dnl REGX_UCX: for UCX's memory hooks alone, and of it the header alone. The library is opened by name:
dnl loading UCX changes the process.
AC_DEFUN([REGX_UCX], [
    AC_ARG_WITH([ucx],
        [AS_HELP_STRING([--with-ucx@<:@=PREFIX@:>@],
            [take the header of UCX's hooks from PREFIX (default: where the compiler finds it, if at all)])],
        [], [with_ucx=auto])
    UCX_CFLAGS=
    AS_CASE([$with_ucx],
        [yes | no | auto], [],
        [AS_IF([test -f "$with_ucx/include/ucm/api/ucm.h"], [],
               [AC_MSG_ERROR([--with-ucx=$with_ucx: no include/ucm/api/ucm.h there])])
         UCX_CFLAGS="-isystem $with_ucx/include"
         REGX_DISTCHECK_FLAGS="$REGX_DISTCHECK_FLAGS --with-ucx='$with_ucx'"])
    AC_SUBST([UCX_CFLAGS])
    regx_ucx_note="no (--without-ucx)"
    AS_IF([test "x$with_ucx" != xno], [
        regx_saved_CPPFLAGS=$CPPFLAGS
        CPPFLAGS="$CPPFLAGS $UCX_CFLAGS"
        AC_CHECK_HEADER([ucm/api/ucm.h],
            [AC_DEFINE([REGX_HAVE_UCM], [1], [UCX's hooks can be a source of hooks])
             regx_ucx_note="its hooks (ucm)"],
            [regx_ucx_note="no (its hooks need the Debian package libucx-dev)"
             AS_IF([test "x$with_ucx" != xauto],
                   [AC_MSG_ERROR([ucm/api/ucm.h not found; install the Debian package libucx-dev, or give --with-ucx=PREFIX])])])
        CPPFLAGS=$regx_saved_CPPFLAGS])
])

dnl REGX_VERBS: rdma-core, only for regx_transport_verbs.so, which is left out without it.
AC_DEFUN([REGX_VERBS], [
    AC_ARG_WITH([verbs],
        [AS_HELP_STRING([--without-verbs],
            [leave out the transport for RDMA devices (default: build it if rdma-core is there)])],
        [], [with_verbs=auto])
    AS_CASE([$with_verbs], [yes | no | auto], [],
            [AC_MSG_ERROR([--with-verbs=$with_verbs: allowed: yes, no, auto; pkg-config finds rdma-core elsewhere by PKG_CONFIG_PATH])])
    regx_verbs=no
    regx_verbs_note="no (--without-verbs)"
    AS_IF([test "x$with_verbs" != xno],
          [PKG_CHECK_MODULES([VERBS], [libibverbs >= 1.14], [regx_verbs=yes], [regx_verbs=no])
           regx_verbs_note="no (needs rdma-core 40 or later, the Debian package libibverbs-dev)"])
    AS_IF([test $regx_verbs = yes],
          [regx_verbs_note="`$PKG_CONFIG --modversion libibverbs` (libibverbs)"
           regx_verbs_object=", regx_transport_verbs.so, libregx-registration.so"])
    AS_IF([test "x$with_verbs" = xyes && test $regx_verbs = no],
          [AC_MSG_ERROR([libibverbs of rdma-core 40 or later not found by pkg-config; install the Debian package libibverbs-dev])])
    REGX_SYSTEM_HEADERS([VERBS])
    AC_DEFINE_UNQUOTED([REGX_HAVE_VERBS], [`test $regx_verbs = yes && echo 1 || echo 0`],
                       [whether the transport for RDMA devices is built])
    AM_CONDITIONAL([HAVE_VERBS], [test $regx_verbs = yes])
])

dnl REGX_CMOCKA: only make check needs it.
AC_DEFUN([REGX_CMOCKA], [
    PKG_CHECK_MODULES([CMOCKA], [cmocka], [regx_cmocka=yes], [regx_cmocka=no])
    AS_IF([test $regx_cmocka = yes],
          [regx_unit_tests="cmocka `$PKG_CONFIG --modversion cmocka`"],
          [regx_unit_tests="no (make check needs the Debian package libcmocka-dev)"])
    REGX_SYSTEM_HEADERS([CMOCKA])
    AM_CONDITIONAL([HAVE_CMOCKA], [test $regx_cmocka = yes])
])

dnl REGX_LIBURING: the oracle of the registration tests; without it they are skipped.
AC_DEFUN([REGX_LIBURING], [
    PKG_CHECK_MODULES([URING], [liburing >= 2.2], [regx_uring=yes], [regx_uring=no])
    AS_IF([test $regx_uring = yes],
          [regx_oracle="liburing `$PKG_CONFIG --modversion liburing`"],
          [regx_oracle="no (the registration tests need the Debian package liburing-dev)"])
    REGX_SYSTEM_HEADERS([URING])
    AM_CONDITIONAL([HAVE_LIBURING], [test $regx_uring = yes])
])

dnl REGX_SYSTEM_HEADERS(NAME): our warnings are not for other people's headers.
AC_DEFUN([REGX_SYSTEM_HEADERS], [
    $1[]_CFLAGS=`AS_ECHO(["$$1[]_CFLAGS"]) | $SED 's/-I */-isystem /g'`
])

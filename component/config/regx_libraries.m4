dnl SPDX-License-Identifier: BSD-3-Clause

dnl REGX_OPENMPI: find the Open MPI to build for, by its mpicc, and record its version.
dnl A component is good for one major.minor of Open MPI: it has no stable interface for plugins.
AC_DEFUN([REGX_OPENMPI], [
    AC_ARG_WITH([openmpi],
        [AS_HELP_STRING([--with-openmpi=PREFIX],
            [build for the Open MPI in PREFIX (default: the mpicc in PATH); without --prefix,
             install into it])],
        [], [with_openmpi=])
    AS_CASE([$with_openmpi],
        [yes], [with_openmpi=],
        [no], [AC_MSG_ERROR([regx is a plugin for Open MPI: it cannot be built --without-openmpi])],
        ['' | /*], [],
        [AC_MSG_ERROR([--with-openmpi=$with_openmpi: give an absolute path])])
    AS_IF([test -n "$with_openmpi"], [regx_mpi_path=$with_openmpi/bin], [regx_mpi_path=$PATH])

    AC_PATH_PROG([MPICC], [mpicc], [], [$regx_mpi_path])
    AS_IF([test -z "$MPICC"], [AC_MSG_ERROR([no mpicc in $regx_mpi_path; install the Debian packages libopenmpi-dev and openmpi-bin, or give --with-openmpi=PREFIX])])
    AS_IF([$MPICC --showme:version >/dev/null 2>&1], [], [AC_MSG_ERROR([$MPICC is not Open MPI's; install the Debian packages libopenmpi-dev and openmpi-bin, or give --with-openmpi=PREFIX])])
    regx_mpi_bin=`AS_DIRNAME(["$MPICC"])`
    AC_PATH_PROG([MPIRUN], [mpirun], [], [$regx_mpi_bin])
    AC_PATH_PROG([OMPI_INFO], [ompi_info], [], [$regx_mpi_bin])
    AS_IF([test -z "$MPIRUN" || test -z "$OMPI_INFO"], [AC_MSG_ERROR([no mpirun or ompi_info beside $MPICC; install the Debian package openmpi-bin])])

    AC_MSG_CHECKING([for Open MPI's devel headers])
    OPENMPI_INCLUDEDIR= OPENMPI_CPPFLAGS=
    for regx_dir in `$MPICC --showme:incdirs`; do
        AS_IF([test -f "$regx_dir/opal/mca/btl/btl.h"], [OPENMPI_INCLUDEDIR=$regx_dir])
        OPENMPI_CPPFLAGS="$OPENMPI_CPPFLAGS -isystem $regx_dir"
    done
    AC_MSG_RESULT([${OPENMPI_INCLUDEDIR:-none}])
    AS_IF([test -z "$OPENMPI_INCLUDEDIR"], [AC_MSG_ERROR([opal/mca/btl/btl.h is in no include folder of $MPICC; install the Debian package libopenmpi-dev, or build Open MPI with --with-devel-headers])])
    OPENMPI_LIBS=
    for regx_dir in `$MPICC --showme:libdirs`; do
        OPENMPI_LIBS="$OPENMPI_LIBS -L$regx_dir"
    done
    dnl What an MPI program is linked with, where mpicc cannot be used for it.
    OPENMPI_MPI_LIBS=$OPENMPI_LIBS
    for regx_name in `$MPICC --showme:libs`; do
        OPENMPI_MPI_LIBS="$OPENMPI_MPI_LIBS -l$regx_name"
    done
    OPENMPI_LIBS="$OPENMPI_LIBS -lopen-pal"

    AC_MSG_CHECKING([for the version of Open MPI])
    regx_header=$OPENMPI_INCLUDEDIR/opal_config.h
    REGX_OPENMPI_FIELD([regx_major], [MAJOR])
    REGX_OPENMPI_FIELD([regx_minor], [MINOR])
    REGX_OPENMPI_FIELD([regx_release], [RELEASE])
    REGX_OPENMPI_FIELD([regx_greek], [GREEK])
    regx_openmpi_series=$regx_major.$regx_minor
    regx_openmpi_version=$regx_openmpi_series.$regx_release$regx_greek
    AC_MSG_RESULT([$regx_openmpi_version])
    dnl compat/ has one file per series; component/component.am takes the one that is named here.
    AS_CASE([$regx_openmpi_series],
        [4.1], [],
        [5.0 | 6.0],
        [dnl Some of their headers include others that are not installed: regx brings those, behind
         dnl all other folders. What is published goes through PMIx.
         OPENMPI_CPPFLAGS="$OPENMPI_CPPFLAGS -idirafter $srcdir/component/compat/headers"
         PKG_CHECK_MODULES([PMIX], [pmix], [],
             [AC_MSG_ERROR([PMIx, which Open MPI $regx_openmpi_series is built with, not found by pkg-config; install the Debian package libpmix-dev])])
         REGX_SYSTEM_HEADERS([PMIX])
         OPENMPI_CPPFLAGS="$OPENMPI_CPPFLAGS $PMIX_CFLAGS"
         OPENMPI_LIBS="$OPENMPI_LIBS $PMIX_LIBS"],
        [AC_MSG_ERROR([$MPICC is of Open MPI $regx_openmpi_version; regx supports 4.1, 5.0 and 6.0])])
    AM_CONDITIONAL([OPENMPI_41], [test $regx_openmpi_series = 4.1])

    AC_MSG_CHECKING([whether Open MPI's devel headers and libopen-pal can be used])
    regx_saved_CPPFLAGS=$CPPFLAGS regx_saved_LIBS=$LIBS
    CPPFLAGS="$CPPFLAGS $OPENMPI_CPPFLAGS"
    LIBS="$OPENMPI_LIBS $LIBS"
    AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <opal_config.h>
                                      #include <opal/mca/btl/btl.h>
                                      extern const char opal_version_string[];]],
                                    [[return opal_version_string[0] == 0;]])],
        [AC_MSG_RESULT([yes])],
        [AC_MSG_RESULT([no])
         AC_MSG_ERROR([cannot compile and link with $OPENMPI_CPPFLAGS $OPENMPI_LIBS (see config.log); install the Debian package libopenmpi-dev])])
    CPPFLAGS=$regx_saved_CPPFLAGS LIBS=$regx_saved_LIBS

    dnl The component compares the series with that of the Open MPI that loads it. -D may say
    dnl otherwise, which is how the tests make a component that was built for another one.
    AC_DEFINE_UNQUOTED([REGX_OPENMPI_VERSION_FOUND], ["$regx_openmpi_version"],
                       [Open MPI this was configured for])
    AH_BOTTOM([#ifndef REGX_BUILT_FOR_OPENMPI
#define REGX_BUILT_FOR_OPENMPI REGX_OPENMPI_VERSION_FOUND
#endif])
    AC_SUBST([OPENMPI_CPPFLAGS])
    AC_SUBST([OPENMPI_LIBS])
    AC_SUBST([OPENMPI_MPI_LIBS])
    AC_SUBST([OPENMPI_VERSION], [$regx_openmpi_version])

    dnl make distcheck has to find the same one.
    AS_IF([test -n "$with_openmpi"], [REGX_DISTCHECK_FLAGS="--with-openmpi='$with_openmpi'"])
    AC_SUBST([REGX_DISTCHECK_FLAGS])
])

dnl REGX_OPENMPI_FIELD(VARIABLE, NAME): the value of OPAL_<NAME>_VERSION in $regx_header.
AC_DEFUN([REGX_OPENMPI_FIELD], [
    $1=`$SED -n 's/^#define OPAL_$2_VERSION *"\{0,1\}\(@<:@^"@:>@*\)"\{0,1\} *$/\1/p' "$regx_header"`
])

dnl REGX_COMPONENT_DIR: where the component goes. In place (Open MPI's own folder of plugins) when
dnl the prefix is Open MPI's own, or when --with-openmpi is given alone; else PREFIX/lib/openmpi.
AC_DEFUN([REGX_COMPONENT_DIR], [
    AC_MSG_CHECKING([for Open MPI's folder of plugins])
    OPENMPI_PKGLIBDIR=`$OMPI_INFO --parsable --path pkglibdir | $SED -n 's/^path:pkglibdir://p'`
    regx_openmpi_prefix=`$OMPI_INFO --parsable --path prefix | $SED -n 's/^path:prefix://p'`
    AC_MSG_RESULT([$OPENMPI_PKGLIBDIR])
    AS_IF([test ! -d "$OPENMPI_PKGLIBDIR"],
          [AC_MSG_ERROR([$OMPI_INFO names no folder of plugins])])

    AS_IF([test "x$prefix" = xNONE && test -n "$with_openmpi"], [prefix=$regx_openmpi_prefix])
    AS_IF([test "x$prefix" = "x$regx_openmpi_prefix"],
          [componentdir=$OPENMPI_PKGLIBDIR regx_in_place=yes
           regx_component_dir_shown="$componentdir (in place)"],
          [componentdir='${libdir}/openmpi' regx_in_place=no
           regx_component_dir_shown=$(
               test "x$prefix" != xNONE || prefix=$ac_default_prefix
               test "x$exec_prefix" != xNONE || exec_prefix=$prefix
               eval "libdir=\"$libdir\""
               AS_ECHO(["$libdir/openmpi"]))])
    AC_SUBST([componentdir])
    AC_SUBST([OPENMPI_PKGLIBDIR])
    AM_CONDITIONAL([IN_PLACE], [test $regx_in_place = yes])
])

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

dnl REGX_SYSTEM_HEADERS(NAME): our warnings are not for other people's headers.
AC_DEFUN([REGX_SYSTEM_HEADERS], [
    $1[]_CFLAGS=`AS_ECHO(["$$1[]_CFLAGS"]) | $SED 's/-I */-isystem /g'`
])

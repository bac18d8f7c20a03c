dnl SPDX-License-Identifier: BSD-3-Clause

dnl REGX_COMPILER: before AC_PROG_CC, whose own error names no package.
AC_DEFUN([REGX_COMPILER], [
    AS_IF([test -z "$CC"], [
        AC_CHECK_TOOLS([regx_cc], [gcc cc clang])
        AS_IF([test -z "$regx_cc"],
              [AC_MSG_ERROR([no C compiler found; install the Debian packages gcc and libc6-dev, or give CC=COMPILER])])])
])

dnl REGX_COMPILER_FLAGS: what every object of regx is compiled with, and the sanitizer builds.
dnl Sets REGX_CFLAGS, REGX_LDFLAGS, REGX_ATOMIC_CFLAGS.
AC_DEFUN([REGX_COMPILER_FLAGS], [
    AC_ARG_ENABLE([sanitizers],
        [AS_HELP_STRING([--enable-sanitizers],
            [build with the address and undefined-behaviour sanitizers (for make check)])],
        [], [enable_sanitizers=no])
    AC_ARG_ENABLE([tsan],
        [AS_HELP_STRING([--enable-tsan], [build with the thread sanitizer (for make check)])],
        [], [enable_tsan=no])

    regx_sanitize=
    AS_IF([test "x$enable_sanitizers" != xno], [regx_sanitize=address,undefined])
    AS_IF([test "x$enable_tsan" != xno], [
        AS_IF([test -n "$regx_sanitize"],
              [AC_MSG_ERROR([--enable-sanitizers and --enable-tsan exclude each other])])
        regx_sanitize=thread])

    REGX_CFLAGS="-std=gnu11 -pthread -fvisibility=hidden -Wall -Wextra -Wshadow -Wconversion"
    REGX_LDFLAGS=-pthread
    regx_sanitizer_note=
    AS_IF([test -n "$regx_sanitize"], [
        regx_flags="-fsanitize=$regx_sanitize -fno-sanitize-recover=all -fno-omit-frame-pointer"
        regx_saved_CFLAGS=$CFLAGS
        CFLAGS="$CFLAGS $regx_flags"
        AC_MSG_CHECKING([whether $CC links with -fsanitize=$regx_sanitize])
        AC_LINK_IFELSE([AC_LANG_PROGRAM()], [AC_MSG_RESULT([yes])], [
            AC_MSG_RESULT([no])
            AC_MSG_ERROR([$CC has no $regx_sanitize sanitizer; Debian's gcc brings them])])
        CFLAGS=$regx_saved_CFLAGS
        REGX_CFLAGS="$REGX_CFLAGS $regx_flags"
        REGX_LDFLAGS="$REGX_LDFLAGS -fsanitize=$regx_sanitize"
        regx_sanitizer_note=" -fsanitize=$regx_sanitize"])
    AC_SUBST([REGX_CFLAGS])
    AC_SUBST([REGX_LDFLAGS])

    dnl Open MPI's inline atomics use cmpxchg16b; without the flag the component gets an undefined
    dnl __sync_val_compare_and_swap_16 that only shows when it is loaded.
    REGX_ATOMIC_CFLAGS=
    AS_CASE([$host_cpu], [x86_64], [REGX_ATOMIC_CFLAGS=-mcx16])
    AC_SUBST([REGX_ATOMIC_CFLAGS])

    dnl In glibc since 2.34; separate libraries before.
    AC_SEARCH_LIBS([dlopen], [dl])
    AC_SEARCH_LIBS([shm_open], [rt])
])

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Descriptors that are kept: whether they are still what they were, also where a filter of system
 * calls has the kernel not tell.
 */
#include "../process.h"

#include "base/file.h"

static int made(void)
{
    const int fd = memfd_create("kept", MFD_CLOEXEC);

    assert_true(fd >= 0);
    return fd;
}

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

/* Two kept files: the first stays, the second's number becomes another file. Both are closed. Returns a
 * bit for each that was then closed, or -1: they were not told apart before. */
static int closed_of_two(bool denied, unsigned also_denied)
{
    regx_file_t stays = regx_file_of(made()), replaced = regx_file_of(made());
    const int numbers[] = {stays.fd, replaced.fd}, other = made();
    int closed = 0;

    if (!regx_file_is_ours(&stays) || !regx_file_is_ours(&replaced) ||
        dup2(other, replaced.fd) != replaced.fd || regx_file_is_ours(&replaced)) {
        return -1;
    }
    if (denied && (!process_deny(SYS_fstat, EPERM) ||
                   (also_denied != 0 && !process_deny(also_denied, EPERM)))) {
        return -1;
    }
    regx_file_close(&stays);
    regx_file_close(&replaced);
    for (int i = 0; i < 2; i++) {
        closed |= is_open(numbers[i]) ? 0 : 1 << i;
    }
    return closed;
}

UNIT_TEST(what_the_program_put_in_its_place_is_left_alone)
{
    assert_int_equal(closed_of_two(false, 0), 0x1);
}

static void in_a_child_that(bool (*does)(void))
{
    if (process_in_child()) {
        _exit(does() ? 0 : 1);
    }
}

static bool closes_its_own_alone(void)
{
    return closed_of_two(true, 0) == 0x1;
}

UNIT_TEST(the_other_call_tells_where_a_filter_refuses_one)
{
    in_a_child_that(closes_its_own_alone);
}

static bool closes_its_own(void)
{
    return (closed_of_two(true, SYS_newfstatat) & 0x1) != 0;
}

UNIT_TEST(what_no_call_tells_of_is_closed_all_the_same)
{
    in_a_child_that(closes_its_own);
}

UNIT_TEST(no_file_is_kept_of_a_closed_descriptor)
{
    const int fd = made();

    close(fd);
    const regx_file_t file = regx_file_of(fd);

    assert_int_equal(made(), fd);
    assert_false(regx_file_is_ours(&file));
    close(fd);
}

/* Where the number 0 is open, as it mostly is. */
UNIT_TEST(what_was_never_kept_is_no_file)
{
    const regx_file_t none = {0};
    const int low = is_open(0) ? -1 : open("/dev/null", O_RDONLY);

    assert_true(is_open(0));
    assert_false(regx_file_is_ours(&none));
    if (low >= 0) {
        close(low);
    }
}

static bool keeps_without_being_told(void)
{
    if (!process_deny(SYS_fstat, EPERM) || !process_deny(SYS_newfstatat, EPERM)) {
        return false;
    }
    const int fd = memfd_create("kept", MFD_CLOEXEC);
    const regx_file_t file = regx_file_of(fd), none = {0};

    return fd >= 0 && is_open(0) && regx_file_is_ours(&file) && !regx_file_is_ours(&none);
}

UNIT_TEST(what_is_kept_where_no_call_tells_stays_ours)
{
    in_a_child_that(keeps_without_being_told);
}

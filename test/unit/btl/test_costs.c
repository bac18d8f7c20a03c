/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The file of btl_regx_costs: what is read of it, and that anything else in its place is refused
 * with one line, and keeps nobody waiting.
 */
#include "config.h"

#include "../unit.h"

#include <sys/stat.h>

#include "btl/eager.h"

#define HEAD "regx-costs 2\nregx " PACKAGE_VERSION "\nprocessor Me 1 2\n"

enum { KIB = 1024, S8K = 0, S16K, S32K, S64K };

static char name[] = "/tmp/costs.XXXXXX";
static regx_costs_t costs;
static regx_error_t error;

static int make(void **state)
{
    const int fd = mkstemp(name);

    assert_true(fd >= 0);
    close(fd);
    return 0;
}

static int take_away(void **state)
{
    remove(name);
    return 0;
}

static void write_file(const char *text, size_t length)
{
    FILE *file = fopen(name, "w");

    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
}

static bool read_text(const char *text)
{
    write_file(text, strlen(text));
    error[0] = '\0';
    return regx_costs_read(name, "Me 1 2", &costs, error);
}

static bool nothing_is_known(void)
{
    static const regx_costs_t none;

    return memcmp(&costs, &none, sizeof(costs)) == 0;
}

/* Refused by a line that names the parameter, the file and what is wrong, and nothing is kept. */
static void assert_refused(bool was_read, const char *why)
{
    assert_false(was_read);
    assert_true(nothing_is_known());
    assert_non_null(strstr(error, "btl_regx_costs="));
    assert_non_null(strstr(error, "is ignored"));
    assert_null(strchr(error, '\n'));
    unit_expect(strstr(error, why) != NULL, "\"%s\" does not say \"%s\"", error, why);
}

UNIT_TEST(without_a_file_nothing_is_known)
{
    assert_true(regx_costs_read("", NULL, &costs, error));
    assert_true(nothing_is_known());
}

UNIT_TEST(of_each_size_the_fastest_is_known)
{
    assert_true(read_text(HEAD "# a remark\n"
                               "l3 8K 10 20 30 40\n"
                               "l3 16K 40 20 30 35\n"  /* by auto what is as short as */
                               "l3 32768 40 20 30 -\n" /* that is eager or read */
                               "any 64K - 20 30 10\n"
                               "any 8G 10 - - -\n"
                               "end\n"));
    const regx_best_t *l3 = costs.best[REGX_NEIGHBOUR_L3];
    const regx_best_t *any = costs.best[REGX_NEIGHBOUR_ANY];

    assert_true(l3[S8K].clear && l3[S8K].eager);
    assert_true(l3[S16K].known && !l3[S16K].clear && !l3[S16K].eager); /* 35 is not half of 40 */
    assert_int_equal(l3[S16K].rendezvous, REGX_PATH_read);
    assert_true(l3[S32K].known && !l3[S32K].clear);
    assert_int_equal(any[S64K].rendezvous, REGX_PATH_read);
    assert_int_equal(any[REGX_COSTS_SIZES - 1].rendezvous, REGX_PATH_COUNT);
    assert_false(l3[S64K].known || any[S8K].known || costs.best[REGX_NEIGHBOUR_L2][S8K].known);
}

UNIT_TEST(a_file_from_elsewhere_is_refused)
{
    assert_refused(read_text("regx-costs 1\n"), "line 1 is not \"regx-costs 2\"");
    assert_refused(read_text("regx-costs 2\nregx 0.0.9\n"),
                   "line 2 is not \"regx " PACKAGE_VERSION);
    assert_refused(read_text("regx-costs 2\nregx " PACKAGE_VERSION "\nprocessor Me 1 3\nend\n"),
                   "line 3 is not \"processor Me 1 2\"");
}

UNIT_TEST(lines_that_make_no_sense_are_refused)
{
    static const char *const lines[] = {
        "l3 8K - - - -",
        "l3 8K 10 20 30",
        "l3 8K 10 20 30 40 50",
        "l3 8K 10 20 30 -40",
        "l3 8K 10 20 30 0",
        "l3 8K 10 20 30 1e3",
        "l3 8K 10 20 30 nan",
        "l3 8K 10 20 30 1000000000001",
        "l3 8K 10 20 30 99999999999999999999999",
        "l3 12K 10 20 30 40",
        "l3 4K 10 20 30 40",
        "l3 16G 10 20 30 40",
        "l3 -8K 10 20 30 40",
        "l4 8K 10 20 30 40",
        "l3",
        "",
        " ",
        "any 64K 1 2 3 4", /* again */
        "end of it",
        "\x1b[31m",
    };

    for (unsigned i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        char text[256];

        snprintf(text, sizeof(text), HEAD "any 64K 1 2 3 4\n%s\nend\n", lines[i]);
        assert_refused(read_text(text), "line 5; allowed: ");
    }
}

/* At every byte. What ends with the word itself lacks its line's end alone. */
UNIT_TEST(a_file_that_was_cut_is_refused)
{
    static const char text[] = HEAD "l2 8K 10 20 30 40\nany 64K 100 200 300 400\nend\n";

    for (size_t length = 0; length < sizeof(text) - 2; length++) {
        write_file(text, length);
        assert_refused(regx_costs_read(name, "Me 1 2", &costs, error), "");
    }
    write_file(text, sizeof(text) - 2);
    assert_true(regx_costs_read(name, "Me 1 2", &costs, error));
    write_file(text, sizeof(text)); /* a zero behind it */
    assert_true(regx_costs_read(name, "Me 1 2", &costs, error));
}

UNIT_TEST(what_is_no_file_is_refused)
{
    remove(name);
    assert_refused(regx_costs_read(name, "Me 1 2", &costs, error), "No such file");
    assert_refused(regx_costs_read("/tmp", "Me 1 2", &costs, error), "no regular file");
    assert_refused(regx_costs_read("/dev/zero", "Me 1 2", &costs, error), "no regular file");
    assert_int_equal(mkfifo(name, 0600), 0);
    assert_refused(regx_costs_read(name, "Me 1 2", &costs, error), "no regular file");
    remove(name);
}

UNIT_TEST(a_file_without_end_is_not_read)
{
    assert_true(read_text(HEAD "end\n"));
    assert_int_equal(truncate(name, (off_t)1 << 40), 0);
    assert_refused(regx_costs_read(name, "Me 1 2", &costs, error), "longer than 64 KiB");
    assert_int_equal(truncate(name, 65537), 0);
    assert_refused(regx_costs_read(name, "Me 1 2", &costs, error), "longer than 64 KiB");
    assert_int_equal(truncate(name, 65536), 0);
    assert_true(regx_costs_read(name, "Me 1 2", &costs, error));
}

/* ---- what the tuners are told ---- */

static regx_path_t told[REGX_COSTS_SIZES];

UNIT_WRAP(void, regx_rndv_tell, regx_rndv_t *rndv, uint64_t length, regx_path_t path)
{
    told[__builtin_ctzll(length / REGX_COSTS_SMALLEST)] = path;
}

UNIT_TEST(a_neighbour_without_lines_is_any)
{
    size_t limit = REGX_EAGER_MAX;
    regx_eager_t eager;

    assert_true(read_text(HEAD "l3 8K 20 30 40 10\n"
                               "any 8K 10 20 30 40\n"
                               "any 16K - 20 30 10\n" /* eager may be faster */
                               "any 64K - 20 30 10\n"
                               "end\n"));
    regx_eager_init(&eager, &limit, true);
    regx_costs_tell(&costs, REGX_NEIGHBOUR_NODE, &eager, NULL);
    assert_int_equal(limit, REGX_EAGER_MAX);
    regx_costs_tell(&costs, REGX_NEIGHBOUR_L3, &eager, NULL);
    assert_int_equal(limit, REGX_EAGER_MIN + REGX_EAGER_HEADER);
    assert_int_equal(told[S16K], 0); /* there is one rendezvous */
    assert_int_equal(told[S64K], REGX_PATH_read);
}

const unit_group_t unit_group = {.setup = make, .teardown = take_away};

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * regx-check: runs a program with libregx-check.so preloaded, and says at the end what was found.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "check/check.h"

enum { FOUND = 3, USAGE = 2, NOT_FOUND = 127, NOT_RUN = 126 };

static FILE *json; /* NULL: not asked for */

/* Sets what the library is told. By its whole path if it is a file: the program may go elsewhere. */
static bool set(int option)
{
    char path[PATH_MAX], *end;

    switch (option) {
    case 'j': /* now, before the program has run for nothing */
        json = fopen(optarg, "we");
        if (json == NULL) {
            regx_check_say("--json=%s: %s", optarg, strerror(errno));
        }
        return json != NULL;
    case 's':
        return setenv(REGX_CHECK_STOP, "1", 1) == 0;
    case 'l':
        if (strtoull(optarg, &end, 10) - 1 >= REGX_CHECK_FAULTS || *end != '\0') {
            regx_check_say("--limit=%s: allowed: 1 to %d", optarg, REGX_CHECK_FAULTS);
            return false;
        }
        return setenv(REGX_CHECK_LIMIT, optarg, 1) == 0;
    case 'p':
        if (realpath(optarg, path) == NULL || access(path, R_OK) != 0) {
            regx_check_say("--suppress=%s: %s", optarg, strerror(errno));
            return false;
        }
        return setenv(REGX_CHECK_SUPPRESS, path, 1) == 0;
    default:
        regx_check_say("usage: regx-check [--json FILE] [--stop] [--limit N] [--suppress FILE] "
                       "COMMAND [ARGUMENT...]");
        return false;
    }
}

/* Beside this command, as in the tree that it is built in; else where it is installed. */
static bool preload(void)
{
    char path[PATH_MAX] = "/", list[2 * PATH_MAX];
    const char *library = path, *before = getenv("LD_PRELOAD");

    if (readlink("/proc/self/exe", path, sizeof(path) - 32) > 0) {
        strcpy(strrchr(path, '/') + 1, "libregx-check.so");
    }
    if (access(path, F_OK) != 0) {
        library = REGX_CHECK_LIBRARY;
    }
    if (access(library, R_OK) != 0) {
        regx_check_say("%s: %s", library, strerror(errno));
        return false;
    }
    snprintf(list, sizeof(list), "%s:%s", library, before != NULL ? before : "");
    return setenv("LD_PRELOAD", list, 1) == 0;
}

/* Named by this process's descriptor, so that it needs none of the program's. NULL: not to be had. */
static regx_check_sum_t *make_sum(void)
{
    const int fd = memfd_create("regx-check", MFD_CLOEXEC);
    regx_check_sum_t *sum = NULL;
    char path[64];
    bool shared;

    snprintf(path, sizeof(path), "/proc/%d/fd/%d", getpid(), fd);
    if (fd >= 0 && ftruncate(fd, sizeof(*sum)) == 0 && setenv(REGX_CHECK_SUM, path, 1) == 0) {
        sum = regx_check_sum_map(path, &shared);
    }
    if (sum == NULL) {
        regx_check_say("no memory for what is found: %s", strerror(errno));
    }
    return sum;
}

/* ---- the program ---- */

static pid_t child;

/* From a terminal the program gets it as well. */
static void forward(int number, siginfo_t *info, void *context)
{
    (void)context;
    if (info->si_code <= 0) {
        kill(child, number);
    }
}

/* Its wait status. */
static int run(char **arguments)
{
    static const int numbers[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGCONT};
    const struct sigaction action = {.sa_sigaction = forward, .sa_flags = SA_SIGINFO | SA_RESTART};
    const pid_t parent = getpid();
    sigset_t all, before;
    int status = NOT_RUN << 8;

    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    child = fork();
    if (child == 0) {
        sigprocmask(SIG_SETMASK, &before, NULL);
        /* Who ends this command means the program. */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == parent) {
            execvp(arguments[0], arguments);
            regx_check_say("%s: %s", arguments[0], strerror(errno));
        }
        _exit(errno == ENOENT ? NOT_FOUND : NOT_RUN);
    }
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        sigaction(numbers[i], &action, NULL);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return status;
}

/* ---- what is told ---- */

static void write_json(const regx_check_sum_t *sum, int status)
{
    const char *between = "";

    fprintf(json,
            "{\"status\": %d, \"processes\": %" PRIu64 ", \"devices\": %" PRIu64
            ", \"registrations\": %" PRIu64 ", \"postings\": %" PRIu64 ", \"unwatched\": %" PRIu64
            ", \"uncompared\": %" PRIu64 ", \"suppressed\": %" PRIu64 ", \"untold\": %" PRIu64
            ", \"faults\": [",
            status, sum->processes, sum->devices, sum->registrations, sum->postings, sum->unwatched,
            sum->unwitnessed,
            regx_check_sum_times(sum, REGX_CHECK_SUPPRESSED, 0, REGX_CHECK_REMOTE), sum->untold);
    for (int i = 0; i < REGX_CHECK_FAULTS; i++) {
        const regx_check_fault_t *fault = &sum->faults[i];

        if (fault->state == REGX_CHECK_TOLD) {
            fprintf(json,
                    "%s{\"times\": %" PRIu64
                    ", \"rank\": %d, \"process\": %d, \"address\": %" PRIu64
                    ", \"length\": %" PRIu64 ", \"verdict\": \"%s\"",
                    between, fault->times, fault->rank, fault->process, fault->start, fault->length,
                    regx_check_verdict_names[fault->verdict]);
            for (int j = 0; j < REGX_CHECK_EVENTS; j++) {
                fprintf(json, ", \"%s\": \"%s\"", regx_check_event_names[j], fault->text[j]);
            }
            fputc('}', json);
            between = ", ";
        }
    }
    fputs("]}\n", json);
    if (fclose(json) != 0) {
        regx_check_say("--json: %s", strerror(errno));
    }
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"json", required_argument, NULL, 'j'},
                                            {"stop", no_argument, NULL, 's'},
                                            {"limit", required_argument, NULL, 'l'},
                                            {"suppress", required_argument, NULL, 'p'},
                                            {0}};
    int option;

    while ((option = getopt_long(argc, argv, "+", options, NULL)) != -1) {
        if (!set(option)) {
            return USAGE;
        }
    }
    if (optind == argc) {
        set('?');
        return USAGE;
    }
    const regx_check_sum_t *sum = preload() ? make_sum() : NULL;
    if (sum == NULL) {
        return NOT_RUN;
    }
    const int waited = run(argv + optind);
    int status = WIFSIGNALED(waited) ? 128 + WTERMSIG(waited) : WEXITSTATUS(waited);

    if (sum->processes != 0 || (status != NOT_FOUND && status != NOT_RUN)) {
        regx_check_sum_print(sum);
    }
    if (regx_check_sum_used(sum) != 0 &&
        (waited == 0 || (WIFSIGNALED(waited) && getenv(REGX_CHECK_STOP) != NULL))) {
        status = FOUND;
    }
    if (json != NULL) {
        write_json(sum, status);
    }
    if (status > 128 && WIFSIGNALED(waited)) { /* ends as the program did */
        setrlimit(RLIMIT_CORE, &(struct rlimit){0});
        signal(WTERMSIG(waited), SIG_DFL);
        raise(WTERMSIG(waited));
    }
    return status;
}

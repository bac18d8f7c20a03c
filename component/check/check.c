/* SPDX-License-Identifier: BSD-3-Clause
 *
 * regx-check: runs a program with libregx-check.so preloaded, and says at the end what was found.
 */
#include "config.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check/check.h"

enum { FOUND = 3, USAGE = 2, NOT_FOUND = 127, NOT_RUN = 126 };

static const char usage[] =
    "[--json FILE] [--stop] [--limit N] [--suppress FILE] [--remote] COMMAND [ARGUMENT...]";

static const struct option options[] = {
    {"json", required_argument, NULL, 'j'},  {"stop", no_argument, NULL, 's'},
    {"limit", required_argument, NULL, 'l'}, {"suppress", required_argument, NULL, 'p'},
    {"remote", no_argument, NULL, 'r'},      {"version", no_argument, NULL, 'v'},
    {"help", no_argument, NULL, 'h'},        {0}};

static struct {
    const char *json;
    bool remote;
    bool ends; /* asked for its version or help */
} asked;

static bool refuse(const char *option, const char *given, const char *allowed)
{
    regx_check_say("%s=%s: %s", option, given, allowed);
    return false;
}

/* A file by its whole path: the program may go elsewhere. */
static bool set_path(const char *name, const char *option, const char *given)
{
    char path[PATH_MAX];

    if (realpath(given, path) == NULL || access(path, R_OK) != 0) {
        return refuse(option, given, strerror(errno));
    }
    return setenv(name, path, 1) == 0;
}

static bool set_option(int option)
{
    char *end;

    switch (option) {
    case 'j':
        asked.json = optarg;
        return true;
    case 's':
        return setenv(REGX_CHECK_STOP, "1", 1) == 0;
    case 'l':
        if (strtoull(optarg, &end, 10) - 1 >= REGX_CHECK_FAULTS || *end != '\0') {
            return refuse("--limit", optarg, "allowed: 1 to 256");
        }
        return setenv(REGX_CHECK_LIMIT, optarg, 1) == 0;
    case 'p':
        return set_path(REGX_CHECK_SUPPRESS, "--suppress", optarg);
    case 'r':
        asked.remote = true;
        return true;
    case 'v':
    case 'h':
        asked.ends = true;
        printf("regx-check %s\n", option == 'v' ? REGX_VERSION : usage);
        return true;
    default:
        regx_check_say("usage: regx-check %s", usage);
        return false;
    }
}

static bool parse(int argc, char **argv)
{
    int option;

    while ((option = getopt_long(argc, argv, "+", options, NULL)) != -1) {
        if (!set_option(option)) {
            return false;
        }
    }
    if (optind == argc && !asked.ends) {
        regx_check_say("usage: regx-check %s", usage);
        return false;
    }
    return true;
}

/* ---- the program ---- */

/* Where the shell would find it. */
static bool find(const char *command, char path[PATH_MAX])
{
    const char *at = getenv("PATH");

    snprintf(path, PATH_MAX, "%s", command);
    if (strchr(command, '/') != NULL || at == NULL) {
        return access(path, X_OK) == 0;
    }
    for (;; at++) {
        const int length = (int)strcspn(at, ":");
        struct stat status;

        snprintf(path, PATH_MAX, "%.*s/%s", length, length != 0 ? at : ".", command);
        if (access(path, X_OK) == 0 && stat(path, &status) == 0 && S_ISREG(status.st_mode)) {
            return true;
        }
        at += length;
        if (*at == '\0') {
            return false;
        }
    }
}

/* A program without a loader cannot have anything preloaded. */
static bool is_static(const char *path)
{
    Elf64_Ehdr header = {0};
    Elf64_Phdr segment;
    bool loaded = false;
    FILE *file = fopen(path, "re");

    if (file == NULL || fread(&header, sizeof(header), 1, file) != 1 ||
        memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64) {
        loaded = true; /* a script, or unknown */
    }
    for (int i = 0; !loaded && i < header.e_phnum; i++) {
        loaded = fseek(file, (long)header.e_phoff + i * header.e_phentsize, SEEK_SET) == 0 &&
                 fread(&segment, sizeof(segment), 1, file) == 1 && segment.p_type == PT_INTERP;
    }
    if (file != NULL) {
        fclose(file);
    }
    return !loaded;
}

static void tell_what_is_not_followed(const char *path)
{
    struct stat status = {0};

    if (stat(path, &status) == 0 && (status.st_mode & (S_ISUID | S_ISGID)) != 0 && geteuid() != 0) {
        regx_check_say(
            "%s is set-uid or set-gid, so nothing is preloaded into it: it is not followed", path);
    } else if (is_static(path)) {
        regx_check_say("%s is static, so nothing is preloaded into it: it is not followed", path);
    }
}

/* Beside this command, as in the tree that it is built in; else where it is installed. */
static bool preload(void)
{
    char path[PATH_MAX], list[2 * PATH_MAX];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 32);
    const char *before = getenv("LD_PRELOAD");

    path[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(path, '/');
    strcpy(slash != NULL ? slash + 1 : path, "libregx-check.so");
    if (access(path, R_OK) != 0) {
        strcpy(path, REGX_CHECK_LIBRARY);
    }
    if (access(path, R_OK) != 0) {
        regx_check_say("%s: %s", path, strerror(errno));
        return false;
    }
    snprintf(list, sizeof(list), "%s%s%s", path, before != NULL ? ":" : "",
             before != NULL ? before : "");
    return setenv("LD_PRELOAD", list, 1) == 0;
}

/* Named by this process's descriptor, so that it needs none of the program's. */
static regx_check_sum_t *make_sum(void)
{
    const int fd = memfd_create("regx-check", MFD_CLOEXEC);
    char path[64];
    bool shared;

    snprintf(path, sizeof(path), "/proc/%d/fd/%d", getpid(), fd);
    if (fd < 0 || ftruncate(fd, sizeof(regx_check_sum_t)) != 0 ||
        setenv(REGX_CHECK_SUM, path, 1) != 0) {
        regx_check_say("no memory for what is found: %s", strerror(errno));
        return NULL;
    }
    regx_check_sum_t *sum = regx_check_sum_map(path, &shared);
    return shared ? sum : NULL;
}

static pid_t child;

/* From a terminal the program gets it as well. */
static void forward(int number, siginfo_t *info, void *context)
{
    (void)context;
    if (info->si_code <= 0) {
        kill(child, number);
    }
}

static void forward_all(void)
{
    static const int numbers[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGCONT};
    const struct sigaction action = {.sa_sigaction = forward, .sa_flags = SA_SIGINFO | SA_RESTART};

    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        sigaction(numbers[i], &action, NULL);
    }
}

/* Its wait status; -1: it was not begun. */
static int run(char **arguments)
{
    const pid_t parent = getpid();
    sigset_t all, before;
    int status;

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
    forward_all();
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (child < 0) {
        regx_check_say("%s: %s", arguments[0], strerror(errno));
        return -1;
    }
    while (waitpid(child, &status, 0) < 0) {
        if (errno != EINTR) {
            return -1;
        }
    }
    return status;
}

/* ---- what is told ---- */

static void write_text(FILE *file, const char *name, const char *text)
{
    fprintf(file, ", \"%s\": \"", name);
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\' || (unsigned char)*text < ' ') {
            fprintf(file, "\\u%04x", (unsigned)(unsigned char)*text);
        } else {
            fputc(*text, file);
        }
    }
    fputc('"', file);
}

static void write_fault(FILE *file, const regx_check_fault_t *fault)
{
    fprintf(file,
            "{\"times\": %" PRIu64 ", \"rank\": %d, \"process\": %d, \"address\": %" PRIu64
            ", \"length\": %" PRIu64,
            fault->times, fault->rank, fault->process, fault->start, fault->length);
    write_text(file, "verdict", regx_check_verdict_name(fault->verdict));
    write_text(file, "registered", fault->registered);
    write_text(file, "changed", fault->changed);
    write_text(file, "used", fault->used);
    fputc('}', file);
}

static void write_json(const char *path, const regx_check_sum_t *sum, int status)
{
    FILE *file = fopen(path, "we");
    const char *between = "";

    if (file == NULL) {
        refuse("--json", path, strerror(errno));
        return;
    }
    fprintf(file,
            "{\"status\": %d, \"processes\": %" PRIu64 ", \"devices\": %" PRIu64
            ", \"registrations\": %" PRIu64 ", \"postings\": %" PRIu64 ", \"unwatched\": %" PRIu64
            ", \"uncompared\": %" PRIu64 ", \"suppressed\": %" PRIu64 ", \"untold\": %" PRIu64
            ", \"faults\": [",
            status, sum->processes, sum->devices, sum->registrations, sum->postings, sum->unwatched,
            sum->unwitnessed, sum->suppressed, sum->untold);
    for (int i = 0; i < REGX_CHECK_FAULTS; i++) {
        if (sum->faults[i].whole != 0) {
            fputs(between, file);
            write_fault(file, &sum->faults[i]);
            between = ", ";
        }
    }
    fputs("]}\n", file);
    fclose(file);
}

static int status_of(const regx_check_sum_t *sum, int waited)
{
    const bool found =
        regx_check_sum_used(sum) != 0 || (asked.remote && sum->found[REGX_CHECK_REMOTE] != 0);

    if (found && (waited == 0 || (WIFSIGNALED(waited) && getenv(REGX_CHECK_STOP) != NULL))) {
        return FOUND;
    }
    return WIFSIGNALED(waited) ? 128 + WTERMSIG(waited) : WEXITSTATUS(waited);
}

int main(int argc, char **argv)
{
    char path[PATH_MAX];

    if (!parse(argc, argv)) {
        return USAGE;
    }
    if (asked.ends) {
        return 0;
    }
    if (!find(argv[optind], path)) {
        regx_check_say("%s: no such command", argv[optind]);
        return NOT_FOUND;
    }
    /* Before the program has run for nothing. */
    const int json =
        asked.json != NULL ? open(asked.json, O_WRONLY | O_CREAT | O_CLOEXEC, 0666) : -1;
    if (asked.json != NULL && json < 0) {
        refuse("--json", asked.json, strerror(errno));
        return USAGE;
    }
    close(json);
    regx_check_sum_t *sum = preload() ? make_sum() : NULL;
    if (sum == NULL) {
        return NOT_RUN;
    }
    tell_what_is_not_followed(path);
    const int waited = run(argv + optind);
    if (waited < 0) {
        return NOT_RUN;
    }
    const int status = status_of(sum, waited);

    regx_check_sum_print(sum);
    if (asked.json != NULL) {
        write_json(asked.json, sum, status);
    }
    if (status > 128 && WIFSIGNALED(waited)) { /* ends as the program did */
        setrlimit(RLIMIT_CORE, &(struct rlimit){0});
        signal(WTERMSIG(waited), SIG_DFL);
        raise(WTERMSIG(waited));
    }
    return status;
}

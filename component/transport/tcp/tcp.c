/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Opening and closing of tcp.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "transport/tcp/tcp_internal.h"

/* Chooses among the devices of this machine. */
static regx_status_t choose_device(const regx_tcp_t *tcp, regx_tcp_device_t *device, char *error,
                                   size_t error_size)
{
    const regx_tcp_device_t *chosen = NULL;
    regx_tcp_device_t *devices = NULL;
    size_t count;
    regx_status_t status = regx_tcp_list_devices(&devices, &count);

    if (status != REGX_OK) {
        snprintf(error, error_size, "the network devices cannot be listed");
        return status == REGX_NO_MEMORY ? status : REGX_UNREACHABLE;
    }
    status = regx_tcp_choose_device(devices, count, tcp->config.if_include, tcp->config.if_exclude,
                                    &chosen, error, error_size);
    if (status == REGX_OK) {
        *device = *chosen;
    }
    free(devices);
    return status;
}

static uint64_t mix(uint64_t number, const void *bytes, size_t length)
{
    const uint8_t *at = bytes;

    for (size_t i = 0; i < length; i++) {
        number = (number ^ at[i]) * UINT64_C(0x100000001b3); /* FNV-1a */
    }
    return number;
}

/* A number that processes have in common if one's loopback reaches the other: of this boot of this
 * kernel, and of the network namespace. Never 0. */
static uint64_t identify_host(void)
{
    uint64_t number = UINT64_C(0xcbf29ce484222325);
    const int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    struct stat network;
    char boot[64];

    if (file >= 0) {
        const ssize_t length = read(file, boot, sizeof(boot));

        number = mix(number, boot, length > 0 ? (size_t)length : 0);
        close(file);
    }
    if (stat("/proc/self/ns/net", &network) == 0) {
        number = mix(number, &network.st_ino, sizeof(network.st_ino));
    }
    return number | 1;
}

/* What nobody guesses; without the kernel's help, what nobody meets by mistake. */
static uint64_t make_token(const regx_tcp_t *tcp)
{
    uint64_t token;
    struct timespec now;

    if (getrandom(&token, sizeof(token), GRND_NONBLOCK) == (ssize_t)sizeof(token)) {
        return token;
    }
    clock_gettime(CLOCK_REALTIME, &now);
    return mix(mix(tcp->config.self, &now, sizeof(now)), &tcp, sizeof(const regx_tcp_t *));
}

static regx_status_t make_pool(regx_tcp_t *tcp)
{
    tcp->super.pool_size = tcp->config.pool_size;
    tcp->super.pool_memory = tcp->config.pool_memory;
    if (tcp->super.pool_memory != NULL) {
        return REGX_OK;
    }
    tcp->own_pool = mmap(NULL, tcp->super.pool_size, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (tcp->own_pool == MAP_FAILED) {
        tcp->own_pool = NULL;
        return REGX_NO_MEMORY;
    }
    tcp->super.pool_memory = tcp->own_pool;
    return REGX_OK;
}

static regx_status_t open_device(regx_tcp_t *tcp, char *error, size_t error_size)
{
    regx_tcp_device_t device;
    regx_status_t status = choose_device(tcp, &device, error, error_size);

    if (status != REGX_OK) {
        return status;
    }
    if (regx_tcp_device_address(&device, &tcp->at, &tcp->at_length) != REGX_OK ||
        regx_tcp_listen(tcp) != REGX_OK) {
        snprintf(error, error_size, "tcp cannot listen on %s: %s", device.name, strerror(errno));
        return REGX_UNREACHABLE;
    }
    tcp->host = device.loopback ? identify_host() : 0;
    tcp->token = make_token(tcp);
    tcp->incoming = malloc(REGX_TCP_STAGING);
    tcp->outgoing = malloc(REGX_TCP_MESSAGE_MAX);
    if (tcp->incoming == NULL || tcp->outgoing == NULL) {
        snprintf(error, error_size, "out of memory");
        return REGX_NO_MEMORY;
    }
    return REGX_OK;
}

static void close_descriptor(int descriptor)
{
    if (descriptor >= 0) {
        close(descriptor);
    }
}

static void tcp_close(regx_transport_t *transport)
{
    regx_tcp_t *tcp = regx_tcp_of(transport);

    regx_tcp_watch_stop(&tcp->watch);
    while (tcp->closing != NULL) {
        if (!regx_tcp_poll(tcp, true)) {
            sched_yield();
        }
        regx_tcp_reap(tcp);
        regx_tcp_sweep(tcp);
    }
    for (regx_tcp_link_t *link = tcp->links; link != NULL; link = link->next) {
        regx_tcp_link_end(link);
    }
    regx_tcp_sweep(tcp);
    if (tcp->listener >= 0) {
        (void)shutdown(tcp->listener, SHUT_RDWR); /* also a forked child's */
    }
    close_descriptor(tcp->listener);
    if (tcp->newcomer >= 0) {
        (void)shutdown(tcp->newcomer, SHUT_RDWR); /* likewise */
    }
    close_descriptor(tcp->newcomer);
    close_descriptor(tcp->epoll);
    if (tcp->own_pool != NULL) {
        munmap(tcp->own_pool, tcp->super.pool_size);
    }
    regx_try_lock_fini(&tcp->try_lock);
    free(tcp->incoming);
    free(tcp->outgoing);
    free(tcp);
}

static regx_status_t tcp_open(const regx_transport_config_t *config, char *error, size_t error_size,
                              regx_transport_t **transport)
{
    regx_tcp_t *tcp = calloc(1, sizeof(*tcp));
    regx_status_t status;

    snprintf(error, error_size, "out of memory");
    if (tcp == NULL) {
        return REGX_NO_MEMORY;
    }
    tcp->config = *config;
    tcp->pace.quiet_ns = REGX_TCP_IDLE_NS;
    tcp->no_answer.quiet_ns = REGX_TCP_NO_ANSWER_LOOK_NS;
    tcp->epoll = tcp->listener = tcp->newcomer = -1;
    regx_try_lock_init(&tcp->try_lock, config->threads);
    tcp->super.ops = &regx_tcp_ops;
    tcp->super.front = &tcp->super;
    tcp->super.max_frame = REGX_TCP_DATA_MAX;
    tcp->super.wires = "tcp";
    atomic_init(&tcp->super.unused, true);
    status = make_pool(tcp);
    if (status == REGX_OK) {
        status = open_device(tcp, error, error_size);
    }
    if (status != REGX_OK) {
        if (status != REGX_INVALID) {
            regx_transport_fall_back(config, REGX_TRACE_CHOICE, "tcp: cannot be opened");
        }
        tcp_close(&tcp->super);
        return status;
    }
    *transport = &tcp->super;
    return REGX_OK;
}

const regx_transport_ops_t regx_tcp_ops = {.abi = REGX_TRANSPORT_ABI,
                                           .name = "tcp",
                                           .open = tcp_open,
                                           .close = tcp_close,
                                           .address = regx_tcp_address,
                                           .connect = regx_tcp_connect,
                                           .disconnect = regx_tcp_disconnect,
                                           .reachable = regx_tcp_reachable,
                                           .send = regx_tcp_send,
                                           .send_zcopy = regx_tcp_send_zcopy,
                                           .put = regx_tcp_put,
                                           .progress = regx_tcp_progress};

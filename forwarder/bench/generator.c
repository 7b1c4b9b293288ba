// SPDX-License-Identifier: Apache-2.0
//
// The generator of bench/peers and bench/hostile, the program that only redirects, and the receiver. Each attaches to
// interfaces of the network namespace that it runs in, and does what lines on standard input say until that ends:
//
//     generator send INTERFACE SOURCE-MAC TARGET-MAC DESTINATIONS
//     generator flood INTERFACE FRAMES
//         "LENGTH RATE MILLISECONDS" → "SENT NANOSECONDS"; rate in frames/s, 0 for as many as go
//     generator redirect FROM TO
//     generator receive INTERFACE
//         "" → "PACKETS ROUTED NANOSECONDS"; a running count and the time of CLOCK_MONOTONIC
//
// DESTINATIONS is a file of struct generator_destination, FRAMES one of struct generator_frame, with a power of two of
// them. Each says "ready" when it is.
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_link.h>
#include <linux/types.h>
#include <net/if.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "bench/generator.h"
#include "generator.skel.h"

enum { BATCH = 64, LINE = 128 }; // frames that the kernel makes before it flushes; octets

static void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

static void fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("generator: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

static __u64 now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (__u64)now.tv_sec * 1000000000u + (__u64)now.tv_nsec;
}

static __u32 interface_index(const char *name)
{
    __u32 index = if_nametoindex(name);
    if (index == 0)
        fail("%s: %s", name, strerror(errno));
    return index;
}

static void parse_mac(const char *text, __u8 mac[6])
{
    if (sscanf(text, "%hhx:%hhx:%hhx:%hhx:%hhx:%hhx", &mac[0], &mac[1], &mac[2], &mac[3], &mac[4], &mac[5]) != 6)
        fail("%s is no MAC", text);
}

static void set_out(struct generator_bpf *programs, const char *interface)
{
    __u32 zero = 0, index = interface_index(interface);
    if (bpf_map_update_elem(bpf_map__fd(programs->maps.out), &zero, &index, 0))
        fail("%s: %s", interface, strerror(errno));
}

// Attach in the driver; the link goes with the process.
static void attach(struct bpf_program *program, const char *interface)
{
    LIBBPF_OPTS(bpf_link_create_opts, options, .flags = XDP_FLAGS_DRV_MODE);
    int program_fd = bpf_program__fd(program);
    if (bpf_link_create(program_fd, (int)interface_index(interface), BPF_XDP, &options) < 0)
        fail("XDP on %s: %s", interface, strerror(errno));
}

static bool next_line(char line[LINE])
{
    return fgets(line, LINE, stdin) != NULL;
}

static void say_ready(void)
{
    puts("ready");
    fflush(stdout);
}

// -- send -----------------------------------------------------------------------------------------------------------

// Read a file into a map, as many values as it holds.
static void read_values(struct generator_bpf *programs, struct bpf_map *map, const char *path)
{
    const size_t each = bpf_map__value_size(map), most = bpf_map__max_entries(map);
    void *array = mmap(NULL, each * most, PROT_READ | PROT_WRITE, MAP_SHARED, bpf_map__fd(map), 0);
    if (array == MAP_FAILED)
        fail("mmap: %s", strerror(errno));
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        fail("%s: %s", path, strerror(errno));
    size_t count = fread(array, each, most, file);
    fclose(file);
    munmap(array, each * most);
    if (count == 0 || (count & (count - 1)) != 0)
        fail("%s holds %zu %s, which is no power of two", path, count, bpf_map__name(map));
    programs->bss->settings.mask = (__u32)count - 1;
}

static __u32 header_sum(__be32 source_address)
{
    __u32 sum = htons(0x4500) + htons(GENERATOR_TTL << 8 | IPPROTO_UDP);
    return sum + (source_address & 0xffff) + (source_address >> 16);
}

static void wake(int signal_number)
{
    (void)signal_number; // BPF_PROG_TEST_RUN ends with EINTR
}

static void send_for(struct generator_bpf *programs, struct bpf_program *maker, unsigned length, unsigned long rate,
                     unsigned milliseconds)
{
    static __u8 frame[2048];
    struct generator_settings *settings = &programs->bss->settings;
    struct generator_state *state = &programs->bss->state;
    settings->length = length;
    settings->interval = rate == 0 ? 0 : (1000000000ull << 10) / rate;
    __u64 start = now_ns();
    *state = (struct generator_state){.due = start << 10, .next = state->next};

    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
    struct itimerspec wait = {.it_value = {.tv_sec = milliseconds / 1000, .tv_nsec = milliseconds % 1000 * 1000000L}};
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) || timer_settime(timer, 0, &wait, NULL))
        fail("timer: %s", strerror(errno));
    __u64 end = start + milliseconds * 1000000ull;
    while (now_ns() < end) {
        LIBBPF_OPTS(bpf_test_run_opts, options, .data_in = frame, .data_size_in = length, .repeat = 1 << 30,
                    .flags = BPF_F_TEST_XDP_LIVE_FRAMES, .batch_size = BATCH);
        if (bpf_prog_test_run_opts(bpf_program__fd(maker), &options) && errno != EINTR)
            fail("BPF_PROG_TEST_RUN: %s", strerror(errno));
    }
    // Making the first frames and giving back the last takes milliseconds, which are no part of a rate.
    __u64 took = rate == 0 ? now_ns() - start : state->last_ns - state->first_ns;
    timer_delete(timer);
    printf("%llu %llu\n", (unsigned long long)state->sent, (unsigned long long)took);
    fflush(stdout);
}

// Send what a program makes, as lines say.
static void send_as_told(struct generator_bpf *programs, struct bpf_program *maker)
{
    struct sigaction action = {.sa_handler = wake};
    sigaction(SIGALRM, &action, NULL);
    say_ready();
    for (char line[LINE]; next_line(line);) {
        unsigned length, milliseconds;
        unsigned long rate;
        if (sscanf(line, "%u %lu %u", &length, &rate, &milliseconds) != 3 || length < 60 || length > 1518)
            fail("%s is not a length of 60 to 1518, a rate and milliseconds", line);
        send_for(programs, maker, length, rate, milliseconds);
    }
}

static void send_packets(struct generator_bpf *programs, char *const arguments[])
{
    struct generator_settings *settings = &programs->bss->settings;
    set_out(programs, arguments[0]);
    parse_mac(arguments[1], settings->source);
    parse_mac(arguments[2], settings->target);
    read_values(programs, programs->maps.destinations, arguments[3]);
    settings->source_address = htonl(0xc6120002); // 198.18.0.2: RFC 2544, appendix C.2.2
    settings->sum = header_sum(settings->source_address);
    send_as_told(programs, programs->progs.generate);
}

static void flood(struct generator_bpf *programs, char *const arguments[])
{
    set_out(programs, arguments[0]);
    read_values(programs, programs->maps.frames, arguments[1]);
    send_as_told(programs, programs->progs.flood);
}

// -- redirect, receive ----------------------------------------------------------------------------------------------

static void redirect(struct generator_bpf *programs, char *const arguments[])
{
    set_out(programs, arguments[1]);
    attach(programs->progs.redirect, arguments[0]);
    say_ready();
    for (char line[LINE]; next_line(line);) {
    }
}

static void count(struct generator_bpf *programs)
{
    const int cpus = libbpf_num_possible_cpus();
    struct generator_count counts[cpus], total = {0};
    __u32 zero = 0;
    if (bpf_map_lookup_elem(bpf_map__fd(programs->maps.counts), &zero, counts))
        fail("counts: %s", strerror(errno));
    __u64 now = now_ns();
    for (int cpu = 0; cpu < cpus; cpu++) {
        total.packets += counts[cpu].packets;
        total.routed += counts[cpu].routed;
    }
    printf("%llu %llu %llu\n", (unsigned long long)total.packets, (unsigned long long)total.routed,
           (unsigned long long)now);
    fflush(stdout);
}

static void receive(struct generator_bpf *programs, char *const arguments[])
{
    attach(programs->progs.receive, arguments[0]);
    say_ready();
    for (char line[LINE]; next_line(line);)
        count(programs);
}

int main(int argc, char *argv[])
{
    static const struct {
        const char *name;
        int arguments;
        void (*run)(struct generator_bpf *, char *const[]);
    } commands[] = {
        {"send", 4, send_packets}, {"flood", 2, flood}, {"redirect", 2, redirect}, {"receive", 1, receive}};

    for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++) {
        if (argc < 2 || strcmp(argv[1], commands[i].name) != 0 || argc != commands[i].arguments + 2)
            continue;
        struct generator_bpf *programs = generator_bpf__open_and_load();
        if (programs == NULL)
            fail("the BPF programs do not load: %s", strerror(errno));
        commands[i].run(programs, argv + 2);
        generator_bpf__destroy(programs);
        return 0;
    }
    fail("send INTERFACE SOURCE TARGET DESTINATIONS | flood INTERFACE FRAMES | redirect FROM TO | receive INTERFACE");
}

// SPDX-License-Identifier: Apache-2.0
//
// The generator of bench/peers, bench/hostile and bench/fairness, the program that only redirects, and the receiver.
// Each attaches to interfaces of the network namespace that it runs in, and does what lines on standard input say until
// that ends:
//
//     generator send INTERFACE SOURCE-MAC TARGET-MAC DESTINATIONS
//     generator flood INTERFACE FRAMES
//         "LENGTH RATE MILLISECONDS" → "SENT NANOSECONDS"; rate in frames/s, 0 for as many as go
//     generator offer SOURCE-MAC TARGET-MAC DESTINATIONS COUNTS INTERFACE…
//         "LENGTH BEGIN PHASE…" → "SENT"; BEGIN on CLOCK_MONOTONIC, in nanoseconds, each PHASE "MILLISECONDS RATE
//         FIRST COUNT", with the destinations that it goes to; a destination says which interface
//     generator redirect FROM TO
//     generator receive INTERFACE
//         "" → "PACKETS ROUTED NANOSECONDS"; a running count and the time of CLOCK_MONOTONIC
//     generator observe INTERFACE COUNTS
//         "MEASURED" → "begun": forget what was counted, count how long packets were under way that are sent from
//         MEASURED on
//         "" → "written"
//     generator slow INTERFACE
//         "STEPS" → "slowed": for each frame that XDP sends by it, its core goes so many steps of a loop
//
// COUNTS is a file that is written: packets by window and router, and, of who observes, then packets by router and
// wait, each a __u32. DESTINATIONS is a file of struct generator_destination, FRAMES one of struct generator_frame; with
// a power of two of them, but for an offer. Each says "ready" when it is.
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
#include <sys/stat.h>
#include <time.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "bench/generator.h"
#include "generator.skel.h"

enum { BATCH = 64, LINE = 512 }; // frames that the kernel makes before it flushes; octets

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

static void set_entrance(struct generator_bpf *programs, __u32 number, const char *interface)
{
    __u32 index = interface_index(interface);
    if (bpf_map_update_elem(bpf_map__fd(programs->maps.out), &number, &index, 0))
        fail("%s: %s", interface, strerror(errno));
}

static void set_out(struct generator_bpf *programs, const char *interface)
{
    set_entrance(programs, 0, interface);
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

// Read a file into a map, as many values as it holds; returns how many.
static size_t read_values(struct bpf_map *map, const char *path)
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
    if (count == 0)
        fail("%s holds no %s", path, bpf_map__name(map));
    return count;
}

static void read_all(struct generator_bpf *programs, struct bpf_map *map, const char *path)
{
    const size_t count = read_values(map, path);
    if ((count & (count - 1)) != 0)
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

static __u64 interval_of(unsigned long rate)
{
    return rate == 0 ? 0 : (1000000000ull << 10) / rate;
}

// Run a program that makes frames of a length until a time.
static void make_until(struct bpf_program *maker, unsigned length, __u64 end)
{
    static __u8 frame[2048];
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
    struct timespec when = {.tv_sec = (time_t)(end / 1000000000u), .tv_nsec = (long)(end % 1000000000u)};
    struct itimerspec wait = {.it_value = when};
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) || timer_settime(timer, TIMER_ABSTIME, &wait, NULL))
        fail("timer: %s", strerror(errno));
    while (now_ns() < end) {
        LIBBPF_OPTS(bpf_test_run_opts, options, .data_in = frame, .data_size_in = length, .repeat = 1 << 30,
                    .flags = BPF_F_TEST_XDP_LIVE_FRAMES, .batch_size = BATCH);
        if (bpf_prog_test_run_opts(bpf_program__fd(maker), &options) && errno != EINTR)
            fail("BPF_PROG_TEST_RUN: %s", strerror(errno));
    }
    timer_delete(timer);
}

static void send_for(struct generator_bpf *programs, struct bpf_program *maker, unsigned length, unsigned long rate,
                     unsigned milliseconds)
{
    struct generator_settings *settings = &programs->bss->settings;
    struct generator_state *state = &programs->bss->state;
    settings->length = length;
    settings->interval = interval_of(rate);
    __u64 start = now_ns();
    *state = (struct generator_state){.due = start << 10, .next = state->next};
    make_until(maker, length, start + milliseconds * 1000000ull);
    // Making the first frames and giving back the last takes milliseconds, which are no part of a rate.
    __u64 took = rate == 0 ? now_ns() - start : state->last_ns - state->first_ns;
    printf("%llu %llu\n", (unsigned long long)state->sent, (unsigned long long)took);
    fflush(stdout);
}

static void wake_at_alarms(void)
{
    struct sigaction action = {.sa_handler = wake};
    sigaction(SIGALRM, &action, NULL);
}

// Send what a program makes, as lines say.
static void send_as_told(struct generator_bpf *programs, struct bpf_program *maker)
{
    wake_at_alarms();
    say_ready();
    for (char line[LINE]; next_line(line);) {
        unsigned length, milliseconds;
        unsigned long rate;
        if (sscanf(line, "%u %lu %u", &length, &rate, &milliseconds) != 3 || length < 60 || length > 1518)
            fail("%s is not a length of 60 to 1518, a rate and milliseconds", line);
        send_for(programs, maker, length, rate, milliseconds);
    }
}

// SOURCE-MAC TARGET-MAC
static void set_packets(struct generator_bpf *programs, char *const arguments[])
{
    struct generator_settings *settings = &programs->bss->settings;
    parse_mac(arguments[0], settings->source);
    parse_mac(arguments[1], settings->target);
    settings->source_address = htonl(0xc6120002); // 198.18.0.2: RFC 2544, appendix C.2.2
    settings->sum = header_sum(settings->source_address);
}

static void send_packets(struct generator_bpf *programs, char *const arguments[])
{
    set_out(programs, arguments[0]);
    set_packets(programs, arguments + 1);
    read_all(programs, programs->maps.destinations, arguments[3]);
    send_as_told(programs, programs->progs.generate);
}

static void flood(struct generator_bpf *programs, char *const arguments[])
{
    set_out(programs, arguments[0]);
    read_all(programs, programs->maps.frames, arguments[1]);
    send_as_told(programs, programs->progs.flood);
}

// -- offer -----------------------------------------------------------------------------------------------------------

static void forget_counts(struct generator_bpf *programs)
{
    memset(programs->bss->windows, 0, sizeof(programs->bss->windows));
    memset(programs->bss->waits, 0, sizeof(programs->bss->waits));
}

static void write_counts(const char *path, const struct generator_bpf *programs, bool observed)
{
    const size_t octets = observed ? sizeof(programs->bss->waits) : 0;
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(programs->bss->windows, sizeof(programs->bss->windows), 1, file) != 1 ||
        (octets != 0 && fwrite(programs->bss->waits, octets, 1, file) != 1) || fclose(file))
        fail("%s: %s", path, strerror(errno));
}

// Take the phases of a line that begin at a time; returns the last one's end.
static __u64 take_phases(struct generator_bpf *programs, const char *words, __u64 begin)
{
    unsigned milliseconds, first, count;
    unsigned long rate;
    __u32 phases = 0;
    int taken;
    for (; sscanf(words, "%u %lu %u %u%n", &milliseconds, &rate, &first, &count, &taken) == 4; words += taken) {
        if (phases == GENERATOR_PHASES || count == 0 || (count & (count - 1)) != 0 ||
            first + count > GENERATOR_DESTINATIONS)
            fail("phase %u is one too many, or its destinations are no power of two of those that there are", phases);
        begin += milliseconds * 1000000ull;
        programs->bss->phases[phases++] = (struct generator_phase){
            .until_ns = begin, .interval = interval_of(rate), .first = first, .mask = count - 1};
    }
    if (phases == 0)
        fail("%s has no phase", words);
    programs->bss->settings.phases = phases;
    return begin;
}

static void offer(struct generator_bpf *programs, char *const arguments[])
{
    set_packets(programs, arguments);
    read_values(programs->maps.destinations, arguments[2]);
    for (__u32 number = 0; arguments[4 + number] != NULL; number++)
        set_entrance(programs, number, arguments[4 + number]);
    wake_at_alarms();
    say_ready();
    for (char line[LINE]; next_line(line);) {
        unsigned length;
        unsigned long long begin;
        int taken;
        if (sscanf(line, "%u %llu%n", &length, &begin, &taken) != 2 || length < 60 || length > 1518)
            fail("%s is not a length of 60 to 1518, a time and phases", line);
        struct generator_state *state = &programs->bss->state;
        *state = (struct generator_state){
            .due = begin << 10, .next = state->next, .window_end_ns = begin + GENERATOR_WINDOW_NS};
        programs->bss->settings.begin_ns = begin;
        programs->bss->settings.length = length;
        forget_counts(programs);
        make_until(programs->progs.offer, length, take_phases(programs, line + taken, begin));
        write_counts(arguments[3], programs, false);
        printf("%llu\n", (unsigned long long)programs->bss->state.sent);
        fflush(stdout);
    }
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

static void observe(struct generator_bpf *programs, char *const arguments[])
{
    attach(programs->progs.observe, arguments[0]);
    say_ready();
    for (char line[LINE]; next_line(line);) {
        unsigned long long measured;
        if (sscanf(line, "%llu", &measured) == 1) {
            programs->bss->settings.measured_ns = measured;
            forget_counts(programs);
            puts("begun");
        } else {
            write_counts(arguments[1], programs, true);
            puts("written");
        }
        fflush(stdout);
    }
}

// -- slow ------------------------------------------------------------------------------------------------------------

static void slow(struct generator_bpf *programs, char *const arguments[])
{
    struct generator_settings *settings = &programs->bss->settings;
    struct stat namespace;
    settings->slowed = interface_index(arguments[0]);
    if (stat("/proc/self/ns/net", &namespace))
        fail("/proc/self/ns/net: %s", strerror(errno));
    settings->namespace_inode = (__u32)namespace.st_ino;
    if (bpf_program__attach(programs->progs.slow) == NULL)
        fail("the tracepoint xdp_devmap_xmit: %s", strerror(errno));
    say_ready();
    for (char line[LINE]; next_line(line);) {
        unsigned steps;
        if (sscanf(line, "%u", &steps) != 1 || steps > GENERATOR_MOST_STEPS)
            fail("%s is not a number of steps, at most %u", line, GENERATOR_MOST_STEPS);
        settings->steps = steps;
        puts("slowed");
        fflush(stdout);
    }
}

int main(int argc, char *argv[])
{
    static const struct {
        const char *name;
        int least, most; // arguments
        void (*run)(struct generator_bpf *, char *const[]);
    } commands[] = {
        {"send", 4, 4, send_packets},       {"offer", 5, 4 + GENERATOR_ENTRANCES, offer},
        {"flood", 2, 2, flood},             {"redirect", 2, 2, redirect},
        {"receive", 1, 1, receive},         {"observe", 2, 2, observe},
        {"slow", 1, 1, slow}};

    for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++) {
        if (argc < 2 || strcmp(argv[1], commands[i].name) != 0 || argc < commands[i].least + 2 ||
            argc > commands[i].most + 2)
            continue;
        struct generator_bpf *programs = generator_bpf__open();
        if (programs == NULL)
            fail("the BPF programs do not open: %s", strerror(errno));
        bpf_program__set_autoload(programs->progs.slow, commands[i].run == slow); // it asks for the kernel's BTF
        if (generator_bpf__load(programs))
            fail("the BPF programs do not load: %s", strerror(errno));
        commands[i].run(programs, argv + 2);
        generator_bpf__destroy(programs);
        return 0;
    }
    fail("send INTERFACE SOURCE TARGET DESTINATIONS | flood INTERFACE FRAMES | offer SOURCE TARGET DESTINATIONS COUNTS "
         "INTERFACE… | redirect FROM TO | receive INTERFACE | observe INTERFACE COUNTS | slow INTERFACE");
}

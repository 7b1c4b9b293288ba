// SPDX-License-Identifier: Apache-2.0
//
// Reads and writes at random over much memory, as a control plane with large tables does, only more so:
//
//     random_access MIB SECONDS → "begun" once all of the memory is there; "ACCESSES" when the time has passed
//
// An access reads one word, in a random cache line, and writes another.
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

enum { BETWEEN_LOOKS = 4096, LINE = 64 }; // accesses; octets

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

// xorshift64* (Marsaglia; Vigna): a few cycles, so that it is memory that is waited for.
static unsigned long long next(unsigned long long *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 0x2545f4914f6cdd1dull;
}

int main(int argc, char *argv[])
{
    const size_t octets = argc == 3 ? strtoul(argv[1], NULL, 10) << 20 : 0, lines = octets / LINE;
    if (octets == 0) {
        fputs("random_access: usage: random_access MIB SECONDS\n", stderr);
        return 2;
    }
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE;
    volatile unsigned long long *words = mmap(NULL, octets, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (words == MAP_FAILED) {
        perror("random_access: mmap");
        return 1;
    }
    puts("begun");
    fflush(stdout);
    const size_t line = LINE / sizeof(*words);
    unsigned long long state = 1, accesses = 0, sum = 0;
    for (const double end = now_s() + strtod(argv[2], NULL); now_s() < end; accesses += BETWEEN_LOOKS) {
        for (int i = 0; i < BETWEEN_LOOKS; i++) {
            sum += words[next(&state) % lines * line];
            words[next(&state) % lines * line] = sum;
        }
    }
    printf("%llu\n", accesses);
    return 0;
}

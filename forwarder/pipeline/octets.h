/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers on the wire: read and written in network order, at any address.
 */
#ifndef SPLITPLANE_OCTETS_H
#define SPLITPLANE_OCTETS_H

#include "pipeline/layout.h"

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define sp_swap16(number) __builtin_bswap16(number)
#define sp_swap32(number) __builtin_bswap32(number)
#define sp_swap64(number) __builtin_bswap64(number)
#else
#define sp_swap16(number) (number)
#define sp_swap32(number) (number)
#define sp_swap64(number) (number)
#endif

/* BPF has no memcpy that becomes one load; where it runs, a load may have any address. Elsewhere the compiler has to be
 * told. `raw` is the host's order: for what is only compared, added or copied. */
#if defined(__bpf__)
static inline sp_u32 sp_raw32(const sp_u8 *at) { return *(const sp_u32 *)at; }
static inline sp_u64 sp_raw64(const sp_u8 *at) { return *(const sp_u64 *)at; }
static inline sp_u16 sp_get16(const sp_u8 *at) { return sp_swap16(*(const sp_u16 *)at); }
static inline void sp_put16(sp_u8 *at, sp_u16 number) { *(sp_u16 *)at = sp_swap16(number); }
static inline void sp_put32(sp_u8 *at, sp_u32 number) { *(sp_u32 *)at = sp_swap32(number); }
static inline void sp_put64(sp_u8 *at, sp_u64 number) { *(sp_u64 *)at = sp_swap64(number); }
#else
#include <string.h>
static inline sp_u32 sp_raw32(const sp_u8 *at)
{
    sp_u32 number;
    memcpy(&number, at, sizeof number);
    return number;
}
static inline sp_u64 sp_raw64(const sp_u8 *at)
{
    sp_u64 number;
    memcpy(&number, at, sizeof number);
    return number;
}
static inline sp_u16 sp_get16(const sp_u8 *at)
{
    sp_u16 number;
    memcpy(&number, at, sizeof number);
    return sp_swap16(number);
}
static inline void sp_put16(sp_u8 *at, sp_u16 number)
{
    number = sp_swap16(number);
    memcpy(at, &number, sizeof number);
}
static inline void sp_put32(sp_u8 *at, sp_u32 number)
{
    number = sp_swap32(number);
    memcpy(at, &number, sizeof number);
}
static inline void sp_put64(sp_u8 *at, sp_u64 number)
{
    number = sp_swap64(number);
    memcpy(at, &number, sizeof number);
}
#endif

static inline sp_u32 sp_get32(const sp_u8 *at) { return sp_swap32(sp_raw32(at)); }
static inline sp_u64 sp_get64(const sp_u8 *at) { return sp_swap64(sp_raw64(at)); }

#endif

// SPDX-License-Identifier: Apache-2.0
//
// How a share gets into its array, of a router or of a slice: word by word, as the layout says.
#pragma once

#include "tables/entry_table.h"

namespace splitplane {

inline void publish_share(sp_share& where, const Share& share, uint32_t slice) {
    publish(where.slice, sp_u32{slice});
    publish(where.weight, sp_u32{share.weight});
    publish(where.guarantee, sp_u32{share.guarantee});
    publish(where.ceiling, sp_u32{share.ceiling});
}

// What there is where nobody says anything.
inline void clear_share(sp_share& where) { publish_share(where, {.weight = 0}, 0); }

}  // namespace splitplane

// SPDX-License-Identifier: Apache-2.0
#include "tables/row.h"

namespace splitplane {

const Extras& Row::more() const {
    static const Extras none;
    return extras ? *extras : none;
}

}  // namespace splitplane

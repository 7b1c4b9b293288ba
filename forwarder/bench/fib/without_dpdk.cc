// SPDX-License-Identifier: Apache-2.0
#include "bench/fib/peers.h"

namespace splitplane::bench {

std::unique_ptr<Peer> make_rte_fib(const std::vector<Route>&, uint32_t, bool, std::string& why) {
    why = "built without DPDK";
    return nullptr;
}

std::unique_ptr<Peer> make_rte_lpm(const std::vector<Route>&, uint32_t, bool, std::string& why) {
    why = "built without DPDK";
    return nullptr;
}

}  // namespace splitplane::bench

// SPDX-License-Identifier: Apache-2.0

#include "engine/netdev/ethtool.h"

#include <linux/ethtool.h>
#include <linux/if.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

namespace splitplane {
namespace {

// Room for a request of ethtool's with an array at its end, as a vector of its words.
std::vector<uint32_t> room_for(size_t octets) { return std::vector<uint32_t>((octets + 3) / 4); }

}  // namespace

Ethtool::Ethtool(const std::string& interface)
    : interface_(interface), socket_(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {}

bool Ethtool::ask(void* request) const {
    ifreq call{};
    std::strncpy(call.ifr_name, interface_.c_str(), sizeof call.ifr_name - 1);
    call.ifr_data = static_cast<char*>(request);
    return ::ioctl(socket_.get(), SIOCETHTOOL, &call) >= 0;
}

Driver Ethtool::driver() const {
    ethtool_drvinfo info{};
    info.cmd = ETHTOOL_GDRVINFO;
    if (!ask(&info)) return {};
    return {{info.driver, ::strnlen(info.driver, sizeof info.driver)},
            {info.bus_info, ::strnlen(info.bus_info, sizeof info.bus_info)}};
}

Channels Ethtool::channels() const {
    ethtool_channels all{};
    all.cmd = ETHTOOL_GCHANNELS;
    if (!ask(&all)) return {};
    // Some have queues that only send apart from those that do both.
    return {all.combined_count + all.tx_count, std::max(all.max_combined, all.max_tx)};
}

// The first request is answered by how many words the masks behind it have, negative.
uint64_t Ethtool::speed() const {
    constexpr uint64_t kMega = 1'000'000;
    constexpr size_t kMasks = 3;  // supported, advertised, and what the other end advertises
    ethtool_link_settings first{};
    first.cmd = ETHTOOL_GLINKSETTINGS;
    if (!ask(&first) || first.link_mode_masks_nwords >= 0) return 0;
    const auto octets = static_cast<size_t>(-first.link_mode_masks_nwords) * kMasks * sizeof(uint32_t);
    auto words = room_for(sizeof first + octets);
    auto* settings = reinterpret_cast<ethtool_link_settings*>(words.data());
    settings->cmd = ETHTOOL_GLINKSETTINGS;
    settings->link_mode_masks_nwords = static_cast<int8_t>(-first.link_mode_masks_nwords);
    if (!ask(settings) || settings->speed == static_cast<uint32_t>(SPEED_UNKNOWN)) return 0;
    return settings->speed * kMega;
}

std::vector<std::string> Ethtool::offload_names() const {
    auto set_words = room_for(sizeof(ethtool_sset_info) + sizeof(uint32_t));
    auto* set = reinterpret_cast<ethtool_sset_info*>(set_words.data());
    set->cmd = ETHTOOL_GSSET_INFO;
    set->sset_mask = 1u << ETH_SS_FEATURES;
    if (!ask(set) || set->sset_mask == 0) return {};
    const uint32_t count = set->data[0];
    auto words = room_for(sizeof(ethtool_gstrings) + size_t{count} * ETH_GSTRING_LEN);
    auto* strings = reinterpret_cast<ethtool_gstrings*>(words.data());
    strings->cmd = ETHTOOL_GSTRINGS;
    strings->string_set = ETH_SS_FEATURES;
    strings->len = count;
    if (!ask(strings)) return {};
    std::vector<std::string> names;
    for (uint32_t index = 0; index < strings->len && index < count; ++index) {
        const auto* name = reinterpret_cast<const char*>(strings->data) + size_t{index} * ETH_GSTRING_LEN;
        names.emplace_back(name, ::strnlen(name, ETH_GSTRING_LEN));
    }
    return names;
}

std::map<std::string, OffloadState> Ethtool::offloads() const {
    const std::vector<std::string> names = offload_names();
    const size_t blocks = (names.size() + 31) / 32;
    auto words = room_for(sizeof(ethtool_gfeatures) + blocks * sizeof(ethtool_get_features_block));
    auto* features = reinterpret_cast<ethtool_gfeatures*>(words.data());
    features->cmd = ETHTOOL_GFEATURES;
    features->size = static_cast<uint32_t>(blocks);
    if (names.empty() || !ask(features)) return {};
    std::map<std::string, OffloadState> all;
    for (size_t index = 0; index < names.size(); ++index) {
        const ethtool_get_features_block& block = features->features[index / 32];
        const uint32_t bit = 1u << index % 32;
        all[names[index]] = {(block.active & bit) != 0,
                             (block.never_changed & bit) != 0 || (block.available & bit) == 0};
    }
    return all;
}

void Ethtool::switch_off(const std::vector<std::string>& unwanted) const {
    const std::vector<std::string> names = offload_names();
    const size_t blocks = (names.size() + 31) / 32;
    auto words = room_for(sizeof(ethtool_sfeatures) + blocks * sizeof(ethtool_set_features_block));
    auto* features = reinterpret_cast<ethtool_sfeatures*>(words.data());
    features->cmd = ETHTOOL_SFEATURES;
    features->size = static_cast<uint32_t>(blocks);
    for (size_t index = 0; index < names.size(); ++index) {
        if (std::ranges::find(unwanted, names[index]) != unwanted.end()) {
            features->features[index / 32].valid |= 1u << index % 32;
        }
    }
    ask(features);
}

}  // namespace splitplane

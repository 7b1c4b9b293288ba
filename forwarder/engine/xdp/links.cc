// SPDX-License-Identifier: Apache-2.0

#include "engine/xdp/links.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <linux/if_link.h>
#include <linux/magic.h>
#include <linux/rtnetlink.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "engine/netdev/netlink.h"
#include "engine/xdp/notes.h"
#include "engine/xdp/privileges.h"
#include "engine/xdp/promiscuity.h"

namespace splitplane {
namespace {

constexpr const char* kLinkPrefix = "link-";

bool is_bpffs(const std::string& path) {
    struct statfs facts {};
    return ::statfs(path.c_str(), &facts) == 0 && facts.f_type == BPF_FS_MAGIC;
}

// 0 where the interface is gone: the link then leads nowhere.
uint32_t ifindex_of(int link) {
    bpf_link_info facts{};
    uint32_t size = sizeof facts;
    if (bpf_obj_get_info_by_fd(link, &facts, &size) != 0 || facts.type != BPF_LINK_TYPE_XDP) return 0;
    return facts.xdp.ifindex;
}

bool is_generic(uint32_t ifindex) {
    bpf_xdp_query_opts facts{};
    facts.sz = sizeof facts;
    return bpf_xdp_query(static_cast<int>(ifindex), 0, &facts) == 0 && facts.attach_mode == XDP_ATTACHED_SKB;
}

int create(int program, uint32_t ifindex, uint32_t flags) {
    bpf_link_create_opts options{};
    options.sz = sizeof options;
    options.flags = flags;
    return bpf_link_create(program, static_cast<int>(ifindex), BPF_XDP, &options);
}

NetlinkAnswer set_by_netlink(int program, uint32_t ifindex) {
    NetlinkRequest request(RTM_SETLINK, 0);
    ifinfomsg body{};
    body.ifi_index = static_cast<int>(ifindex);
    request.body(body);
    request.begin_nest(IFLA_XDP);
    request.attribute(IFLA_XDP_FD, static_cast<uint32_t>(program));
    request.attribute(IFLA_XDP_FLAGS, uint32_t{XDP_FLAGS_DRV_MODE | XDP_FLAGS_UPDATE_IF_NOEXIST});
    request.end_nest();
    return ask_netlink(NETLINK_ROUTE, request);
}

// What a driver that has refused a link says of it. bpf(2) has only the error; rtnetlink, which asks the driver the
// same, has its words.
std::string words_of_driver(int program, uint32_t ifindex) {
    NetlinkAnswer answer = set_by_netlink(program, ifindex);
    if (answer.error == 0) bpf_xdp_detach(static_cast<int>(ifindex), XDP_FLAGS_DRV_MODE, nullptr);
    return answer.words;
}

[[noreturn]] void refuse(int error) {
    switch (error) {
        case EBUSY:
        case EEXIST:
            throw EngineError("another XDP program is attached; take it off with: ip link set dev NAME xdp off");
        case EPERM: throw EngineError("attaching XDP is not permitted; " + permission_remedy());
        default: throw EngineError("cannot attach XDP: " + error_text(error));
    }
}

}  // namespace

PinDirectory::PinDirectory(const std::string& bpffs, const std::string& instance) : path_(bpffs + "/" + instance) {
    if (!is_bpffs(bpffs)) {
        std::error_code ignored;
        std::filesystem::create_directories(bpffs, ignored);
        if (::mount("bpf", bpffs.c_str(), "bpf", 0, "mode=0700") != 0) {
            throw EngineError("no bpffs at " + bpffs + ": " + error_text(errno) + "; run: mount -t bpf bpf " + bpffs);
        }
        mounted_ = true;
    }
    if (::mkdir(path_.c_str(), 0700) != 0 && errno != EEXIST) {
        throw EngineError("cannot make " + path_ + ": " + error_text(errno));
    }
    lock_ = Descriptor(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!lock_) throw EngineError("cannot open " + path_ + ": " + error_text(errno));
    if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
        throw EngineError("another vr-forwarder runs as instance " + instance + "; stop it or choose another name");
    }
}

Links::Links(std::string directory, int program) : directory_(std::move(directory)), program_(program) {
    for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
        const std::string name = entry.path().filename();
        if (!name.starts_with(kLinkPrefix)) continue;
        Descriptor link(bpf_obj_get(entry.path().c_str()));
        const uint32_t ifindex = link ? ifindex_of(link.get()) : 0;
        if (ifindex == 0 || path(ifindex) != entry.path()) {
            ::unlink(entry.path().c_str());
        } else {
            links_[ifindex] = Link{std::move(link), is_generic(ifindex)};
        }
    }
}

std::string Links::path(uint32_t ifindex) const { return directory_ + "/" + kLinkPrefix + std::to_string(ifindex); }

std::optional<bool> Links::generic(uint32_t ifindex) const {
    const auto found = links_.find(ifindex);
    if (found == links_.end()) return std::nullopt;
    return found->second.generic;
}

bool Links::holds(uint32_t ifindex) const {
    const auto found = links_.find(ifindex);
    return found != links_.end() && ifindex_of(found->second.descriptor.get()) == ifindex;
}

bool Links::replace(uint32_t ifindex, bool generic) {
    const auto found = links_.find(ifindex);
    if (found == links_.end()) return false;
    if (found->second.generic == generic &&
        bpf_link_update(found->second.descriptor.get(), program_, nullptr) == 0) {
        return true;
    }
    detach(ifindex);
    return false;
}

Attachment Links::attach(uint32_t ifindex, bool generic) {
    if (replace(ifindex, generic)) return {};
    Descriptor link(create(program_, ifindex, generic ? XDP_FLAGS_SKB_MODE : XDP_FLAGS_DRV_MODE));
    if (!link) {
        const int error = errno;
        if (generic || error == EBUSY || error == EEXIST || error == EPERM) refuse(error);
        return {error, words_of_driver(program_, ifindex)};
    }
    ::unlink(path(ifindex).c_str());
    if (bpf_obj_pin(link.get(), path(ifindex).c_str()) != 0) {
        throw EngineError("cannot pin " + path(ifindex) + ": " + error_text(errno));
    }
    links_[ifindex] = Link{std::move(link), generic};
    return {};
}

void Links::detach(uint32_t ifindex) {
    ::unlink(path(ifindex).c_str());
    const auto found = links_.find(ifindex);
    if (found == links_.end()) return;
    bpf_link_detach(found->second.descriptor.get());
    links_.erase(found);
}

std::vector<uint32_t> Links::attached() const {
    std::vector<uint32_t> all;
    for (const auto& entry : links_) all.push_back(entry.first);
    return all;
}

size_t remove_pins(const std::string& bpffs, const std::string& instance) {
    const std::string path = bpffs + "/" + instance;
    if (!is_bpffs(bpffs) || !std::filesystem::exists(path)) return 0;
    const PinDirectory locked(bpffs, instance);
    const InterfaceNotes notes(path);
    for (const uint32_t ifindex : notes.all(kPromiscuousNote)) take_promiscuity_back(notes, ifindex);
    size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(path)) {
        if (entry.path().filename().string().starts_with(kLinkPrefix)) {
            const Descriptor link(bpf_obj_get(entry.path().c_str()));
            if (link && bpf_link_detach(link.get()) == 0) ++count;
        }
        ::unlink(entry.path().c_str());
    }
    ::rmdir(path.c_str());
    return count;
}

}  // namespace splitplane

// SPDX-License-Identifier: Apache-2.0
//
// Notices in the kernel when a port loses its link (carrier.bpf.c), and goes on when the process ends.
#pragma once

#include <memory>
#include <string>

#include "engine/xdp/object.h"

namespace splitplane {

class Carrier {
  public:
    // Load the programs over the tables of `object`. Where the kernel takes none, the daemon's thread notices alone:
    // remark() says why.
    explicit Carrier(XdpObject& object);

    // Attach them, pinned in the instance's directory, and take away those of an earlier process.
    void attach(const std::string& directory);

    const std::string& remark() const { return remark_; }

  private:
    struct Close {
        void operator()(bpf_object* object) const;
    };
    void refuse(int error);

    std::unique_ptr<bpf_object, Close> object_;
    std::string remark_;
};

}  // namespace splitplane

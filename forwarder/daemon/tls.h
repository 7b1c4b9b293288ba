// SPDX-License-Identifier: Apache-2.0
//
// TLS of the addresses on TCP: this side's certificate, and who may be a controller.
#pragma once

#include <memory>

#include "daemon/config.h"

namespace grpc {
class ServerCredentials;
}

namespace splitplane {

// Show `cert`, and take only clients whose certificate `ca` has signed for the DNS name `client`. The files are read
// again when they change, so certificates are renewed without a restart; what is connected stays. They are those that
// check_tls() took.
std::shared_ptr<grpc::ServerCredentials> tls_credentials(const TlsFiles& tls);

}  // namespace splitplane

// SPDX-License-Identifier: Apache-2.0
//
// The files of TLS, looked at before anything is started: gRPC says nothing of what is wrong with them, and lets nobody
// in then.
#pragma once

#include "daemon/config.h"

namespace splitplane {

// ConfigError where one cannot be read or holds something else, or the key is of another certificate.
void check_tls(const TlsFiles& tls);

}  // namespace splitplane

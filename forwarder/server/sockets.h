// SPDX-License-Identifier: Apache-2.0
//
// Sockets that listen, and connections to them, at addresses "HOST:PORT" and "unix:PATH".
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/descriptor.h"

namespace splitplane {

// An address that cannot be had, in one line.
class ListenError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

// The sockets of one address: one for each that the host's name has. A Unix socket is its owner's alone, and gone at the
// end.
class ListeningSockets {
  public:
    explicit ListeningSockets(const std::string& address);  // ListenError
    ~ListeningSockets();
    ListeningSockets(const ListeningSockets&) = delete;
    ListeningSockets& operator=(const ListeningSockets&) = delete;

    const std::vector<Descriptor>& sockets() const { return sockets_; }
    int port() const { return port_; }  // 0 of a Unix socket

  private:
    std::string path_;  // of a Unix socket
    std::vector<Descriptor> sockets_;
    int port_ = 0;
};

// A connection that waits at a socket, not blocking; none: there is none. Where the process or the system has no
// descriptor for it this waits a moment, for the socket goes on being ready.
Descriptor accepted(int socket);

// A connection to a Unix socket; none: errno says why.
Descriptor connected(const std::string& path);

}  // namespace splitplane

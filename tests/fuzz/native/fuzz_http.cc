// SPDX-License-Identifier: Apache-2.0
//
// What a client of vr-forwarder's statistics says: any octets as a request.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include "daemon/http.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* octets, size_t size) {
    // A copy that is as long as the request, so that AddressSanitizer sees every octet too far.
    const std::string request(reinterpret_cast<const char*>(octets), size);
    const std::string answer = splitplane::http_response(request, [](std::string_view path) -> splitplane::HttpResponse {
        if (path == "/throws") throw std::runtime_error("it threw");
        return {path == "/metrics" ? 200 : 404, "text/plain", std::string(path)};
    });
    const bool whole = answer.starts_with("HTTP/1.0 ") && answer.find("\r\n\r\n") != std::string::npos;
    if (!whole) {
        std::fprintf(stderr, "broken: no answer\n");
        std::abort();
    }
    return 0;
}

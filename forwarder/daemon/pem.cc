// SPDX-License-Identifier: Apache-2.0

#include "daemon/pem.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

namespace splitplane {

namespace {

template <auto kFree>
struct Free {
    template <typename T>
    void operator()(T* whose) const {
        kFree(whose);
    }
};
using File = std::unique_ptr<std::FILE, Free<std::fclose>>;
using Certificate = std::unique_ptr<X509, Free<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY_free>>;

File opened(const std::string& path) {
    File file(std::fopen(path.c_str(), "r"));
    if (!file) throw ConfigError("cannot read the TLS file " + path + ": " + std::strerror(errno));
    return file;
}

[[noreturn]] void fail(const std::string& path, const char* what) {
    ERR_clear_error();
    throw ConfigError("the TLS file " + path + " holds no " + what + "; it has to be PEM");
}

Certificate certificate_in(const std::string& path) {
    Certificate found(PEM_read_X509(opened(path).get(), nullptr, nullptr, nullptr));
    if (!found) fail(path, "certificate");
    return found;
}

Key key_in(const std::string& path) {
    char no_passphrase[] = "";  // else it would be asked for
    Key found(PEM_read_PrivateKey(opened(path).get(), nullptr, nullptr, no_passphrase));
    if (!found) fail(path, "key without a passphrase");
    return found;
}

}  // namespace

void check_tls(const TlsFiles& tls) {
    certificate_in(tls.ca);
    const Certificate shown = certificate_in(tls.cert);
    if (X509_check_private_key(shown.get(), key_in(tls.key).get()) != 1) {
        ERR_clear_error();
        throw ConfigError("the key " + tls.key + " is not of the certificate " + tls.cert +
                          "; they are made together (vrctl plane certificate)");
    }
}

}  // namespace splitplane

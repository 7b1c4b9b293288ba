// SPDX-License-Identifier: Apache-2.0

#include "daemon/tls.h"

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <algorithm>

namespace splitplane {

namespace {

using grpc::experimental::TlsCustomVerificationCheckRequest;

constexpr unsigned kLookEveryS = 5;

// Who has shown a certificate of the authority: whether it is one of a controller.
class NamedClient : public grpc::experimental::ExternalCertificateVerifier {
  public:
    explicit NamedClient(std::string name) : name_(std::move(name)) {}

    bool Verify(TlsCustomVerificationCheckRequest* request, std::function<void(grpc::Status)>,
                grpc::Status* status) override {
        const auto names = request->dns_names();
        if (std::ranges::none_of(names, [this](grpc::string_ref one) { return one == name_; })) {
            *status = {grpc::StatusCode::UNAUTHENTICATED, "the certificate is not one of " + name_};
        }
        return true;
    }
    void Cancel(TlsCustomVerificationCheckRequest*) override {}

  private:
    std::string name_;
};

}  // namespace

std::shared_ptr<grpc::ServerCredentials> tls_credentials(const TlsFiles& tls) {
    using namespace grpc::experimental;
    const auto files = std::make_shared<FileWatcherCertificateProvider>(tls.key, tls.cert, tls.ca, kLookEveryS);
    TlsServerCredentialsOptions options(files);
    options.watch_root_certs();
    options.watch_identity_key_cert_pairs();
    options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
    options.set_certificate_verifier(ExternalCertificateVerifier::Create<NamedClient>(tls.client));
    return TlsServerCredentials(options);
}

}  // namespace splitplane

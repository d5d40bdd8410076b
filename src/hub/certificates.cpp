#include "hub/certificates.h"

namespace dllm::hub {
namespace {

constexpr const char* kBundles[] = {
    "/etc/ssl/certs/ca-certificates.crt",                 // Debian, Ubuntu, Arch, Gentoo, Alpine, NixOS
    "/etc/pki/tls/certs/ca-bundle.crt",                   // Fedora, RHEL and its derivatives
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",  // the same, newer
    "/etc/ssl/ca-bundle.pem",                             // openSUSE
    "/var/lib/ca-certificates/ca-bundle.pem",             // the same, without links
    "/etc/ssl/cert.pem",                                  // Alpine, FreeBSD, OpenBSD, macOS
    "/usr/local/share/certs/ca-root-nss.crt",             // FreeBSD's package
    "/etc/ssl/certs/ca-bundle.crt",                       // NixOS, Guix
    "/data/data/com.termux/files/usr/etc/tls/cert.pem",   // Termux
};
constexpr const char* kFolders[] = {"/etc/ssl/certs", "/etc/pki/tls/certs", "/system/etc/security/cacerts"};

}  // namespace

Certificates find_certificates(const Environment& environment, const Certificates& built_in,
                               const std::function<bool(const std::string& path)>& exists) {
  const auto given = [&](const char* name) {
    const char* const value = environment(name);
    return std::string(value == nullptr ? "" : value);
  };
  if (const Certificates named{given("SSL_CERT_FILE"), given("SSL_CERT_DIR")};
      !named.file.empty() || !named.folder.empty())
    return named;
  Certificates found;
  if (!built_in.file.empty() && exists(built_in.file)) found.file = built_in.file;
  if (!built_in.folder.empty() && exists(built_in.folder)) found.folder = built_in.folder;
  if (!found.file.empty() || !found.folder.empty()) return found;
  for (const char* const path : kBundles)
    if (exists(path)) return {path, ""};
  for (const char* const path : kFolders)
    if (exists(path)) return {"", path};
  return {};
}

}  // namespace dllm::hub

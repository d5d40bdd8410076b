#pragma once

#include <functional>
#include <string>

#include "hub/config.h"

namespace dllm::hub {

/// Where the certificates of the authorities are that servers are verified with.
struct Certificates {
  std::string file;    ///< a bundle in PEM format; empty: the library's
  std::string folder;  ///< files named by hash; empty: the library's
};

/// SSL_CERT_FILE and SSL_CERT_DIR, as OpenSSL reads them, else `built_in`, which the TLS library was built with, if it
/// exists here; else the first of the places where Linux distributions, BSDs, Nix and Termux keep them. What was built
/// on one distribution finds them on another. Both empty: none was found. `exists`: of a file or folder.
Certificates find_certificates(const Environment& environment, const Certificates& built_in,
                               const std::function<bool(const std::string& path)>& exists);

}  // namespace dllm::hub

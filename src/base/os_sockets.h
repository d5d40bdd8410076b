#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

// What differs between systems about sockets.

namespace dllm {

/// The process at the other end of a connected Unix socket.
struct PeerProcess {
  std::uint64_t user = 0;
  std::int64_t process = 0;  ///< 0: the system does not tell
};
std::optional<PeerProcess> peer_process(int socket);

/// Whether a server may take an address whose connections have just ended only if it asks for that (SO_REUSEADDR). On
/// Windows it may anyway, and the option would let another program listen on the same port.
#if defined(_WIN32)
inline constexpr bool kAsksToReuse = false;
#else
inline constexpr bool kAsksToReuse = true;
#endif

/// Whether TLS reads certificates of authorities from a store of the system's, so that no file of them is looked for.
/// On Windows every user may make folders such as C:/etc.
#if defined(_WIN32)
inline constexpr bool kCertificateStore = true;
#else
inline constexpr bool kCertificateStore = false;
#endif

/// Whether the other end of a connection has stopped sending, or has gone.
enum class PeerState { kSends, kEnded, kGone };
PeerState peer_state(std::uintptr_t socket);

/// Sends a datagram to a Unix socket, where there is one; '@' begins an abstract name. Errors are ignored.
void send_local_datagram(std::string_view path, std::string_view bytes);

}  // namespace dllm

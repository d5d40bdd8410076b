#include "base/os_sockets.h"

#if defined(_WIN32)
#include <winsock2.h>
#else
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#endif

#include <cstddef>
#include <cstring>

#include "base/file_descriptor.h"

namespace dllm {

#if !defined(POLLRDHUP)
namespace {

/// Of a socket that has something to read: bytes, its end, or an error.
template <class Socket>
PeerState at_end(Socket socket) {
  char byte = 0;
  const auto count = ::recv(socket, &byte, 1, MSG_PEEK);
  return count > 0 ? PeerState::kSends : count == 0 ? PeerState::kEnded : PeerState::kGone;
}

}  // namespace
#endif

#if defined(_WIN32)

std::optional<PeerProcess> peer_process(int /*socket*/) { return std::nullopt; }

PeerState peer_state(std::uintptr_t socket) {
  WSAPOLLFD one{static_cast<SOCKET>(socket), POLLRDNORM, 0};
  if (::WSAPoll(&one, 1, 0) < 1) return PeerState::kSends;
  if ((one.revents & (POLLERR | POLLHUP | POLLNVAL)) != 0) return PeerState::kGone;
  return at_end(static_cast<SOCKET>(socket));
}

void send_local_datagram(std::string_view /*path*/, std::string_view /*bytes*/) {}

#else

std::optional<PeerProcess> peer_process(int socket) {
#if defined(__linux__)
  ucred who{};
  socklen_t size = sizeof who;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0) return std::nullopt;
  return PeerProcess{who.uid, who.pid};
#elif defined(__wasm__)
  (void)socket;
  return std::nullopt;
#else
  uid_t user = 0;
  gid_t group = 0;
  if (::getpeereid(socket, &user, &group) != 0) return std::nullopt;
  return PeerProcess{user, 0};
#endif
}

PeerState peer_state(std::uintptr_t socket) {
#if defined(POLLRDHUP)
  constexpr short kEvents = POLLRDHUP;
#else
  constexpr short kEvents = POLLIN;
#endif
  pollfd one{static_cast<int>(socket), kEvents, 0};
  if (::poll(&one, 1, 0) < 1) return PeerState::kSends;
  if ((one.revents & (POLLERR | POLLHUP | POLLNVAL)) != 0) return PeerState::kGone;
#if defined(POLLRDHUP)
  return PeerState::kEnded;
#else
  return at_end(one.fd);
#endif
}

void send_local_datagram(std::string_view path, std::string_view bytes) {
  sockaddr_un address{};
  if (path.size() >= sizeof address.sun_path) return;
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  if (path.starts_with('@')) address.sun_path[0] = '\0';
#if defined(SOCK_CLOEXEC)
  const FileDescriptor socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (socket.get() < 0) return;
#else
  const FileDescriptor socket(::socket(AF_UNIX, SOCK_DGRAM, 0));
  if (socket.get() < 0) return;
  ::fcntl(socket.get(), F_SETFD, FD_CLOEXEC);
#endif
#if defined(MSG_NOSIGNAL)
  constexpr int kFlags = MSG_NOSIGNAL;
#else
  constexpr int kFlags = 0;
#endif
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
  ::sendto(socket.get(), bytes.data(), bytes.size(), kFlags, reinterpret_cast<const sockaddr*>(&address), size);
}

#endif

}  // namespace dllm

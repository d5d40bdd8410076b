#include "base/service_manager.h"

#include <cstdlib>

#include "base/os_sockets.h"

namespace dllm {

void notify_service_manager(std::string_view lines) {
  const char* const path = std::getenv("NOTIFY_SOCKET");
  if (path != nullptr && (path[0] == '/' || path[0] == '@')) send_local_datagram(path, lines);
}

}  // namespace dllm

#pragma once

#include <string_view>

namespace dllm {

/// Tells the service manager that started this process, if one waits for it, lines of sd_notify(3): "READY=1",
/// "STOPPING=1", "STATUS=...". The protocol is one datagram to the socket in $NOTIFY_SOCKET, so that libsystemd is not
/// needed. Failures are the manager's to notice.
void notify_service_manager(std::string_view lines);

}  // namespace dllm

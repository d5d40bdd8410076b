#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace dllm::test {

/// Runs `body` in a child process. False: it returned false, was killed, or did not end in time.
inline bool in_child(const std::function<bool()>& body, unsigned seconds = 300) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(seconds);
    ::_exit(body() ? 0 : 1);
  }
  int status = 0;
  return child > 0 && ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace dllm::test

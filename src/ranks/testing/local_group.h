#pragma once

#include <memory>
#include <vector>

#include "ranks/communicator.h"

namespace dllm::test {

/// Ranks in one process, each used by its own thread. They share what they need to meet.
std::vector<std::unique_ptr<Communicator>> local_group(int ranks);

}  // namespace dllm::test

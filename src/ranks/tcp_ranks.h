#pragma once

#include <memory>
#include <vector>

#include "ranks/communicator.h"
#include "ranks/link.h"

namespace dllm {

/// Rank 0, which has greeted the workers of these links.
std::shared_ptr<Communicator> leader_rank(std::unique_ptr<ZmqContext> context,
                                          std::vector<std::unique_ptr<Link>> links);
/// A worker, by its link to rank 0.
std::unique_ptr<Communicator> worker_rank(int rank, int ranks, std::unique_ptr<Link> link);

}  // namespace dllm

// Without ZeroMQ.
#include "dllm/version.h"
#include "ranks/mpi.h"
#include "ranks/tcp.h"

namespace dllm {

std::string tcp_missing() {
#ifdef DLLM_STATIC_PROGRAM
  return "a static program has none: take the portable one, dllm-" DLLM_VERSION "-linux-*-portable.tar.xz";
#else
  return "install libzmq3-dev and libssl-dev, and build again";
#endif
}

namespace {
Error no_tcp() { return {ErrorCode::kUnsupported, "this build has no ranks on other machines", "", tcp_missing()}; }
}  // namespace

Expected<std::shared_ptr<Communicator>> connect_ranks(const std::vector<std::string>&, const RanksKey&,
                                                      const std::vector<std::byte>&, const Reach&) {
  return no_tcp();
}
bool listens(const std::string&, const RanksKey&) { return false; }
Expected<std::unique_ptr<RankListener>> RankListener::open(const std::string&, const RanksKey&) { return no_tcp(); }

Expected<std::shared_ptr<Communicator>> mpi_ranks() { return no_tcp(); }

}  // namespace dllm

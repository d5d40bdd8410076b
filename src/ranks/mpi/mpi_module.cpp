// libdllm_mpi.so: ranks over MPI. A module of its own, so that the program does not need MPI.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dllm/version.h"
#include "ranks/communicator.h"

namespace dllm {
namespace {

/// MPI ends all processes when a call fails or one of them dies, so that no call returns an error but for sizes.
class MpiRank final : public Communicator {
 public:
  MpiRank() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }
  ~MpiRank() override {
    if (::getpid() == process_) MPI_Finalize();  // in a child of fork() it would wait for the others
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  Expected<void> all_gather(std::span<const std::byte> own, std::span<const std::size_t> sizes,
                            std::span<std::byte> all) override {
    std::vector<int> counts, places;
    std::size_t at = 0;
    for (const std::size_t size : sizes) {
      counts.push_back(static_cast<int>(size));
      places.push_back(static_cast<int>(at));
      at += size;
    }
    if (at > static_cast<std::size_t>(std::numeric_limits<int>::max()))
      return Error{ErrorCode::kResource, "a gather of more than 2 GiB", "mpi", "use smaller batches"};
    const double start = MPI_Wtime();
    MPI_Allgatherv(own.data(), static_cast<int>(own.size()), MPI_BYTE, all.data(), counts.data(), places.data(),
                   MPI_BYTE, MPI_COMM_WORLD);
    times_.move_s += MPI_Wtime() - start;  // MPI does not tell waiting apart
    ++times_.gathers;
    times_.bytes += at - own.size();
    return {};
  }

  Expected<std::vector<std::byte>> broadcast(std::vector<std::byte> message) override {
    std::uint64_t size = message.size();
    MPI_Bcast(&size, sizeof size, MPI_BYTE, 0, MPI_COMM_WORLD);
    if (size > static_cast<std::uint64_t>(std::numeric_limits<int>::max()))
      return Error{ErrorCode::kResource, "a message of more than 2 GiB", "mpi", "use smaller batches"};
    message.resize(static_cast<std::size_t>(size));
    MPI_Bcast(message.data(), static_cast<int>(size), MPI_BYTE, 0, MPI_COMM_WORLD);
    return message;
  }

  Expected<std::vector<std::byte>> scatter(std::vector<std::vector<std::byte>> parts, std::uint64_t most) override {
    if (rank_ == 0) {
      for (int to = 1; to < size_; ++to) {
        const std::vector<std::byte>& part = parts[static_cast<std::size_t>(to)];
        MPI_Send(part.data(), static_cast<int>(part.size()), MPI_BYTE, to, 0, MPI_COMM_WORLD);
      }
      return std::vector<std::byte>();
    }
    MPI_Status status;
    int size = 0;
    MPI_Probe(0, 0, MPI_COMM_WORLD, &status);
    MPI_Get_count(&status, MPI_BYTE, &size);
    if (size < 0 || static_cast<std::uint64_t>(size) > most)
      return Error{ErrorCode::kIo, "rank 0 sent too much", "mpi", "start all ranks with the same version"};
    std::vector<std::byte> message(static_cast<std::size_t>(size));
    MPI_Recv(message.data(), size, MPI_BYTE, 0, 0, MPI_COMM_WORLD, &status);
    return message;
  }

  RankTimes times() const override { return times_; }
  void abort(const std::string& why) override {
    std::fprintf(stderr, "error: rank %d: %s\n", rank_, why.c_str());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }

 private:
  int rank_ = 0, size_ = 1;
  pid_t process_ = ::getpid();
  RankTimes times_;
};

}  // namespace
}  // namespace dllm

extern "C" __attribute__((visibility("default"))) bool dllm_mpi_ranks(const char* version,
                                                                      std::unique_ptr<dllm::Communicator>& ranks,
                                                                      dllm::Error& error) {
  error = {dllm::ErrorCode::kUnsupported, "the module for MPI is of dllm " DLLM_VERSION, "libdllm_mpi.so",
           "build both again"};
  if (std::string(version) != DLLM_VERSION) return false;
  int level = 0, started = 0;
  MPI_Initialized(&started);  // stays set after MPI_Finalize(), after which MPI cannot start again
  error = {dllm::ErrorCode::kUnsupported, "MPI has started in this process before", "mpi",
           "load one model in a process with --workers mpi"};
  if (started != 0) return false;
  error = {dllm::ErrorCode::kUnsupported, "MPI does not start", "mpi", "start with mpirun or srun"};
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level) != MPI_SUCCESS || level < MPI_THREAD_SERIALIZED)
    return false;
  ranks = std::make_unique<dllm::MpiRank>();
  return true;
}

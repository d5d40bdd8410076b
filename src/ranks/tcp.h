#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dllm/error.h"
#include "ranks/communicator.h"

namespace dllm {

// Ranks on several machines: rank 0 connects to workers, which listen. Messages go through ZeroMQ, whose threads notice
// within seconds that a peer is gone, however long it computes. Rank 0 passes on what the others send.
//
// With a key, connections are encrypted and authenticated by ZeroMQ's CURVE, with a worker's key pair that follows from
// the shared key: no message of who does not know it is taken. Then both sides prove the key again, each with the HMAC
// (SHA-256) of both sides' random bytes and the offer. Without a key, only this machine is heard, and everybody on it.

/// Empty: this build has TCP; else how to get a build that has it.
std::string tcp_missing();

struct RanksKey {
  std::string bytes;  ///< empty: none, for this machine only
};

/// Which workers a group may do without.
enum class Absent {
  kNone,       ///< all must take part
  kSilent,     ///< those that do not listen; one that is there and busy may soon be free
  kUnwilling,  ///< those that are busy or refuse the key, too
};

struct Reach {
  Absent absent = Absent::kNone;
  std::function<void(const std::string& worker, const Error& why)> missing{};  ///< for each that is done without
  std::function<bool()> go_on{};                                               ///< asked before each worker
};

/// Rank 0 and the workers at "host:port", which become ranks 1, 2, ... Each gets `offer` and accepts it. Errors: kUsage
/// (an address; one twice; no key for other machines), kIo (no worker answers, it is busy or does not know the key),
/// kMismatch (it refuses), kUnsupported (a key, and ZeroMQ has no CURVE), kCancelled (Reach::go_on).
Expected<std::shared_ptr<Communicator>> connect_ranks(const std::vector<std::string>& workers, const RanksKey& key,
                                                      const std::vector<std::byte>& offer, const Reach& reaching = {});

/// Whether a worker that knows the key listens there and has no rank 0. Waits up to some seconds.
bool listens(const std::string& worker, const RanksKey& key);

/// A worker's side.
class RankListener {
 public:
  /// "host:port", the host a number or a name of this machine; port 0: any. Errors: kUsage (an address; no key, and the
  /// address can be reached from elsewhere), kIo, kUnsupported.
  static Expected<std::unique_ptr<RankListener>> open(const std::string& address, const RanksKey& key);
  virtual ~RankListener() = default;

  virtual int port() const = 0;

  /// What a rank 0 that knows the key wants.
  struct Offer {
    int rank = 0, ranks = 0;
    std::vector<std::byte> bytes;
  };
  /// Whether there is an offer within `milliseconds`. Messages of others are dropped. Errors: kIo.
  virtual Expected<bool> wait(int milliseconds, Offer& offer) = 0;
  /// Answers the last offer. The communicator must not outlive the listener.
  virtual Expected<std::unique_ptr<Communicator>> accept() = 0;
  virtual void refuse(const std::string& why) = 0;
};

}  // namespace dllm

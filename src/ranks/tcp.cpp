#include "ranks/tcp.h"

#include <fmt/format.h>
#include <zmq.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include "base/try.h"
#include "ranks/link.h"
#include "ranks/proof.h"
#include "ranks/tcp_ranks.h"
#include "ranks/wire.h"

namespace dllm {

std::string tcp_missing() { return ""; }

namespace {

constexpr const char* kSameVersion = "start all ranks with the same version of dllm";
constexpr const char* kStartThere = "start 'dllm worker --listen HOST:PORT' there first";
constexpr int kAnswerMs = 5000;  ///< how long a worker may take to answer a greeting

Error no_key(const std::string& where) {
  return {ErrorCode::kUsage, "only ranks on this machine do without a key", where,
          "give the same file with a secret line to all ranks, or use 127.0.0.1"};
}

/// What is proven with an offer.
std::vector<std::byte> offer_bytes(int rank, int ranks, const std::vector<std::byte>& offer) {
  WireWriter to;
  to.put(static_cast<std::int32_t>(rank)).put(static_cast<std::int32_t>(ranks));
  std::vector<std::byte> bytes = to.take();
  bytes.insert(bytes.end(), offer.begin(), offer.end());
  return bytes;
}

template <std::size_t Size>
bool take_front(std::span<const std::byte>& from, std::array<std::byte, Size>& to) {
  if (from.size() < Size) return false;
  std::copy_n(from.begin(), Size, to.begin());
  from = from.subspan(Size);
  return true;
}

std::vector<std::byte> joined(std::span<const std::byte> a, std::span<const std::byte> b) {
  std::vector<std::byte> all(a.size() + b.size());
  std::ranges::copy(b, std::ranges::copy(a, all.begin()).out);
  return all;
}

/// The frame of this kind that a worker sends. Errors: kIo.
Expected<std::vector<std::byte>> answer_of(Link& link, FrameKind kind, int milliseconds) {
  Frame frame;
  DLLM_TRY(const bool came, link.receive(frame, milliseconds));
  if (!came)
    return Error{ErrorCode::kIo, "does not answer", link.name(),
                 std::string(kStartThere) + "; a worker that computes for another rank 0 does not answer either"};
  if (frame.kind == FrameKind::kBusy)
    return Error{ErrorCode::kIo, "is busy with another rank 0", link.name(), "wait for its end, or start one more"};
  if (frame.kind != kind)
    return Error{ErrorCode::kIo, "is no dllm worker, or of another version", link.name(), kSameVersion};
  return std::move(frame.bytes);
}

/// Both sides' random bytes.
struct Greeting {
  Nonce mine{}, theirs{};
};

/// Rank 0's side of the greeting, until the worker has proved that it knows the key.
Expected<Greeting> greet(Link& link, const RanksKey& key) {
  DLLM_TRY(const Nonce mine, make_nonce());
  DLLM_CHECK_OK(link.send(FrameKind::kHello, mine));
  DLLM_TRY(const std::vector<std::byte> challenge, answer_of(link, FrameKind::kChallenge, kAnswerMs));
  std::span<const std::byte> rest(challenge);
  Nonce theirs;
  Proof proof;
  if (!take_front(rest, theirs) || !take_front(rest, proof) || !rest.empty())
    return Error{ErrorCode::kIo, "is no dllm worker, or of another version", link.name(), kSameVersion};
  DLLM_TRY(const Proof expected, prove(key.bytes, "worker", mine, theirs, {}));
  if (!same_proof(proof, expected))
    return Error{ErrorCode::kIo, "does not know the key", link.name(), "give all ranks the same key file"};
  return Greeting{mine, theirs};
}

Expected<void> send_offer(Link& link, const RanksKey& key, const Greeting& greeting,
                          const std::vector<std::byte>& said) {
  DLLM_TRY(const Proof sealed, prove(key.bytes, "rank 0", greeting.mine, greeting.theirs, said));
  return link.send(FrameKind::kOffer, joined(sealed, said));
}

Expected<void> check_key(const HostPort& at, const std::string& address, const RanksKey& key) {
  if (key.bytes.empty() && !at.loopback()) return no_key(address);
  return {};
}

class Listener final : public RankListener {
 public:
  Listener(std::unique_ptr<ZmqContext> context, ZmqSocket socket, ZmqSocket monitor, RanksKey key, int port)
      : context_(std::move(context)),
        socket_(std::move(socket)),
        monitor_(std::move(monitor)),
        key_(std::move(key)),
        port_(port) {}
  ~Listener() override { socket_.end_monitor(); }

  int port() const override { return port_; }

  Expected<bool> wait(int milliseconds, Offer& offer) override {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
    for (;;) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
      std::string sender;
      Frame frame;
      const int rest = std::max(0, static_cast<int>(left.count()));
      while (next_event(monitor_) != 0) {
      }
      DLLM_TRY(const bool came, receive_frame(socket_.get(), true, rest, sender, frame));
      if (came && frame.kind == FrameKind::kHello) DLLM_CHECK_OK(challenge(sender, frame.bytes));
      if (came && frame.kind == FrameKind::kOffer) {
        DLLM_TRY(const bool sound, take_offer(sender, frame.bytes, offer));
        if (sound) return true;
      }
      if (left.count() <= 0) return false;
    }
  }

  Expected<std::unique_ptr<Communicator>> accept() override {
    auto link = peer_link(socket_.get(), monitor_, guest_);
    DLLM_CHECK_OK(link->send(FrameKind::kAnswer, {}));
    return worker_rank(rank_, ranks_, std::move(link));
  }
  void refuse(const std::string& why) override {
    send_once(socket_.get(), guest_, FrameKind::kAnswer, std::as_bytes(std::span(why)));
  }

 private:
  struct Guest {
    std::string sender;
    Nonce first{}, worker{};
  };

  Expected<void> challenge(const std::string& sender, std::span<const std::byte> bytes) {
    Guest guest;
    if (!take_front(bytes, guest.first) || !bytes.empty()) return {};
    constexpr std::size_t kMostGuests = 64;
    std::erase_if(guests_, [&](const Guest& one) { return one.sender == sender; });
    if (guests_.size() >= kMostGuests) guests_.erase(guests_.begin());
    guest.sender = sender;
    DLLM_TRY(guest.worker, make_nonce());
    DLLM_TRY(const Proof proof, prove(key_.bytes, "worker", guest.first, guest.worker, {}));
    guests_.push_back(guest);
    // Who has left, or does not read, does not get it.
    send_once(socket_.get(), sender, FrameKind::kChallenge, joined(guest.worker, proof));
    return {};
  }

  Expected<bool> take_offer(const std::string& sender, std::span<const std::byte> bytes, Offer& offer) {
    const auto guest = std::ranges::find(guests_, sender, &Guest::sender);
    Proof proof;
    if (guest == guests_.end() || !take_front(bytes, proof)) return false;
    const Guest known = *guest;
    guests_.erase(guest);
    DLLM_TRY(const Proof expected, prove(key_.bytes, "rank 0", known.first, known.worker, bytes));
    if (!same_proof(proof, expected)) return false;
    WireReader from(bytes);
    offer.rank = from.get<std::int32_t>(), offer.ranks = from.get<std::int32_t>();
    constexpr int kMostRanks = 1024;
    if (!from.sound() || offer.rank < 1 || offer.rank >= offer.ranks || offer.ranks > kMostRanks) return false;
    offer.bytes.assign(bytes.begin() + 8, bytes.end());
    guest_ = sender, rank_ = offer.rank, ranks_ = offer.ranks;
    return true;
  }

  std::unique_ptr<ZmqContext> context_;
  ZmqSocket socket_, monitor_;  ///< of who leaves
  RanksKey key_;
  int port_;
  std::vector<Guest> guests_;  ///< the oldest first
  std::string guest_;
  int rank_ = 0, ranks_ = 0;
};

}  // namespace

namespace {

struct Greeted {
  std::unique_ptr<Link> link;
  Greeting greeting;
};

/// Errors: `there` gets whether somebody listens at the address.
Expected<Greeted> reach(const ZmqContext& context, const std::string& worker, int rank, const RanksKey& key,
                        bool& there) {
  there = false;
  Greeted made;
  DLLM_TRY(made.link, connect_link(context, worker, rank, key.bytes));
  auto greeting = greet(*made.link, key);
  there = made.link->reached();
  if (!greeting && greeting.error().hint == kLookThere)
    return Error{ErrorCode::kIo, "nobody listens there", made.link->name(), kStartThere};
  DLLM_TRY(made.greeting, std::move(greeting));
  return made;
}

}  // namespace

Expected<std::shared_ptr<Communicator>> connect_ranks(const std::vector<std::string>& workers, const RanksKey& key,
                                                      const std::vector<std::byte>& offer, const Reach& reaching) {
  auto context = std::make_unique<ZmqContext>();
  std::vector<std::unique_ptr<Link>> links;
  std::vector<Greeting> greetings;
  for (const std::string& worker : workers) {
    DLLM_TRY(const HostPort at, parse_host_port(worker));
    DLLM_CHECK_OK(check_key(at, worker, key));
    if (std::ranges::count(workers, worker) > 1)
      return Error{ErrorCode::kUsage, "the worker is listed twice", worker, "start another for one more rank"};
  }
  for (const std::string& worker : workers) {
    if (reaching.go_on && !reaching.go_on())
      return Error{ErrorCode::kCancelled, "nobody waits for the ranks any more", worker, ""};
    bool there = false;
    auto made = reach(*context, worker, static_cast<int>(links.size()) + 1, key, there);
    const bool does_without = reaching.absent == Absent::kUnwilling || (reaching.absent == Absent::kSilent && !there);
    if (!made && does_without) {
      if (reaching.missing) reaching.missing(worker, made.error());
      continue;
    }
    DLLM_TRY(Greeted greeted, std::move(made));
    links.push_back(std::move(greeted.link));
    greetings.push_back(greeted.greeting);
  }
  const int ranks = static_cast<int>(links.size()) + 1;
  for (int rank = 1; rank < ranks; ++rank) {
    const auto i = static_cast<std::size_t>(rank) - 1;
    DLLM_CHECK_OK(send_offer(*links[i], key, greetings[i], offer_bytes(rank, ranks, offer)));
  }
  for (const auto& link : links) {
    DLLM_TRY(const std::vector<std::byte> answer, answer_of(*link, FrameKind::kAnswer, kAnswerMs));
    if (!answer.empty())
      return Error{ErrorCode::kMismatch, std::string(reinterpret_cast<const char*>(answer.data()), answer.size()),
                   link->name(), "start all ranks with the same version, model and options"};
  }
  return leader_rank(std::move(context), std::move(links));
}

bool listens(const std::string& worker, const RanksKey& key) {
  const ZmqContext context;
  bool there = false;
  return reach(context, worker, 1, key, there).has_value();
}

Expected<std::unique_ptr<RankListener>> RankListener::open(const std::string& address, const RanksKey& key) {
  DLLM_TRY(const HostPort named, parse_host_port(address));
  DLLM_TRY(const HostPort at, resolve(named));
  DLLM_CHECK_OK(check_key(at, address, key));
  auto context = std::make_unique<ZmqContext>();
  DLLM_TRY(ZmqSocket socket, ZmqSocket::make(*context, ZMQ_ROUTER));
  if (!key.bytes.empty()) DLLM_CHECK_OK(socket.protect(key.bytes, true));
  // With any domain of authentication, ZeroMQ refuses peers of its protocols 1 and 2, as it does with keys. Of those,
  // libzmq 4.3.4 ends the program by an assertion if the first message comes when the connection ends
  // (fuzz/fuzz_rank_port.cpp found it). Nobody has to answer for the domain.
  const std::string domain = "dllm";
  zmq_setsockopt(socket.get(), ZMQ_ZAP_DOMAIN, domain.data(), domain.size());
  DLLM_TRY(ZmqSocket monitor, make_monitor(*context, socket, ZMQ_EVENT_DISCONNECTED));
  const int yes = 1;
  zmq_setsockopt(socket.get(), ZMQ_ROUTER_MANDATORY, &yes, sizeof yes);
  if (zmq_bind(socket.get(), at.text().c_str()) < 0)
    return Error{ErrorCode::kIo, "cannot listen: " + zmq_text(), address, "an address of this machine and a free port"};
  char endpoint[256];
  std::size_t size = sizeof endpoint;
  zmq_getsockopt(socket.get(), ZMQ_LAST_ENDPOINT, endpoint, &size);
  DLLM_TRY(const HostPort bound, parse_host_port(std::string(endpoint).substr(std::strlen("tcp://"))));
  return std::unique_ptr<RankListener>(
      new Listener(std::move(context), std::move(socket), std::move(monitor), key, bound.port));
}

}  // namespace dllm

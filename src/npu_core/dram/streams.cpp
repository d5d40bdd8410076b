#include "npu_core/dram/streams.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <deque>
#include <limits>
#include <span>
#include <sstream>

#include "base/hash.h"
#include "base/to_size.h"
#include "base/try.h"

namespace dllm::npu::dram {
namespace {

constexpr std::size_t kRenewals = 64;

class Generator {
 public:
  Generator(const StreamSpec& spec, std::uint64_t footprint)
      : spec_(spec), state_(spec.seed), slots_(footprint / spec.request_bytes) {}

  std::uint64_t next(bool write) {
    if (spec_.pattern == Pattern::kRandom) return spec_.base + splitmix64(state_) % slots_ * spec_.request_bytes;
    const std::uint64_t step = spec_.pattern == Pattern::kStrided ? spec_.stride : spec_.request_bytes;
    const bool apart = spec_.separate_writes;
    const std::uint64_t room = (apart ? slots_ / 2 : slots_) * spec_.request_bytes;
    std::uint64_t& offset = offsets_[apart && write ? 1 : 0];
    if (offset + spec_.request_bytes > room) offset = 0;
    const std::uint64_t address = spec_.base + offset + (apart && write ? room : 0);
    offset += step;
    return address;
  }

  /// A function of the seed and the index only, so the addresses are the same for every mix.
  bool is_write(std::uint64_t index) const {
    if (spec_.write_fraction <= 0 || spec_.write_fraction >= 1) return spec_.write_fraction >= 1;
    std::uint64_t state = spec_.seed ^ (index * 0xd1342543de82ef95u);
    return static_cast<double>(splitmix64(state) >> 11) * 0x1p-53 < spec_.write_fraction;
  }

 private:
  const StreamSpec& spec_;
  std::uint64_t state_, slots_;
  std::uint64_t offsets_[2] = {0, 0};
};

}  // namespace

Expected<StreamResult> run_stream(MemorySystem& memory, const StreamSpec& spec) {
  const std::uint64_t footprint =
      spec.footprint == 0 ? memory.bytes() - std::min(spec.base, memory.bytes()) : spec.footprint;
  const auto bad = [](std::string what) { return Error{ErrorCode::kUsage, std::move(what), "stream", ""}; };
  if (spec.request_bytes == 0 || spec.request_bytes * 2 > footprint)
    return bad(fmt::format("requests of {} bytes do not fit twice into {} bytes", spec.request_bytes, footprint));
  if (spec.base > memory.bytes() || footprint > memory.bytes() - spec.base)
    return bad(fmt::format("the footprint ends beyond the memory's {} bytes", memory.bytes()));
  if (!(spec.write_fraction >= 0 && spec.write_fraction <= 1))
    return bad(fmt::format("a write fraction of {}", spec.write_fraction));
  if (spec.pattern == Pattern::kStrided && spec.stride == 0) return bad("a stride of 0");
  const std::uint64_t window =
      spec.outstanding != 0 ? spec.outstanding : 256 * static_cast<std::uint64_t>(memory.pseudochannels());
  Generator generator(spec, footprint);
  std::vector<TransferId> flight(to_size(std::min(window, spec.requests)));
  // Outstanding requests are in the ring `flight`, oldest first; a 64th of it is renewed at a time.
  const std::size_t group = std::max<std::size_t>(1, flight.size() / kRenewals);
  ClientCycle now = 0;
  std::size_t oldest = 0, waited = 0;  // from `oldest` on, this many places are free
  for (std::uint64_t i = 0; i < spec.requests; ++i) {
    if (i >= flight.size() && waited == 0) {
      waited = std::min(group, flight.size() - oldest);
      now = std::max(now, memory.wait_all(std::span(flight).subspan(oldest, waited)));
    }
    const bool write = generator.is_write(i);
    flight[oldest] =
        memory.submit_unchecked(generator.next(write), spec.request_bytes, write ? Access::kWrite : Access::kRead, now);
    oldest = oldest + 1 == flight.size() ? 0 : oldest + 1;
    if (waited > 0) --waited;
  }
  // Places that were freed and not refilled come last in the ring.
  memory.wait_all(std::span(flight).subspan(oldest + waited));
  memory.wait_all(std::span(flight).first(oldest));
  return summary(memory);
}

StreamResult summary(const MemorySystem& memory) {
  StreamResult result;
  result.bytes = memory.bytes_requested();
  result.seconds = memory.config().standard.ticks_to_ns(static_cast<double>(memory.finished())) * 1e-9;
  result.gbps = result.seconds > 0 ? static_cast<double>(result.bytes) / result.seconds * 1e-9 : 0;
  result.fraction_of_peak = result.gbps / memory.config().peak_gbps();
  return result;
}

Expected<std::vector<TraceRequest>> parse_trace(const std::string& text, const std::string& file) {
  std::vector<TraceRequest> requests;
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::istringstream words(line.substr(0, line.find('#')));
    std::string direction, address, bytes, arrival, extra;
    if (!(words >> direction)) continue;
    words >> address >> bytes >> arrival;
    const Error malformed{ErrorCode::kInvalidFile, "malformed request", fmt::format("{}:{}", file, number),
                          "a line is: R or W, byte address, bytes, arrival cycle; for example R 0x1000 64 120"};
    if (arrival.empty() || (words >> extra) || (direction != "R" && direction != "W")) return malformed;
    TraceRequest request;
    request.access = direction == "W" ? Access::kWrite : Access::kRead;
    const auto number_of = [](std::string_view word, auto& value) {
      const bool hexadecimal = word.starts_with("0x");
      if (hexadecimal) word.remove_prefix(2);
      const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value, hexadecimal ? 16 : 10);
      return error == std::errc() && end == word.data() + word.size();
    };
    if (!number_of(address, request.address) || !number_of(bytes, request.bytes) ||
        !number_of(arrival, request.arrival))
      return malformed;
    if (!requests.empty() && request.arrival < requests.back().arrival) {
      Error error = malformed;
      error.what = "the request arrives before the one above it";
      error.hint = "sort the trace by arrival";
      return error;
    }
    requests.push_back(request);
  }
  return requests;
}

Expected<std::vector<ClientCycle>> run_trace(MemorySystem& memory, const std::vector<TraceRequest>& requests) {
  // Nothing is simulated until all is submitted, so every arrival is accepted.
  std::vector<TransferId> ids;
  for (const TraceRequest& request : requests) {
    DLLM_TRY(const TransferId id, memory.submit(request.address, request.bytes, request.access, request.arrival));
    ids.push_back(id);
  }
  std::vector<ClientCycle> completions;
  for (const TransferId id : ids) completions.push_back(memory.wait(id));
  return completions;
}

}  // namespace dllm::npu::dram

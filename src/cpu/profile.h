#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace dllm::cpu {

/// Where the time of forward passes is spent, by kind of operator. An executor with a profile adds the wall time of
/// every operator; this costs two clock readings per operator, some 50 ns. Not thread-safe: one forward at a time.
class Profile {
 public:
  struct Entry {
    std::int64_t calls = 0;
    double seconds = 0;
  };

  /// `kind`: op_name() of the operator, or the executor's own name for a fused group or for work outside operators.
  void add(std::string_view kind, double seconds) {
    auto at = entries_.find(kind);
    if (at == entries_.end()) at = entries_.emplace(std::string(kind), Entry{}).first;
    at->second.calls += 1;
    at->second.seconds += seconds;
  }
  const std::map<std::string, Entry, std::less<>>& entries() const { return entries_; }
  void clear() { entries_.clear(); }

 private:
  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace dllm::cpu

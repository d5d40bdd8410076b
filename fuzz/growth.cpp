#include "growth.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

#include "families.h"

namespace dllm::fuzz {
namespace {

double processor_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Processor time of one call, of several where one is short: some kernels count in ticks of 4 ms.
double seconds_of(const Call& call, std::string_view input, int calls) {
  const double begin = processor_seconds();
  for (int i = 0; i < calls; ++i) call(input);
  return (processor_seconds() - begin) / calls;
}

/// Cut points of a text: between words and other characters.
std::vector<std::size_t> cuts_of(std::string_view text) {
  const auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  std::vector<std::size_t> cuts = {0};
  for (std::size_t i = 1; i < text.size(); ++i)
    if (!is_word(text[i - 1]) || !is_word(text[i])) cuts.push_back(i);
  cuts.push_back(text.size());
  return cuts;
}

std::uint64_t next(std::uint64_t& state) {  // splitmix64
  state += 0x9e3779b97f4a7c15U;
  std::uint64_t x = state;
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31U);
}

/// A copy whose words, where they end at a quote or a blank, have a number.
void append_numbered(std::string& to, std::string_view piece, std::size_t number) {
  for (std::size_t i = 0; i < piece.size(); ++i) {
    const bool ends = i > 0 && std::isalpha(static_cast<unsigned char>(piece[i - 1])) != 0 &&
                      (piece[i] == '"' || piece[i] == '\'' || piece[i] == ' ' || piece[i] == ':');
    if (ends) to += std::to_string(number);
    to += piece[i];
  }
}

/// Whether what seemed too much does not go on: neither the end of a cache nor a limit that is reached between the two
/// sizes is growth.
bool is_no_growth(const Make& make, const Call& call, std::size_t parts, double large, const GrowthLimits& limits) {
  if (large > limits.limit_seconds) return false;
  const double twice = seconds_of(call, make(2 * parts), 1);
  if (twice > limits.factor * large || twice > limits.limit_seconds) return false;
  // Some budget is used up, and the next input costs no more.
  if (twice > 0.5 * large && twice <= 1.5 * large) return true;
  if (twice > large) {
    const std::string four = make(4 * parts);
    return four.size() > limits.most_bytes || seconds_of(call, four, 1) <= limits.factor * limits.factor * large;
  }
  // Twice as much is refused at once: what grows comes to its most just below.
  std::size_t low = parts, high = 2 * parts;
  double most = large;
  for (int i = 0; i < 5; ++i) {
    const std::size_t middle = low + (high - low) / 2;
    const double seconds = seconds_of(call, make(middle), 1);
    most = std::max(most, seconds);
    (seconds > large / 2 ? low : high) = middle;
  }
  return most <= limits.refused_seconds;
}

}  // namespace

std::string growth_problem(const Make& make, const Call& call, const GrowthLimits& limits) {
  constexpr std::size_t kFirst = 8, kMost = std::size_t{1} << 30;
  constexpr int kSmallCalls = 4, kAttempts = 3, kFurther = 2;
  std::size_t parts = kFirst;
  std::string input;
  double large = 0;
  for (;; parts *= 2) {
    input = make(parts);
    if (input.size() > limits.most_bytes || parts >= kMost) return "";
    large = seconds_of(call, input, 1);
    if (large >= limits.enough_seconds) break;
  }
  const double most = limits.factor * limits.factor;
  std::string quarter = make(parts / 4);
  double small = 0;
  const auto exceeds = [&](double share) { return large > share * most * std::max(small, limits.floor_seconds); };
  int further = 0;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const double again = seconds_of(call, quarter, kSmallCalls);
    small = attempt == 0 ? again : std::min(small, again);
    if (exceeds(1)) {
      // What takes so long is not measured wrongly by as much.
      if (large < 20 * limits.enough_seconds) large = std::min(large, seconds_of(call, input, 1));
      continue;
    }
    if (!exceeds(0.6) || further == kFurther) return "";
    // What grows with the square beside something linear shows it better in longer inputs.
    ++further, parts *= 2, attempt = -1;
    input = make(parts);
    if (input.size() > limits.most_bytes) return "";
    quarter = make(parts / 4);
    large = seconds_of(call, input, 1);
  }
  if (is_no_growth(make, call, parts, large, limits)) return "";
  char text[200];
  std::snprintf(text, sizeof text, "%zu parts (%zu bytes) take %.1f ms, 4 times as many (%zu bytes) %.1f ms", parts / 4,
                quarter.size(), 1e3 * small, input.size(), 1e3 * large);
  return text;
}

std::string growth_problem_in_child(const Make& make, const Call& call, unsigned seconds, const GrowthLimits& limits) {
  int ends[2];
  if (::pipe(ends) != 0) return "no pipe";
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child < 0) return "no process";
  if (child == 0) {
    ::close(ends[0]);
    const rlimit limit{seconds, seconds + 1};  // a signal that can be told from others, then the end
    ::setrlimit(RLIMIT_CPU, &limit);
    const rlimit none{0, 0};
    ::setrlimit(RLIMIT_CORE, &none);
    const std::string problem = growth_problem(make, call, limits);
    const bool told = ::write(ends[1], problem.data(), problem.size()) == static_cast<ssize_t>(problem.size());
    ::_exit(told ? 0 : 1);
  }
  ::close(ends[1]);
  std::string problem(4096, '\0');
  std::size_t size = 0;
  for (ssize_t count = 0; (count = ::read(ends[0], problem.data() + size, problem.size() - size)) > 0;)
    size += static_cast<std::size_t>(count);
  problem.resize(size);
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFSIGNALED(status) && (WTERMSIG(status) == SIGXCPU || WTERMSIG(status) == SIGKILL))
    return "it takes more than " + std::to_string(seconds) + " s";
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return "the process ended with status " + std::to_string(status);
  return problem;
}

std::string stretched(std::string_view text, std::uint64_t choice, std::size_t count) {
  const std::vector<std::size_t> cuts = cuts_of(text);
  std::size_t at[4];
  for (std::size_t& one : at) one = cuts[next(choice) % cuts.size()];
  std::sort(at, at + 4);
  const std::uint64_t manner = next(choice);
  const bool nests = manner % 3 == 0, numbered = manner / 3 % 2 == 0;
  // A piece that is repeated is as likely to be short as long.
  const std::size_t end = nests || manner / 6 % 2 == 0 ? at[1] : at[3];
  const std::string_view piece = text.substr(at[0], end - at[0]);
  std::string result(text.substr(0, at[0]));
  for (std::size_t i = 0; i < count; ++i)
    numbered ? append_numbered(result, piece, i) : static_cast<void>(result += piece);
  if (!nests) return result + std::string(text.substr(end));
  result += text.substr(at[1], at[2] - at[1]);
  for (std::size_t i = 0; i < count; ++i) result += text.substr(at[2], at[3] - at[2]);
  return result + std::string(text.substr(at[3]));
}

void check_stretched(std::string_view text, const Call& call) {
  constexpr double kShare = 0.2;
  constexpr std::size_t kLongest = 4096;
  static double spent = 0;
  const double begin = processor_seconds();
  if (text.empty() || text.size() > kLongest || (spent > 0 && spent > kShare * begin)) return;
  std::uint64_t choice = text.size();
  for (const char c : text) choice = (choice ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  const auto make = [&](std::size_t parts) { return stretched(text, choice, parts); };
  GrowthLimits limits;
  limits.most_bytes = std::size_t{512} << 10U;
  const std::string problem = growth_problem(make, call, limits);
  spent += std::max(processor_seconds() - begin, 1e-9);
  if (problem.empty()) return;
  std::fprintf(stderr, "growth: the input stretched by choice %llu: %s\n", static_cast<unsigned long long>(choice),
               problem.c_str());
  std::abort();
}

void check_families(std::string_view target, const Call& call) {
  constexpr unsigned kSeconds = 60;
  for (const Family& family : families()) {
    if (family.target != target) continue;
    const std::string problem = growth_problem_in_child(family.make, call, kSeconds);
    if (problem.empty()) continue;
    std::fprintf(stderr, "growth: ERROR: %s of %s: %s\n", family.name, family.target, problem.c_str());
    std::exit(1);
  }
}

}  // namespace dllm::fuzz

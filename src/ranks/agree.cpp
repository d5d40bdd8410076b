#include "ranks/agree.h"

#include <fmt/format.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/try.h"
#include "ranks/wire.h"

namespace dllm {

Expected<std::optional<Error>> first_failure(Communicator& ranks, const Expected<void>& own) {
  constexpr std::uint64_t kLongest = 65536;
  WireWriter said;
  if (!own) {
    const Error& error = own.error();
    said.put(static_cast<std::uint8_t>(error.code));
    for (const std::string* text : {&error.what, &error.where, &error.hint}) said.put(text->substr(0, kLongest / 4));
  }
  const std::vector<std::byte> bytes = said.take();
  const std::uint64_t size = bytes.size();
  std::vector<std::size_t> sizes(static_cast<std::size_t>(ranks.size()), sizeof size);
  std::vector<std::uint64_t> lengths(sizes.size());
  DLLM_CHECK_OK(
      ranks.all_gather(std::as_bytes(std::span(&size, 1)), sizes, std::as_writable_bytes(std::span(lengths))));
  const auto no_state = [](std::size_t r) {
    return Error{ErrorCode::kIo, fmt::format("rank {} sent something else than its state", r), "ranks",
                 "start all ranks with the same version"};
  };
  std::size_t all = 0;
  for (std::size_t r = 0; r < sizes.size(); ++r) {
    if (lengths[r] > kLongest) return no_state(r);
    all += sizes[r] = static_cast<std::size_t>(lengths[r]);
  }
  std::vector<std::byte> texts(all);
  DLLM_CHECK_OK(ranks.all_gather(bytes, sizes, texts));
  std::size_t at = 0;
  for (std::size_t r = 0; r < sizes.size(); at += sizes[r++]) {
    if (sizes[r] == 0) continue;
    if (static_cast<int>(r) == ranks.rank()) return std::optional<Error>(own.error());
    WireReader from(std::span<const std::byte>(texts).subspan(at, sizes[r]));
    Error error;
    const auto code = from.get<std::uint8_t>();
    error.code = static_cast<ErrorCode>(code);
    error.what = from.text();
    const std::string where = from.text();
    error.where = ranks.name(static_cast<int>(r)) + (where.empty() ? "" : ": " + where);
    error.hint = from.text();
    if (!from.ended() || code > static_cast<std::uint8_t>(ErrorCode::kMismatch)) return no_state(r);
    return std::optional<Error>(std::move(error));
  }
  return std::optional<Error>();
}

Expected<void> agree(Communicator& ranks, const Expected<void>& own) {
  DLLM_TRY(std::optional<Error> failure, first_failure(ranks, own));
  if (failure) return *std::move(failure);
  return {};
}

}  // namespace dllm

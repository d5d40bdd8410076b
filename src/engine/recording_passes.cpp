// The passes of an answer whose tokens were revised. Lists of positions are texts such as "0-4,7", because most of them
// are runs.
#include "engine/recording_passes.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "base/to_size.h"
#include "base/try.h"

namespace dllm {
namespace {

using Positions = std::vector<std::int32_t>;

/// The number at the beginning of `text`, which is removed from it.
std::optional<std::int32_t> take_number(std::string_view& text) {
  std::int32_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || text.front() == '-') return std::nullopt;
  text.remove_prefix(to_size(end - text.data()));
  return value;
}

/// What the lists of positions may contain.
struct Bounds {
  std::int32_t length;
  std::int64_t& left;  ///< positions, in all lists of the file together
};

std::optional<Positions> parse_positions(std::string_view text, const Bounds& bounds) {
  Positions result;
  std::int32_t least = 0;
  while (!text.empty()) {
    if (!result.empty()) {
      if (text.front() != ',') return std::nullopt;
      text.remove_prefix(1);
      if (text.empty()) return std::nullopt;
    }
    const auto first = take_number(text);
    auto last = first;
    if (first && text.starts_with('-')) {
      text.remove_prefix(1);
      if (text.empty()) return std::nullopt;
      last = take_number(text);
    }
    if (!first || !last || *first < least || *last < *first || *last >= bounds.length) return std::nullopt;
    bounds.left -= *last - *first + 1;
    if (bounds.left < 0) return std::nullopt;
    for (std::int32_t p = *first; p <= *last; ++p) result.push_back(p);
    least = *last + 1;
  }
  return result;
}

std::string positions_text(const Positions& positions) {
  std::string text;
  for (std::size_t i = 0; i < positions.size();) {
    std::size_t end = i + 1;
    while (end < positions.size() && positions[end] == positions[end - 1] + 1) ++end;
    if (!text.empty()) text += ',';
    text += std::to_string(positions[i]);
    if (end - i > 1) text += fmt::format("{}{}", end - i > 2 ? '-' : ',', positions[end - 1]);
    i = end;
  }
  return text;
}

/// An absent list is empty.
Expected<Positions> read_positions(JsonObject& object, const std::string& key, const Bounds& bounds) {
  DLLM_TRY(const std::optional<std::string> text, object.optional_text(key));
  if (!text) return Positions();
  if (auto positions = parse_positions(*text, bounds)) return *std::move(positions);
  if (bounds.left < 0) return object.error(key, "the file lists too many positions");
  return object.error(key, fmt::format("not ascending positions below {} such as 0-4,7", bounds.length));
}

/// The keys of the changes that a pass makes, and of those that are merged, which fill no masks.
struct ChangeKeys {
  const char *revise, *remask, *ends, *commit = nullptr;
};
constexpr ChangeKeys kOwn = {"revise", "remask", "ends", "commit"};
constexpr ChangeKeys kMerged = {"merge_revise", "merge_remask", "merge_ends"};

Expected<std::vector<PassChange>> read_changes(JsonObject& object, const ChangeKeys& keys, const Bounds& bounds) {
  std::vector<PassChange> changes;
  using Kind = PassChange::Kind;
  for (const auto& [key, kind] : {std::pair(keys.commit, Kind::kCommit), std::pair(keys.revise, Kind::kRevise),
                                  std::pair(keys.remask, Kind::kRemask)}) {
    if (key == nullptr) continue;
    DLLM_TRY(const Positions positions, read_positions(object, key, bounds));
    for (const std::int32_t p : positions) changes.push_back({p, kind});
  }
  std::ranges::sort(changes, {}, &PassChange::position);
  if (const auto twice = std::ranges::adjacent_find(changes, {}, &PassChange::position); twice != changes.end())
    return object.error(keys.revise, fmt::format("position {} changes twice", twice->position));
  DLLM_TRY(const Positions ends, read_positions(object, keys.ends, bounds));
  for (const std::int32_t p : ends) {
    const auto change = std::ranges::lower_bound(changes, p, {}, &PassChange::position);
    if (change == changes.end() || change->position != p || change->kind == Kind::kRemask)
      return object.error(keys.ends, fmt::format("position {} gets no token in this pass", p));
    change->ends = true;
  }
  return changes;
}

Expected<PassRecord> read_pass(const nlohmann::json& json, std::string place, const Bounds& bounds,
                               std::int32_t settled) {
  DLLM_TRY(JsonObject object, recording_object(json, std::move(place)));
  PassRecord pass{.settled = settled};
  DLLM_TRY(pass.reviewed, read_positions(object, "review", bounds));
  DLLM_TRY(pass.changes, read_changes(object, kOwn, bounds));
  DLLM_TRY(pass.refreshed, read_positions(object, "refresh", bounds));
  DLLM_TRY(pass.merged, read_changes(object, kMerged, bounds));
  DLLM_TRY(const std::optional<bool> held, object.optional_boolean("held"));
  pass.held = held.value_or(false);
  if (object.contains("settled")) {
    DLLM_TRY(pass.settled, read_count(object, "settled", 0, bounds.length));
  }
  DLLM_CHECK_OK(object.finish());
  return pass;
}

/// What is judged or changed must have been filled. `filled`: by position, until this pass.
Expected<void> check_order(const JsonObject& answer, std::size_t index, const PassRecord& pass,
                           std::vector<bool>& filled) {
  const auto check = [&](std::int32_t position) -> Expected<void> {
    if (filled[to_size(position)]) return {};
    return answer.error(fmt::format("passes[{}]", index), fmt::format("position {} has no token yet", position));
  };
  for (const auto* const list : {&pass.reviewed, &pass.refreshed})
    for (const std::int32_t p : *list) DLLM_CHECK_OK(check(p));
  for (const PassChange& change : pass.changes)
    if (change.kind == PassChange::Kind::kCommit) filled[to_size(change.position)] = true;
  for (const auto* const changes : {&pass.changes, &pass.merged})
    for (const PassChange& change : *changes) DLLM_CHECK_OK(check(change.position));
  return {};
}

void append(std::string& text, const char* key, const Positions& positions) {
  if (positions.empty()) return;
  text += fmt::format("{}\"{}\": \"{}\"", text.empty() ? "" : ", ", key, positions_text(positions));
}

void append(std::string& text, const ChangeKeys& keys, const std::vector<PassChange>& changes) {
  Positions of_kind[3], ends;
  for (const PassChange& change : changes) {
    of_kind[static_cast<std::size_t>(change.kind)].push_back(change.position);
    if (change.ends) ends.push_back(change.position);
  }
  if (keys.commit != nullptr) append(text, keys.commit, of_kind[0]);
  append(text, keys.revise, of_kind[1]);
  append(text, keys.remask, of_kind[2]);
  append(text, keys.ends, ends);
}

}  // namespace

Expected<std::vector<PassRecord>> read_passes(JsonObject& answer, std::int32_t length, std::int64_t& left) {
  DLLM_TRY(const nlohmann::json* const list, answer.list("passes"));
  if (list->empty()) return answer.error("passes", "there are none");
  std::vector<PassRecord> passes;
  std::vector<bool> filled(to_size(length));
  for (std::size_t i = 0; i < list->size(); ++i) {
    DLLM_TRY(PassRecord pass, read_pass((*list)[i], fmt::format("{}, passes[{}]", answer.place(), i), {length, left},
                                        passes.empty() ? 0 : passes.back().settled));
    DLLM_CHECK_OK(check_order(answer, i, pass, filled));
    passes.push_back(std::move(pass));
  }
  return passes;
}

std::string passes_text(const std::vector<PassRecord>& passes) {
  std::string all;
  std::int32_t settled = 0;
  for (const PassRecord& pass : passes) {
    std::string text;
    append(text, "review", pass.reviewed);
    append(text, kOwn, pass.changes);
    append(text, "refresh", pass.refreshed);
    append(text, kMerged, pass.merged);
    if (pass.held) text += fmt::format("{}\"held\": true", text.empty() ? "" : ", ");
    if (pass.settled != settled) text += fmt::format("{}\"settled\": {}", text.empty() ? "" : ", ", pass.settled);
    settled = pass.settled;
    all += fmt::format("{}{{{}}}", all.empty() ? "" : ", ", text);
  }
  return all;
}

}  // namespace dllm

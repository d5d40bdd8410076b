#include "app/compare_sets.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>

#include "base/try.h"

namespace dllm::app {
namespace {

/// With fewer items a difference of one point is not significant: its 95 % interval is wider.
constexpr std::size_t kLeastItems = 1000;

Error usage(std::string what, std::string where, std::string hint) {
  return {ErrorCode::kUsage, std::move(what), std::move(where), std::move(hint)};
}

}  // namespace

void CompareSets::add(Flags& flags) {
  flags.add({.names = {"--items"},
             .value = "FILE",
             .help = "items to evaluate, in the formats of dllm eval",
             .takes_path = true,
             .apply = into(items_)});
  flags.add({.names = {"--choose"},
             .value = "FILE",
             .help = "items for choosing configurations; evaluated unless --publish or --on is given",
             .takes_path = true,
             .apply = into(choose_)});
  flags.add({.names = {"--publish"},
             .value = "FILE",
             .help = "items for the published figures; none of their prompts may be in --choose",
             .takes_path = true,
             .apply = into(publish_)});
  flags.add({.names = {"--on"},
             .value = "NAME",
             .help = "which of the two sets is evaluated",
             .default_text = "publish, if given",
             .choices = {"choose", "publish"},
             .apply = into(asked_, {"choose", "publish"}),
             .rare = true});
  flags.add({.names = {"--tried"},
             .value = "N",
             .help = "number of configurations tried on the set choose before this comparison",
             .apply = into(tried_, 1, 1 << 30),
             .rare = true});
  flags.add({.names = {"--recommend"},
             .value = "POINTS",
             .help = "name the configuration with the fewest passes among those that lose at most this many points; on "
                     "the publish set only",
             .apply = into(points_, 0.0, 100.0)});
}

void CompareSets::take(const CompareSpec& spec) {
  if (items_.empty() && choose_.empty() && publish_.empty()) items_ = spec.items;
  if (items_.empty()) {
    if (choose_.empty()) choose_ = spec.choose;
    if (publish_.empty()) publish_ = spec.publish;
  }
  if (tried_ == 0) tried_ = spec.tried;
}

Expected<void> CompareSets::resolve() {
  if (!items_.empty() && (!choose_.empty() || !publish_.empty()))
    return usage("the items are named twice", "--items", "give --items alone, or --choose and --publish");
  if (!items_.empty()) {
    if (!asked_.empty()) return usage("--items is neither of the two sets", "--on", "give --choose or --publish");
    path_ = items_;
  } else {
    if (asked_.empty()) asked_ = publish_.empty() ? "choose" : "publish";
    path_ = asked_ == "choose" ? choose_ : publish_;
  }
  if (path_.empty() && (!choose_.empty() || !publish_.empty()))
    return usage(fmt::format("there is no set '{}'", asked_), "--on", "name its file");
  if (path_.empty()) return usage("no items are named", "dllm compare", "give --items FILE");
  if (points_ >= 0 && asked_ != "publish")
    return usage("items used for choosing configurations recommend none", "--recommend",
                 "give items that were not used for choosing as --publish");
  return {};
}

Expected<void> CompareSets::check(const EvalSet& set, const EvalFlags& reading) const {
  if (points_ >= 0 && set.items.size() < kLeastItems)
    return usage(fmt::format("{} items: too few to resolve a difference of one point", set.items.size()), "--recommend",
                 fmt::format("use {} or more", kLeastItems));
  if (choose_.empty() || publish_.empty()) return {};
  const auto prompts = [&](const std::string& path) -> Expected<std::set<std::string>> {
    DLLM_TRY(const EvalSet all, read_eval_set(path, reading.format));
    std::set<std::string> result;
    for (const EvalItem& item : all.items) result.insert(item.prompt);
    return result;
  };
  DLLM_TRY(const auto chosen, prompts(choose_));
  DLLM_TRY(const auto published, prompts(publish_));
  std::size_t both = 0;
  for (const std::string& prompt : published) both += chosen.count(prompt);
  if (both == 0) return {};
  return Error{ErrorCode::kInvalidFile,
               fmt::format("{} of its {} prompts are in {} too", both, published.size(), choose_), publish_,
               "figures on items used for choosing cannot be published"};
}

/// The fewest passes, then the fewest rows.
const ComparisonRow* CompareSets::recommended(const std::vector<ComparisonRow>& rows) const {
  const ComparisonRow* best = nullptr;
  const auto cost = [](const ComparisonRow& row) { return std::pair(row.score.mean_nfe(), row.rows_forwarded()); };
  for (const ComparisonRow& row : rows)
    if (100 * row.against_first.difference >= -points_ && (best == nullptr || cost(row) < cost(*best))) best = &row;
  return best;
}

std::string CompareSets::notes(const std::vector<ComparisonRow>& rows) const {
  if (asked_.empty()) return {};
  std::string text =
      asked_ == "choose" ? "set choose: for choosing, not for publishing" : "set publish: not used for choosing";
  if (tried_ > 0) text += fmt::format("; {} configurations were tried on choose", tried_);
  text += "\n";
  if (points_ < 0) return text;
  const ComparisonRow& best = *recommended(rows);
  const Interval interval = best.against_first.interval;
  return text + fmt::format(
                    "recommended: {} ({:+.1f} points, {:+.1f} to {:+.1f}; {:.2f} times fewer passes, {:.0f} % of "
                    "the rows)\n",
                    best.name, 100 * best.against_first.difference, 100 * interval.low, 100 * interval.high,
                    rows.front().score.mean_nfe() / best.score.mean_nfe(),
                    100 * best.rows_forwarded() / rows.front().rows_forwarded());
}

nlohmann::ordered_json CompareSets::json(const std::vector<ComparisonRow>& rows) const {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (!asked_.empty()) json["set"] = asked_;
  if (tried_ > 0) json["tried"] = tried_;
  if (points_ >= 0) json["recommended"] = recommended(rows)->name;
  return json;
}

}  // namespace dllm::app

// dllm.compare(): several configurations on the same items.
#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>

#include "bindings.h"
#include "calls.h"
#include "eval/comparison.h"
#include "eval/eval_set.h"
#include "eval/verify_texts.h"
#include "model.h"
#include "options.h"
#include "raise.h"

namespace dllm::python {

namespace nb = nanobind;

namespace {

using Pair = std::pair<double, double>;
/// A name, how it was given, a model and its options.
using Configuration = std::tuple<std::string, std::string, const Model*, Dict>;

Pair pair_of(const Interval& interval) { return {interval.low, interval.high}; }

/// Where items come from, and which of them are used.
struct Items {
  std::string given{};  ///< a path, or the items as JSON lines
  bool is_path = false;
  std::string format{};
  ItemChoice choice{};
};

EvalSet read(const Items& items) {
  EvalSet set = take(items.is_path ? read_eval_set(items.given, items.format)
                                   : parse_eval_set(items.given, "items", items.format));
  take(choose_items(set, items.choice));
  return set;
}

struct Comparison {
  std::vector<Contender> contenders;
  std::vector<ComparisonRow> rows;
};

struct Prepared {
  const LanguageModel* model;
  GenerateOptions options;
};

/// The answer of one configuration to one item. Throws what a decoder or a signal's handler raises.
EvalRecord answer_of(const EvalSet& set, std::size_t item, const Prepared& configuration, const JudgeOptions& judging,
                     const std::string& name) {
  EvalModel bound;
  bound.answer = [&](const std::string& prompt) {
    return configuration.model->generate({ChatTurn{"user", prompt}}, configuration.options);
  };
  auto record = evaluate_item(set, item, Scoring::kGenerate, bound, judging);
  if (record && *record) return **std::move(record);
  Error error = record ? Error{ErrorCode::kCancelled, "the answer was cancelled", "", ""} : std::move(record).error();
  error.where = fmt::format("configuration '{}'{}{}", name, error.where.empty() ? "" : ", ", error.where);
  const nb::gil_scoped_acquire acquire;
  raise(error);
}

Comparison compare_items(const Items& items, bool run_code, const std::vector<Configuration>& configurations,
                         const nb::object& on_item) {
  const EvalSet set = read(items);
  take(check_scoring(*set.kind, Scoring::kGenerate));
  JudgeOptions judging;
  judging.run_code = run_code ? RunCode::kSandboxed : RunCode::kNo;
  Comparison result;
  std::vector<Prepared> prepared;
  for (const auto& [name, given, model, options] : configurations) {
    prepared.push_back({&*model->model, to_options(options)});
    take(prepared.back().model->resolve(prepared.back().options));
    result.contenders.push_back({name, given, {}});
  }
  for (std::size_t i = 0; i < set.items.size(); ++i) {
    // Every item goes through all configurations before the next: a slow minute of the machine slows all of them.
    for (std::size_t c = 0; c < prepared.size(); ++c)
      result.contenders[c].report.add(
          unlocked([&] { return answer_of(set, i, prepared[c], judging, result.contenders[c].name); }));
    check_signals();
    if (!on_item.is_none() && on_item(i + 1, set.items.size()).is(nb::handle(Py_False))) break;
  }
  result.rows = compare(result.contenders);
  return result;
}

std::vector<std::vector<bool>> verdicts(const Comparison& comparison) {
  std::vector<std::vector<bool>> result;
  for (const Contender& one : comparison.contenders) {
    std::vector<bool>& own = result.emplace_back();
    for (const EvalRecord& record : one.report.records) own.push_back(record.correct);
  }
  return result;
}

std::vector<std::vector<std::string>> texts(const Comparison& comparison) {
  std::vector<std::vector<std::string>> result;
  for (const Contender& one : comparison.contenders) {
    std::vector<std::string>& own = result.emplace_back();
    for (const EvalRecord& record : one.report.records) own.push_back(record.text);
  }
  return result;
}

}  // namespace

void bind_comparison(nb::module_& module) {
  nb::class_<ComparisonRow>(module, "ComparisonRow",
                            "A configuration's figures, and its difference from the first one, item by item.")
      .def_ro("name", &ComparisonRow::name)
      .def_ro("options", &ComparisonRow::options, "as given")
      .def_prop_ro("items", [](const ComparisonRow& row) { return row.score.items; })
      .def_prop_ro(
          "accuracy", [](const ComparisonRow& row) { return row.score.accuracy(); }, "share of items that are right")
      .def_prop_ro(
          "accuracy_interval", [](const ComparisonRow& row) { return pair_of(row.accuracy); }, "95 %, Wilson's")
      .def_prop_ro(
          "difference", [](const ComparisonRow& row) { return row.against_first.difference; },
          "accuracy minus the first one's; 0 for the first")
      .def_prop_ro(
          "difference_interval", [](const ComparisonRow& row) { return pair_of(row.against_first.interval); },
          "95 %, paired by item (Newcombe's)")
      .def_prop_ro(
          "p_value", [](const ComparisonRow& row) { return row.against_first.p_value; }, "McNemar's exact test")
      .def_prop_ro(
          "nfe", [](const ComparisonRow& row) { return row.score.mean_nfe(); }, "forward passes per item")
      .def_prop_ro("rows_forwarded", &ComparisonRow::rows_forwarded, "per item")
      .def_prop_ro("rows_scored", &ComparisonRow::rows_scored, "per item")
      .def_prop_ro("milliseconds", &ComparisonRow::milliseconds, "per item")
      .def_ro("agreement", &ComparisonRow::agreement, "share of items with the first one's text")
      .def("__repr__", [](const ComparisonRow& row) {
        return fmt::format("<{}: {:.1f} %, {:+.1f} points ({:+.1f} to {:+.1f}), {:.2f} passes>", row.name,
                           100 * row.score.accuracy(), 100 * row.against_first.difference,
                           100 * row.against_first.interval.low, 100 * row.against_first.interval.high,
                           row.score.mean_nfe());
      });
  nb::class_<Comparison>(module, "Comparison", "What dllm.compare() found.")
      .def_ro("rows", &Comparison::rows, "one per configuration, in their order")
      .def_prop_ro("correct", &verdicts, "per configuration, whether each item is right")
      .def_prop_ro("texts", &texts, "per configuration, the answer to each item")
      .def("markdown", [](const Comparison& comparison) { return comparison_table(comparison.rows).markdown(); })
      .def("csv", [](const Comparison& comparison) { return comparison_table(comparison.rows).csv(); })
      .def("json",
           [](const Comparison& comparison) { return comparison_json(comparison.contenders, comparison.rows).dump(2); })
      .def("__str__", [](const Comparison& comparison) { return comparison_table(comparison.rows).aligned(); });
  nb::class_<ItemChoice>(module, "ItemChoice").def(nb::init<std::string, std::int32_t, std::int32_t, std::int32_t>());
  nb::class_<Items>(module, "Items").def(nb::init<std::string, bool, std::string, ItemChoice>());
  module.def("compare_items", &compare_items, nb::arg("items"), nb::arg("run_code"), nb::arg("configurations"),
             nb::arg("on_item").none());
  module.def("verify_texts", &verify_texts);
  module.def("verify_prompts", &verify_prompts);
}

}  // namespace dllm::python

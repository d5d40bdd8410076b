// Decoders written in Python: dllm.Decoder.
#include <fmt/format.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>

#include "bindings.h"
#include "calls.h"
#include "candidates.h"
#include "decode/decoder/decoder.h"
#include "dllm/decoder.h"
#include "engine/option_parts.h"
#include "engine/user_decoder.h"
#include "options.h"
#include "raise.h"

namespace dllm::python {

namespace nb = nanobind;

namespace {

const UserDecoder::Words kWords{.decide = "decode()",
                                .predictions = "candidates.position",
                                .revise = "dllm.Revise and dllm.Remask change it",
                                .declare = "set revises = True in the class",
                                .likely = "candidates.top_tokens"};

bool overrides(const nb::handle& type, const char* method) {
  const nb::object base = nb::module_::import_("dllm.decoder").attr("Decoder");
  return !type.attr(method).is(base.attr(method));
}

class PythonDecoder final : public UserDecoder {
 public:
  PythonDecoder(nb::object self, const std::string& name)
      : UserDecoder(declared(self, self.type(), name), kWords),
        self_(std::move(self)),
        wants_(overrides(self_.type(), "wanted")),
        holds_(overrides(self_.type(), "holds")) {}
  /// What an object says, or the class, which is asked before there is one. Both know what the class overrides.
  static Declared declared(const nb::handle& from, const nb::handle& type, const std::string& name) {
    return {.name = name,
            .top_tokens = nb::cast<std::int32_t>(from.attr("top_tokens")),
            .revises = nb::cast<bool>(from.attr("revises")),
            .logits = nb::cast<bool>(from.attr("logits")),
            .shadows = overrides(type, "shadowed")};
  }
  /// Raises UsageError if the object says something else.
  void check_declared(const MethodTraits& traits) const {
    const MethodTraits own = UserDecoder::declared().traits();
    if (own.revises != traits.revises) refuse("the object and its class differ", "revises", "set it in the class");
    if (own.commits_other != traits.commits_other)
      refuse("the object and its class differ", "top_tokens", "set it in the class");
  }
  ~PythonDecoder() override {
    if (exiting()) {
      (void)self_.release();
      return;
    }
    const nb::gil_scoped_acquire acquire;
    self_.reset();
  }

 private:
  std::optional<std::vector<Position>> ask_wanted(const DecodeContext& context) override {
    if (!wants_) return std::nullopt;
    const Gil gil;
    const Position begin = std::max(context.window.begin, context.canvas.prompt_end());
    std::vector<Position> all(static_cast<std::size_t>(context.window.end - begin));
    std::iota(all.begin(), all.end(), begin);
    return positions_of(self_.attr("wanted")(context_of(context, previous_)), all, "wanted()");
  }

  std::vector<Position> ask_shadowed(const DecodeContext& context) override {
    const Gil gil;
    std::vector<Position> decided = generated_positions(context);
    std::erase_if(decided, [&](Position p) { return context.canvas.masked(p); });
    return positions_of(self_.attr("shadowed")(context_of(context, previous_)), decided, "shadowed()");
  }

  bool ask_holds(const DecodeContext& context) const override {
    if (!holds_) return false;
    const Gil gil;
    return is_true(self_.attr("holds")(context_of(context, previous_)));
  }

  std::vector<Decision> ask_decisions(const DecodeContext& context, std::span<const Candidate> candidates) override {
    const Declared& own = UserDecoder::declared();
    const Gil gil;
    if (own.logits && std::ranges::any_of(candidates, [](const Candidate& one) { return one.logits.empty(); }))
      fail({ErrorCode::kUnsupported, "this backend returns no logits", "the decoder '" + own.name + "'",
            "set logits = False in the class, or give backend='cpu'"});
    const auto top = static_cast<std::size_t>(own.top_tokens);
    const auto columns = std::make_shared<Candidates>(columns_of(candidates, top, own.logits));
    Context told = context_of(context, previous_);
    if (own.shadows) told.shadows = std::make_shared<Candidates>(columns_of(context.shadows, top, own.logits));
    const nb::object chosen = self_.attr("decode")(std::move(told), columns);
    previous_ = columns;
    std::vector<Position> positions;
    for (const Candidate& candidate : candidates) positions.push_back(candidate.position);
    std::vector<Decision> decisions;
    for (const nb::handle one : items(chosen, positions, "decode()")) decisions.push_back(decision_of(one));
    return decisions;
  }

  [[noreturn]] void fail(Error error) const override {
    const Gil gil;  // most checks follow the call into Python
    raise(error);
  }

  std::vector<Position> positions_of(const nb::object& chosen, const std::vector<Position>& among,
                                     const char* method) const {
    std::vector<Position> result;
    for (const nb::handle one : items(chosen, among, method)) result.push_back(number_of(one, method));
    return result;
  }

  /// What was returned, as a list. A boolean array, or a list of bools, is a mask over `among`.
  nb::list items(const nb::object& chosen, const std::vector<Position>& among, const char* method) const {
    if (chosen.is_none())
      refuse("it returned None", method,
             "is a return missing? Return positions; [] leaves the choice to the engine, which commits the best");
    nb::list all;
    try {
      all = nb::list(chosen);
    } catch (nb::python_error& error) {
      if (!error.matches(PyExc_TypeError)) throw;
      refuse("it returned " + nb::cast<std::string>(nb::repr(chosen)), method,
             "return positions, or pairs of a position and a token");
    }
    std::size_t bools = 0;
    for (const nb::handle one : all) bools += is_bool(one) ? 1 : 0;
    if (bools == 0) return all;
    if (bools != all.size())
      refuse("it returned positions and truth values", method, "return positions, or a mask over all of them");
    if (all.size() != among.size())
      refuse(fmt::format("it returned a mask of {} for {} positions", all.size(), among.size()), method,
             "a mask has one truth value per candidate; or return positions");
    nb::list positions;
    for (std::size_t i = 0; i < among.size(); ++i)
      if (is_true(all[i])) positions.append(among[i]);
    return positions;
  }

  static bool is_true(const nb::object& value) {
    const int truth = PyObject_IsTrue(value.ptr());
    if (truth < 0) throw nb::python_error();
    return truth != 0;
  }

  /// NumPy's scalars have a dtype.
  static bool is_bool(const nb::handle& one) {
    if (nb::isinstance<nb::bool_>(one)) return true;
    return nb::hasattr(one, "dtype") && nb::cast<std::string>(one.attr("dtype").attr("kind")) == "b";
  }

  /// A position or a token, as Python's or NumPy's number.
  std::int32_t number_of(const nb::handle& one, const char* method) const {
    std::int32_t number = -1;
    if (!nb::try_cast(nb::hasattr(one, "item") ? nb::object(one.attr("item")()) : nb::borrow(one), number))
      refuse("it returned " + nb::cast<std::string>(nb::repr(one)), method,
             "return positions, or pairs of a position and a token");
    return number;
  }

  /// -1 would mean the predicted one.
  TokenId checked(TokenId token, Position position) const {
    if (token < 0)
      refuse(fmt::format("token {} is not among the best of position {}", token, position), "decode()",
             "leave the token out for the predicted one");
    return token;
  }

  /// A position, a position and a token, a dllm.Revise or a dllm.Remask.
  Decision decision_of(const nb::handle& chosen) const {
    const auto kind = nb::hasattr(chosen, "kind") ? nb::cast<std::string>(chosen.attr("kind")) : std::string("commit");
    Decision decision;
    std::pair<Position, TokenId> both;
    if (kind != "commit") {
      decision.kind = kind == "remask" ? Decision::Kind::kRemask : Decision::Kind::kRevise;
      decision.position = number_of(chosen.attr("position"), "decode()");
      if (nb::hasattr(chosen, "token") && !chosen.attr("token").is_none())
        decision.token = checked(number_of(chosen.attr("token"), "decode()"), decision.position);
    } else if (nb::try_cast(chosen, both)) {
      decision.position = both.first;
      decision.token = checked(both.second, both.first);
    } else {
      decision.position = number_of(chosen, "decode()");
    }
    return decision;
  }

  nb::object self_;
  bool wants_, holds_;
  std::shared_ptr<Candidates> previous_;  ///< of the pass before
};

/// A row of the option table from a dllm.Option.
OptionRow<OptionMap> row_of(const nb::handle& option) {
  OptionInfo info;
  info.key = nb::cast<std::string>(option.attr("key"));
  info.meaning = nb::cast<std::string>(option.attr("meaning"));
  info.unit = nb::cast<std::string>(option.attr("unit"));
  info.choices = nb::cast<std::vector<std::string>>(option.attr("choices"));
  const OptionValue standard = take(to_value(option.attr("default"), info.key));
  info.type = std::holds_alternative<bool>(standard)           ? OptionType::kBool
              : std::holds_alternative<std::int64_t>(standard) ? OptionType::kInteger
              : std::holds_alternative<double>(standard)       ? OptionType::kNumber
              : info.choices.empty()                           ? OptionType::kText
                                                               : OptionType::kChoice;
  if (info.type == OptionType::kInteger) {
    info.minimum = -kMostInteger;
    info.maximum = kMostInteger;
  }
  if (const nb::object least = option.attr("minimum"); !least.is_none()) info.minimum = nb::cast<double>(least);
  if (const nb::object most = option.attr("maximum"); !most.is_none()) info.maximum = nb::cast<double>(most);
  info.standard = standard;
  return take(user_option_row(std::move(info)));
}

void register_class(const nb::object& type) {
  const auto name = nb::cast<std::string>(type.attr("name"));
  OptionRows<OptionMap> rows;
  for (const nb::handle option : type.attr("options")) rows.push_back(row_of(option));
  // Entries live as long as the process. The class is never freed: at exit there may be no interpreter to free it.
  PyObject* const kept = nb::object(type).release().ptr();
  const MethodTraits traits = PythonDecoder::declared(type, type, name).traits();
  const auto make = [kept, name, rows, traits](const OptionMap& options, const MethodContext& context) {
    const Gil gil;
    nb::dict given;
    for (const auto& row : rows) given[row.info.key.c_str()] = to_python(*row.load(options));
    nb::object self = nb::borrow(kept).attr("_made")(given, context.length, context.block_length);
    auto decoder = std::make_unique<PythonDecoder>(std::move(self), name);
    decoder->check_declared(traits);
    return decoder;
  };
  take(add_decoder(declare_method<Decoder, OptionMap>(name, nb::cast<std::string>(type.attr("meaning")), rows, make)
                       .always(traits)));
}

}  // namespace

void bind_decoders(nb::module_& module) {
  bind_candidates(module);
  module.def("register_decoder", &register_class);
}

}  // namespace dllm::python

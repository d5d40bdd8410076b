#include "model.h"

#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <filesystem>
#include <tuple>

#include "arrays.h"
#include "base/log.h"
#include "bindings.h"
#include "calls.h"
#include "engine/load_options.h"
#include "eval/likelihood.h"
#include "model/hf_description.h"
#include "model/model.h"
#include "options.h"
#include "raise.h"

namespace dllm::python {

namespace nb = nanobind;

namespace {

using Ids = std::vector<std::int32_t>;

/// One value of a keyword. None and an empty text: not given.
void set_option(LoadOptions& options, const LoadOption& option, const nb::handle& value) {
  if (value.is_none()) return;
  const OptionValue given = take(to_value(value, option.info().key));
  if (given != OptionValue("")) option.row.store(options, take(fit_option(option.info(), given)));
}

LoadOptions to_load_options(const Dict& given) {
  LoadOptions options;
  for (const auto& [name, value] : given) {
    const auto key = nb::cast<std::string>(name);
    if (key == "warnings") {
      options.warnings = nb::cast<bool>(value);
      continue;
    }
    const LoadOption* const option = find_load_option(key);
    if (option == nullptr) raise({ErrorCode::kUsage, "there is no such option of loading a model", key, ""});
    const bool many = option->info().repeated && !nb::isinstance<nb::str>(value) && nb::hasattr(value, "__iter__");
    if (!many) {
      set_option(options, *option, value);
      continue;
    }
    for (const nb::handle one : nb::iter(value)) set_option(options, *option, one);
  }
  return options;
}

Model load(const std::string& path, const Dict& given, const nb::object& progress) {
  LoadOptions options = to_load_options(given);
  options.progress = [&progress](double done) {
    const Gil gil;
    check_signals();
    return progress.is_none() || !nb::cast<bool>(nb::bool_(progress(done).is(nb::handle(Py_False))));
  };
  options.poll = &poll_python;
  return {std::make_shared<LanguageModel>(take(unlocked([&] { return LanguageModel::load(path, options); })))};
}

/// A step callback that lets Ctrl-C end a generation, and calls `on_step`. What Python raises in it goes through the
/// engine to the caller.
StepCallback watched(const nb::object& on_step) {
  return [&on_step](const StepEvent& event) {
    if (exiting()) return false;
    const Gil gil;
    check_signals();
    return on_step.is_none() || !on_step(event).is(nb::handle(Py_False));
  };
}

Generation generate(const Model& self, const PythonPrompt& asked, const Dict& given, const nb::object& on_step) {
  const Prompt prompt = to_prompt(asked);
  const GenerateOptions options = to_options(given);
  const StepCallback callback = watched(on_step);
  return take(unlocked([&] { return run_generate(*self.model, prompt, options, callback, {}); }));
}

std::vector<Generation> generate_batch(const Model& self, const std::vector<PythonTurns>& prompts, const Dict& given,
                                       std::int32_t batch, const nb::object& on_answer,
                                       const std::vector<std::uint64_t>& seeds) {
  const GenerateOptions options = to_options(given);
  std::vector<std::vector<ChatTurn>> conversations;
  for (const auto& turns : prompts) conversations.push_back(to_turns(turns));
  const AnswerCallback callback = [&on_answer](std::size_t index, const Generation& answer) {
    if (exiting()) return false;
    const Gil gil;
    check_signals();
    return on_answer.is_none() || !on_answer(index, answer).is(nb::handle(Py_False));
  };
  return take(unlocked([&] { return self.model->generate_batch(conversations, options, batch, callback, {}, seeds); }));
}

nb::ndarray<nb::numpy, float> logits(const Model& self, const Ids& ids, bool causal, std::int32_t canvas) {
  auto values = take(unlocked([&] { return self.model->logits(ids, causal, canvas); }));
  return to_numpy<float>(std::move(values), {ids.size(), static_cast<std::size_t>(self.model->vocab_size())});
}

/// (log-likelihood, standard error, samples) of a continuation.
std::tuple<double, double, std::int32_t> score(const Model& self, const Ids& context, const Ids& continuation,
                                               std::int32_t samples, std::uint64_t seed, double cfg_scale) {
  const auto length = static_cast<std::int32_t>(continuation.size());
  const auto first = static_cast<std::int32_t>(context.size());
  Ids ids = context;
  ids.insert(ids.end(), continuation.begin(), continuation.end());
  const LikelihoodPlan plan = self.model->autoregressive()
                                  ? LikelihoodPlan::whole(length)
                                  : take(LikelihoodPlan::sampled(length, {.samples = samples, .rng = {seed, 0}}));
  std::vector<double> values;
  for (std::int32_t sample = 0; sample < plan.samples(); ++sample) {
    Ids masked = plan.mask(sample);
    for (std::int32_t& position : masked) position += first;
    const auto logs = take(unlocked([&] { return self.model->masked_log_probs(ids, masked, cfg_scale, first); }));
    values.push_back(plan.value(logs));
    check_signals();
  }
  const LikelihoodEstimate estimate = plan.combine(values);
  return {estimate.log_likelihood, estimate.standard_error, estimate.samples};
}

/// The architecture of a model and who sees whom in it (ModelDesc::causal_block), as the importer reads them.
std::pair<std::string, std::int32_t> describe_model(const std::string& path) {
  if (std::filesystem::is_directory(path)) {
    const ModelDesc desc = take(describe_hf(path));
    return {desc.architecture, desc.causal_block};
  }
  const Log silent([](LogLevel, const std::string&) {});
  const auto model = take(dllm::Model::load(path, silent));
  return {model->desc().architecture, model->desc().causal_block};
}

Dict special_tokens(const Model& self) {
  const SpecialTokens special = self.model->special_tokens();
  Dict result;
  result["bos"] = nb::cast(special.bos);
  result["eos"] = nb::cast(special.eos);
  result["eot"] = nb::cast(special.eot);
  result["pad"] = nb::cast(special.pad);
  result["mask"] = nb::cast(special.mask);
  result["add_bos"] = nb::cast(special.add_bos);
  return result;
}

}  // namespace

std::vector<ChatTurn> to_turns(const PythonTurns& turns) {
  std::vector<ChatTurn> result;
  for (const auto& [role, content, images] : turns) {
    result.push_back({role, content});
    for (const nb::bytes& image : images) result.back().images.emplace_back(image.c_str(), image.size());
  }
  return result;
}

Prompt to_prompt(PythonPrompt prompt) {
  if (auto* ids = std::get_if<Ids>(&prompt)) return std::move(*ids);
  return to_turns(std::get<0>(prompt));
}

Expected<Generation> run_generate(const LanguageModel& model, const Prompt& prompt, const GenerateOptions& options,
                                  const StepCallback& on_step, std::stop_token stop) {
  if (const auto* ids = std::get_if<Ids>(&prompt)) return model.generate_ids(*ids, options, on_step, std::move(stop));
  return model.generate(std::get<0>(prompt), options, on_step, std::move(stop));
}

void bind_model(nb::module_& module) {
  nb::class_<ChoiceScore>(module, "Choice", "One of several answers, and how probable it is.")
      .def_ro("text", &ChoiceScore::text)
      .def_ro("tokens", &ChoiceScore::tokens)
      .def_ro("log_probability", &ChoiceScore::log_probability, "nats, among all answers")
      .def_ro("probability", &ChoiceScore::probability, "among the given choices");
  module.def("describe_model", &describe_model, nb::arg("path"),
             "(architecture, attention): attention 0 sees the whole canvas, 1 is causal, B is causal between blocks.");
  nb::class_<Model>(module, "Model")
      .def_static("load", &load, nb::arg("path"), nb::arg("options"), nb::arg("progress").none())
      .def("generate", &generate, nb::arg("prompt"), nb::arg("options"), nb::arg("on_step").none())
      .def("generate_batch", &generate_batch, nb::arg("prompts"), nb::arg("options"), nb::arg("batch"),
           nb::arg("on_answer").none(), nb::arg("seeds"))
      .def("logits", &logits)
      .def("score", &score)
      .def("masked_log_probs",
           [](const Model& self, const Ids& ids, const Ids& masked, double cfg_scale, std::int32_t prompt) {
             return to_numpy<double>(
                 take(unlocked([&] { return self.model->masked_log_probs(ids, masked, cfg_scale, prompt); })));
           })
      .def("choose",
           [](const Model& self, const Ids& prompt, const std::vector<std::string>& choices) {
             return take(unlocked([&] { return self.model->score_choices(prompt, choices); }));
           })
      .def("resolve",
           [](const Model& self, const Dict& given) { return to_dict(take(self.model->resolve(to_options(given)))); })
      .def("tokenize", [](const Model& self, const std::string& text,
                          bool special) { return take(self.model->tokenize(text, special)); })
      .def("prompt_ids", [](const Model& self, const std::string& text,
                            bool special) { return take(self.model->prompt_ids(text, special)); })
      .def("detokenize",
           [](const Model& self, const Ids& ids, bool special) {
             const std::string text = take(self.model->detokenize(ids, special));
             return nb::bytes(text.data(), text.size());
           })
      .def("apply_template", [](const Model& self,
                                const PythonTurns& turns) { return take(self.model->apply_template(to_turns(turns))); })
      .def("special_tokens", &special_tokens)
      .def_prop_rw(
          "chat_template", [](const Model& self) { return self.model->chat_template(); },
          [](const Model& self, const std::string& source) { take(self.model->set_chat_template(source)); })
      .def_prop_ro("vocab_size", [](const Model& self) { return self.model->vocab_size(); })
      .def_prop_ro("context_length", [](const Model& self) { return self.model->context_length(); })
      .def_prop_ro("autoregressive", [](const Model& self) { return self.model->autoregressive(); })
      .def_prop_ro("architecture", [](const Model& self) { return self.model->architecture(); })
      .def_prop_ro("name", [](const Model& self) { return self.model->name(); })
      .def_prop_ro("isa", [](const Model& self) { return self.model->isa(); })
      .def_prop_ro("arithmetic", [](const Model& self) { return self.model->arithmetic(); })
      .def_prop_ro("threads", [](const Model& self) { return self.model->threads(); });
}

}  // namespace dllm::python

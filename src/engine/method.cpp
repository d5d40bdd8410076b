// A method's choice on its way: from text, laid over others, completed for a model, made.
#include "engine/method.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/nearest.h"
#include "base/try.h"
#include "decode/loop/canvas_methods.h"
#include "decode/registry.h"
#include "engine/common_options.h"
#include "engine/logit_bias.h"
#include "engine/presets.h"

namespace dllm {
namespace {

Error unknown_key(std::string_view key) {
  std::vector<std::string> known = {"preset"};
  const OptionsInfo& all = options_info();
  for (const OptionInfo& one : all.common) known.push_back(one.key);
  for (const PartInfo& part : all.parts) {
    if (!part.selector.key.empty()) known.push_back(part.selector.key);
    for (const MethodInfo& method : part.methods)
      for (const OptionInfo& one : method.options) known.push_back(one.key);
  }
  const std::string near = nearest(key, known);
  return {ErrorCode::kUsage, "no method has such an option", std::string(key),
          near.empty() ? "" : "did you mean '" + near + "'?"};
}

/// The method's own name, from a name or alias.
Expected<std::string> method_name(const OptionPart& part, std::string_view text) {
  for (const auto* list : {&part.methods, &part.canvas_methods})
    if (const MethodDeclaration* const method = named(*list, text)) return method->info.name;
  Error error = unknown_method(text, part.selector.choices);
  error.where = part.selector.flags.front();
  return error;
}

/// One part of the options, for one model.
class PartResolution {
 public:
  PartResolution(const OptionPart& part, const GenerateOptions& given, const ModelDesc& desc)
      : part_(part), given_(given), choice_(given.*part.given), desc_(desc) {}

  Expected<const MethodDeclaration*> run(const MethodDeclaration* decoder, ResolvedOptions& resolved) const {
    MethodChoice& result = resolved.*part_.resolved;
    const auto& methods = is_canvas() ? part_.canvas_methods : part_.methods;
    result.name = choice_.name.empty() ? standard(decoder) : choice_.name;
    if (result.name.empty() || part_.standard(desc_).empty()) {  // modes, and the model has one way of decoding
      DLLM_CHECK_OK(check_one_way(result.name));
      result.name.clear();
      return nullptr;
    }
    if (methods.empty()) {
      if (!choice_.name.empty()) return meaningless_on_canvas(part_.selector);
      for (const auto& [key, value] : choice_.options) return unread(nullptr, key);
      return nullptr;
    }
    DLLM_TRY(const MethodDeclaration* const method, find(methods, result.name));
    result.name = method->info.name;
    if (method->suits)
      if (auto fine = method->suits(desc_); !fine)
        return option_error(part_.selector, fine.error().what, fine.error().hint);
    for (const auto& [key, value] : choice_.options)
      if (method->option(key) == nullptr) return unread(method, key);
    DLLM_TRY(result.options, method->complete(choice_.options, desc_, method_context(resolved, desc_)));
    return method;
  }

 private:
  bool is_canvas() const { return desc_.canvas.length > 0; }

  /// Errors: a method that the model is not for, and any option.
  Expected<void> check_one_way(const std::string& name) const {
    const auto refused = [](const OptionInfo& info) {
      return option_error(info, "the model was trained for one way of decoding", "leave the option out");
    };
    const bool fits = name.empty() || std::ranges::any_of(part_.methods, [&](const MethodDeclaration* one) {
                        return one->info.name == name && one->suits && one->suits(desc_);
                      });
    if (!fits) return refused(part_.selector);
    for (const auto& [key, value] : choice_.options) {
      const OptionInfo* const info = part_.find(key);
      return info == nullptr ? unread(nullptr, key) : refused(*info);
    }
    return {};
  }

  /// The name of the part's method where none is given. What the decoder's options ask for, its declaration says.
  std::string standard(const MethodDeclaration* decoder) const {
    if (part_.name == "window" && !given_.block_length && decoder != nullptr && decoder->implied_window)
      if (std::string name = decoder->implied_window(given_.decoder.options); !name.empty()) return name;
    return part_.standard(desc_);
  }

  Expected<const MethodDeclaration*> find(const std::vector<const MethodDeclaration*>& methods,
                                          const std::string& name) const {
    if (const MethodDeclaration* const method = named(methods, name)) return method;
    const std::string flag = part_.selector.flags.empty() ? part_.name : part_.selector.flags.front();
    if (const MethodDeclaration* const other = is_canvas() ? named(part_.methods, name) : nullptr)
      return Error{
          ErrorCode::kUsage,
          fmt::format("'{}' fills masks, and the model refines whole canvases of random tokens", other->info.name),
          flag, fmt::format("leave the option out, or give {}", methods.front()->info.name)};
    std::vector<std::string> known;
    for (const MethodDeclaration* method : methods) known.push_back(method->info.name);
    Error error = unknown_method(name, known);
    error.where = flag;
    return error;
  }

  /// `method`: null if the model has no method for this part.
  Error unread(const MethodDeclaration* method, const std::string& key) const {
    const OptionInfo* info = part_.find(key);
    if (info == nullptr) {
      std::vector<std::string> known;
      for (const MethodDeclaration* one : part_.methods)
        for (const OptionInfo& option : one->info.options) known.push_back(option.key);
      return {ErrorCode::kUsage, fmt::format("no {} has an option of this name", part_.name), key,
              choice_hint(key, known)};
    }
    if (method == nullptr || is_canvas()) return meaningless_on_canvas(*info);
    return option_error(
        *info, fmt::format("{} '{}' does not read it", part_.name, method->info.name),
        fmt::format("read by {} {}", part_.selector.flags.front(), fmt::join(part_.readers(key), ", ")));
  }

  const OptionPart& part_;
  const GenerateOptions& given_;
  const MethodChoice& choice_;
  const ModelDesc& desc_;
};

/// A method by name. Errors: kUsage.
template <class Object>
Expected<std::unique_ptr<Object>> make_named(const std::vector<MethodEntry<Object>>& entries,
                                             const MethodChoice& choice, const MethodContext& context) {
  DLLM_TRY(const MethodEntry<Object>* const entry, find_method(entries, choice.name));
  return entry->make(choice.options, context);
}

}  // namespace

Expected<void> GenerateOptions::set(std::string_view key, std::string_view text) {
  if (key == "preset" || key == "--preset") {
    DLLM_TRY(const Preset* const found, preset_named(text));
    preset = found->info.name;
    return {};
  }
  for (const CommonOption& one : common_options()) {
    if (!names_option(one.info(), key)) continue;
    DLLM_TRY(const OptionValue value, parse_option(one.info(), text));
    one.given.store(*this, value);
    return {};
  }
  for (const OptionPart& part : option_parts()) {
    if (!part.selector.key.empty() && names_option(part.selector, key)) {
      DLLM_TRY((this->*part.given).name, method_name(part, text));
      return {};
    }
    if (const OptionInfo* info = part.find(key)) {
      DLLM_TRY((this->*part.given).options[info->key], parse_option(*info, text));
      return {};
    }
  }
  return unknown_key(key);
}

GenerateOptions on_top_of(GenerateOptions base, const GenerateOptions& given) {
  if (!given.preset.empty()) base.preset = given.preset;
  if (!given.stop.empty()) base.stop = given.stop;
  for (const CommonOption& one : common_options())
    if (const auto value = one.given.load(given)) one.given.store(base, *value);
  for (const OptionPart& part : option_parts()) {
    const MethodChoice& own = given.*part.given;
    MethodChoice& below = base.*part.given;
    if (!own.name.empty() && own.name != below.name) below = {own.name, {}};
    for (const auto& [key, value] : own.options) below.options[key] = value;
  }
  return base;
}

Error meaningless_on_canvas(const OptionInfo& info) {
  return option_error(info, "the model refines whole canvases with its own method, which does not read the option",
                      "leave the option out");
}

Expected<const MethodDeclaration*> resolve_part(const OptionPart& part, const GenerateOptions& given,
                                                const ModelDesc& desc, const MethodDeclaration* decoder,
                                                ResolvedOptions& resolved) {
  return PartResolution(part, given, desc).run(decoder, resolved);
}

MethodContext method_context(const ResolvedOptions& resolved, const ModelDesc& desc, const LatencyTable* latency) {
  return {.origin = resolved.block_origin == "absolute" ? BlockOrigin::kAbsolute : BlockOrigin::kPromptEnd,
          // Blocks of a causal model are single tokens on any grid.
          .block_length = desc.mask ? resolved.block_length : 1,
          .latency = latency,
          .length = resolved.length,
          .newlines = desc.newlines,
          .compat = resolved.compat};
}

std::string latency_name(const ResolvedOptions& resolved) {
  for (const auto& [method, key] : {std::pair(&resolved.window, "latency"), std::pair(&resolved.mode, "draft_latency")})
    if (const auto found = method->options.find(key); found != method->options.end())
      return std::get<std::string>(found->second);
  return "";
}

Expected<Method> make_method(const ResolvedOptions& resolved, const ModelDesc& desc, const LatencyTable* latency) {
  const MethodContext context = method_context(resolved, desc, latency);
  Method method;
  DLLM_TRY(method.window, make_named(windows(), resolved.window, context));
  DLLM_TRY(method.cache, make_named(caches(), resolved.cache, context));
  DLLM_TRY(method.decoder, make_named(decoders(), resolved.decoder, context));
  return method;
}

std::optional<SecondPathOptions> second_path_of(const ResolvedOptions& resolved, const ModelDesc& desc) {
  if (desc.canvas.length > 0) return std::nullopt;
  return traits_of(decoders(), resolved.decoder).second_path;
}

Expected<DenoiseOptions> denoise_options(const ResolvedOptions& resolved, const ModelDesc& desc,
                                         const LatencyTable* latency) {
  const MethodContext context = method_context(resolved, desc, latency);
  DLLM_TRY(const auto suffix, make_named(suffixes(), resolved.suffix, context));
  DLLM_TRY(const auto smooth, make_named(smoothings(), resolved.smoothing, context));
  DenoiseOptions options;
  options.exact_length = resolved.exact_length;
  options.stop_ids = desc.stop_ids;
  options.sampling = resolved;
  options.penalties = {
      resolved.repetition_penalty, resolved.presence_penalty, resolved.frequency_penalty, {}, desc.stop_ids};
  DLLM_TRY(options.penalties.biased, parse_logit_bias(resolved.logit_bias, desc.vocab));
  options.cfg_scale = static_cast<float>(resolved.cfg_scale);
  options.rng = {resolved.seed, 0};
  options.suppress_eos = resolved.suppress_eos;
  options.defer_eos = resolved.defer_eos;
  options.compat = resolved.compat;
  options.latency = latency;
  options.suffix = *suffix;
  options.smooth = *smooth;
  return options;
}

Expected<ModeLoopOptions> mode_options(const ResolvedOptions& resolved, const ModelDesc& desc,
                                       const LatencyTable* latency) {
  DLLM_TRY(const auto mode, make_named(modes(), resolved.mode, method_context(resolved, desc, latency)));
  ModeLoopOptions options;
  options.mode = *mode;
  options.block_length = resolved.block_length;
  options.exact_length = resolved.exact_length;
  options.stop_ids = desc.stop_ids;
  options.sampling = resolved;
  DLLM_TRY(options.biased, parse_logit_bias(resolved.logit_bias, desc.vocab));
  options.rng = {resolved.seed, 0};
  options.suppress_eos = resolved.suppress_eos;
  options.latency = latency;
  return options;
}

CanvasDesc canvas_of(const ResolvedOptions& resolved, const ModelDesc& desc) {
  CanvasDesc canvas = desc.canvas;
  (canvases_grow(resolved.window.name) ? canvas.first : canvas.length) = resolved.block_length;
  return canvas;
}

Expected<RefineOptions> refine_options(const ResolvedOptions& resolved, const ModelDesc& desc) {
  DLLM_TRY(const auto own, make_named(canvas_decoders(), resolved.decoder, method_context(resolved, desc)));
  RefineOptions options;
  options.canvas = canvas_of(resolved, desc);
  options.canvas.max_steps = own->steps.value_or(desc.canvas.max_steps);
  options.canvas.entropy_bound = own->entropy_bound.value_or(desc.canvas.entropy_bound);
  options.canvas.threshold = own->threshold;
  options.exact_length = resolved.exact_length;
  options.stop_ids = desc.stop_ids;
  options.rng = {resolved.seed, 0};
  return options;
}

}  // namespace dllm

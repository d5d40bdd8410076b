#include "app/cli/calibration_flags.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/input_file.h"
#include "base/try.h"

namespace dllm::app {
namespace {

constexpr std::string_view kMasks[] = {"random", "decoding", "none"};  // in the order of the enumeration

std::vector<std::string> mask_names() { return {std::begin(kMasks), std::end(kMasks)}; }

Expected<std::vector<TokenId>> encode_turn(const Model& model, const std::string& prompt) {
  DLLM_TRY(const Tokenizer* const tokenizer, model.require_tokenizer());
  const TokenizerSpec& spec = tokenizer->spec();
  MarkedText text = MarkedText::content(prompt);
  if (const ChatTemplate* const chat = model.chat_template()) {
    ChatTemplate::Options options;
    if (spec.bos) options.bos_token = tokenizer->bytes(*spec.bos);
    if (spec.eos) options.eos_token = tokenizer->bytes(*spec.eos);
    DLLM_TRY(text, chat->render_marked({{"user", prompt}}, options));
  }
  std::vector<TokenId> ids = tokenizer->encode(text);
  if (spec.add_bos && spec.bos && (ids.empty() || ids.front() != *spec.bos)) ids.insert(ids.begin(), *spec.bos);
  return ids;
}

TextEncoder encoder_of(const Model& model, const Tokenizer& tokenizer) {
  TextEncoder encoder;
  encoder.prompt = [&model](const std::string& text) { return encode_turn(model, text); };
  encoder.answer = [&tokenizer](const std::string& text) -> Expected<std::vector<TokenId>> {
    return tokenizer.encode(MarkedText::content(text));
  };
  const TokenizerSpec& spec = tokenizer.spec();
  encoder.end = spec.eot ? spec.eot : spec.eos;
  encoder.pad = spec.pad ? spec.pad : encoder.end;
  encoder.block = model.desc().block_length;
  return encoder;
}

/// Pieces of a plain text, as long as an answer may be.
Expected<std::vector<CalibrationText>> encode_text(const std::string& text, const TextEncoder& encoder,
                                                   std::int64_t length) {
  DLLM_TRY(const std::vector<TokenId> tokens, encoder.answer(text));
  std::vector<CalibrationText> pieces;
  for (std::size_t first = 0; first < tokens.size(); first += static_cast<std::size_t>(length)) {
    const std::size_t end = std::min(tokens.size(), first + static_cast<std::size_t>(length));
    pieces.push_back(
        {{}, {tokens.begin() + static_cast<std::ptrdiff_t>(first), tokens.begin() + static_cast<std::ptrdiff_t>(end)}});
  }
  return pieces;
}

Expected<std::vector<CalibrationText>> calibration_texts(const CalibrationSetting& setting, const Model& model,
                                                         const TextEncoder& encoder) {
  const auto limit = static_cast<std::size_t>(setting.limit);
  if (setting.path.ends_with(".txt")) {
    DLLM_TRY(const std::string text, read_input(setting.path));
    DLLM_TRY(auto pieces, encode_text(text, encoder, std::min<std::int64_t>(256, model.desc().context_length)));
    pieces.resize(std::min(pieces.size(), limit));
    return pieces;
  }
  DLLM_TRY(EvalSet set, read_eval_set(setting.path));
  set.items.resize(std::min(set.items.size(), limit));
  return encode_items(set, encoder);
}

Expected<std::vector<CalibrationCanvas>> calibration_canvases(const CalibrationSetting& setting, const Model& model) {
  DLLM_TRY(const Tokenizer* const tokenizer, model.require_tokenizer());
  const TextEncoder encoder = encoder_of(model, *tokenizer);
  DLLM_TRY(const auto all, calibration_texts(setting, model, encoder));
  DLLM_TRY(const auto length, model.metadata().integer("dllm.canvas_length"));
  return make_canvases(all, model.desc(),
                       {.masks = masks_named(setting.masks),
                        .per_text = setting.copies,
                        .block = encoder.block,
                        .canvas = static_cast<std::int32_t>(length.value_or(0)),
                        .seed = setting.seed});
}

}  // namespace

CalibrationMasks masks_named(std::string_view name) {
  return static_cast<CalibrationMasks>(std::ranges::find(kMasks, name) - std::begin(kMasks));
}

Expected<std::vector<CalibrationText>> encode_items(const EvalSet& set, const TextEncoder& encoder) {
  std::vector<CalibrationText> texts;
  for (const EvalItem& item : set.items) {
    CalibrationText text;
    DLLM_TRY(text.prompt, encoder.prompt(item.prompt));
    DLLM_TRY(text.answer, encoder.answer(item.solution.empty() ? item.answer : item.solution));
    if (encoder.end) text.answer.push_back(*encoder.end);
    while (encoder.pad && text.answer.size() % static_cast<std::size_t>(encoder.block) != 0)
      text.answer.push_back(*encoder.pad);
    texts.push_back(std::move(text));
  }
  return texts;
}

void CalibrationFlags::add(Flags& flags) {
  flags.group("Calibration");
  flags.add({.names = {"--method"},
             .value = "NAME",
             .help = "how matrices in MX formats, Q4_0 and Q8_0 are rounded",
             .default_text = setting_.method,
             .choices = quant_method_names(),
             .apply = into(setting_.method, quant_method_names())});
  add_texts(flags, "; of the methods, y-clip and gptq read it");
  flags.add({.names = {"--damping"},
             .value = "X",
             .help = "GPTQ: added to the Hessian's diagonal, times its mean",
             .default_text = "0.01",
             .apply = into(setting_.damping, 1e-9, 1e3),
             .rare = true});
}

void CalibrationFlags::add_texts(Flags& flags, std::string_view readers) {
  flags.add({.names = {"--calibration"},
             .value = "FILE",
             .help = fmt::format("prompts with answers, as for dllm eval, or a text (.txt){}", readers),
             .takes_path = true,
             .apply = into(setting_.path)});
  flags.add({.names = {"--calibration-masks"},
             .value = "NAME",
             .help = "which tokens of an answer are masks: each with a random probability, as in a run, or none",
             .default_text = setting_.masks,
             .choices = mask_names(),
             .apply = into(setting_.masks, mask_names())});
  flags.add({.names = {"--calibration-limit"},
             .value = "N",
             .help = "only the first N items",
             .default_text = "128",
             .apply = into(setting_.limit, 1, 1 << 20)});
  flags.add({.names = {"--calibration-copies"},
             .value = "N",
             .help = "canvases per item, with different masks",
             .default_text = "1",
             .apply = into(setting_.copies, 1, 1 << 10),
             .rare = true});
  flags.add({.names = {"--calibration-seed"},
             .value = "N",
             .help = "seed of the masks",
             .default_text = "0",
             .apply = into(setting_.seed),
             .rare = true});
}

std::function<Expected<std::vector<CalibrationCanvas>>(const Model&)> CalibrationSetting::canvases() const {
  return [setting = *this](const Model& model) { return calibration_canvases(setting, model); };
}

std::string CalibrationSetting::description() const {
  return fmt::format("the first {} texts, {} canvases each, masks {}, seed {}", limit, copies, masks, seed);
}

Expected<CalibrationOptions> CalibrationSetting::options() const {
  const QuantMethod rounding = *quant_method(method);
  if (!rounding.calibrated() && !path.empty())
    return Error{ErrorCode::kUsage, fmt::format("method {} uses no calibration", method), "--calibration",
                 "leave it out, or choose y-clip or gptq"};
  if (rounding.calibrated() && path.empty())
    return Error{ErrorCode::kUsage, fmt::format("method {} needs a calibration", method), "--calibration",
                 "a file of prompts with answers"};
  CalibrationOptions options;
  options.method = method;
  options.damping = damping;
  options.canvases = canvases();
  options.description = fmt::format("{}, damping {}", description(), damping);
  return options;
}

}  // namespace dllm::app

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dllm/error.h"
#include "dllm/generate.h"
#include "dllm/options.h"
#include "dllm/stop_token.h"

namespace dllm {

/// A device with memory of its own, while a model runs on it.
struct DeviceStatus {
  std::int64_t memory_used = 0;    ///< bytes that this program has allocated on it
  std::int64_t memory_total = 0;   ///< bytes; 0: unknown
  std::uint64_t passes = 0;        ///< forward passes so far
  double pass_seconds = 0;         ///< from their submission to their ends, together
  std::string failure;             ///< why it runs no pass any more; empty: it does
  std::string split;               ///< which layers are on it and which are not, in words; empty: all are
  std::uint64_t passes_ahead = 0;  ///< of `passes`, those that ran before they were asked for (unroll)
};

/// How a model is loaded. Zeros and empty strings: chosen by machine and file. Each option is declared once more, with
/// its values and flags: load_options_info().
struct LoadOptions {
  std::int32_t threads = 0;  ///< 0: one per CPU this process may use
  std::string isa;           ///< kernel set: scalar, avx2, avx512, neon; empty: the best on this machine
  std::string cache_type;    ///< K/V storage: f32, f16, bf16, q8_0, q4_0; empty: f32 for F32 models, else f16
  std::string activations;   ///< int8 or f32 against quantized weights (bf16 or f32 against BF16); empty: int8
  /// How products with quantized weights are rounded (docs/design/arithmetic.md): exact, super, or auto for the faster
  /// one on this machine; f16 on the matrix units of a GPU, of F16 and BF16 weights; empty: exact.
  std::string arithmetic;
  /// How the products of attention are rounded (same page): f32, bf16, or auto for bf16 where the processor multiplies
  /// BF16 numbers faster and the weights are quantized; empty: f32.
  std::string attention_arithmetic;
  /// File that keeps the quantized weights in the kernels' layout, so that later loads map it instead of packing: a
  /// path, or "auto" (`<model>.dllm-packed`, in the model's folder); empty: none.
  std::string weight_cache;
  /// Numerics profile (docs/guide/numerics.md): the name of a shipped one or a file. The model then runs in the number
  /// formats of the profile, simulated on this processor; empty: in its own.
  std::string numerics;
  /// Contexts beyond those of training, instead of the file's own scaling (docs/guide/models.md, "RoPE"): none, linear,
  /// ntk or yarn; empty: the file's.
  std::string rope_scaling;
  double rope_scale = 0;                   ///< how many times as long contexts become; 0: not given
  std::int32_t rope_original_context = 0;  ///< positions of the training; 0: the file's
  std::string backend;                     ///< what runs the model: cpu (empty), vulkan, ...
  std::string device;  ///< of that backend, as list_devices() names it, or a file; empty: its default
  /// Low-rank adapters, "FILE" or "FILE:SCALE": a GGUF adapter, or a PEFT folder. Those of `lora` change every pass,
  /// those of `lora_draft` the drafts of self-speculation and the passes over masks of the mode `diffusion`.
  std::vector<std::string> lora, lora_draft;
  /// A model's vision tower: a GGUF file in llama.cpp's form ("mmproj"), or the Hugging Face directory that has it.
  /// Prompts may then have images. Empty: they may not.
  std::string mmproj;
  /// A drafter (DFlash) that was trained for the model, or the same model in another quantization, which computes those
  /// passes. Neither changes what self-speculation answers. Empty: the model itself.
  std::string draft_model;
  std::vector<std::string> device_changes;  ///< changed keys of the device's profile, "numerics.weight=mxint8:32:ocp"
  /// Options that only one backend has, by key: {"npu_timing", "simulated"}. load_options_info() describes them.
  OptionMap backend_options;
  bool warnings = true;  ///< report oddities of the file to stderr
  /// Called with the fraction loaded, in [0, 1]; false cancels the load (kCancelled). Called in the calling thread.
  std::function<bool(double done)> progress{};
  /// Called before each forward pass of a call, and now and then while the call waits for those of other threads, in
  /// its own thread; false ends the call (kCancelled). What it throws goes to the caller.
  std::function<bool()> poll{};

  /// Sets one option from text, by its member's name or one of its flags' ("cache_type", "--cache-type"); one that may
  /// be given several times gets one more value. Errors: kUsage (unknown key, invalid value).
  Expected<void> set(std::string_view key, std::string_view text);
};

/// Every option of a load except `warnings` and the functions: the source of flags, help and bindings.
const std::vector<OptionInfo>& load_options_info();

/// A device that models can run on, or why a backend has none.
struct DeviceInfo {
  std::string backend{};  ///< LoadOptions::backend
  std::string name{};     ///< LoadOptions::device; empty: the backend's only one
  std::string meaning{};
  bool standard = false;  ///< taken if none is named
  std::string missing{};  ///< not empty: the backend has no device here; says why, and how to get one
};

/// The devices of this backend; empty: of all. Errors: kUsage (unknown).
Expected<std::vector<DeviceInfo>> list_devices(const std::string& backend = "");

struct ChatTurn {
  std::string role;  ///< system, user, assistant
  std::string content;
  std::vector<std::string> images{};  ///< bytes of PNG, JPEG or WebP files, which stand before the text
};

class PromptImages;  ///< what a model reads in place of a prompt's images

/// A conversation as the chat template writes it.
struct TemplatedPrompt {
  std::vector<std::int32_t> ids;
  std::string opening;  ///< what the template writes after the last text of the conversation: how the answer begins
  /// Of the positions in `ids`, which mean nothing without them; null: none.
  std::shared_ptr<const PromptImages> images{};
};

/// A text in which some tokens are to be predicted.
struct MaskedText {
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> masked;  ///< positions, ascending
  std::int32_t prompt = 0;           ///< leading positions that are masked in the unconditional pass of guidance
};

/// One of several answers, and how probable it is.
struct ChoiceScore {
  std::string text;
  std::int32_t tokens = 0;
  double log_probability = 0;  ///< nats; of the answer and its end, among all answers
  double probability = 0;      ///< among the given choices: they add up to 1
};

/// Ids of the tokenizer's special tokens; absent: the tokenizer has none.
struct SpecialTokens {
  std::optional<std::int32_t> bos, eos, eot, pad, mask;
  bool add_bos = false;  ///< a raw prompt starts with bos
};

/// How large a model's weights are.
struct ModelSize {
  std::int64_t parameters = 0;
  std::int64_t bytes = 0;
  std::string type;  ///< tensor type of most of them: "Q4_0"
};

/// A loaded model. It may be used from any thread and from callbacks: a model computes one forward pass at a time, and
/// the passes of several generations take turns. With a simulated device, generations wait for each other, and one that
/// is asked from a callback of another is an error (kUsage). In a child process of fork() the model works as before, if
/// no other thread of the parent was using it (else kUsage).
class LanguageModel {
 public:
  /// `path`: a GGUF file or a Hugging Face directory; empty: the embedded tiny-llada.
  static Expected<LanguageModel> load(const std::string& path, const LoadOptions& options = {});
  /// A GGUF whose bytes are in memory, where they must stay as they are while the model lives. `name` stands for the
  /// file in messages. Errors: as load(), and kUsage for the weight cache "auto", which needs a file's name.
  static Expected<LanguageModel> load_bytes(std::span<const std::byte> gguf, const std::string& name,
                                            const LoadOptions& options = {});

  ~LanguageModel();
  LanguageModel(LanguageModel&&) noexcept;
  LanguageModel& operator=(LanguageModel&&) noexcept;

  /// Answers one user message through the model's chat template (raw text if it has none).
  Expected<Generation> generate(std::string_view prompt, const GenerateOptions& options = {},
                                const StepCallback& on_step = {}, StopToken stop = {}) const;
  /// Answers a conversation.
  Expected<Generation> generate(const std::vector<ChatTurn>& turns, const GenerateOptions& options = {},
                                const StepCallback& on_step = {}, StopToken stop = {}) const;
  /// Continues token ids as given. Errors: kUsage if an id is outside the vocabulary.
  Expected<Generation> generate_ids(const std::vector<std::int32_t>& prompt, const GenerateOptions& options = {},
                                    const StepCallback& on_step = {}, StopToken stop = {}) const;

  /// Answers many conversations, at most `batch` of them in one forward pass; each answer equals generate()'s.
  /// `on_answer` is called for each answer in the order in which they finish; after a stop, unfinished answers have
  /// FinishReason::kCancelled. `seeds`: one per conversation, instead of the options'; empty: the options' for all.
  /// Errors: with the conversation's index in `where`.
  Expected<std::vector<Generation>> generate_batch(const std::vector<std::vector<ChatTurn>>& conversations,
                                                   const GenerateOptions& options, std::int32_t batch,
                                                   const AnswerCallback& on_answer = {}, StopToken stop = {},
                                                   const std::vector<std::uint64_t>& seeds = {}) const;

  /// Replays `recorded`, a generation of this model: each position is committed in the pass that commit_step records,
  /// whatever is predicted; everything else runs as before. With another prompt of the same length in `recorded`, `dllm
  /// eval --record` uses it to check that an answer can be replayed. Errors: kMismatch if passes, rows or commits
  /// differ, as they do where windows or rows depend on predictions; kUsage for a method that revises tokens, and with
  /// guidance.
  Expected<Generation> replay(const Generation& recorded, StopToken stop = {}) const;

  /// Raw logits [ids.size() x vocab_size()] of one full pass. `causal` overrides the model's attention mask. Models
  /// that refine canvases (DiffusionGemma) read a prompt causally and a canvas bidirectionally: the last `canvas` ids
  /// are the canvas, read in a second pass. Errors: kUsage, including a canvas with a model that refines none.
  Expected<std::vector<float>> logits(const std::vector<std::int32_t>& ids, bool causal, std::int32_t canvas = 0) const;

  /// Log-probabilities (nats) of `ids` at the positions `masked` (ascending), all of which the model sees as masks: the
  /// building block of likelihood estimates. Autoregressive models predict each from the tokens before it. `cfg_scale`
  /// != 0: classifier-free guidance away from a pass whose first `prompt` positions are masked.
  Expected<std::vector<double>> masked_log_probs(const std::vector<std::int32_t>& ids,
                                                 const std::vector<std::int32_t>& masked, double cfg_scale = 0,
                                                 std::int32_t prompt = 0) const;

  /// The same for many texts in one forward pass; each result equals that of a separate call.
  Expected<std::vector<std::vector<double>>> masked_log_probs_batch(const std::vector<MaskedText>& texts,
                                                                    double cfg_scale = 0) const;

  /// How probable each of several answers to a prompt is, in their order. The probability of an answer is that of its
  /// tokens and of a stop token after them, by the chain rule from left to right, each token given those before it and
  /// masks after it, on a canvas with one position more than the longest choice has tokens; exact for autoregressive
  /// models. Errors: kUsage (no choices, an empty one, the same one twice, too long), kUnsupported (a model that
  /// refines canvases).
  Expected<std::vector<ChoiceScore>> score_choices(const std::vector<std::int32_t>& prompt,
                                                   const std::vector<std::string>& choices) const;
  /// The log-probability of one of them, on a canvas of `canvas` positions after the prompt.
  Expected<double> answer_log_prob(const std::vector<std::int32_t>& prompt, const std::vector<std::int32_t>& answer,
                                   std::int32_t canvas) const;

  /// `special`: texts of control tokens become their ids.
  Expected<std::vector<std::int32_t>> tokenize(std::string_view text, bool special) const;
  Expected<std::string> detokenize(const std::vector<std::int32_t>& ids, bool special) const;
  /// Token ids of a conversation, rendered through the chat template.
  Expected<std::vector<std::int32_t>> apply_template(const std::vector<ChatTurn>& turns) const;
  /// The same with any variables, a JSON object: `messages` as transformers passes them, `tools`,
  /// `add_generation_prompt`, ...; the model's special tokens are added. With tools, a template of the file that is
  /// named "tool_use" is taken. Texts in the variables are content, which never becomes control tokens. Errors: kUsage.
  Expected<std::vector<std::int32_t>> apply_template_variables(const std::string& variables) const;
  /// The same, before place_images().
  Expected<TemplatedPrompt> render_template(const std::string& variables) const;
  /// Puts images where the template wrote their tokens. `images`: bytes of image files, in the order in which the
  /// messages have parts of the type "image". `go_on` is asked before each image, which may take seconds: false ends
  /// the work. Errors: kUsage (another number of images than of places, too long), kCancelled, those of files.
  Expected<TemplatedPrompt> place_images(TemplatedPrompt prompt, const std::vector<std::string>& images,
                                         const std::function<bool()>& go_on = {}) const;
  /// Whether prompts may have images (LoadOptions::mmproj).
  bool reads_images() const;
  /// Variables for every conversation, a JSON object, which those of a call replace. Errors: kUsage (no object; names
  /// that the model or the conversation sets).
  Expected<void> set_template_variables(const std::string& variables);
  std::string template_variables() const;  ///< as set; "{}": none
  /// Token ids of a raw prompt, without a chat template, with bos first if the model expects it. `special`: texts of
  /// control tokens become their ids.
  Expected<std::vector<std::int32_t>> prompt_ids(std::string_view text, bool special) const;
  SpecialTokens special_tokens() const;
  /// Source of the chat template in use; empty: none. `tools`: the one for conversations with tools.
  std::string chat_template(bool tools = false) const;
  /// Replaces the file's chat template. Errors: kInvalidFile with line and column.
  Expected<void> set_chat_template(const std::string& source);
  bool has_chat_template() const;
  /// Whether texts of control tokens in messages ("<|eot_id|>") become those tokens. Off by default: messages are plain
  /// text, whatever they contain, and only the chat template writes control tokens.
  void set_special_content(bool special);

  /// The options that a generation would use, with the preset and every default applied. Errors: kUsage, as generate().
  Expected<ResolvedOptions> resolve(const GenerateOptions& options) const;

  std::int32_t vocab_size() const;
  std::int32_t context_length() const;
  bool autoregressive() const;       ///< causal and without a mask token: its likelihoods are exact
  std::int32_t logit_shift() const;  ///< 1: the token at a position is predicted by the row before it; else 0
  std::string architecture() const;
  std::string name() const;
  ModelSize size() const;
  std::string isa() const;  ///< the kernel set in use
  /// "exact", "super", "residual", or "super, exact for ..." with the weights that it does not support; "f32" with F32
  /// activations; empty: does not apply to the backend.
  std::string arithmetic() const;
  std::int32_t threads() const;
  /// Of the backend's device, now; nullopt: it has no memory of its own. Thread-safe.
  std::optional<DeviceStatus> device_status() const;

 private:
  friend class Scheduler;
  friend class ModelFiles;
  struct Impl;
  struct Opened;
  static Expected<LanguageModel> load_opened(Opened opened, const LoadOptions& options);
  explicit LanguageModel(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace dllm

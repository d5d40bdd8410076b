#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "decode/method_entry.h"
#include "decode/registry.h"
#include "dllm/options.h"

namespace dllm {

/// A part of the decoding: its field in the options and its methods.
struct OptionPart {
  std::string name;     ///< "decoder"
  OptionInfo selector;  ///< the option that chooses the method; no key: there is one method only
  MethodChoice GenerateOptions::* given;
  MethodChoice ResolvedOptions::* resolved;
  std::vector<const MethodDeclaration*> methods;         ///< of models that fill masks
  std::vector<const MethodDeclaration*> canvas_methods;  ///< of models that refine whole canvases; may be empty

  /// The name of the method that such a model is decoded by if none is chosen; empty: the part does not apply to it.
  std::string standard(const ModelDesc& desc) const;
  /// Names of the methods that have an option with this key.
  std::vector<std::string> readers(std::string_view key) const;
  /// A method's declaration of the option; nullptr: none has it.
  const OptionInfo* find(std::string_view key_or_flag) const;
};

/// References stay valid; a decoder that is added later is in later lists only.
const std::vector<OptionPart>& option_parts();

/// Adds a decoder at run time, with its options, or replaces one that was added before. Errors: kUsage if the name is
/// the engine's, or if an option has a key or flag of another part or a key that other decoders declare differently.
Expected<void> add_decoder(DecoderEntry entry);

/// The one with this name or alias; nullptr: there is none.
const MethodDeclaration* named(const std::vector<const MethodDeclaration*>& methods, std::string_view name);

/// Whether `word` is the option's key or one of its flags.
bool names_option(const OptionInfo& info, std::string_view word);

}  // namespace dllm

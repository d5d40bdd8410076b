#pragma once

#include <string>

#include "app/cli/flags.h"
#include "dllm/error.h"
#include "hub/pull.h"

namespace dllm::app {

struct Session;

/// Flags of verbs that take a model from a hub.
struct HubFlags {
  std::string name;  ///< org/model[:QUANT]; empty: none
  std::string file, token;
  std::string revision = "main";
  bool offline = false;

  /// -hf
  void add_name(Flags& flags);
  /// --hf-file, --hf-token, --revision, --offline
  void add(Flags& flags);

  /// Downloads the model into the cache, with a progress line; Ctrl-C cancels. Errors: those of hub::pull().
  Expected<hub::Pulled> pull(Session& session) const;
};

}  // namespace dllm::app

#include "app/cli/verb.h"
#include "app/npu/npu.h"

namespace dllm::app {

std::unique_ptr<Verb> make_run();
std::unique_ptr<Verb> make_infill();
std::unique_ptr<Verb> make_choose();
std::unique_ptr<Verb> make_chat();
std::unique_ptr<Verb> make_serve();
std::unique_ptr<Verb> make_pull();
std::unique_ptr<Verb> make_list();
std::unique_ptr<Verb> make_remove();
std::unique_ptr<Verb> make_inspect();
std::unique_ptr<Verb> make_convert();
std::unique_ptr<Verb> make_quantize();
std::unique_ptr<Verb> make_imatrix();
std::unique_ptr<Verb> make_make_model();
std::unique_ptr<Verb> make_tokenize();
std::unique_ptr<Verb> make_detokenize();
std::unique_ptr<Verb> make_logits();
std::unique_ptr<Verb> make_eval();
std::unique_ptr<Verb> make_compare();
std::unique_ptr<Verb> make_bench();
std::unique_ptr<Verb> make_verify();
std::unique_ptr<Verb> make_options();
std::unique_ptr<Verb> make_worker();

namespace {

std::vector<VerbEntry>& list() {
  static std::vector<VerbEntry> entries = {
      {"run", "[OPTIONS] [PROMPT]", "Answer one prompt", make_run},
      {"infill", "[OPTIONS] [TEXT]", "Fill the gaps of a text, as [[4]] in it", make_infill},
      {"choose", "--choice TEXT --choice TEXT [PROMPT]", "Tell how probable each of several answers is", make_choose},
      {"chat", "[OPTIONS]", "Chat with a model", make_chat},
      {"serve", "[OPTIONS]", "Serve OpenAI's API and others over HTTP", make_serve},
      {"worker", "--listen HOST:PORT [OPTIONS]", "Run a part of a model for a first rank on another machine",
       make_worker},
      {"pull", "[OPTIONS] ORG/MODEL[:TYPE]", "Download a model from a hub", make_pull},
      {"list", "[OPTIONS]", "List the models in the hub's cache", make_list},
      {"rm", "NAME...", "Remove models from the hub's cache", make_remove},
      {"inspect", "[OPTIONS] FILE", "Show the contents of a model file", make_inspect},
      {"convert", "[OPTIONS] DIR", "Convert a Hugging Face model directory to GGUF", make_convert},
      {"quantize", "[OPTIONS] IN.gguf OUT.gguf TYPE", "Quantize a GGUF file", make_quantize},
      {"imatrix", "-m FILE --calibration FILE -o OUT.gguf",
       "Measure which columns of matrices count, for quantize --imatrix", make_imatrix},
      {"make-model", "--shape NAME --type TYPE -o FILE", "Make a GGUF file with a published shape and random weights",
       make_make_model},
      {"tokenize", "[OPTIONS] [TEXT]", "Turn text into token ids", make_tokenize},
      {"detokenize", "[OPTIONS] [ID...]", "Turn token ids into text", make_detokenize},
      {"logits", "-m FILE --tokens 1,2,3 -o out.f32", "Write the raw predictions of one forward pass", make_logits},
      {"eval", "[OPTIONS] FILE", "Measure accuracy, likelihood and forward passes over benchmark items", make_eval},
      {"compare", "[OPTIONS] --items FILE \"NAME: OPTIONS\"...", "Run configurations side by side on the same items",
       make_compare},
      {"bench", "[OPTIONS] [step] [generate] [load]", "Measure steps, generations, loading and the machine",
       make_bench},
      {"verify", "[OPTIONS]", "Report what a model file is and answers, to compare it with others'", make_verify},
      {"options", "[OPTIONS] [NAME]", "List decoding methods and their options", make_options},
      {.name = "npu",
       .arguments = "VERB [OPTIONS]",
       .summary = "Design and simulate neural processing units",
       .group = npu_verbs},
  };
  // A build without simulated NPUs has none of their verbs.
  static const auto removed =
      std::erase_if(entries, [](const VerbEntry& entry) { return entry.group != nullptr && entry.group().empty(); });
  (void)removed;
  return entries;
}

}  // namespace

const std::vector<VerbEntry>& verbs() { return list(); }

bool add_verb(const VerbEntry& entry) {
  list().push_back(entry);
  return true;
}

Flags declared_flags(const VerbEntry& entry, Verb& verb) {
  Flags flags{std::string(entry.name), std::string(entry.arguments), std::string(entry.summary)};
  verb.declare(flags);
  return flags;
}

}  // namespace dllm::app

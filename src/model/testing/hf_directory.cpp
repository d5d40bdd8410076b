#include "model/testing/hf_directory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "base/hash.h"
#include "numerics/half.h"
#include "text/tokenizer/byte_alphabet.h"

namespace dllm::test {
namespace {

using Json = nlohmann::json;

std::string encode(const HfTensor& tensor) {
  std::int64_t count = 1;
  for (const std::int64_t dim : tensor.dims) count *= dim;
  std::string bytes;
  const auto append = [&bytes](auto value) {
    char raw[sizeof value];
    std::memcpy(raw, &value, sizeof value);
    bytes.append(raw, sizeof value);
  };
  for (std::int64_t i = 0; i < count; ++i) {
    const float value = tiny_value(tensor.name, i);
    if (tensor.dtype == "F32") append(value);
    if (tensor.dtype == "F16") append(f32_to_f16(value));
    if (tensor.dtype == "BF16") append(f32_to_bf16(value));
  }
  return bytes;
}

std::string safetensors(const std::vector<const HfTensor*>& tensors) {
  Json header = Json::object();
  std::string data;
  for (const HfTensor* tensor : tensors) {
    header[tensor->name] = {{"dtype", tensor->dtype},
                            {"shape", tensor->dims},
                            {"data_offsets", {data.size(), data.size() + tensor->bytes.size()}}};
    data += tensor->bytes;
  }
  const std::string text = header.dump();
  const std::uint64_t length = text.size();
  std::string file(sizeof length, '\0');
  std::memcpy(file.data(), &length, sizeof length);
  return file + text + data;
}

Json special(std::int64_t id, const std::string& content) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", true}};
}

Json tokenizer_json() {
  Json vocab = Json::object();
  for (int byte = 0; byte < 256; ++byte) vocab[encode_alphabet(std::string(1, static_cast<char>(byte)))] = byte;
  vocab["he"] = 256;
  Json added = Json::array();
  const char* const texts[] = {"<|startoftext|>", "<|endoftext|>", "<|eot_id|>", "<|mdm_mask|>", "<|end_of_text|>"};
  for (std::int64_t id = 257; const char* text : texts) added.push_back(special(id++, text));
  const char* const pattern =
      R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)";
  const Json split = {
      {"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
  const Json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  return {{"version", "1.0"},
          {"added_tokens", added},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {split, bytes}}}},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"h e"}}}}};
}

Json llada_config(const HfSpec& spec) {
  return {{"architectures", {"LLaDAModelLM"}},
          {"model_type", "llada"},
          {"d_model", spec.width},
          {"n_layers", spec.layers},
          {"n_heads", spec.heads},
          {"n_kv_heads", spec.kv_heads},
          {"mlp_hidden_size", spec.ffn_width},
          {"embedding_size", kTinyRows},
          {"vocab_size", kTinyTokens},
          {"max_sequence_length", 128},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 10000.0},
          {"block_type", "llama"},
          {"weight_tying", spec.tied},
          {"mask_token_id", 260}};
}

Json dense_config(const HfSpec& spec) {
  const bool dream = spec.family == "dream";
  Json config = {{"architectures", {dream ? "DreamModel" : "LlamaForCausalLM"}},
                 {"model_type", dream ? "Dream" : "llama"},
                 {"hidden_size", spec.width},
                 {"num_hidden_layers", spec.layers},
                 {"num_attention_heads", spec.heads},
                 {"num_key_value_heads", spec.kv_heads},
                 {"intermediate_size", spec.ffn_width},
                 {"vocab_size", kTinyRows},
                 {"max_position_embeddings", 128},
                 {"rms_norm_eps", 1e-6},
                 {"rope_theta", 1000000.0},
                 {"tie_word_embeddings", spec.tied}};
  if (dream) config["mask_token_id"] = 260;
  return config;
}

/// Tensor names of the two spellings, in the order embedding, layer parts, final norm, head.
struct Names {
  std::string table, layer, norm, head;
  std::vector<std::string> parts;  ///< attn_norm q k v o ffn_norm gate up down
};

Names names_of(const std::string& family) {
  if (family == "llada")
    return {"model.transformer.wte",
            "model.transformer.blocks.",
            "model.transformer.ln_f",
            "model.transformer.ff_out",
            {"attn_norm", "q_proj", "k_proj", "v_proj", "attn_out", "ff_norm", "ff_proj", "up_proj", "ff_out"}};
  return {"model.embed_tokens",
          "model.layers.",
          "model.norm",
          "lm_head",
          {"input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
           "post_attention_layernorm", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}};
}

void add_layer(const HfSpec& spec, const Names& names, std::int64_t layer, HfCheckpoint& checkpoint) {
  const std::int64_t w = spec.width, kv = w / spec.heads * spec.kv_heads, f = spec.ffn_width;
  const std::vector<std::vector<std::int64_t>> shapes = {{w}, {w, w}, {kv, w}, {kv, w}, {w, w},
                                                         {w}, {f, w}, {f, w},  {w, f}};
  const auto name = [&](std::size_t part) { return fmt::format("{}{}.{}", names.layer, layer, names.parts[part]); };
  for (std::size_t part = 0; part < shapes.size(); ++part) checkpoint.set(name(part) + ".weight", shapes[part]);
  if (spec.family != "dream") return;
  for (std::size_t part : {1, 2, 3}) checkpoint.set(name(part) + ".bias", {shapes[part].front()});
}

}  // namespace

TempDirectory::TempDirectory() {
  path_ = (std::filesystem::temp_directory_path() / "dllm-test-XXXXXX").string();
  if (mkdtemp(path_.data()) == nullptr) throw std::runtime_error("cannot make " + path_);
}

TempDirectory::~TempDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write_text(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary).write(text.data(), static_cast<std::streamsize>(text.size()));
}

HfTensor* HfCheckpoint::find(const std::string& name) {
  const auto it = std::ranges::find(tensors, name, &HfTensor::name);
  return it == tensors.end() ? nullptr : &*it;
}

void HfCheckpoint::erase(const std::string& name) {
  std::erase_if(tensors, [&](const HfTensor& tensor) { return tensor.name == name; });
}

void HfCheckpoint::set(const std::string& name, const std::vector<std::int64_t>& dims) {
  erase(name);
  HfTensor tensor{name, tensors.empty() ? "F32" : tensors.front().dtype, dims, ""};
  tensor.bytes = encode(tensor);
  tensors.push_back(std::move(tensor));
}

void HfCheckpoint::write(const std::string& directory, int shards) const {
  const auto json = [&](const char* name, const Json& value) {
    if (!value.is_null()) write_text(directory + "/" + name, value.dump(1));
  };
  json("config.json", config);
  json("tokenizer.json", tokenizer);
  json("tokenizer_config.json", tokenizer_config);
  json("generation_config.json", generation_config);
  if (!chat_template_jinja.empty()) write_text(directory + "/chat_template.jinja", chat_template_jinja);
  Json map = Json::object();
  for (int shard = 0; shard < shards; ++shard) {
    std::vector<const HfTensor*> part;
    for (std::size_t i = static_cast<std::size_t>(shard); i < tensors.size(); i += static_cast<std::size_t>(shards))
      part.push_back(&tensors[i]);
    const std::string name =
        shards == 1 ? "model.safetensors" : fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, shards);
    write_text(directory + "/" + name, safetensors(part));
    for (const HfTensor* tensor : part) map[tensor->name] = name;
  }
  if (shards > 1) json("model.safetensors.index.json", {{"metadata", Json::object()}, {"weight_map", map}});
}

float tiny_value(const std::string& tensor, std::int64_t index) {
  std::uint64_t hash = Fnv1a(Fnv1a::kBasis + static_cast<std::uint64_t>(index) * kGolden64).add(tensor).value();
  hash ^= hash >> 32;
  return static_cast<float>(static_cast<int>(hash % 255) - 127) / 64.f;
}

HfCheckpoint make_checkpoint(const HfSpec& spec) {
  HfCheckpoint checkpoint;
  checkpoint.config = spec.family == "llada" ? llada_config(spec) : dense_config(spec);
  checkpoint.tokenizer = tokenizer_json();
  checkpoint.tokenizer_config = {{"bos_token", "<|startoftext|>"},
                                 {"eos_token", "<|endoftext|>"},
                                 {"pad_token", "<|endoftext|>"},
                                 {"add_bos_token", false},
                                 {"chat_template", "{{ messages[0]['content'] }}"}};
  const Names names = names_of(spec.family);
  HfTensor table{names.table + ".weight", spec.dtype, {kTinyRows, spec.width}, ""};
  table.bytes = encode(table);
  checkpoint.tensors.push_back(std::move(table));  // the others take its type
  for (std::int64_t layer = 0; layer < spec.layers; ++layer) add_layer(spec, names, layer, checkpoint);
  checkpoint.set(names.norm + ".weight", {spec.width});
  if (!spec.tied) checkpoint.set(names.head + ".weight", {kTinyRows, spec.width});
  return checkpoint;
}

}  // namespace dllm::test

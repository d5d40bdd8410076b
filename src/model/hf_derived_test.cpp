// Checkpoints derived from autoregressive models: which of their decodings a folder is imported for.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <tuple>

#include "model/describe.h"
#include "model/hf_class.h"
#include "model/hf_config.h"
#include "model/hf_description.h"
#include "model/model.h"
#include "model/source.h"
#include "model/testing/hf_directory.h"

namespace dllm {
namespace {

using Json = nlohmann::json;
using test::HfCheckpoint;
using test::make_checkpoint;
using test::TempDirectory;

/// A checkpoint with Llama's tensors under this class.
HfCheckpoint llama_as(const std::string& name) {
  HfCheckpoint checkpoint = make_checkpoint({.family = "llama"});
  checkpoint.config["architectures"] = {name};
  checkpoint.config["mask_token_id"] = 260;
  return checkpoint;
}

std::string error_of(const HfCheckpoint& checkpoint) {
  const TempDirectory directory;
  checkpoint.write(directory.path());
  const auto source = source_from_hf(directory.path());
  return source ? "" : source.error().message();
}

ModelDesc desc_of(const HfCheckpoint& checkpoint) {
  const TempDirectory directory;
  checkpoint.write(directory.path());
  auto source = source_from_hf(directory.path());
  if (!source) throw std::runtime_error(source.error().message());
  auto model = Model::load(*std::move(source));
  if (!model) throw std::runtime_error(model.error().message());
  return (*model)->desc();
}

TEST(A2d, TheBlockOfAttentionIsThatOfKeyOrName) {
  const auto block = [](Json extra, const std::string& file = "config.json",
                        const std::string& name = "A2DQwen3LMHeadModel") -> std::int64_t {
    Json config = {{"architectures", {name}}, {"vocab_size", 512},         {"hidden_size", 256},
                   {"num_hidden_layers", 1},  {"num_attention_heads", 16}, {"intermediate_size", 512}};
    config.update(extra);
    const auto found = (*find_architecture("a2d-qwen3"))->metadata_from_hf(HfConfig::of(config, file));
    if (!found) return -1;
    const auto decoding = *found->integer("diffusion.block_length");
    const auto seen = *found->integer(kAttentionBlockKey);
    EXPECT_EQ(decoding.value_or(0), *seen) << file;
    return *seen;
  };
  EXPECT_EQ(block(Json::object()), 0);
  EXPECT_EQ(block({{"block_size", 16}}), 16);
  EXPECT_EQ(block({{"_name_or_path", "dllm-hub/Qwen3-0.6B-diffusion-mdlm-v0.1"}}), 0);
  EXPECT_EQ(block({{"_name_or_path", "dllm-hub/Qwen3-0.6B-diffusion-bd3lm-v0.1"}}), 32);
  EXPECT_EQ(block(Json::object(), "/hub/models--dllm-hub--Qwen3-0.6B-diffusion-bd3lm-v0.1/snapshots/0a/config.json"),
            32);
  EXPECT_EQ(block(Json::object(), "/data/bd3lm-tests/Qwen3-mdlm/config.json"), 0) << "another folder's name";
  EXPECT_EQ(block(Json::object(), "/data/bd3lm/Qwen3/config.json"), 0) << "another folder's name";
  EXPECT_EQ(block(Json::object(), "/data/mdlm/x/../Qwen3-bd3lm//config.json"), 32);
  EXPECT_EQ(block({{"_name_or_path", "/data/bd3lm/Qwen3"}}), 0);
  EXPECT_EQ(block({{"_name_or_path", "./Qwen3-bd3lm/"}}), 32);
  EXPECT_EQ(block({{"_name_or_path", "owner/Qwen3-mdlm"}}, "/models/Qwen3-bd3lm/config.json"), 0);
  EXPECT_EQ(block({{"block_size", 0}}, "/models/Qwen3-0.6B-diffusion-bd3lm-v0.1/config.json"), 0) << "written counts";
  EXPECT_EQ(block({{"block_size", 64}}, "/models/Qwen3-0.6B-diffusion-BD3LM/config.json"), 64);
  EXPECT_EQ(block(Json::object(), "config.json", "BD3LMQwen3LMHeadModel"), 32);
  EXPECT_EQ(block({{"block_size", -1}}), -1) << "refused";
  EXPECT_EQ(block({{"attention_bias", true}}), -1) << "refused";
}

TEST(A2d, WarnsWhereNothingTellsTheBlocks) {
  const TempDirectory directory;
  const auto warnings = [&](const Json& extra) {
    HfCheckpoint checkpoint = llama_as("A2DLlamaLMHeadModel");
    checkpoint.config.update(extra);
    checkpoint.write(directory.path());
    const auto source = source_from_hf(directory.path());
    if (!source) throw std::runtime_error(source.error().message());
    std::string all;
    for (const std::string& warning : source->warnings) all += warning + "\n";
    return all;
  };
  EXPECT_NE(warnings(Json::object()).find("neither 'mdlm' nor 'bd3lm'"), std::string::npos);
  EXPECT_NE(warnings(Json::object()).find("'block_size'"), std::string::npos);
  EXPECT_NE(warnings({{"_name_or_path", "owner/bd3lm-from-mdlm"}}).find("both 'mdlm' and"), std::string::npos);
  EXPECT_EQ(warnings({{"block_size", 0}}), "");
  EXPECT_EQ(warnings({{"_name_or_path", "owner/x-mdlm"}}), "");
  EXPECT_EQ(warnings({{"_name_or_path", "owner/x-bd3lm"}}), "");
}

/// Where neither config.json nor the tokenizer names the mask.
TEST(DerivedModels, MasksAreThoseOfThePublishedFiles) {
  const auto defaults = [](const char* name) {
    ModelDesc desc;
    (*find_architecture(name))->set_defaults(desc);
    return desc;
  };
  EXPECT_EQ(defaults("a2d-qwen3").mask, 151669);
  EXPECT_EQ(defaults("a2d-qwen2").mask, 151665);
  EXPECT_EQ(defaults("a2d-llama").mask, 128256);
  EXPECT_EQ(defaults("stable-diffcoder").mask, 5);
  EXPECT_EQ(defaults("stable-diffcoder").eos, 2);
  for (const char* name : {"a2d-qwen3", "a2d-qwen2", "a2d-llama", "stable-diffcoder"})
    EXPECT_EQ(defaults(name).logit_shift, 0) << name;
}

TEST(A2d, MasksArePredictedInPlace) {
  HfCheckpoint checkpoint = llama_as("A2DLlamaLMHeadModel");
  const ModelDesc whole = desc_of(checkpoint);
  EXPECT_EQ(whole.architecture, "a2d-llama");
  EXPECT_EQ(whole.causal_block, 0);
  EXPECT_EQ(whole.logit_shift, 0);
  EXPECT_EQ(whole.block_origin, BlockOrigin::kPromptEnd);
  EXPECT_EQ(whole.mask, 260);
  checkpoint.config["block_size"] = 8;
  const ModelDesc blocks = desc_of(checkpoint);
  EXPECT_EQ(blocks.causal_block, 8);
  EXPECT_EQ(blocks.block_length, 8);
  EXPECT_EQ(blocks.block_origin, BlockOrigin::kAbsolute);
  EXPECT_FALSE(blocks.autoregressive());
}

/// The template's own default would be to think.
TEST(A2d, AnswersWithoutThoughtsUnlessAskedFor) {
  HfCheckpoint checkpoint = llama_as("A2DLlamaLMHeadModel");
  checkpoint.chat_template_jinja =
      "{%- for m in messages %}{{ m.content }};{% endfor %}"
      "{%- if enable_thinking is defined and enable_thinking is false %}<none>{% else %}<think>{% endif %}";
  const TempDirectory directory;
  checkpoint.write(directory.path());
  const auto source = source_from_hf(directory.path());
  ASSERT_TRUE(source) << source.error().message();
  const auto rendered = [&](const nlohmann::ordered_json& extra) {
    const auto compiled = ChatTemplate::compile(**source->metadata.string(kChatTemplateKey));
    nlohmann::ordered_json variables = {{"messages", {{{"role", "user"}, {"content", "hi"}}}}};
    variables.update(extra);
    const auto text = compiled ? compiled->render(variables) : Expected<std::string>(compiled.error());
    return text ? *text : text.error().message();
  };
  EXPECT_EQ(rendered(nlohmann::ordered_json::object()), "hi;<none>");
  EXPECT_EQ(rendered({{"enable_thinking", true}}), "hi;<think>");
  EXPECT_EQ(rendered({{"enable_thinking", false}}), "hi;<none>");
  EXPECT_TRUE(template_inputs(**source->metadata.string(kChatTemplateKey)).contains("enable_thinking"));

  checkpoint.chat_template_jinja = "{{ messages[0].content }}";
  checkpoint.write(directory.path());
  EXPECT_EQ(**source_from_hf(directory.path())->metadata.string(kChatTemplateKey), "{{ messages[0].content }}")
      << "a template that does not ask stays as it is";
}

TEST(StableDiffcoder, TheFirstReleaseIsRecognizedByItsCode) {
  HfCheckpoint checkpoint = llama_as("LlamaForCausalLM");
  checkpoint.config["auto_map"] = {{"AutoModelForCausalLM", "modeling_seed_diffcoder.SeedDiffcoderForCausalLM"}};
  const ModelDesc first = desc_of(checkpoint);
  EXPECT_EQ(first.architecture, "stable-diffcoder");
  EXPECT_EQ(first.causal_block, 4);
  EXPECT_EQ(first.block_length, 4);
  EXPECT_EQ(first.logit_shift, 0);
  EXPECT_EQ(first.block_origin, BlockOrigin::kAbsolute);
  EXPECT_EQ(desc_of(llama_as("StableDiffcoderForCausalLM")).architecture, "stable-diffcoder");
  checkpoint = llama_as("StableDiffcoderForCausalLM");
  checkpoint.config["block_size"] = 0;
  EXPECT_NE(error_of(checkpoint).find("block_size is not a valid length"), std::string::npos);
}

TEST(OwnCode, OverAKnownBaseIsRefusedByItsName) {
  HfCheckpoint checkpoint = llama_as("LlamaForCausalLM");
  checkpoint.config["auto_map"] = {{"AutoModelForCausalLM", "owner/name--modeling_other.OtherForCausalLM"}};
  const std::string error = error_of(checkpoint);
  EXPECT_NE(error.find("'OtherForCausalLM'"), std::string::npos) << error;
  EXPECT_NE(error.find("auto_map"), std::string::npos) << error;
  // Its own class, or none of a language model.
  checkpoint.config["auto_map"] = {{"AutoModelForCausalLM", "modeling_llama.LlamaForCausalLM"}};
  EXPECT_EQ(error_of(checkpoint), "");
  checkpoint.config["auto_map"] = {{"AutoConfig", "configuration_other.OtherConfig"}};
  EXPECT_EQ(error_of(checkpoint), "");
  checkpoint.config["auto_map"] = nullptr;
  EXPECT_EQ(error_of(checkpoint), "");
}

TEST(OwnCode, CountsWhereOnlyTheTypeIsNamed) {
  const auto with = [](const char* type, const std::string& code, const char* repository) {
    HfCheckpoint checkpoint = llama_as("");
    checkpoint.config.erase("architectures");
    checkpoint.config["model_type"] = type;
    checkpoint.config["_name_or_path"] = repository;
    if (!code.empty()) checkpoint.config["auto_map"] = {{"AutoModelForCausalLM", "modeling_x." + code}};
    const auto found = find_hf_model(HfConfig::of(checkpoint.config, "config.json"));
    return found ? std::string((*found)->name) : found.error().message();
  };
  EXPECT_EQ(with("llama", "", ""), "llama");
  EXPECT_EQ(with("llama", "LlamaForCausalLM", ""), "llama");
  EXPECT_EQ(with("llama", "SeedDiffcoderForCausalLM", ""), "stable-diffcoder");
  EXPECT_NE(with("llama", "OtherForCausalLM", "").find("'OtherForCausalLM'"), std::string::npos);
  EXPECT_EQ(with("qwen2", "WeDLMForCausalLM", ""), "wedlm");
  EXPECT_EQ(with("sdar", "", "owner/SDAR-4B"), "sdar");
  EXPECT_EQ(with("sdar", "", "owner/I-DLM-8B"), "idlm");
}

/// They would load as their bases and give words, but not theirs.
TEST(NamedModels, AreRecognizedByAWord) {
  const auto name = [](const std::string& hf_class, const std::string& repository) {
    HfCheckpoint checkpoint = llama_as(hf_class);
    checkpoint.config["_name_or_path"] = repository;
    const auto found = find_hf_model(HfConfig::of(checkpoint.config, "config.json"));
    return found ? std::string((*found)->name) : found.error().message();
  };
  for (const char* repository : {"owner/I-DLM-8B", "owner/Qwen3_idlm"})
    EXPECT_EQ(name("SDARForCausalLM", repository), "idlm") << repository;
  EXPECT_EQ(name("Qwen3ForCausalLM", "GSAI-ML/ReFusion"), "refusion");
  for (const char* repository : {"owner/SDAR-4B", "owner/widlmodel", "idlmx/SDAR", "owner/ReFusion"})
    EXPECT_EQ(name("SDARForCausalLM", repository), "sdar") << repository;
  EXPECT_EQ(name("Qwen3ForCausalLM", "owner/refusions"), "qwen3");
}

TEST(HfDescription, IsTheModelsWithoutTensorsAndTokenizer) {
  HfCheckpoint checkpoint = llama_as("A2DLlamaLMHeadModel");
  checkpoint.generation_config = {{"gen_length", 96}, {"block_length", 16}};
  const ModelDesc whole = desc_of(checkpoint);
  const TempDirectory directory;
  checkpoint.write(directory.path());
  for (const auto& file : std::filesystem::directory_iterator(directory.path()))
    if (!file.path().filename().string().ends_with("config.json")) std::filesystem::remove(file);
  const auto described = describe_hf(directory.path());
  ASSERT_TRUE(described) << described.error().message();
  EXPECT_EQ(described->architecture, "a2d-llama");
  EXPECT_EQ(described->causal_block, whole.causal_block);
  EXPECT_EQ(whole.block_length, 16);
  EXPECT_EQ(described->block_length, whole.block_length);
  EXPECT_EQ(described->layers, whole.layers);
}

TEST(AttentionBlock, IsCheckedAgainstTheGridOfDecoding) {
  const TempDirectory directory;
  llama_as("A2DLlamaLMHeadModel").write(directory.path());
  const auto loaded = [&](std::int64_t seen, std::int64_t length) -> std::string {
    auto source = source_from_hf(directory.path());
    source->metadata.set(std::string(kAttentionBlockKey), MetaValue::i32(static_cast<std::int32_t>(seen)));
    if (length > 0) source->metadata.set("diffusion.block_length", MetaValue::u32(static_cast<std::uint32_t>(length)));
    const auto model = Model::load(*std::move(source));
    return model ? "" : model.error().message();
  };
  EXPECT_EQ(loaded(8, 8), "");
  EXPECT_EQ(loaded(8, 0), "");
  EXPECT_EQ(loaded(0, 16), "");
  EXPECT_NE(loaded(8, 16).find("attention has blocks of 8, and diffusion.block_length is 16"), std::string::npos);
  EXPECT_NE(loaded(-1, 0).find("-1 is not a valid block of attention"), std::string::npos);
}

}  // namespace
}  // namespace dllm

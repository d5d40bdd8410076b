#include "vulkan/commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

namespace dllm::vulkan {
namespace {

const Shader* find_shader(std::string_view name, ShaderForm form) {
  for (const Shader& shader : shaders())
    if (shader.name == name && shader.form == form) return &shader;
  return nullptr;
}

}  // namespace

void Pipeline::swap(Pipeline& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(module_, other.module_);
  std::swap(handle_, other.handle_);
  std::swap(kernel_, other.kernel_);
  std::swap(threads_, other.threads_);
}

Pipeline::~Pipeline() {
  if (kernel_ != VK_NULL_HANDLE) device_->cuda_calls()->DestroyCuFunctionNVX(device_->handle(), kernel_, nullptr);
  if (handle_ != VK_NULL_HANDLE) device_->calls().DestroyPipeline(device_->handle(), handle_, nullptr);
}

Expected<Pipeline> Pipeline::make(std::shared_ptr<Device> device, std::string_view name, ShaderForm form,
                                  const PipelineConstants& constants) {
  const Shader* const shader = find_shader(name, form);
  if (shader == nullptr)
    return Error{ErrorCode::kUnsupported, fmt::format("this build has no shader '{}'", name), "--backend vulkan", ""};
  const DeviceCalls& calls = device->calls();
  auto words = structure<VkShaderModuleCreateInfo>(VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO);
  words.codeSize = shader->words.size_bytes();
  words.pCode = shader->words.data();
  VkShaderModule module = VK_NULL_HANDLE;
  VkResult made = calls.CreateShaderModule(device->handle(), &words, nullptr, &module);
  if (made != VK_SUCCESS) return call_failed(made, fmt::format("the shader '{}'", name));

  std::array<VkSpecializationMapEntry, std::tuple_size_v<PipelineConstants>> entries;
  for (std::uint32_t i = 0; i < entries.size(); ++i) entries[i] = {i, 4 * i, 4};
  const VkSpecializationInfo special{static_cast<std::uint32_t>(entries.size()), entries.data(), sizeof constants,
                                     constants.data()};
  auto info = structure<VkComputePipelineCreateInfo>(VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO);
  info.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
  info.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
  info.stage.module = module;
  info.stage.pName = "main";
  info.stage.pSpecializationInfo = &special;
  info.layout = device->layout();
  Pipeline pipeline;
  pipeline.device_ = std::move(device);
  made = calls.CreateComputePipelines(pipeline.device_->handle(), VK_NULL_HANDLE, 1, &info, nullptr, &pipeline.handle_);
  calls.DestroyShaderModule(pipeline.device_->handle(), module, nullptr);
  if (made != VK_SUCCESS) return call_failed(made, fmt::format("the shader '{}'", name));
  return pipeline;
}

Expected<Pipeline> Pipeline::make(std::shared_ptr<const CudaModule> module, std::string_view kernel,
                                  std::uint32_t threads) {
  const std::string name(kernel);
  auto info = structure<VkCuFunctionCreateInfoNVX>(VK_STRUCTURE_TYPE_CU_FUNCTION_CREATE_INFO_NVX);
  info.module = module->handle();
  info.pName = name.c_str();
  Pipeline pipeline;
  pipeline.device_ = module->device();
  pipeline.module_ = std::move(module);
  pipeline.threads_ = threads;
  const Device& device = *pipeline.device_;
  const VkResult made = device.cuda_calls()->CreateCuFunctionNVX(device.handle(), &info, nullptr, &pipeline.kernel_);
  if (made != VK_SUCCESS) return call_failed(made, fmt::format("the CUDA kernel '{}'", name));
  return pipeline;
}

void Commands::swap(Commands& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(handle_, other.handle_);
}

Commands::~Commands() {
  if (handle_ != VK_NULL_HANDLE) device_->calls().FreeCommandBuffers(device_->handle(), device_->pool(), 1, &handle_);
}

Expected<Commands> Commands::begin(std::shared_ptr<Device> device, bool repeats) {
  Commands commands;
  commands.device_ = std::move(device);
  const DeviceCalls& calls = commands.device_->calls();
  auto info = structure<VkCommandBufferAllocateInfo>(VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO);
  info.commandPool = commands.device_->pool();
  info.level = VK_COMMAND_BUFFER_LEVEL_PRIMARY;
  info.commandBufferCount = 1;
  VkResult made = calls.AllocateCommandBuffers(commands.device_->handle(), &info, &commands.handle_);
  if (made != VK_SUCCESS) return call_failed(made, "a list of commands");
  auto begin = structure<VkCommandBufferBeginInfo>(VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO);
  if (repeats) begin.flags = VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT;
  made = calls.BeginCommandBuffer(commands.handle_, &begin);
  if (made != VK_SUCCESS) return call_failed(made, "a list of commands");
  return commands;
}

void Commands::bind(const Pipeline& pipeline, const void* push, std::uint32_t bytes) {
  const DeviceCalls& calls = device_->calls();
  calls.CmdBindPipeline(handle_, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline.handle());
  calls.CmdPushConstants(handle_, device_->layout(), VK_SHADER_STAGE_COMPUTE_BIT, 0, bytes, push);
}

void Commands::launch(const Pipeline& pipeline, const void* push, GroupCounts groups) {
  auto info = structure<VkCuLaunchInfoNVX>(VK_STRUCTURE_TYPE_CU_LAUNCH_INFO_NVX);
  info.function = pipeline.kernel();
  info.gridDimX = groups.x, info.gridDimY = groups.y, info.gridDimZ = groups.z;
  info.blockDimX = pipeline.threads(), info.blockDimY = info.blockDimZ = 1;
  info.paramCount = 1;
  info.pParams = &push;
  device_->cuda_calls()->CmdCuLaunchKernelNVX(handle_, &info);
}

void Commands::barrier() {
  constexpr VkPipelineStageFlags kStages = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT;
  auto memory = structure<VkMemoryBarrier>(VK_STRUCTURE_TYPE_MEMORY_BARRIER);
  memory.srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT;
  memory.dstAccessMask = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_READ_BIT |
                         VK_ACCESS_TRANSFER_WRITE_BIT;
  device_->calls().CmdPipelineBarrier(handle_, kStages, kStages, 0, 1, &memory, 0, nullptr, 0, nullptr);
}

void Commands::arguments_barrier() {
  auto memory = structure<VkMemoryBarrier>(VK_STRUCTURE_TYPE_MEMORY_BARRIER);
  memory.srcAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT;
  memory.dstAccessMask = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_INDIRECT_COMMAND_READ_BIT;
  device_->calls().CmdPipelineBarrier(handle_, VK_PIPELINE_STAGE_TRANSFER_BIT,
                                      VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_DRAW_INDIRECT_BIT, 0, 1,
                                      &memory, 0, nullptr, 0, nullptr);
}

void Commands::between_passes() {
  auto memory = structure<VkMemoryBarrier>(VK_STRUCTURE_TYPE_MEMORY_BARRIER);
  memory.srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT;
  memory.dstAccessMask = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_READ_BIT |
                         VK_ACCESS_TRANSFER_WRITE_BIT | VK_ACCESS_INDIRECT_COMMAND_READ_BIT;
  constexpr VkPipelineStageFlags kWrote = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT;
  device_->calls().CmdPipelineBarrier(handle_, kWrote | VK_PIPELINE_STAGE_DRAW_INDIRECT_BIT,
                                      kWrote | VK_PIPELINE_STAGE_DRAW_INDIRECT_BIT, 0, 1, &memory, 0, nullptr, 0,
                                      nullptr);
}

void Commands::stamp(const Timestamps& times, std::uint32_t place) {
  const DeviceCalls& calls = device_->calls();
  if (place == 0) calls.CmdResetQueryPool(handle_, times.handle(), 0, times.count());
  calls.CmdWriteTimestamp(handle_, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, times.handle(), place);
}

void Commands::copy(const Buffer& from, std::int64_t from_offset, const Buffer& to, std::int64_t to_offset,
                    std::int64_t bytes) {
  const VkBufferCopy region{static_cast<VkDeviceSize>(from_offset), static_cast<VkDeviceSize>(to_offset),
                            static_cast<VkDeviceSize>(bytes)};
  copy(from, to, {&region, 1});
}

void Commands::copy(const Buffer& from, const Buffer& to, std::span<const VkBufferCopy> regions) {
  if (regions.empty()) return;
  device_->calls().CmdCopyBuffer(handle_, from.handle(), to.handle(), static_cast<std::uint32_t>(regions.size()),
                                 regions.data());
}

Expected<void> Commands::end() {
  auto memory = structure<VkMemoryBarrier>(VK_STRUCTURE_TYPE_MEMORY_BARRIER);
  memory.srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT;
  memory.dstAccessMask = VK_ACCESS_HOST_READ_BIT;
  device_->calls().CmdPipelineBarrier(handle_, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT,
                                      VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &memory, 0, nullptr, 0, nullptr);
  if (const VkResult ended = device_->calls().EndCommandBuffer(handle_); ended != VK_SUCCESS)
    return call_failed(ended, "the recording of a pass");
  return {};
}

}  // namespace dllm::vulkan

#pragma once

#include <memory>
#include <string>

#include "dllm/error.h"

namespace dllm {

namespace npu {
struct Device;
}

namespace app {

/// What `dllm convert --layout` asks for: matrices in the tiles of a device's array.
class TileLayout {
 public:
  /// `device`: the name of a profile, or a file. Errors: those of npu::load_device() and npu::tile_recipe();
  /// kUnsupported in a build without simulated NPUs.
  static Expected<TileLayout> of(const std::string& device);

  const std::string& device() const { return name_; }
  const std::string& type() const { return type_; }  ///< of the matrices: the device's

  /// Rewrites the matrices of the GGUF file `path`, and returns a line about it. Errors: those of
  /// npu::write_device_tiles().
  Expected<std::string> apply(const std::string& path) const;

 private:
  TileLayout() = default;
  std::shared_ptr<const npu::Device> device_;
  std::string name_, type_;
};

}  // namespace app
}  // namespace dllm

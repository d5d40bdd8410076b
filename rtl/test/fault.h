#pragma once

namespace dllm::rtl {

/// Enables an injected fault; 0: none. Models read it through DPI whenever they are evaluated.
void set_fault(int number);

/// Enables a fault in a scope.
class PlantedFault {
 public:
  explicit PlantedFault(int number) { set_fault(number); }
  ~PlantedFault() { set_fault(0); }
  PlantedFault(const PlantedFault&) = delete;
  PlantedFault& operator=(const PlantedFault&) = delete;
};

}  // namespace dllm::rtl

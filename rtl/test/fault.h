#pragma once

namespace dllm::rtl {

/// Switches a planted fault on; 0: the design as it is. Models read it through DPI whenever they are evaluated.
void set_fault(int number);

/// A fault for the length of a scope.
class PlantedFault {
 public:
  explicit PlantedFault(int number) { set_fault(number); }
  ~PlantedFault() { set_fault(0); }
  PlantedFault(const PlantedFault&) = delete;
  PlantedFault& operator=(const PlantedFault&) = delete;
};

}  // namespace dllm::rtl

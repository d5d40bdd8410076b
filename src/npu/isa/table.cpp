#include "npu/isa/isa.h"

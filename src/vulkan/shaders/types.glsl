// What every shader begins with: memory by address, and how floats behave. Five forms are compiled, with kNative,
// kGuarded, kFloat64, kSubnormals or kIntegers (exact.glsl).
#ifdef kSubnormals
#define kFloat64
#endif
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference2 : require
#extension GL_EXT_buffer_reference_uvec2 : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types : require
#extension GL_EXT_spirv_intrinsics : require

// SignedZeroInfNanPreserve: 0 * infinity is not 0, and x - x may be NaN.
spirv_execution_mode(extensions = ["SPV_KHR_float_controls"], capabilities = [4466], 4461, 32);
#if !defined(kFloat64) && !defined(kIntegers)
// DenormPreserve
spirv_execution_mode(extensions = ["SPV_KHR_float_controls"], capabilities = [4464], 4459, 32);
#endif

layout(buffer_reference, std430, buffer_reference_align = 4) buffer Floats { float at[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Words { uint at[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Ints { int at[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) buffer Pieces { uvec4 at[]; };

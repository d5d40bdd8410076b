#version 460
#extension GL_GOOGLE_include_directive : require

// The self-test on a device whose fused multiply-adds take subnormal numbers for zeros, for tests of the guarded form.
#define kFlushes
#include "self_test.glsl"

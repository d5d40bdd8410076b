; y = x / sqrt(mean(x^2) + eps) * gain, 4 tokens of 128 channels as [2][4][64].
; VRAM: x from 0, gain rows at 512 and 576, y from 1024, scratch at 2048. FP_MEM: 0: 1/h, 1: eps.
.const SLAB = 4 * 64
.macro square_sum x
  V_MUL_VV gp5, \x, \x, 0
  V_RED_SUM f1, gp5, 0
.endm

S_LD_FP f2, gp0, 0
S_LD_FP f3, gp0, 1
li gp1, 0
li gp3, 1024
li gp5, 2048
li gp6, 512
li gp7, 576
.loop gp8, 4
  S_ADDI_INT gp2, gp1, SLAB
  S_ADDI_INT gp4, gp3, SLAB
  S_ADD_FP f1, f0, f0
  square_sum gp1
  square_sum gp2
  S_MUL_FP f1, f1, f2
  S_ADD_FP f1, f1, f3
  S_SQRT_FP f1, f1
  S_RECI_FP f1, f1
  V_MUL_VF gp3, gp1, f1, 0
  V_MUL_VV gp3, gp3, gp6, 0
  V_MUL_VF gp4, gp2, f1, 0
  V_MUL_VV gp4, gp4, gp7, 0
  S_ADDI_INT gp1, gp1, 64
  S_ADDI_INT gp3, gp3, 64
.endloop

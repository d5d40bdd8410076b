; One denoising step over 4 positions, vocabulary 256 = 4 rows of 64, BF16 logits [4][256] at a1; 2 positions are committed.
; INT_MEM: x at 0, x0 at 16. VRAM: mask row at 0, transfer row at 64, confidence row at 128, logits from 192.
.const POSITIONS = 4
.const ROWS = 4
.const X0 = 16
.const LOGITS = 192

C_SET_ADDR_REG a1, gp0, gp0
li gp1, 0                         ; position
li gp2, 0                         ; element offset of its logits
.loop gp3, POSITIONS
  li gp4, LOGITS
  H_PREFETCH_V gp4, gp2, a1, 0, 0, 1
  C_FENCE 1
  ; 1: maximum, its index, sum of exponentials
  S_LI_FP f1, -inf
  S_LI_FP f2, 0.0
  li gp5, 0
  li gp6, 0
  .loop gp7, ROWS
    V_RED_MAX_IDX gp5, gp4, gp6, f1
    S_ADDI_INT gp4, gp4, 64
    S_ADDI_INT gp6, gp6, 64
  .endloop
  li gp4, LOGITS
  .loop gp7, ROWS
    V_SUB_VF gp4, gp4, f1, 0, 0
    V_EXP_V gp4, gp4, 0
    V_RED_SUM f2, gp4, 0
    S_ADDI_INT gp4, gp4, 64
  .endloop
  ; 2: confidence and token
  S_RECI_FP f2, f2
  S_ST_FP f2, gp1, 0
  S_ST_INT gp5, gp1, X0
  S_ADDI_INT gp1, gp1, 1
  S_ADDI_INT gp2, gp2, 256
.endloop
; 3: the most confident masked positions
li gp8, 128
li gp9, 64
li gp10, 2
li gp11, POSITIONS
S_MAP_V_FP gp8, gp0, gp11
V_TOPK_MASK gp9, gp8, gp0, gp10, gp11
; 4: x0 = mask ? x0 : x, x = transfer ? x0 : x
li gp12, X0
V_SELECT_INT gp12, gp12, gp0, gp0, gp11
V_SELECT_INT gp0, gp12, gp0, gp9, gp11
C_BREAK

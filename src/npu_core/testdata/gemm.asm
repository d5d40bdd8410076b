; Y[8, 128] = X[8, 128] W[128, 128], BLEN 4, MLEN = VLEN = 64.
; HBM: W row-major [K, N] at a0. VRAM: X as [K/64][8][64] from 0, Y as [N/64][8][64] from 1024.
.const ROWS = 8
.const MLEN = 64
.const BLEN = 4
.const N = 128
.const TILE = MLEN * MLEN
.const X_SLAB = ROWS * MLEN
.const Y = 1024

C_SET_ADDR_REG a0, gp0, gp0
li gp1, 128 * N                   ; scales follow the elements, 8 bits each
C_SET_SCALE_REG gp1
li gp1, N
C_SET_STRIDE_REG gp1
li gp2, 0                         ; element offset of the column block in HBM
li gp3, Y                         ; its slab of the result
.loop gp4, N / MLEN
  S_ADDI_INT gp5, gp2, MLEN * N   ; second K tile
  H_PREFETCH_M gp0, gp2, a0, 1, 0, 1
  li gp6, TILE
  H_PREFETCH_M gp6, gp5, a0, 1, 0, 2
  C_FENCE 1
  C_FENCE 2
  li gp7, 0                       ; row block of X, and of Y
  .loop gp8, ROWS / BLEN
    S_ADDI_INT gp9, gp7, X_SLAB
    S_ADD_INT gp10, gp3, gp7
    li gp11, 0                    ; column slice within the tiles
    .loop gp12, MLEN / BLEN
      S_ADDI_INT gp13, gp11, TILE
      M_MM 0, gp11, gp7
      M_MM 0, gp13, gp9
      M_MM_WO gp10, 0, 0
      S_ADDI_INT gp10, gp10, BLEN
      S_ADDI_INT gp11, gp11, BLEN
    .endloop
    S_ADDI_INT gp7, gp7, BLEN * MLEN
  .endloop
  S_ADDI_INT gp2, gp2, MLEN
  S_ADDI_INT gp3, gp3, X_SLAB
.endloop
C_BREAK

// The rows of a pass, as the host writes them (RowArgument). Included after types.glsl.

struct PlanRow {
  uvec2 cache;     // address of its sequence's cache
  int position;
  int limit;       // it sees positions below
  int first;       // where its attention block begins, for windows
  int first_tile;  // of the visible positions of its sequence, in `tiles`
  int tile_count;
  int canvas;      // 1: of a canvas (Region::kCanvas)
};
layout(buffer_reference, std430, buffer_reference_align = 8) buffer PlanRows { PlanRow at[]; };

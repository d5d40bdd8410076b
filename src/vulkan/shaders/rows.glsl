// The rows of a pass, as the host writes them (RowArgument). Included after types.glsl.

struct PlanRow {
  uvec2 cache;     // address of its sequence's cache
  int position;
  int limit;       // it sees positions below
  int first;       // where its attention block begins, for windows
  int first_tile;  // of the visible positions of its sequence, in `tiles`
  int tile_count;
  uint kind;       // kOfCanvas, kIsShadow
};
layout(buffer_reference, std430, buffer_reference_align = 8) buffer PlanRows { PlanRow at[]; };
const uint kOfCanvas = 1;  // Region::kCanvas
const uint kIsShadow = 2;  // StepPlan::shadows

// A row whose K and V are stored, and where (StoreArgument).
struct StoredRow {
  uvec2 cache;
  int position;
  int row;
};
layout(buffer_reference, std430, buffer_reference_align = 8) buffer StoredRows { StoredRow at[]; };

#include "npu_core/dram/closed_form.h"

#include <algorithm>

namespace dllm::npu::dram {

ClosedForm closed_form(const MemoryConfig& config) {
  const DramStandard& s = config.standard;
  const Timing& t = s.timing;
  const auto ns = [&s](Tick ticks) { return s.ticks_to_ns(static_cast<double>(ticks)); };
  const auto gbps = [&](double ticks) { return s.burst_bytes / s.ticks_to_ns(ticks); };
  ClosedForm form;
  form.idle_read_ns = ns(t.rcd_rd + t.cl + t.bl);
  form.conflict_read_ns = ns(t.rp + t.rcd_rd + t.cl + t.bl);
  form.peak_gbps = s.peak_gbps();
  form.one_group_gbps = gbps(static_cast<double>(t.ccd_l));
  form.one_bank_gbps = gbps(static_cast<double>(t.rc));
  const Tick commands = s.activate_ticks + s.precharge_ticks + (s.shared_bus ? s.column_ticks : 0);
  const double per_burst =
      std::max({static_cast<double>(t.faw) / 4, static_cast<double>(t.rrd_s), static_cast<double>(t.rc) / s.banks(),
                static_cast<double>(t.bl), static_cast<double>(commands * s.pseudochannels)});
  form.random_gbps = gbps(per_burst);
  if (config.refresh == RefreshMode::kAllBank && t.refi > 0) {
    const auto refi = static_cast<double>(t.refi);
    form.refresh_loss = static_cast<double>(t.rfc) / refi;
    form.refresh_loss_with_restart = static_cast<double>(t.rtp + t.rp + t.rfc + t.rcd_rd) / refi;
  }
  if (config.refresh == RefreshMode::kPerBank && t.refi > 0)
    form.refresh_loss = form.refresh_loss_with_restart = static_cast<double>(t.rfc_pb) / static_cast<double>(t.refi);
  return form;
}

}  // namespace dllm::npu::dram

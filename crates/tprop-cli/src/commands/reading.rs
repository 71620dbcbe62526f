//! How one long stream is read, and how that is told.

use serde_json::{Value, json};
use tprop::eval::{ParallelConfig, Reading};
use tprop::model::Model;

use crate::console::grouped;

/// Steps that are read at once, where it does not matter.
pub const STEPS: usize = 32;

/// In parallel where that is faster and not refused; otherwise in order.
pub fn way(model: &Model<f32>, streams: usize, sequential: bool) -> Option<ParallelConfig> {
    ParallelConfig::where_faster(model, streams).filter(|_| !sequential)
}

/// `way`, and what it took, for a JSON line.
pub fn describe(line: &mut Value, reading: &Reading, way: Option<ParallelConfig>) {
    line["way"] = if way.is_some() { "parallel" } else { "sequential" }.into();
    if let (Some(sweeps), Some(way)) = (reading.sweeps, way) {
        line["parallel"] = json!({
            "block": way.block,
            "blocks": way.blocks,
            "tolerance": way.tolerance,
            "windows": sweeps.windows,
            "sweeps_mean": sweeps.mean(),
            "sweeps_most": sweeps.most,
            "largest_residual": sweeps.residual,
            "unsettled_windows": sweeps.unsettled,
            "tokens_in_order": sweeps.in_order,
        });
    }
}

/// The same as a sentence.
pub fn sentence(reading: &Reading, way: Option<ParallelConfig>) -> String {
    let (Some(sweeps), Some(way)) = (reading.sweeps, way) else {
        return "read in order, step after step".to_owned();
    };
    let mut text = match sweeps.windows {
        0 => "nothing was read in parallel".to_owned(),
        windows => format!(
            "read in parallel: {} windows of up to {} blocks of {} steps, {:.1} sweeps each (at most {}), largest residual {:.1e}",
            grouped(windows),
            way.blocks,
            way.block,
            sweeps.mean(),
            sweeps.most,
            sweeps.residual
        ),
    };
    if sweeps.unsettled > 0 {
        text += &format!("; {} windows did not settle and were read in order", grouped(sweeps.unsettled));
    }
    if sweeps.in_order > 0 {
        text += &format!("; {} tokens in order", grouped(sweeps.in_order));
    }
    text
}

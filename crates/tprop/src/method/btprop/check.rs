//! Refuses what cannot work, with the way out.

use super::*;

/// Refuses what cannot work, with the way out.
pub(super) fn check<T: Real>(
    config: &BtpropConfig,
    model: &crate::model::Model<T>,
    learner: &Learner<T>,
    per_window: usize,
    windows: usize,
) -> Result<(), String> {
    let (s, b) = (config.streams, config.block);
    let wanted = if config.batch == Batch::Full { 2 } else { config.blocks };
    if windows == 0 || per_window < wanted {
        return Err(format!(
            "the training split has {} tokens; train.streams={s} × btprop.blocks={wanted} × btprop.block={b} needs at \
             least {}: use fewer streams or blocks, or a shorter block",
            learner.tokens.len(),
            s * wanted * b + 1
        ));
    }
    if config.loss == LossOn::Free && b != 1 {
        return Err(format!("btprop.loss=free needs btprop.block=1, not {b}: use loss=predicted for longer blocks"));
    }
    if matches!(config.batch, Batch::Mini { accumulate } if accumulate != 1) {
        return Err("train.accumulate is for bptt; under btprop use more btprop.blocks or train.streams".into());
    }
    if let ThetaSolver::LeastSquares { ridge } = config.theta_solver {
        least_squares::check(config, model, learner, ridge)?;
        let bytes = least_squares::bytes(per_window, s, model.config().hidden);
        if let Some(free) = available_memory()
            && config.states.steps > 0
            && bytes > free / 10 * 9
        {
            return Err(format!(
                "the least-squares problem of the states needs {} MB and {} MB are free: use train.batch=mini, fewer \
                 btprop.blocks, a smaller model.hidden, or theta_solver=gradient",
                bytes >> 20,
                free >> 20
            ));
        }
    }
    let copies = 6 + usize::from(matches!(config.init, Init::Stored { .. })) * windows;
    let bytes = (copies * per_window * s * model.state_width() * T::BYTES) as u64;
    if let Some(free) = available_memory()
        && bytes > free / 10 * 9
    {
        return Err(format!(
            "the states of {} blocks need {} MB and {} MB are free: use a longer btprop.block, a smaller model.hidden, \
             or an init that stores nothing (btprop.init=sequential)",
            per_window * s * windows,
            bytes >> 20,
            free >> 20
        ));
    }
    Ok(())
}

/// Memory that could be had now, where the system tells.
fn available_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|l| l.starts_with("MemAvailable:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kb| kb << 10)
}

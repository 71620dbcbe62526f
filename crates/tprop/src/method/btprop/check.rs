//! Refuses what cannot work, with the way out.

use super::super::memory;
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
    let wanted = config.least_blocks();
    if windows == 0 || per_window < wanted {
        return Err(format!(
            "the training split has {} tokens; train.streams={s} × btprop.blocks={wanted} × btprop.block={b} needs at \
             least {}: use fewer streams or blocks, or a shorter block",
            learner.tokens.len(),
            config.least_tokens()
        ));
    }
    if config.loss == LossOn::Free && b != 1 {
        return Err(format!("btprop.loss=free needs btprop.block=1, not {b}: use loss=predicted for longer blocks"));
    }
    let mini = config.batch != Batch::Full;
    if mini && config.starts == Starts::Held && config.init == (Init::Stored { sweeps: 0 }) {
        return Err(
            "btprop.starts=held keeps starts where they were found, so btprop.init=stored:0 would never find any: use \
                    stored:1, parallel:1 or sequential"
                .into(),
        );
    }
    if matches!(config.batch, Batch::Mini { accumulate } if accumulate != 1) {
        return Err("train.accumulate is for bptt; under btprop use more btprop.blocks or train.streams".into());
    }
    if let ThetaSolver::LeastSquares { ridge } = config.theta_solver {
        least_squares::check(config, model, learner, ridge)?;
        let bytes = least_squares::bytes(per_window, s, model.config().hidden);
        if let Some(free) = memory::available()
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
    Ok(())
}

/// Refuses states for which this machine has no room; `rows` are those of this rank.
pub(super) fn check_memory<T: Real>(
    config: &BtpropConfig,
    model: &crate::model::Model<T>,
    rows: usize,
    windows: usize,
) -> Result<(), String> {
    let bytes = memory::states(config, model, rows, windows);
    match memory::available() {
        Some(free) if bytes > free / 10 * 9 => Err(format!(
            "the states of {} blocks need {} MB and {} MB are free: use a longer btprop.block, a smaller model.hidden, \
             or what stores nothing (btprop.init=sequential, btprop.duals=reset)",
            rows * windows,
            bytes >> 20,
            free >> 20
        )),
        _ => Ok(()),
    }
}

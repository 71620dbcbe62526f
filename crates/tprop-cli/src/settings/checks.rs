//! Settings that do not go together. Each sentence names the way out.

use tprop::cell::CellKind;
use tprop::method::{Batch, LossOn, MethodConfig, ThetaSolver};
use tprop::objective::Constraint;

use super::config::Config;
use super::typed::SettingError;

/// Refuses combinations without sense. Settings of a method that is not in use are not looked at.
pub fn check(c: &Config) -> Result<(), SettingError> {
    let refuse = |message: String| Err(SettingError::together(message));
    let (hidden, embed) = (c.model.hidden, c.model.embed);
    if c.model.tied && hidden != embed {
        return refuse(format!(
            "model.tied=true needs model.embed = model.hidden, but they are {embed} and {hidden}; leave model.embed out"
        ));
    }
    if c.batch == Batch::Full && c.accumulate > 1 {
        return refuse(
            "train.accumulate has no meaning with train.batch=full, which makes one update per pass; leave one of them out".into(),
        );
    }
    match c.train.method {
        MethodConfig::Bptt(_) => Ok(()),
        MethodConfig::Btprop(_) => check_btprop(c),
    }
}

fn check_btprop(c: &Config) -> Result<(), SettingError> {
    let refuse = |message: String| Err(SettingError::together(message));
    let (hidden, cell, block, loss) = (c.model.hidden, c.model.cell, c.btprop.block, c.btprop.loss);
    if loss == LossOn::Free && block != 1 {
        return refuse(format!(
            "btprop.loss=free needs a free state at every step: set btprop.block=1 (it is {block}), or btprop.loss=predicted"
        ));
    }
    if let ThetaSolver::LeastSquares { .. } = c.btprop.theta_solver {
        if !matches!(cell, CellKind::Mult | CellKind::MultGated) {
            return refuse(format!(
                "btprop.theta_solver=least_squares needs a cell without non-linearity: set model.cell=mult or mult_gated (it is {cell}), or btprop.theta_solver=gradient"
            ));
        }
        // A block of more than one step was refused above, under loss=free.
        if loss != LossOn::Free {
            return refuse(
                "btprop.theta_solver=least_squares needs btprop.loss=free and btprop.block=1; set both, or btprop.theta_solver=gradient".into(),
            );
        }
    }
    if let Constraint::Sparse(k) = c.btprop.constraint
        && k > hidden
    {
        return refuse(format!(
            "btprop.constraint=sparse:{k} leaves more units than the {hidden} of model.hidden; set sparse:{hidden} or less"
        ));
    }
    Ok(())
}

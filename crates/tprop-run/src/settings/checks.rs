//! Settings that do not go together. Each sentence names the way out.

use tprop::method::{Batch, LossOn, MethodConfig, Solver, Starts};
use tprop::objective::{Constraint, Penalty};

use super::config::{Config, ThetaSolver};
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
    let closed = matches!(c.train.method, MethodConfig::LeastSquares(_)) || c.theta_solver == ThetaSolver::LeastSquares;
    if c.train.meter > 0 && (c.batch == Batch::Full || closed) {
        let without = if closed { "least squares makes none" } else { "train.batch=full has no windows" };
        return refuse(format!("train.meter compares the gradients of windows, and {without}; leave train.meter out"));
    }
    if let MethodConfig::Btprop(_) = c.train.method {
        check_btprop(c)?;
    }
    if let MethodConfig::LeastSquares(_) = c.train.method {
        check_least_squares(c)?;
    }
    Ok(())
}

fn check_btprop(c: &Config) -> Result<(), SettingError> {
    let refuse = |message: String| Err(SettingError::together(message));
    let (hidden, block, loss) = (c.model.hidden, c.btprop.block, c.btprop.loss);
    if loss == LossOn::Free && block != 1 {
        return refuse(format!(
            "btprop.loss=free needs a free state at every step: set btprop.block=1 (it is {block}), or btprop.loss=predicted"
        ));
    }
    if c.theta_solver == ThetaSolver::LeastSquares {
        check_least_squares(c)?;
        let no_closed_form = [
            (loss != LossOn::Free, "btprop.loss", loss.to_string(), "free"),
            (c.btprop.penalty != Penalty::L2, "btprop.penalty", c.btprop.penalty.to_string(), "l2"),
            (c.btprop.constraint != Constraint::None, "btprop.constraint", c.btprop.constraint.to_string(), "none"),
            (c.btprop.starts != Starts::Moving, "btprop.starts", c.btprop.starts.to_string(), "moving"),
        ];
        if let Some((_, name, found, way)) = no_closed_form.into_iter().find(|(wrong, ..)| *wrong) {
            return refuse(format!(
                "btprop.theta_solver=least_squares has no closed form for {name}={found}: use {name}={way}, or \
                 btprop.theta_solver=gradient"
            ));
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

fn check_least_squares(c: &Config) -> Result<(), SettingError> {
    let cell = c.model.cell;
    if cell.factors().is_empty() {
        return Err(SettingError::together(format!(
            "least squares needs a cell without non-linearity: set model.cell=mult or mult_gated (it is {cell}), or method=btprop"
        )));
    }
    if let Solver::Alm { .. } = c.btprop.solver {
        return Err(SettingError::together(
            "least squares has no closed form for btprop.solver=alm: use btprop.solver=admm or penalty",
        ));
    }
    Ok(())
}

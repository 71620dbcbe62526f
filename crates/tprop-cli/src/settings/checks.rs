//! Settings that do not go together. Each sentence names the way out.

use super::typed::SettingError;
use super::values::Values;
use super::{form, table};
use tprop::objective::Constraint;

/// Refuses combinations without sense. Settings of a method that is not in use are not looked at.
pub fn check(v: &Values) -> Result<(), SettingError> {
    let refuse = |message: String| Err(SettingError::together(message));
    let (hidden, embed) = (v.count("model.hidden"), v.count("model.embed"));
    if v.flag("model.tied") && hidden != embed {
        return refuse(format!(
            "model.tied=true needs model.embed = model.hidden, but they are {embed} and {hidden}; leave model.embed out"
        ));
    }
    if v.word("train.batch") == "full" && v.count("train.accumulate") > 1 {
        return refuse(
            "train.accumulate has no meaning with train.batch=full, which makes one update per pass; leave one of them out".into(),
        );
    }
    if v.word("method") == "btprop" {
        check_btprop(v)?;
    }
    debug_assert!(table::TABLE.iter().all(|s| v.get(s.name).is_some()));
    Ok(())
}

fn check_btprop(v: &Values) -> Result<(), SettingError> {
    let refuse = |message: String| Err(SettingError::together(message));
    let (cell, block) = (v.word("model.cell"), v.count("btprop.block"));
    if v.word("btprop.loss") == "free" && block != 1 {
        return refuse(format!(
            "btprop.loss=free needs a free state at every step: set btprop.block=1 (it is {block}), or btprop.loss=predicted"
        ));
    }
    if v.word("btprop.theta_solver") == "least_squares" {
        if !cell.starts_with("mult") {
            return refuse(format!(
                "btprop.theta_solver=least_squares needs a cell without non-linearity: set model.cell=mult or mult_gated (it is {cell}), or btprop.theta_solver=gradient"
            ));
        }
        // A block of more than one step was refused above, under loss=free.
        if v.word("btprop.loss") != "free" {
            return refuse(
                "btprop.theta_solver=least_squares needs btprop.loss=free and btprop.block=1; set both, or btprop.theta_solver=gradient".into(),
            );
        }
        for (name, fits, way) in [
            ("btprop.penalty", &["l2"][..], "l2"),
            ("btprop.constraint", &["none"], "none"),
            ("btprop.starts", &["moving"], "moving"),
            ("btprop.solver", &["admm", "penalty"], "admm or penalty"),
        ] {
            let found = v.word(name);
            if !fits.contains(&found) {
                return refuse(format!(
                    "btprop.theta_solver=least_squares has no closed form for {name}={found}: use {name}={way}, or theta_solver=gradient"
                ));
            }
        }
    }
    if let Ok(Constraint::Sparse(k)) = form::constraint(v.word("btprop.constraint"))
        && k as u64 > v.count("model.hidden")
    {
        let hidden = v.count("model.hidden");
        return refuse(format!(
            "btprop.constraint=sparse:{k} leaves more units than the {hidden} of model.hidden; set sparse:{hidden} or less"
        ));
    }
    Ok(())
}

//! Which settings of a run may change when it is resumed.

use std::collections::BTreeMap;

use tprop::checkpoint::Snapshot;

use crate::args;
use crate::failure::{Failure, Outcome};
use crate::run::Run;
use crate::run::sessions::Session;
use crate::settings::{Resume, Settings, Typed, nearest_name, table};

fn may_change(name: &str) -> Option<Resume> {
    table::find(name).map(|setting| setting.resume)
}

/// The settings that were typed behind the run's name; names behind `--allow-change` are looked at too.
pub fn typed(args: &args::Resume) -> Outcome<Vec<Typed>> {
    for name in &args.allow_change {
        let shown = tprop::vocab::printable(name);
        let why = match may_change(name) {
            None => {
                let near = nearest_name(name).map_or(String::new(), |near| format!("; did you mean {near}?"));
                format!("there is no setting {shown}{near}")
            }
            Some(Resume::Never) => format!(
                "{shown} cannot change in the middle of a run; begin a new one (`tprop train --from RUN` takes its weights)"
            ),
            Some(Resume::Allowed | Resume::Freely) => continue,
        };
        return Err(Failure::input(format!("--allow-change {shown}: {why}")));
    }
    let mut typed = Vec::new();
    for word in &args.words {
        typed.push(Typed::argument(word).ok_or_else(|| {
            let shown = tprop::vocab::printable(word);
            Failure::input(format!("{shown}: only settings (key=value) may follow the run's name"))
        })?);
    }
    if let Some(threads) = args.threads {
        let threads = threads.to_string();
        typed.push(Typed::spelt("train.threads", &threads, &format!("--threads {threads}")));
    }
    Ok(typed)
}

/// The settings that differ from those of the checkpoint and shape the numbers, with their new values.
///
/// # Errors
/// If one of them was not allowed to; what an earlier session was allowed is allowed still.
pub fn changes(
    run: &Run,
    settings: &Settings,
    snapshot: &Snapshot,
    past: &[Session],
    allowed: &[String],
) -> Outcome<BTreeMap<String, String>> {
    let Some(old) = run.settings_of(snapshot)? else { return Ok(BTreeMap::new()) };
    let (mut changed, mut refused, mut way) = (BTreeMap::new(), Vec::new(), true);
    for name in settings.differences(&old).into_iter().filter(|name| may_change(name) != Some(Resume::Freely)) {
        let (then, now) = (old.text(name), settings.text(name));
        let accepted = past.iter().any(|session| session.changed.get(name) == Some(&now));
        if !accepted && !allowed.iter().any(|allowed| allowed == name) {
            way &= may_change(name) == Some(Resume::Allowed);
            refused.push(format!("{name} from {then} to {now}"));
        }
        changed.insert(name.to_owned(), now);
    }
    if refused.is_empty() {
        return Ok(changed);
    }
    let way = if way {
        let flags: Vec<String> =
            refused.iter().filter_map(|r| r.split(' ').next()).map(|n| format!("--allow-change {n}")).collect();
        format!("put it back, or say {}", flags.join(" "))
    } else {
        "put it back, or train a new run with it".to_owned()
    };
    Err(Failure::input(format!(
        "{}: settings have changed since the run began ({}); {way}",
        run.name(),
        tprop::vocab::printable(&refused.join(", "))
    )))
}

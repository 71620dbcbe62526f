//! `report`: tables and plots of runs.

use std::path::{Path, PathBuf};

use tprop_report::run::folder_name;
use tprop_report::text::shell;

use crate::args;
use crate::console;
use crate::describe::describe;
use crate::failure::{Failure, Outcome};

/// Writes a report.
pub fn report(args: &args::Report) -> Outcome {
    let out = match &args.out {
        Some(out) => out.clone(),
        None => beside(&args.runs)?,
    };
    let title = args.title.clone().unwrap_or_else(|| title(&args.runs));
    let shown = |path: &PathBuf| shell(&path.to_string_lossy());
    let mut words = vec!["tprop report".to_owned()];
    words.extend(args.runs.iter().map(shown));
    words.extend(args.out.iter().map(|out| format!("--out {}", shown(out))));
    words.extend(args.title.iter().map(|title| format!("--title {}", shell(title))));
    let written = tprop_report::write(&args.runs, &out, &title, &[words.join(" ")], &describe)?;
    for problem in &written.problems {
        console::note(format!("tprop: warning: {problem}"));
    }
    if args.json {
        return console::line(serde_json::json!({
            "html": written.html.to_string_lossy(),
            "files": written.files.iter().map(|f| f.to_string_lossy()).collect::<Vec<_>>(),
            "runs": written.runs,
            "problems": written.problems,
        }));
    }
    let runs = if written.runs == 1 { "1 run".to_owned() } else { format!("{} runs", written.runs) };
    let name = tprop::vocab::printable(&written.html.to_string_lossy());
    console::line(format!("{name}: {runs}, {} more files beside it", written.files.len() - 1))
}

/// In the one folder that was given, or in the one that holds all of them.
fn beside(runs: &[PathBuf]) -> Outcome<PathBuf> {
    if let [one] = runs {
        return Ok(one.clone());
    }
    let parent = |run: &PathBuf| std::path::absolute(run).ok().and_then(|p| p.parent().map(Path::to_owned));
    let parents: Vec<_> = runs.iter().map(parent).collect();
    match parents.first() {
        Some(Some(first)) if parents.iter().all(|p| p.as_ref() == Some(first)) => {
            Ok(runs[0].parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned())
        }
        _ => Err(Failure::input("these runs lie in different folders; say by --out DIR where the report should be")),
    }
}

fn title(runs: &[PathBuf]) -> String {
    match runs {
        [one] => folder_name(one).unwrap_or_else(|| "Runs".to_owned()),
        _ => "Comparison of runs".to_owned(),
    }
}

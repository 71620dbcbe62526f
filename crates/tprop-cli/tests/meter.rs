//! `tprop meter` and `train.meter`.

mod common;

use common::{Place, small, tensors_hash};
use serde_json::Value;

/// A small run with the name `run`.
fn trained(more: &[&str]) -> Place {
    let place = Place::new();
    place.run(&small(&[&["--run", "run", "--quiet"], more].concat())).ok();
    place
}

fn meter(place: &Place, more: &[&str]) -> Value {
    place.run(&[&["meter", "run", "--json", "--windows", "2"], more].concat()).ok().json()
}

fn error(row: &Value, group: &str) -> f64 {
    let groups = row["groups"].as_array().expect("groups");
    let found = groups.iter().find(|g| g["group"] == group).unwrap_or_else(|| panic!("no {group} in {row}"));
    found["error"].as_f64().expect("a number")
}

#[test]
fn a_run_is_measured_under_any_method() {
    let place = trained(&[]);
    let blocks = ["btprop.block=5", "btprop.blocks=4", "train.streams=2"];
    let inner = "cell and embedding";

    let reach = meter(&place, &[&["preset=reach"], &blocks[..]].concat());
    assert_eq!((&reach["window"], &reach["streams"], &reach["windows"]), (&20.into(), &2.into(), &2.into()));
    assert_eq!(reach["rows"].as_array().unwrap().len(), 4);
    let errors: Vec<f64> = (0..4).map(|i| error(&reach["rows"][i], inner)).collect();
    assert!(errors[0] > errors[1] && errors[2] > 1e-6 && errors[3] < 1e-10, "{errors:?}");
    assert_eq!(reach["rows"][1]["own"], true);
    assert!(error(&reach["rows"][0], "output") < 1e-12, "exact starts");
    assert!(reach["lyapunov"].as_f64().unwrap() < 0.0);
    assert_eq!(reach["lags"].as_array().unwrap().len(), 4);

    // What was typed beside a preset wins, and a scan is nearer than a reach of as many sweeps.
    let scan = meter(&place, &[&["preset=scan", "btprop.init=carried:2", "--sweeps", "1"], &blocks[..]].concat());
    assert_eq!((scan["starts"].as_array().unwrap().len(), scan["rows"].as_array().unwrap().len()), (2, 2));
    assert!(scan["starts"][1]["error"].as_f64() < scan["starts"][0]["error"].as_f64());

    let bptt = meter(&place, &["bptt.window=5", "train.streams=2", "--window", "20"]);
    assert!((error(&bptt["rows"][0], inner) - errors[0]).abs() < 1e-10, "a reach of 0 is BPTT with K = B");
    let own = meter(&place, &[]);
    assert!(error(&own["rows"][0], "all") < 1e-12);

    let shown = place.run(&[&["meter", "run", "preset=scan"], &blocks[..]].concat()).ok().out;
    for word in ["pull sweeps", "cell and embedding", "the starts", "Lyapunov", "lag in tokens"] {
        assert!(shown.contains(word), "{word} not in {shown}");
    }
}

#[test]
fn what_cannot_be_measured_is_refused() {
    let place = trained(&[]);
    let refused = |more: &[&str], what: &str| place.run(&[&["meter", "run"], more].concat()).refused(2, what);
    refused(&["model.hidden=9"], "leave out model.*");
    refused(&["nonsense"], "settings are key=value");
    refused(&["preset=reech"], "did you mean reach?");
    refused(&["preset=reach", "btprop.block=7", "--window", "20"], "use a multiple of it");
    refused(&["--window", "1000000"], "use fewer streams or a smaller window");
    refused(&["data.source=built-in", "synth.vocab=70"], "not the text of this run");
    let meters = |more: &[&str], what| place.run(&small(&[&["train.meter=5"], more].concat())).refused(2, what);
    meters(&["train.batch=full"], "train.batch=full has no windows");
    meters(&["method=least_squares", "model.cell=mult"], "least squares makes none");
}

#[test]
fn training_may_be_watched() {
    let scan = ["preset=scan", "btprop.block=5", "btprop.blocks=4"];
    let (plain, metered) = (trained(&scan), trained(&[&scan[..], &["train.meter=10"]].concat()));
    let weights = |place: &Place| {
        place.run(&["export", "run", "--out", "exported"]).ok();
        tensors_hash(&place.join("exported/model.safetensors"))
    };
    assert_eq!(weights(&plain), weights(&metered));
    let record = std::fs::read_to_string(metered.join("run/record.jsonl")).unwrap();
    let lines = record.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let meters: Vec<Value> = lines.filter(|line| line["event"] == "meter").collect();
    assert!(!meters.is_empty());
    for (i, line) in meters.iter().enumerate() {
        assert_eq!(line["step"], 10 * (i + 1));
        let error = line["inner_error"].as_f64().unwrap();
        assert!(error > 0.0 && error < 1.0 && line["inner_cosine"].as_f64().unwrap() > 0.5, "{line}");
    }
    metered.run(&["report", "run"]).ok();
}

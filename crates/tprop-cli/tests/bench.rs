//! `bench`: its arithmetic, its turns with a peer, its profile. No time is judged here.

mod common;
use common::Place;
use serde_json::Value;

const SMALL: [&str; 9] = [
    "bench",
    "--quick",
    "data.vocab=50",
    "model.hidden=8",
    "model.embed=8",
    "bptt.window=5",
    "btprop.block=5",
    "btprop.blocks=4",
    "train.threads=1",
];

fn measure(place: &Place, more: &[&str]) -> Value {
    let ran = place.run(&[&SMALL[..], &["--json"], more].concat());
    assert_eq!(ran.code, 0, "{ran:?}");
    serde_json::from_str(&ran.out).expect("one JSON line")
}

/// Products as they are done, with H·V of the output layer and the weights I and R of the cells for inputs and for the recurrence: BPTT
/// 6 (HV + I + R); products with inputs are done once for all passes with one θ.
#[test]
fn arithmetic_of_a_step() {
    let place = Place::new();
    let (h, v) = (8.0, 50.0);
    let close = |line: &Value, flop: f64| {
        let found = line["gflop_per_token"].as_f64().expect("a number") * 1e9;
        assert!((found - flop).abs() < 1e-6 * flop, "{found} instead of {flop}");
    };
    let (i, r) = (3.0 * h * h, 3.0 * h * h);
    close(&measure(&place, &[]), 6.0 * (h * v + i + r));
    let lstm = 8.0 * h * h;
    close(&measure(&place, &["model.cell=lstm", "model.layers=2"]), 6.0 * (h * v + 2.0 * lstm));
    // Forward again from each of the states; back through the inputs for θ alone; the dual step has another θ.
    let admm = ["method=btprop", "btprop.solver=admm", "btprop.init=parallel:2", "btprop.state_steps=3"];
    let passes = 2.0 * (2.0 * r) + 3.0 * (4.0 * h * v + 4.0 * r) + (6.0 * h * v + 6.0 * r + 4.0 * i) + 2.0 * (i + r);
    close(&measure(&place, &admm), 2.0 * i + passes);
    let penalty = ["method=btprop", "btprop.solver=penalty", "btprop.init=zero"];
    close(&measure(&place, &penalty), 2.0 * i + (4.0 * h * v + 4.0 * r) + (6.0 * h * v + 6.0 * r + 4.0 * i));
    // From held starts the output layer is done once, and a state step runs back through the recurrence alone.
    let held = |sweeps: f64, steps: f64| 6.0 * (h * v + i + r) + (sweeps + steps) * 2.0 * r;
    close(&measure(&place, &["preset=reach", "btprop.state_steps=3"]), held(1.0, 3.0));
    let scan = ["preset=scan", "btprop.init=carried:2", "btprop.sweep_tol=0"];
    close(&measure(&place, &scan), held(2.0, 1.0));
    assert_eq!(place.run(&["bench", "--repeat", "0"]).code, 2);
    // Larger than any memory, and larger than the text of a calibration.
    let wide = ["method=btprop", "btprop.block=100000", "btprop.blocks=1000000", "train.streams=65536"];
    place.run(&[&["bench"], &wide[..]].concat()).refused(2, "this needs about");
    place.run(&["plan", "--tokens", "1000000000000", "--measure", "1"]).refused(2, "this needs about");
    let long = ["plan", "--tokens", "100000", "--ranks", "1", "data.vocab=20", "model.hidden=4", "bptt.window=1000"];
    place.run(&long).ok();
}

#[test]
fn speed_and_fraction_belong_together() {
    let place = Place::new();
    let line = measure(&place, &[]);
    let number = |name: &str| line[name].as_f64().unwrap_or_else(|| panic!("{name} in {line}"));
    assert!(number("tokens_per_s_best") >= number("tokens_per_s_median"));
    let fraction = number("tokens_per_s_best") * number("gflop_per_token") / number("gemm_gflops");
    // Speeds are rounded to whole tokens per second.
    assert!((number("fraction_of_limit") / fraction - 1.0).abs() < 1e-3, "{line}");
    assert_eq!(line["threads"], 1);
}

#[test]
fn a_peer_takes_turns_and_sets_the_limit() {
    let place = Place::new();
    let peer = r#"echo x >>turns; echo noise; echo '{"tokens_per_s_best": 1000, "gemm_gflops": 1e6}'"#;
    let mut words = SMALL.to_vec();
    words.retain(|w| *w != "--quick");
    words.extend(["--json", "--rounds", "3", "--repeat", "2", "--peer", peer]);
    let ran = place.run(&words);
    assert_eq!(ran.code, 0, "{ran:?}");
    let line: Value = serde_json::from_str(&ran.out).expect("one JSON line");
    assert_eq!(std::fs::read_to_string(place.join("turns")).expect("the peer ran"), "x\n".repeat(3));
    assert_eq!(line["limit_gflops"], 1e6);
    let (ratio, best) =
        (line["ratio"].as_f64().expect("a ratio"), line["tokens_per_s_best"].as_f64().expect("a speed"));
    assert!((ratio - best / 1000.0).abs() < 1e-2, "{line}");
}

#[test]
fn a_peer_that_says_nothing_useful_is_named() {
    let place = Place::new();
    let ran = place.run(&[&SMALL[..], &["--peer", "echo no torch here >&2; exit 1"]].concat());
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.err.contains("no torch here"), "{}", ran.err);
}

#[test]
fn a_profile_tells_all_parts() {
    let place = Place::new();
    let line = measure(&place, &["--profile"]);
    let parts = line["profile"].as_object().expect("a profile");
    let names =
        ["embedding", "input product", "recurrence", "softmax forward", "softmax backward", "optimiser", "rest"];
    for name in names {
        assert!(parts[name].as_f64().is_some_and(|share| name == "rest" || share > 0.0), "{name} in {line}");
    }
    assert_eq!(parts.len(), names.len());
    let sum: f64 = parts.values().filter_map(Value::as_f64).sum();
    assert!((sum - 1.0).abs() < 1e-9, "{line}");
    let ran = place.run(&[&SMALL[..], &["--profile"]].concat());
    assert!(names.iter().all(|name| ran.out.contains(name)), "{}", ran.out);
}

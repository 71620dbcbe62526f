//! What of clusters can be seen without one: refusals, shares of a lone process, plans. `scripts/mpi` does the rest under mpirun.

mod common;
use common::{Place, small};

/// Without MPI every process of a launcher would train the whole; the first one says so, the others end in silence.
#[cfg(not(feature = "mpi"))]
#[test]
fn a_launcher_is_refused_by_a_plain_build() {
    let place = Place::new();
    for (size, rank) in [("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"), ("PMI_SIZE", "PMI_RANK")] {
        let run = |number| {
            let mut command = place.command(&small(&["--run", "run"]));
            let output = command.env(size, "4").env(rank, number).output().expect("started");
            (output.status.code(), String::from_utf8(output.stderr).expect("UTF-8"))
        };
        let (code, said) = run("0");
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("started 4 processes") && said.contains("--features mpi"), "{said}");
        assert_eq!(run("3"), (Some(2), String::new()));
    }
    assert!(place.files().is_empty(), "{:?}", place.files());
    // One process is no cluster.
    let mut command = place.command(&small(&["--run", "run", "-q"]));
    let one = command.env("OMPI_COMM_WORLD_SIZE", "1").env("OMPI_COMM_WORLD_RANK", "0").output().expect("started");
    assert!(one.status.success(), "{one:?}");
}

#[test]
fn shares_are_a_setting_of_the_run() {
    let place = Place::new();
    place.run(&small(&["--run", "one", "-q"])).ok();
    let settings = |run: &str| std::fs::read_to_string(place.join(run).join("settings.toml")).expect("written");
    assert!(settings("one").contains("shares = \"1\""), "{}", settings("one"));
    place.run(&small(&["--run", "three", "-q", "cluster.shares=3"])).ok();
    assert!(settings("three").contains("shares = \"3\""), "{}", settings("three"));
    place.run(&small(&["--run", "none", "cluster.shares=0"])).refused(2, "cluster.shares");
}

#[test]
fn a_plan_follows_from_its_rates() {
    let place = Place::new();
    let plan = |more: &[&str]| {
        let mut args = vec!["plan", "--tokens", "1000001", "data.vocab=10000", "--hidden", "100", "--method", "btprop"];
        args.extend(["train.batch=full", "--rate", "5000", "--update", "4", "--json"]);
        args.extend(more);
        place.run(&args)
    };
    let line = plan(&["--ranks", "1,2,4"]).ok().json();
    let rows = line["rows"].as_array().expect("rows");
    let number = |row: usize, name: &str| rows[row][name].as_f64().expect("a number");
    // 200 s of tokens; the rest is small, so ranks pay.
    assert!((number(0, "compute") - 200.0).abs() < 1e-6, "{line}");
    assert_eq!(number(0, "bytes"), 0.0);
    assert!(number(1, "speed_up") > 1.99 && number(2, "speed_up") > 3.9, "{line}");
    // Two ranks have one node each: half of the gradient goes out, half of the sum goes round, and boundary vectors.
    let work = &line["work"];
    let size = |name: &str| work[name].as_f64().expect("a number");
    let bytes = size("dense_bytes") + size("sparse_bytes") + size("exchanges") * size("boundary_bytes");
    assert!((number(1, "bytes") - bytes).abs() < 1.0, "{line}");
    // Over a slow wire one rank is best.
    let slow = plan(&["--bandwidth", "0.000001"]).ok().json();
    assert_eq!(slow["turning_point"]["ranks"], 1, "{slow}");
    assert!(plan(&["--bandwidth", "0"]).code == 2 && plan(&["--ranks", "0"]).code == 2);
    place.run(&["plan", "--tokens", "5", "--rate", "1"]).refused(2, "less than one window");
    assert!(place.files().is_empty(), "{:?}", place.files());
}

/// Rates are measured if none are given; nothing is asserted about how fast this machine is.
#[test]
fn a_plan_measures_this_machine() {
    let place = Place::new();
    let args = ["plan", "--tokens", "2000", "data.vocab=50", "--hidden", "8", "--method", "btprop", "btprop.block=5"];
    let line = place.run(&[&args[..], &["--ranks", "1,2", "--json"]].concat()).ok().json();
    for name in ["seconds_per_token", "seconds_per_update", "seconds_per_byte"] {
        assert!(line["rates"][name].as_f64().is_some_and(|rate| rate > 0.0), "{line}");
    }
    let measured = place.run(&[&args[..], &["--measure", "2"]].concat()).ok().json();
    assert_eq!(measured["seconds"].as_array().map(Vec::len), Some(2), "{measured}");
    assert_eq!((&measured["ranks"], &measured["letters"]), (&1.into(), &0.into()), "{measured}");
}

use super::typed::read_text;
use super::*;
use std::path::Path;
use tprop::method::{Ignore, Init, MethodConfig, Starts};

fn arguments(list: &[&str]) -> Result<Settings, SettingError> {
    let arguments = list.iter().map(|a| Typed::argument(a).expect("key=value")).collect();
    Settings::resolve(&Sources { file: Vec::new(), arguments })
}

fn file(text: &str) -> Result<Settings, SettingError> {
    Settings::resolve(&Sources { file: read_text(text, Path::new("a.toml"))?, arguments: Vec::new() })
}

fn message(result: Result<Settings, SettingError>) -> String {
    result.expect_err("should be refused").to_string()
}

#[test]
fn names_and_flags_are_unique_and_every_default_is_allowed() {
    let mut names: Vec<_> = TABLE.iter().map(|s| s.name).collect();
    let mut flags: Vec<_> = TABLE.iter().filter_map(|s| s.flag).collect();
    for list in [&mut names, &mut flags] {
        let len = list.len();
        list.sort_unstable();
        list.dedup();
        assert_eq!(list.len(), len);
    }
    let settings = arguments(&[]).unwrap();
    // Typing a default changes nothing: derived ones obey their own ranges too.
    assert_eq!(file(&settings.to_toml()).unwrap().values, settings.values);
}

#[test]
fn every_combination_of_choices_converts() {
    for setting in TABLE {
        if let table::Kind::Choice(words) = setting.kind {
            for word in words {
                let mut list = vec![format!("{}={word}", setting.name)];
                list.extend((setting.name != "method").then(|| "method=btprop".to_owned()));
                list.extend((setting.name != "btprop.block").then(|| "btprop.block=1".to_owned()));
                if *word == "least_squares" {
                    list.extend(["model.cell=mult".to_owned(), "btprop.loss=free".to_owned()]);
                }
                let settings = arguments(&list.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
                let _ = (settings.train(), settings.model(10), settings.corpus(), settings.synth(), settings.simd());
                let _ = (settings.checkpointing(), settings.threads(), settings.rolls_back());
            }
        }
    }
}

#[test]
fn later_sources_win_and_derived_defaults_follow() {
    let file = read_text("preset = \"reach\"\n[btprop]\nlambda = 2\nblock = 5\n[model]\nhidden = 7\n", Path::new("a"))
        .unwrap();
    let arguments = vec![Typed::argument("btprop.block=3").unwrap()];
    let s = Settings::resolve(&Sources { file, arguments }).unwrap();
    let MethodConfig::Btprop(b) = s.method() else { panic!("the preset sets the method") };
    assert_eq!((b.block, b.lambda, b.states.rate, b.starts), (3, 2.0, 1.0, Starts::Held));
    assert_eq!((b.streams, s.model(9).embed), (1, 7));
    assert_eq!(s.optim().rate, 0.05);
}

#[test]
fn rates_follow_the_optimiser() {
    let s = arguments(&["optim.name=adam"]).unwrap().optim();
    assert_eq!((s.rate, s.rule.eps()), (0.002, Some(1e-8)));
    assert_eq!(arguments(&["optim.name=sgd", "optim.lr=20"]).unwrap().optim().rate, 20.0);
}

#[test]
fn parity_switches_on_every_deviation() {
    let MethodConfig::Btprop(b) = arguments(&["preset=parity"]).unwrap().method() else { panic!() };
    assert_eq!((b.init, b.ignore, b.streams, b.blocks), (Init::Parallel { sweeps: 1 }, Ignore::First, 1, 32));
    assert_eq!(b.solver.duals().unwrap().start_epoch, 3);
}

#[test]
fn refusals_say_what_is_allowed() {
    for (argument, expected) in [
        ("model.hidden=0", "model.hidden=0: model.hidden must be a whole number from 1 to 32768, not 0"),
        ("model.hidden=-3", "from 1 to 32768"),
        ("model.hidden=1.5", "from 1 to 32768"),
        ("model.hidden=1e30", "from 1 to 32768"),
        ("model.hidden=99999999999999999999999", "from 1 to 32768"),
        ("model.hidden=", "from 1 to 32768"),
        ("optim.lr=NaN", "a number above 0, up to 1e9, not NaN"),
        ("optim.lr=inf", "above 0"),
        ("optim.lr=0", "above 0"),
        ("optim.lr=-1", "above 0"),
        ("optim.anneal=0.5", "above 1, up to 1e6 (or 0: off)"),
        ("optim.name=adagard", "did you mean adagrad?"),
        ("model.tied=yes", "true or false"),
        ("btprop.init=parallel:0", "from 1 to"),
        ("btprop.init=paralel:1", "one of zero, parallel:N, stored:N, sequential"),
        ("btprop.constraint=sparse", "sparse:K"),
        ("btprop.lambda_schedule=geometric:NaN", "must be from 0.001 to 1000"),
        ("model.hiden=5", "there is no setting model.hiden; did you mean model.hidden?"),
        ("model=5", "`tprop settings model` lists them"),
        ("=5", "name is missing"),
        ("preset=reech", "did you mean reach?"),
        ("data.max_vocab=2", "from 3 to 100000000 (or 0: no limit)"),
        ("synth.vocab=10", "from 50 to 100000"),
    ] {
        let found = message(arguments(&[argument]));
        assert!(found.contains(expected), "{argument}: {found}");
    }
}

/// Least squares is a method of its own, which has no place for these.
#[test]
fn what_has_no_closed_form_is_refused() {
    let good =
        ["method=btprop", "btprop.theta_solver=least_squares", "model.cell=mult", "btprop.loss=free", "btprop.block=1"];
    assert!(matches!(arguments(&good).unwrap().method(), MethodConfig::LeastSquares(_)));
    for (bad, way) in [
        ("btprop.penalty=kl", "use btprop.penalty=l2"),
        ("btprop.constraint=box", "use btprop.constraint=none"),
        ("btprop.starts=held", "use btprop.starts=moving"),
        ("btprop.solver=alm", "use btprop.solver=admm or penalty"),
    ] {
        let found = message(arguments(&[&good[..], &[bad]].concat()));
        assert!(found.contains(&format!("no closed form for {bad}: {way}")), "{found}");
    }
}

#[test]
fn combinations_name_the_way_out() {
    for (list, expected) in [
        (&["method=btprop", "btprop.loss=free"][..], "btprop.block=1"),
        (&["method=btprop", "btprop.theta_solver=least_squares"], "model.cell=mult"),
        (&["method=btprop", "btprop.theta_solver=least_squares", "model.cell=mult"], "btprop.loss=free"),
        (&["method=btprop", "btprop.constraint=sparse:8", "model.hidden=4"], "sparse:4 or less"),
        (&["model.tied=true", "model.embed=5"], "leave model.embed out"),
        (&["train.batch=full", "train.accumulate=2"], "leave one of them out"),
        (&["train.seed=1", "train.seed=1"], "train.seed is set twice (first: train.seed=1)"),
    ] {
        let found = message(arguments(list));
        assert!(found.contains(expected), "{list:?}: {found}");
    }
    // Ignored, not refused, under another method.
    assert!(arguments(&["btprop.loss=free"]).is_ok());
}

#[test]
fn files_are_refused_with_line_and_column() {
    for (text, expected) in [
        (
            "[model]\nhidden = 0\n",
            "a.toml: line 2, column 1: model.hidden must be a whole number from 1 to 32768, not 0",
        ),
        (
            "[model]\n  hiden = 5\n",
            "a.toml: line 2, column 3: there is no setting model.hiden; did you mean model.hidden?",
        ),
        ("[model\n", "a.toml: line 1, column 7"),
        ("a = 1\na = 2\n", "a.toml: line 2, column 1"),
        ("model.hidden = \"5\"", "without quotes"),
        ("model.hidden = [5]", "one value, not a list"),
        ("data.source = 5", "in quotes"),
        ("model.hidden = 1979-05-27", "not be a date"),
        ("optim.lr = nan", "above 0"),
        ("[a.b.c]\nd = 1", "there is no setting a.b.c.d"),
        ("[modle]\n", "line 1, column 2: there is no group of settings modle; did you mean model?"),
        ("[model.a]\n", "there is no group of settings model.a"),
    ] {
        let found = message(file(text));
        assert!(found.contains(expected), "{text}: {found}");
    }
    assert!(file("data.eos = true\ndata.min_count = 3\nmodel.hidden = 0x10\nmethod = \"bptt\"").is_ok());
}

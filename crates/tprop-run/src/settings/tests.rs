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
    assert_eq!(file(&settings.to_toml()).unwrap().config, settings.config);
}

/// Every word of every choice is read by the setting's own field, and written as it was read.
#[test]
fn words_read_back_as_themselves() {
    let mut tried = 0;
    for setting in TABLE {
        for word in setting.kind.words() {
            let word = word.replace(char::is_uppercase, "3");
            let mut config = Config::default();
            assert_eq!(setting.set(&mut config, &word), Ok(()), "{}={word}", setting.name);
            assert_eq!(setting.text(&config), word, "{}", setting.name);
            tried += 1;
        }
    }
    assert!(tried > 70, "{tried}");
}

/// A value that a setting has not by default.
fn another(setting: &table::Setting) -> String {
    let usual = setting.text(&Config::default());
    match setting.kind {
        table::Kind::Words { .. } => {
            let words = setting.kind.words().into_iter().map(|word| word.replace(char::is_uppercase, "3"));
            words.into_iter().find(|word| *word != usual).unwrap()
        }
        table::Kind::Flag => (usual == "false").to_string(),
        table::Kind::Count { .. } | table::Kind::AutoCount { .. } => "7".to_owned(),
        table::Kind::Real { .. } => "7.5".to_owned(),
        table::Kind::Text => "elsewhere".to_owned(),
    }
}

#[test]
fn a_setting_changes_its_own_field_alone() {
    let usual = Config::default();
    for setting in TABLE {
        let (mut config, other) = (usual.clone(), another(setting));
        setting.set(&mut config, &other).unwrap();
        let changed: Vec<_> = TABLE.iter().filter(|s| s.text(&config) != s.text(&usual)).map(|s| s.name).collect();
        assert_eq!(changed, [setting.name]);
        assert_eq!(setting.text(&config), other);
    }
}

/// Every setting reaches what the library, or a command, is given: a choice that carries settings is put together from its parts.
#[test]
fn every_setting_arrives() {
    let everything = |config: &Config| {
        let s = Settings { config: config.clone(), preset: None };
        let library = format!("{:?} {:?} {:?} {:?}", s.train(), s.model(10), s.corpus(), s.synth());
        let program = (s.bench_vocab(), s.threads(), s.simd(), s.rolls_back(), s.checkpointing(), s.shares());
        format!("{library} {program:?}")
    };
    let choices: [&[(&str, &str)]; 5] = [
        &[],
        &[("model.cell", "elman")],
        &[("method", "btprop")],
        &[("method", "btprop"), ("btprop.solver", "alm")],
        &[("method", "least_squares")],
    ];
    for setting in TABLE {
        let arrives = choices.iter().any(|choice| {
            let mut config = Config::default();
            choice.iter().for_each(|(name, word)| table::find(name).unwrap().set(&mut config, word).unwrap());
            let before = everything(&config);
            setting.set(&mut config, &another(setting)).unwrap();
            everything(&config) != before
        });
        assert!(arrives, "{}", setting.name);
    }
}

/// The default of a following setting is the library's own for what was chosen, and every condition names a value that exists.
#[test]
fn rows_agree_with_each_other() {
    let usual = Config::default();
    for setting in TABLE {
        for (name, value) in setting.beside.iter().flat_map(|(name, values)| values.iter().map(move |v| (*name, *v))) {
            let other = table::find(name).unwrap();
            let mut config = usual.clone();
            assert_eq!(other.set(&mut config, value), Ok(()), "{}", setting.name);
            assert_eq!(other.text(&config), value);
        }
        // Frozen texts are written as settings write themselves: only then can they be compared.
        let mut config = usual.clone();
        let frozen = ours(setting.name, setting.frozen, "frozen");
        parse::set(setting, &frozen, &mut config).unwrap();
        assert_eq!(setting.text(&config), setting.frozen, "{}", setting.name);
        if let Some(follows) = setting.follows {
            let mut config = usual.clone();
            (follows.apply)(&mut config);
            assert_eq!(config, usual, "{}", setting.name);
        }
    }
}

#[test]
fn an_identity_is_what_differs_from_the_frozen_values() {
    let s = arguments(&["model.hidden=8", "train.seed=1", "optim.name=adam", "train.threads=2"]).unwrap();
    let pairs: Vec<_> = s.identity().into_iter().map(|(name, text)| format!("{name}={text}")).collect();
    assert_eq!(pairs, ["model.embed=8", "model.hidden=8", "optim.eps=1e-8", "optim.lr=0.002", "optim.name=adam"]);
    // Nothing has moved since these were frozen.
    assert_eq!(arguments(&[]).unwrap().identity(), []);
}

#[test]
fn a_new_setting_or_another_order_renames_nothing_and_a_changed_default_does() {
    use row::*;
    use tprop::words::WordError;
    let config = arguments(&["preset=parity", "model.hidden=8", "optim.lr=0.2"]).unwrap().config;
    let before = identity(TABLE, &config);
    assert!(before.len() > 10, "{before:?}");
    let mut rows: Vec<_> = TABLE.iter().rev().copied().collect();
    assert_eq!(identity(&rows, &config), before);
    let new = row("model.aaa", at!(model.logits_mb, count(1, 1_000)), "144", "Only in this test");
    rows.insert(5, new);
    assert_eq!(identity(&rows, &config), before);
    // Its default was 144 when it was introduced, and then became 100.
    let mut changed = config;
    changed.model.logits_mb = 100;
    let after = identity(&rows, &changed);
    assert_ne!(after, before);
    assert_eq!(after.iter().find(|(name, _)| *name == "model.aaa").unwrap().1, "100");
}

/// A run that knows nothing of a setting was made with its frozen value, not with today's default.
#[test]
fn what_a_record_lacks_is_frozen() {
    let typed = |list: &[&str]| list.iter().map(|a| Typed::argument(a).unwrap()).collect::<Vec<_>>();
    let old = Settings::recorded(typed(&["method=btprop", "model.hidden=8"]), typed(&["train.epochs=3"])).unwrap();
    // As defaults these two would follow: 8, and 1 for btprop.
    assert_eq!((old.text("model.embed"), old.text("train.streams")), ("100".into(), "32".into()));
    assert_eq!(old.text("train.epochs"), "3");
}

#[test]
fn fields_of_the_library_have_names_that_users_know() {
    for (path, name) in [
        ("streams", "train.streams"),
        ("accumulate", "train.accumulate"),
        ("block", "btprop.block"),
        ("blocks", "btprop.blocks"),
        ("loss", "btprop.loss"),
        ("init", "btprop.init"),
        ("model.init", "model.init"),
        ("states.rate", "btprop.state_lr"),
        ("btprop.states.rate", "btprop.state_lr"),
        ("window", "bptt.window"),
        ("cell", "model.cell"),
        ("hidden", "model.hidden"),
        ("eval_streams", "eval.streams"),
        ("optim.rate", "optim.lr"),
    ] {
        assert_eq!(name_of_field(path), Some(name), "{path}");
    }
    // Two fields are called so, or none.
    assert_eq!((name_of_field("rate"), name_of_field("lock"), name_of_field("")), (None, None, None));
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

/// The library's own `reach` and the preset are one thing.
#[test]
fn the_presets_reach_and_scan_are_the_librarys() {
    let method = arguments(&["preset=reach", "btprop.state_steps=3"]).unwrap().method();
    assert_eq!(method, MethodConfig::Btprop(tprop::method::BtpropConfig::reach(3)));
    let method = arguments(&["preset=scan"]).unwrap().method();
    assert_eq!(method, MethodConfig::Btprop(tprop::method::BtpropConfig::scan(1)));
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
        ("btprop.init=paralel:1", "one of zero, parallel:N, stored:N, carried:N, sequential"),
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
    let old = arguments(&good).unwrap();
    assert!(matches!(old.method(), MethodConfig::LeastSquares(_)) && old.old_least_squares());
    let new = arguments(&["method=least_squares", "model.cell=mult"]).unwrap();
    assert!(new.method() == old.method() && !new.old_least_squares());
    // Of BTPROP's own settings it knows nothing.
    assert!(new.applies("btprop.lambda") && !new.applies("btprop.penalty"));
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
        (&["method=least_squares"], "model.cell=mult"),
        (&["method=least_squares", "model.cell=mult", "btprop.solver=alm"], "btprop.solver=admm"),
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

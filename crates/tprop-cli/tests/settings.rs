//! Settings on the command line: refusals leave nothing behind, and what is printed can be read back.

mod common;

use common::Place;

#[test]
fn refused_settings_make_no_file() {
    let place = Place::new();
    place.write("twice.toml", "[model]\nhidden = 5\nhidden = 6\n");
    place.write("wrong.toml", "[model]\n  hiden = 5\n");
    place.write("broken.toml", "[model\n");
    let before = place.files();
    for (args, expected) in [
        (&["model.hiden=5"][..], "did you mean model.hidden?"),
        (&["hidden=5"], "did you mean model.hidden?"),
        (&["btprop.state_step=1"], "did you mean btprop.state_steps?"),
        (&["model.cell=grru"], "did you mean gru?"),
        (&["--hidden", "0"], "from 1 to 32768, not 0"),
        (&["--hidden", "-5"], "from 1 to 32768, not -5"),
        (&["--hidden", "many"], "not many"),
        (&["--hidden", "99999999999999999999"], "from 1 to 32768"),
        (&["--lr", "nan"], "above 0, up to 1e9, not nan"),
        (&["--lr", "inf"], "not inf"),
        (&["--lr=-0.1"], "not -0.1"),
        (&["--lambda", "-1"], "or 0: no coupling"),
        (&["train.streams=0"], "from 1 to 65536"),
        (&["--hidden", "5", "model.hidden=6"], "model.hidden is set twice"),
        (&["--preset", "reech"], "did you mean reach?"),
        (&["--config", "none.toml"], "none.toml: settings cannot be read"),
        (&["--config", "."], "not an ordinary file"),
        (&["--config", "twice.toml"], "twice.toml: line 3, column 1"),
        (
            &["--config", "wrong.toml"],
            "wrong.toml: line 2, column 3: there is no setting model.hiden; did you mean model.hidden?",
        ),
        (&["--config", "broken.toml"], "broken.toml: line 1, column 7"),
        (&["method=btprop", "btprop.loss=free"], "set btprop.block=1"),
        (&["method=btprop", "btprop.starts=held", "btprop.init=stored:0"], "would never find any: use stored:1"),
        (&["a.txt", "b.txt"], "two data sources"),
        (&["a.txt", "--data", "b.txt"], "data.source is set twice"),
        (&["=5"], "name is missing"),
    ] {
        place.run(&[&["train"], args].concat()).refused(2, expected);
        assert_eq!(place.files(), before, "{args:?}");
    }
    // Words of clap's own: still exit code 2 and the nearest name.
    let ran = place.run(&["train", "--hiden", "5"]);
    assert!(ran.code == 2 && ran.err.contains("'--hidden'"), "{ran:?}");
    let ran = place.run(&["trian"]);
    assert!(ran.code == 2 && ran.err.contains("'train'"), "{ran:?}");
    assert_eq!(place.files(), before);
}

#[test]
fn printed_settings_read_back_as_themselves() {
    let place = Place::new();
    for args in [
        &[][..],
        &["--preset", "reach"],
        &["preset=parity", "--hidden", "7", "optim.name=adam"],
        &["some \"file\"\\x.txt", "model.init=1e-5", "btprop.init=stored:3", "data.eos=false", "data.min_count=4"],
    ] {
        let first = place.run(&[&["train", "--print-settings"], args].concat()).ok();
        place.write("a.toml", &first.out);
        let second = place.run(&["train", "--print-settings", "--config", "a.toml"]).ok();
        assert_eq!(first.out, second.out);
        let changed = place.run(&["train", "--print-settings", "--config", "a.toml", "--seed", "77"]).ok();
        assert_eq!(changed.out, first.out.replacen("seed = 1\nthreads", "seed = 77\nthreads", 1));
    }
}

#[test]
fn everything_is_explained() {
    let place = Place::new();
    for command in [
        &[][..],
        &["train"],
        &["resume"],
        &["eval"],
        &["generate"],
        &["score"],
        &["data"],
        &["data", "inspect"],
        &["export"],
        &["import"],
    ] {
        let ran = place.run(&[command, &["--help"]].concat()).ok();
        assert!(ran.out.contains("Usage: tprop"), "{ran:?}");
    }
    let all = place.run(&["settings"]).ok().out;
    let printed = place.run(&["train", "--print-settings"]).ok().out;
    let mut group = String::new();
    let mut names = 0;
    for line in printed.lines() {
        if let Some(name) = line.strip_prefix('[') {
            group = format!("{}.", name.trim_end_matches(']'));
        } else if let Some((key, _)) = line.split_once(" = ") {
            assert!(all.contains(&format!("\n{group}{key} = ")), "{group}{key} is not explained");
            names += 1;
        }
    }
    assert!(names > 60);
    assert!(place.run(&["settings", "optim.lr"]).ok().out.contains("also --lr"));
    place.run(&["settings", "optin"]).refused(2, "no setting begins with optin");
    for shell in ["bash", "zsh", "fish"] {
        assert!(place.run(&["completions", shell]).ok().out.contains("state-steps"));
    }
    assert!(place.run(&["man"]).ok().out.contains(".TH tprop"));
    place.run(&["man", "--out", "man"]).ok();
    assert!(place.join("man/tprop-train.1").is_file());
}

/// Whatever a settings file has in it: refused in one sentence with a place, or read and read back as itself.
#[test]
fn no_settings_file_panics() {
    use proptest::prelude::*;
    let name = prop_oneof![
        "[a-z._\"]{0,12}",
        prop::sample::select(vec![
            "hidden", "lr", "source", "method", "block", "init", "preset", "[model]", "[optim]", "[x]"
        ])
        .prop_map(str::to_owned),
    ];
    let value = prop_oneof![
        "[-+0-9eE._]{0,9}",
        "\"[a-z:0-9]{0,9}\"",
        prop::sample::select(vec![
            "nan",
            "inf",
            "true",
            "[1,2]",
            "{}",
            "1979-05-27",
            "0x10",
            "\"\"\"",
            "'a'",
            "99999999999999999999"
        ])
        .prop_map(str::to_owned),
    ];
    let line = (name, prop::sample::select(vec![" = ", "=", " ", "\n", ".", " = \"", "#"]), value)
        .prop_map(|(name, between, value)| format!("{name}{between}{value}"));
    let text = prop_oneof![prop::collection::vec(line, 0..6).prop_map(|lines| lines.join("\n")), any::<String>(),];
    let config = ProptestConfig { cases: 2000, ..ProptestConfig::default() };
    proptest!(config, |(text in text)| {
        match tprop_cli::read_settings(&text) {
            Ok(toml) => prop_assert_eq!(tprop_cli::read_settings(&toml), Ok(toml)),
            Err(why) => prop_assert!(why.len() > 10 && !why.contains('\n'), "{}", why),
        }
    });
    let place = Place::new();
    place.write("large.toml", "a = 1\n".repeat(100_000));
    place.run(&["train", "--config", "large.toml"]).refused(2, "600000 bytes");
}

//! Reports: what they say is what the records say, whatever the names and texts, and whatever is broken.

mod common;

use std::fs;
use std::path::Path;

use common::{Place, small};

/// A run that was never trained: its settings in full, and a record with these validation perplexities.
fn fake(place: &Place, name: &str, settings: &[&str], perplexities: &[f64]) {
    let dir = place.join(name);
    fs::create_dir_all(&dir).expect("made");
    let toml = place.run(&[&["train", "--print-settings"], settings].concat()).ok().out;
    fs::write(dir.join("settings.toml"), toml).expect("written");
    let mut record = String::from(
        "{\"event\":\"start\",\"format\":1,\"version\":\"0\",\"simd\":\"scalar\",\"real\":\"f32\",\"threads\":1,\"ranks\":1,\"parameters\":1234,\"train_tokens\":900,\"updates_per_epoch\":10,\"vocab\":50,\"corpus\":\"c\",\"best_possible\":{\"valid\":5.5,\"test\":5.25}}\n",
    );
    for (i, x) in perplexities.iter().enumerate() {
        let (epoch, step) = (i + 1, (i + 1) * 10);
        record += &format!(
            "{{\"event\":\"step\",\"epoch\":{epoch},\"step\":{step},\"tokens\":{step}00,\"seconds\":{epoch},\"nats\":2.5,\"norm\":1,\"rate\":0.1,\"tokens_per_s\":100}}\n"
        );
        record += &format!(
            "{{\"event\":\"eval\",\"epoch\":{epoch},\"step\":{step},\"tokens\":{step}00,\"seconds\":{epoch},\"train_ppl\":{x},\"window_ppl\":{x},\"valid_ppl\":{x},\"rate\":0.1,\"best\":true,\"window_ppl_by_position\":[{x},{x}]}}\n"
        );
    }
    let best = perplexities.iter().copied().fold(f64::INFINITY, f64::min);
    record += &format!(
        "{{\"event\":\"end\",\"reason\":\"epochs\",\"epoch\":9,\"step\":90,\"tokens\":9000,\"seconds\":9,\"best_epoch\":1,\"best_valid_ppl\":{best},\"test_ppl\":{best}}}\n"
    );
    fs::write(dir.join("record.jsonl"), record).expect("written");
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path.as_ref()).unwrap_or_else(|e| panic!("{}: {e}", path.as_ref().display()))
}

/// The cell of a CSV file in the row that begins with `row`.
fn csv_cell(text: &str, row: &str, column: &str) -> String {
    let at = text.lines().next().expect("a head").split(',').position(|c| c == column).expect(column);
    let line = text.lines().find(|l| l.split(',').next() == Some(row)).unwrap_or_else(|| panic!("{row} in {text}"));
    line.split(',').nth(at).expect("a cell").to_owned()
}

#[test]
fn a_report_says_what_the_records_say() {
    let place = Place::new();
    place.run(&small(&["--run", "runs/a", "--quiet"])).ok();
    let reach = ["--preset", "reach", "--blocks", "4", "--block", "5", "optim.lr=0.1", "train.threads=1"];
    place.run(&small(&[&["--run", "runs/b", "--quiet"], &reach[..]].concat())).ok();
    let json = place.run(&["report", "runs", "--json"]).ok().json();
    assert_eq!((json["runs"].as_u64(), json["problems"].as_array().map(Vec::len)), (Some(2), Some(0)));
    for file in json["files"].as_array().unwrap() {
        assert!(place.join(file.as_str().unwrap()).is_file(), "{file}");
    }
    let (page, markdown) = (read(place.join("runs/report.html")), read(place.join("runs/report.md")));
    let results = read(place.join("runs/report/results.csv"));
    for run in ["a", "b"] {
        let record = read(place.join("runs").join(run).join("record.jsonl"));
        let events: Vec<serde_json::Value> = record.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        let end = events.iter().find(|e| e["event"] == "end").unwrap();
        let best = end["best_valid_ppl"].as_f64().unwrap();
        assert_eq!(csv_cell(&results, run, "best_valid_ppl").parse(), Ok(best));
        assert_eq!(csv_cell(&results, run, "test_ppl").parse(), Ok(end["test_ppl"].as_f64().unwrap()));
        let possible = events[0]["best_possible"]["valid"].as_f64().unwrap();
        assert!(possible > 1.0 && possible < best);
        for text in [&page, &markdown] {
            assert!(text.contains(&format!("{best:.2}")) && text.contains(&format!("{possible:.2}")), "{run}");
        }
        let sample = read(place.join("runs").join(run).join("sample.txt"));
        let line = sample.lines().max_by_key(|l| l.len()).unwrap();
        assert!(line.len() > 10 && page.contains(line) && markdown.contains(line), "{sample}");
        let evals = read(place.join("runs/report/evaluations.csv"));
        assert_eq!(evals.lines().filter(|l| l.starts_with(&format!("{run},"))).count(), 2);
    }
    assert_eq!(csv_cell(&results, "a", "residual_relative"), "");
    for plot in ["valid-ppl", "train-ppl", "loss", "residual", "state-move", "positions", "comparison"] {
        assert!(page.contains(&format!("<figure id=\"plot-{plot}\">")), "{plot}");
        let svg = read(place.join("runs/report").join(format!("{plot}.svg")));
        assert!(svg.starts_with("<svg") && svg.contains("<title>") && svg.contains("prefers-color-scheme"), "{plot}");
        assert!(markdown.contains(&format!("(report/{plot}.svg)")), "{plot}");
    }
    // The same again, byte for byte, beside one run alone.
    place.run(&["report", "runs"]).ok();
    assert_eq!(page, read(place.join("runs/report.html")));
    let ran = place.run(&["report", "runs/a"]).ok();
    assert!(ran.out.starts_with("runs/a/report.html: 1 run"), "{ran:?}");
    assert!(place.join("runs/a/report.md").is_file() && place.join("runs/a/report/valid-ppl.svg").is_file());
    assert!(!read(place.join("runs/a/report.html")).contains("plot-residual"));

    // The command that it prints makes the run again.
    let line = markdown.lines().find(|l| l.starts_with("tprop train") && l.contains("--run b")).unwrap();
    let words: Vec<&str> = line.split(' ').skip(1).map(|w| if w == "b" { "again" } else { w }).collect();
    assert!(!line.contains("btprop.block=20") && !line.contains("model.embed") && !line.contains("threads"), "{line}");
    place.run(&[&words[..], &["--quiet"]].concat()).ok();
    let evals = |run: &str| -> Vec<String> {
        let record = read(place.join(run).join("record.jsonl"));
        let events = record.lines().map(|l| serde_json::from_str::<serde_json::Value>(l).unwrap());
        events.filter(|e| e["event"] == "eval").map(|e| e["valid_ppl"].to_string()).collect()
    };
    assert_eq!(evals("runs/b"), evals("again"));
}

/// Markdown without its fenced blocks.
fn without_code(markdown: &str) -> String {
    let mut fence: Option<&str> = None;
    let mut kept = String::new();
    for line in markdown.lines() {
        match fence {
            Some(open) if line == open => fence = None,
            Some(_) => {}
            None if line.starts_with("```") => fence = Some(line.trim_end_matches("text")),
            None => kept += &format!("{line}\n"),
        }
    }
    assert_eq!(fence, None, "a block is left open");
    kept
}

#[test]
fn nothing_from_outside_is_obeyed() {
    let place = Place::new();
    let name = "all/<img src=x onerror=alert(1)>\u{202e}\u{1b}[31m'\"&`|";
    fake(&place, name, &["synth.vocab=60"], &[30.0, 20.0]);
    fake(&place, "all/plain", &["synth.vocab=70"], &[31.0, 21.0]);
    let dir = place.join(name);
    let text = "</pre><script>alert(2)</script>\u{1b}]0;owned\u{7} ``` \u{2067}\u{200f}rtl\n```\n# heading\n";
    fs::write(dir.join("sample.txt"), text).unwrap();
    let settings = read(dir.join("settings.toml"));
    let hostile =
        settings.replace("source = \"built-in\"", "source = \"</style><script>alert(3)</script>\\u202e\\u001b=1\"");
    assert_ne!(settings, hostile);
    fs::write(dir.join("settings.toml"), hostile).unwrap();
    let record = read(dir.join("record.jsonl"))
        .replace("\"reason\":\"epochs\"", "\"reason\":\"<script>alert(4)</script>\\u001b[0m\"");
    fs::write(dir.join("record.jsonl"), record).unwrap();
    let ran = place.run(&["report", "all", "--out", "out", "--title", "<script>alert(5)</script>\u{1b}\u{202e}"]).ok();
    let mut seen = 0;
    for file in place.files().iter().filter(|f| f.starts_with("out/") && place.join(f).is_file()) {
        let text = read(place.join(file));
        let raw = text.contains(['\u{1b}', '\u{7}', '\u{202e}', '\u{2067}', '\u{200f}']);
        assert!(!raw, "{file}");
        // CSV is no markup, nor is code in Markdown; everything else must hold only ours.
        let text = if file.ends_with(".md") { without_code(&text) } else { text };
        if !file.ends_with(".csv") {
            assert!(!text.contains("<img") && !text.contains("<script>alert"), "{file}");
            seen += usize::from(text.contains("&lt;img src=x onerror=alert(1)&gt;"));
        }
    }
    assert!(seen > 3, "the name is shown in {seen} files");
    let page = read(place.join("out/report.html"));
    for i in 2..=5 {
        assert!(page.contains(&format!("&lt;script&gt;alert({i})&lt;/script&gt;")), "{i}");
    }
    assert_eq!((page.matches("<script>").count(), page.matches("</script>").count()), (1, 1));
    assert!(read(place.join("out/report.md")).contains("````text"), "the fence is longer than the one inside");
    assert!(!ran.err.contains('\u{1b}') && !ran.out.contains('\u{1b}'), "{ran:?}");
    // Nothing is fetched from anywhere.
    for word in ["http://", "https://", "url(", "@import", "src="] {
        let at = page.replace("http://www.w3.org/2000/svg", "").replace("&lt;img src=x", "");
        assert!(!at.contains(word), "{word}");
    }
}

#[test]
fn what_is_broken_is_named_and_the_rest_shown() {
    let place = Place::new();
    for name in ["good", "bad-line", "no-settings", "no-record", "odd-settings", "cut"] {
        fake(&place, &format!("all/{name}"), &[], &[30.0, 20.0]);
    }
    let lines = read(place.join("all/bad-line/record.jsonl"));
    let mut lines: Vec<&str> = lines.lines().collect();
    lines[1] = "{\"event\":\"step\",";
    lines.insert(3, "[1]");
    lines.insert(4, "{\"event\":\"eval\",\"epoch\":1,\"step\":10}");
    lines.insert(5, "\u{0}\u{0}");
    lines.insert(6, "nonsense");
    fs::write(place.join("all/bad-line/record.jsonl"), lines.join("\n") + "\n").unwrap();
    fs::remove_file(place.join("all/no-settings/settings.toml")).unwrap();
    fs::remove_file(place.join("all/no-record/record.jsonl")).unwrap();
    fs::create_dir(place.join("all/no-record/checkpoints")).unwrap();
    let settings = read(place.join("all/odd-settings/settings.toml")).replace("hidden =", "hiden =");
    fs::write(place.join("all/odd-settings/settings.toml"), settings).unwrap();
    let record = read(place.join("all/cut/record.jsonl"));
    fs::write(place.join("all/cut/record.jsonl"), &record[..record.len() - 20]).unwrap();

    let ran = place.run(&["report", "all"]).ok();
    let page = read(place.join("all/report.html"));
    for expected in [
        "bad-line/record.jsonl: line 2: EOF while parsing",
        "bad-line/record.jsonl: line 4: invalid type",
        "bad-line/record.jsonl: line 5: missing field",
        "bad-line/record.jsonl: more such lines; left out",
        "no-settings/settings.toml: settings cannot be read",
        "no-record/record.jsonl: cannot be read",
        "odd-settings/settings.toml: line ",
        "did you mean model.hidden",
    ] {
        assert!(ran.err.contains(expected), "{expected:?} not in {}", ran.err);
        assert!(page.contains(expected), "{expected:?} not in the page");
    }
    // A last line without an end is what a killed run leaves; it is no reason to worry anybody.
    assert!(!ran.err.contains("cut/record.jsonl"), "{}", ran.err);
    let results = read(place.join("all/report/results.csv"));
    for name in ["good", "bad-line", "no-settings", "odd-settings", "cut"] {
        assert_eq!(csv_cell(&results, name, "best_valid_ppl"), "20", "{name}");
    }
    assert_eq!(csv_cell(&results, "no-record", "best_valid_ppl"), "");
    assert_eq!(csv_cell(&results, "cut", "ended"), "not ended");
    assert!(read(place.join("all/report.md")).contains("--config all/odd-settings/settings.toml"));
}

#[test]
fn refusals_leave_nothing() {
    let place = Place::new();
    fs::create_dir_all(place.join("empty/deep")).unwrap();
    fake(&place, "x/one", &[], &[20.0]);
    fake(&place, "y/two", &[], &[20.0]);
    place.write("file", "x");
    let before = place.files();
    place.run(&["report", "nowhere"]).refused(2, "nowhere: there is no such run or folder");
    place.run(&["report", "x", "nowhere", "--out", "out"]).refused(2, "no such run");
    place.run(&["report", "file"]).refused(2, "not a directory");
    place.run(&["report", "empty"]).refused(2, "empty: no run in it");
    place.run(&["report", "x/one", "y/two"]).refused(2, "say by --out DIR");
    place.run(&["report", "x", "--out", "file"]).refused(5, "--out chooses another place");
    place.run(&["report", "x", "--out", "file/deep"]).refused(5, "cannot be written");
    assert_eq!(place.run(&["report"]).code, 2);
    assert_eq!(place.files(), before);
    // In one folder, and twice the same.
    place.run(&["report", "x/one", "x/one/", "x"]).refused(2, "say by --out");
    let json = place.run(&["report", "x/one", "./x/one", "x", "y/two", "--out", "out", "--json"]).ok().json();
    assert_eq!(json["runs"], 2);
}

#[test]
fn seeds_become_means_with_deviations_and_settings_become_axes() {
    let place = Place::new();
    for hidden in ["8", "16", "32"] {
        for seed in ["1", "2", "3"] {
            let x = 100.0 / hidden.parse::<f64>().unwrap() + 10.0 + seed.parse::<f64>().unwrap();
            let (h, s) = (format!("model.hidden={hidden}"), format!("train.seed={seed}"));
            let threads = format!("train.threads={seed}");
            fake(&place, &format!("sizes/h{hidden}-s{seed}"), &[&h, &s, &threads], &[x + 5.0, x]);
        }
    }
    place.run(&["report", "sizes"]).ok();
    let groups = read(place.join("sizes/report/groups.csv"));
    assert_eq!(groups.lines().count(), 4, "{groups}");
    assert_eq!(csv_cell(&groups, "h8", "best_valid_ppl"), "24.5");
    assert_eq!(csv_cell(&groups, "h8", "best_valid_ppl_deviation"), "1");
    let page = read(place.join("sizes/report.html"));
    assert!(page.contains("plot-figure") && !page.contains("plot-heat") && !page.contains("plot-parallel"));
    assert!(page.contains("model.hidden 16: 18.25 ± 1.00 (3 seeds)"), "hover value");
    assert!(page.contains("epoch 1: validation 29.50 ± 1.000 (3 seeds)"), "hover value of the curve");
    assert_eq!(read(place.join("sizes/report/figure.svg")).matches("class=\"bar\"").count(), 9);

    // Two numbers: a map; a third setting: parallel coordinates too. One place of the grid is missing.
    for lr in ["0.05", "0.1", "0.2"] {
        for hidden in ["8", "16"] {
            for cell in ["gru", "lstm"] {
                let (l, h, c) =
                    (format!("optim.lr={lr}"), format!("model.hidden={hidden}"), format!("model.cell={cell}"));
                let x = lr.parse::<f64>().unwrap() * 10.0 + hidden.parse::<f64>().unwrap();
                if (lr, hidden, cell) != ("0.2", "16", "lstm") {
                    fake(&place, &format!("grid/{lr}-{hidden}-{cell}"), &[&l, &h, &c], &[x]);
                }
            }
        }
    }
    place.run(&["report", "grid"]).ok();
    let page = read(place.join("grid/report.html"));
    assert!(page.contains("plot-heat-1") && page.contains("plot-heat-2") && page.contains("plot-parallel"));
    let (full, gap) = (read(place.join("grid/report/heat-1.svg")), read(place.join("grid/report/heat-2.svg")));
    assert_eq!((full.matches("class=\"pt cell").count(), full.matches("class=\"empty\"").count()), (6, 0));
    assert_eq!((gap.matches("class=\"pt cell").count(), gap.matches("class=\"empty\"").count()), (5, 1));
    assert!(full.contains("lr 0.1, hidden 16\n17.00") || full.contains("hidden 16, lr 0.1\n17.00"), "{full}");
    assert_eq!(read(place.join("grid/report/parallel.svg")).matches("class=\"pt thread").count(), 11);
}

#[test]
fn a_run_leaves_one_event_file() {
    let place = Place::new();
    place.run(&small(&["--run", "r", "--quiet"])).ok();
    let events: Vec<String> = place.files().into_iter().filter(|f| f.contains("events.out.tfevents")).collect();
    assert_eq!(events.len(), 1, "{events:?}");
    // A frame for the version, each step event, each evaluation and the end.
    let record = read(place.join("r/record.jsonl"));
    let told =
        record.lines().filter(|l| ["step", "eval", "end"].iter().any(|e| l.contains(&format!("\"event\":\"{e}\""))));
    let bytes = fs::read(place.join(&events[0])).unwrap();
    let (mut at, mut frames) = (0, 0);
    while at < bytes.len() {
        at += u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize + 16;
        frames += 1;
    }
    assert_eq!((at, frames), (bytes.len(), told.count() + 1));
}

#[test]
fn an_experiment_brings_its_tables_and_names() {
    let place = Place::new();
    for (seed, x) in [("1", 7.0), ("2", 7.5)] {
        fake(&place, &format!("o/runs/long-{seed}"), &[&format!("train.seed={seed}")], &[9.0, x]);
    }
    fake(&place, "o/runs/short", &["optim.lr=0.3"], &[42.5]);
    let table = r#"{"title": "T", "asks": "Is <it> so?", "command": "tprop reproduce x",
        "tables": [{"title": "Part one", "header": ["", "B = 5"], "rows": [["a <b>row</b>", "7.25 ± 0.35 (paper 7.00)"]], "notes": ["A note."]}],
        "names": {"long-1": "a <b>row</b>", "long-2": "a <b>row</b>"}}"#;
    place.write("o/table.json", table);
    place.run(&["report", "o"]).ok();
    let (page, text) = (read(place.join("o/report.html")), read(place.join("o/report.md")));
    for wanted in ["Part one", "7.25 ± 0.35 (paper 7.00)", "A note.", "tprop reproduce x", "1 short trials"] {
        assert!(page.contains(wanted) && text.contains(wanted), "{wanted}");
    }
    assert!(
        page.contains("a &lt;b&gt;row&lt;/b&gt;") && !page.contains("<b>row") && page.contains("Is &lt;it&gt; so?")
    );
    let groups = read(place.join("o/report/groups.csv"));
    assert_eq!(csv_cell(&groups, "a <b>row</b>", "best_valid_ppl"), "7.25");
    assert!(!text.contains("42.5") && !page.contains("42.50"), "the short trial is no result");

    // Whatever is wrong with it is told, and the runs are shown without it.
    for (broken, why) in
        [("{", "not readable"), (&table.replace("\"B = 5\"", "\"B\", \"C\"")[..], "not as long as its heading")]
    {
        place.write("o/table.json", broken);
        let ran = place.run(&["report", "o"]).ok();
        assert!(ran.err.contains("table.json") && ran.err.contains(why), "{ran:?}");
        assert!(read(place.join("o/report.md")).contains("42.5"));
    }
}

#[test]
fn what_an_older_report_left_is_gone() {
    let place = Place::new();
    fake(&place, "runs/a", &["optim.lr=0.1"], &[9.0, 8.0]);
    fake(&place, "runs/b", &["optim.lr=0.2"], &[9.0, 7.0]);
    place.run(&["report", "runs"]).ok();
    place.write("runs/report/mine.txt", "not of the report");
    place.write("runs/report/mine.svg", "nor this");
    let listed = || -> Vec<String> {
        let names = fs::read_dir(place.join("runs/report")).unwrap().map(|e| e.unwrap().file_name());
        names.map(|name| name.into_string().unwrap()).collect()
    };
    assert!(listed().contains(&"differences.csv".to_owned()), "{:?}", listed());
    fs::remove_dir_all(place.join("runs/b")).unwrap();
    let json = place.run(&["report", "runs", "--json"]).ok().json();
    let files = json["files"].as_array().unwrap();
    let own = ["mine.txt", "mine.svg", "files.txt"];
    for name in listed().iter().filter(|name| !own.contains(&name.as_str())) {
        assert!(files.iter().any(|f| f.as_str().unwrap().ends_with(name)), "{name}");
    }
    assert!(own.iter().all(|name| listed().contains(&(*name).to_owned())));
}

#[test]
fn what_is_not_ours_is_not_replaced() {
    let place = Place::new();
    fake(&place, "runs/a", &["optim.lr=0.1"], &[9.0, 8.0]);
    fs::create_dir_all(place.join("thesis/report")).unwrap();
    for name in ["report.md", "report.html", "report/results.csv"] {
        let path = format!("thesis/{name}");
        place.write(&path, "my own");
        let before = place.files();
        place.run(&["report", "runs", "--out", "thesis"]).refused(2, "no report of tprop has written it");
        assert_eq!(place.files(), before);
        assert_eq!(fs::read_to_string(place.join(&path)).unwrap(), "my own");
        fs::remove_file(place.join(&path)).unwrap();
    }
    place.run(&["report", "runs", "--out", "thesis"]).ok();
    place.run(&["report", "runs", "--out", "thesis"]).ok();
}

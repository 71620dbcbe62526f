//! `plan`: what a cluster would give.

use serde_json::json;
use tprop::comm::{Comm, Counted, gather};
use tprop::model::Model;
use tprop::train::{Data, TrainConfig, Trainer};
use tprop_report::table::{Table, numbers};

use crate::args;
use crate::cluster::{Cluster, SHARES};
use crate::console::{self, bytes, grouped};
use crate::failure::{Failure, Outcome};
use crate::measure::{self, Until, measure, update};
use crate::plan::{Network, Rates, Row, Work, calibrate, predict, turning_point};
use crate::prepare::{self, Sizes};
use crate::settings::Settings;

/// Predicts, or with `--measure` times passes.
pub fn plan(args: &args::Plan) -> Outcome {
    let sources = args::sources(&args.words, &args.settings, None)?;
    let settings = Settings::resolve(&sources)?;
    let cluster = Cluster::join()?;
    cluster.all_do_the_same();
    prepare::machine(cluster.threads(settings.threads()), settings.simd())?;
    let corpus = if args.tokens.is_none() { Some(prepare::corpus(&settings, true)?) } else { None };
    let (tokens, vocab) = match &corpus {
        Some(corpus) => (corpus.train.len(), corpus.vocab.len()),
        None => (args.tokens.unwrap_or(0) as usize, settings.bench_vocab()),
    };
    let model = Model::<f32>::new(settings.model(vocab));
    let config = settings.train();
    // Under a launcher and for a plan of several ranks sums are made in as many shares as a run there would use.
    let shares = settings.shares().unwrap_or(SHARES.max(cluster.comm().size()));
    if args.measure > 0 {
        let comm = cluster.in_so_many(shares)?;
        let sizes = Sizes { tokens, bytes: tokens.saturating_mul(4), ranks: comm.size() };
        let timed = prepare::check_memory(prepare::memory(&settings, &model, sizes))
            .and_then(|()| time_passes(&config, &model, &comm, tokens, args.measure as usize));
        // What one rank cannot do, the others would wait for.
        let timed = timed.unwrap_or_else(|failure| cluster.fail(failure));
        return if cluster.serves() { Ok(()) } else { console::line(timed) };
    }
    prepare::check_memory(prepare::memory(&settings, &model, Sizes { tokens: 0, bytes: 0, ranks: 1 }))?;
    cluster.refuse_several("plan")?;
    let text: Vec<u32> = match &corpus {
        Some(corpus) => corpus.train.iter().take(100_000).collect(),
        None => measure::text(tokens.min(100_000), vocab),
    };
    let work = Work::new(&config.method, &model, shares, tokens, &text).map_err(Failure::input)?;
    let network =
        Network { bandwidth: args.bandwidth * 1e9 / 8.0, latency: args.latency * 1e-6, overhead: args.overhead * 1e-6 };
    let rates = match args.rate {
        Some(rate) => Rates {
            seconds_per_token: 1.0 / rate,
            serial_seconds_per_token: args.serial_rate.map_or(0.0, |rate| 1.0 / rate),
            seconds_per_update: args.update * 1e-3,
            seconds_per_byte: 3e-10,
        },
        None => calibrate(&config, &model, &work, tokens)?,
    };
    let rows: Vec<Row> = args.ranks.iter().filter_map(|&n| predict(&work, &rates, &network, n as usize)).collect();
    let best = turning_point(&work, &rates, &network);
    if args.json {
        return console::line(json!({
            "work": work, "rates": rates, "network": network, "rows": rows, "turning_point": best,
        }));
    }
    let mut text = format!(
        "{} updates of {} tokens a pass; {} of gradient; {} tokens/s on one rank, {:.1} ms an update\n\n",
        grouped((work.windows * work.reductions) as u64),
        grouped(work.tokens as u64),
        bytes((work.dense_bytes + work.sparse_bytes) as u64),
        grouped((1.0 / (rates.seconds_per_token + rates.serial_seconds_per_token)) as u64),
        rates.seconds_per_update * 1e3,
    );
    text += &table(&rows).terminal();
    if let Some(best) = best {
        text += &format!(
            "\nmore than {} ranks make a pass slower ({:.2} times as fast as one there)\n",
            grouped(best.ranks as u64),
            best.speed_up
        );
    }
    console::data(&text)
}

fn table(rows: &[Row]) -> Table {
    let share = |title: &str, part: fn(&Row) -> f64| {
        numbers(title, title, move |row: &Row| Some(100.0 * part(row) / row.seconds), |x| format!("{x:.1} %"))
    };
    let fields = vec![
        numbers("ranks", "ranks", |row: &Row| Some(row.ranks as f64), |n| n.to_string()),
        numbers("s/pass", "seconds", |row: &Row| Some(row.seconds), |x| format!("{x:.4}")),
        numbers("speed-up", "speed_up", |row: &Row| Some(row.speed_up), |x| format!("{x:.2}")),
        share("compute", |row| row.compute),
        share("serial", |row| row.serial),
        share("update", |row| row.update),
        share("reduce", |row| row.reduction),
        share("boundary", |row| row.boundaries),
        numbers("sent a rank", "bytes", |row: &Row| Some(row.bytes), |n| bytes(n as u64)),
        numbers("messages", "messages", |row: &Row| Some(row.messages), |n| grouped(n as u64)),
    ];
    Table::of("plan", "", fields, rows)
}

/// Times whole passes over a random text, on all ranks together; and what rank 0 sent in one of them.
fn time_passes(
    config: &TrainConfig,
    model: &Model<f32>,
    comm: &dyn Comm,
    tokens: usize,
    passes: usize,
) -> Outcome<serde_json::Value> {
    let text = measure::text(tokens, model.config().vocab);
    let counted = Counted::new(comm);
    let mut trainer = Trainer::new(model, Data::new(&text, &[], &[]), config.clone(), &counted)?;
    let per_pass = trainer.updates_per_epoch();
    // The first pass allocates and looks for the states. All ranks begin a pass together.
    let timed = measure(1, Until::Times(passes), || {
        gather(comm, Vec::new());
        counted.take_counts();
        (0..per_pass).try_fold(0, |sum, _| Ok(sum + update(&mut trainer)?))
    })?;
    let sent = counted.take_counts();
    let (bytes, messages) = sent.values().fold((0, 0), |sum, count| (sum.0 + count.bytes, sum.1 + count.messages));
    Ok(json!({"ranks": comm.size(), "seconds": timed.seconds, "bytes": bytes, "letters": messages}))
}

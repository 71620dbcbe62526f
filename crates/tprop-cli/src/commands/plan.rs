//! `plan`: what a cluster would give.

use serde_json::json;
use tprop::comm::Comm;
use tprop::model::Model;

use crate::args;
use crate::cluster::{Cluster, SHARES};
use crate::console::{self, bytes, grouped};
use crate::failure::{Failure, Outcome};
use crate::plan::{Network, Rates, Row, Work, calibrate, measure, predict, turning_point};
use crate::prepare::{self, Sizes};
use crate::settings::Settings;

/// Predicts, or with `--measure` times passes.
pub fn plan(args: &args::Plan) -> Outcome {
    let sources = args::sources(&args.words, &args.settings, None)?;
    let settings = Settings::resolve(&sources)?;
    let cluster = Cluster::join()?;
    cluster.all_do_the_same();
    prepare::machine(cluster.threads(settings.threads()), settings.simd())?;
    let (tokens, vocab, start) = match args.tokens {
        Some(tokens) => (tokens as usize, settings.bench_vocab(), Vec::new()),
        None => {
            let corpus = prepare::corpus(&settings, true)?;
            (corpus.train.len(), corpus.vocab.len(), corpus.train.iter().take(100_000).collect())
        }
    };
    let model = Model::<f32>::new(settings.model(vocab));
    let config = settings.train();
    // Under a launcher and for a plan of several ranks sums are made in as many shares as a run there would use.
    let shares = settings.shares().unwrap_or(SHARES.max(cluster.comm().size()));
    if args.measure > 0 {
        let comm = cluster.in_so_many(shares)?;
        let sizes = Sizes { tokens, bytes: tokens.saturating_mul(4), ranks: comm.size() };
        let measured = prepare::check_memory(prepare::memory(&settings, &model, sizes))
            .and_then(|()| measure(&config, &model, &comm, tokens, args.measure as usize));
        // What one rank cannot do, the others would wait for.
        let measured = measured.unwrap_or_else(|failure| cluster.fail(failure));
        return if cluster.serves() { Ok(()) } else { console::line(json!(measured)) };
    }
    prepare::check_memory(prepare::memory(&settings, &model, Sizes { tokens: 0, bytes: 0, ranks: 1 }))?;
    cluster.refuse_several("plan")?;
    let start = if start.is_empty() { crate::plan::text(tokens.min(100_000), vocab) } else { start };
    let work = Work::new(&config.method, &model, shares, tokens, &start).map_err(Failure::input)?;
    let network =
        Network { bandwidth: args.bandwidth * 1e9 / 8.0, latency: args.latency * 1e-6, overhead: args.overhead * 1e-6 };
    let rates = match (args.rate, args.update) {
        (Some(rate), update) => Rates {
            seconds_per_token: 1.0 / rate,
            serial_seconds_per_token: args.serial_rate.map_or(0.0, |rate| 1.0 / rate),
            seconds_per_update: update * 1e-3,
            seconds_per_byte: 3e-10,
        },
        (None, _) => calibrate(&config, &model, shares, tokens)?,
    };
    let rows: Vec<Row> = args.ranks.iter().filter_map(|&n| predict(&work, &rates, &network, n as usize)).collect();
    let best = turning_point(&work, &rates, &network);
    if args.json {
        return console::line(json!({
            "work": work, "rates": rates, "network": network, "rows": rows, "turning_point": best,
        }));
    }
    console::data(&table(&work, &rates, &rows, best))
}

fn table(work: &Work, rates: &Rates, rows: &[Row], best: Option<Row>) -> String {
    let mut text = format!(
        "{} updates of {} tokens a pass; {} of gradient; {} tokens/s on one rank, {:.1} ms an update\n\n",
        grouped((work.windows * work.reductions) as u64),
        grouped(work.tokens as u64),
        bytes((work.dense_bytes + work.sparse_bytes) as u64),
        grouped((1.0 / (rates.seconds_per_token + rates.serial_seconds_per_token)) as u64),
        rates.seconds_per_update * 1e3,
    );
    text +=
        "ranks      s/pass   speed-up   compute    serial    update    reduce  boundary      sent a rank   letters\n";
    for row in rows {
        let share = |part: f64| format!("{:.1} %", 100.0 * part / row.seconds);
        text += &format!(
            "{:>5} {:>11.4} {:>10.2} {:>9} {:>9} {:>9} {:>9} {:>9} {:>16} {:>9}\n",
            row.ranks,
            row.seconds,
            row.speed_up,
            share(row.compute),
            share(row.serial),
            share(row.update),
            share(row.reduction),
            share(row.boundaries),
            bytes(row.bytes as u64),
            grouped(row.letters as u64),
        );
    }
    if let Some(best) = best {
        text += &format!(
            "\nmore than {} ranks make a pass slower ({:.2} times as fast as one there)\n",
            grouped(best.ranks as u64),
            best.speed_up
        );
    }
    text
}
